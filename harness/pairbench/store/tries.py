"""The last try of each series of a project, in the user's cache folder: what `pairbench try` compares with, and no history."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pairbench.model.latency import RESULT_COLUMNS
from pairbench.model.record import Record
from pairbench.model.series import COLUMNS as SERIES
from pairbench.model.series import Series
from pairbench.store.user_cache import KeptValues, user_folder

_KEPT = (
    *(name for name in SERIES if name not in RESULT_COLUMNS),
    *("started_at", "operator", "role", "status", "definition_hash", "implementation_hash", "environment_hash"),
    *RESULT_COLUMNS,
    *("launches_per_call", "kernels_per_call", "ops_per_call", "launch_status"),
)
"""The columns that are kept of a record."""
_MOST = 2000
"""Series of one project; a file of so many has some 2 MB."""


class LastTries:
    """The last tries of one project."""

    def __init__(self, root: Path, folder: Path | None = None) -> None:
        """Read nothing yet.

        Args:
            root: The project's folder.
            folder: Where such things are kept; the user's cache folder where it is not given.
        """
        name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
        self._values = KeptValues((folder or user_folder()) / "tries" / f"{name}.json", most=_MOST)

    def read(self) -> dict[Series, Record]:
        """Return the last try of each series; what is damaged is left out."""
        found = {}
        for values in self._values.read().values():
            record = _record(values)
            if record is not None and (series := Series.of(record)) is not None:
                found[series] = record
        return found

    def keep(self, records: Iterable[Record]) -> None:
        """Keep results as the last tries of their series."""
        values = {
            json.dumps(astuple(series)): {name: getattr(record, name) for name in _KEPT}
            for record in records
            if (series := Series.of(record))
        }
        self._values.keep(values)


def _record(values: dict[str, Any]) -> Record | None:
    """Return kept values as a record that lacks all other columns; nothing where one is not what it should be."""
    if set(values) != set(_KEPT) or not all(isinstance(values[name], kinds) for name, kinds in _types().items()):
        return None
    return Record(**values)


@cache
def _types() -> dict[str, tuple[type, ...]]:
    """Return the types that each kept column may have; a whole number may stand for any."""
    hints = get_type_hints(Record)
    found = {}
    for name in _KEPT:
        kinds = get_args(hints[name]) or (hints[name],)
        found[name] = (*kinds, int) if float in kinds else kinds
    return found
