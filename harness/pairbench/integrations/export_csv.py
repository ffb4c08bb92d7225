"""Records as CSV: the columns of the store, a row a record, lists and objects as JSON."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from pairbench.model.plain import plain
from pairbench.model.record import Record, columns


def csv_of(records: Sequence[Record]) -> str:
    """Return records as CSV with a header; what is null is empty."""
    names = list(columns(Record))
    rows = [[_cell(getattr(record, name)) for name in names] for record in records]
    # Objects, so that counts beside nulls stay whole numbers.
    text: str = pd.DataFrame(rows, columns=names, dtype=object).to_csv(index=False, lineterminator="\n")
    return text


def _cell(value: Any) -> Any:
    return json.dumps(plain(value)) if isinstance(value, tuple) else value
