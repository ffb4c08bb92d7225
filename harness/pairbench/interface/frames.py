"""Rows of the harness as pandas frames."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pairbench.model.record import Record, Samples, columns

if TYPE_CHECKING:
    import pandas as pd

_LISTS = ("block", "position", "at_ns", "call_ns", "host_ns", "device_ns", "stream_ns", "throttled", "outlier")
"""The columns of samples that have a value for each."""


def frame_of(records: Sequence[Record]) -> "pd.DataFrame":
    """Return records as a frame with the store's columns, in its order."""
    import pandas as pd

    return pd.DataFrame([vars(record) for record in records], columns=list(columns(Record)))


def with_axes(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a frame with a column for each axis of its cases; an axis with the name of another column has none."""
    axes = [json.loads(text) if isinstance(text, str) else {} for text in frame["axes"]]
    names = [name for name in dict.fromkeys(name for one in axes for name in one) if name not in frame.columns]
    added: dict[str, Any] = {name: [_value(one.get(name)) for one in axes] for name in names}
    return frame.assign(**added)


def _value(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def samples_frame(samples: Sequence[Samples]) -> "pd.DataFrame":
    """Return one row a sample: of which series and round it is, and what it took in ns."""
    import pandas as pd

    names = list(columns(Samples))
    rows = pd.DataFrame([vars(one) for one in samples], columns=names)
    for name in ("host_ns", "device_ns", "stream_ns"):  # None where no sample of the round has that latency
        rows[name] = [
            list(values) if values is not None else [None] * len(calls)
            for values, calls in zip(rows[name], rows["call_ns"], strict=True)
        ]
    return rows.explode(list(_LISTS), ignore_index=True).infer_objects() if len(rows) else rows
