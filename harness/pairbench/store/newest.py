"""The newest run of each series, found by opening as few files as that takes."""

from collections.abc import Collection

from pairbench.errors import StoreError, StoreFailedError
from pairbench.model.latency import p50_of
from pairbench.model.record import Record
from pairbench.model.series import Series
from pairbench.store.history import TREND_COLUMNS, read_series
from pairbench.store.location import StoreLocation
from pairbench.store.reading import stored_files

_COLUMNS = (*TREND_COLUMNS, "environment")
_STEPS = (4, 28, 168)
"""Files that are opened at a time, the newest first; a series that is in none of them is taken for new."""


class NewestRuns:
    """The newest run of each series. What was found once is found again at once, until the store has another file."""

    def __init__(self, place: StoreLocation) -> None:
        """Read nothing yet."""
        self._place = place
        self._newest_first: tuple[str, ...] = ()
        self._found: dict[Series, Record | None] = {}

    def of(self, wanted: Collection[Series]) -> dict[Series, Record]:
        """Return the newest measured record of each series that has one; a store that cannot be read has none."""
        try:
            newest_first = tuple(stored_files(self._place, "records").run_ids[::-1])
            if newest_first != self._newest_first:
                self._newest_first, self._found = newest_first, {}
            self._find({series for series in wanted if series not in self._found})
        except (StoreError, StoreFailedError, OSError):
            return {}
        known = ((series, self._found.get(series)) for series in wanted)
        return {series: record for series, record in known if record is not None}

    def _find(self, missing: set[Series]) -> None:
        begin = 0
        for step in _STEPS:
            run_ids = self._newest_first[begin : begin + step]
            if not missing or not run_ids:
                break
            begin += step
            where = {name: {getattr(one, name) for one in missing} for name in ("device_name", "case")}
            rows, _ = read_series(self._place, where=where, columns=_COLUMNS, run_ids=run_ids)
            # The oldest first, so that the newest stays.
            found = {series: row for row in rows if (series := Series.of(row)) and p50_of(row) is not None}
            self._found |= {series: row for series, row in found.items() if series in missing}
            missing = missing - self._found.keys()
        self._found |= dict.fromkeys(missing)
