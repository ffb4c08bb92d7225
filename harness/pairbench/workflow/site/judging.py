"""Judges runs beside the earlier runs that they overlap with, as `pairbench compare` does, the newest first, as far as time allows."""

from collections.abc import Collection, Mapping

from pairbench.analyze.site.pairs import RunKey, overlapping, run_verdicts
from pairbench.errors import StoreError
from pairbench.model.series import Series
from pairbench.model.site import RunHead, RunVerdicts
from pairbench.workflow.compare.comparer import Comparer

_SERIES = 6_000
"""The number of series that are judged in all. Some 3,000 take a second."""
_RUNS = 40
"""The number of runs that are judged: each takes a while to be read, however small it is."""


def judged(
    comparer: Comparer, heads: Collection[RunHead], series: Mapping[RunKey, Collection[Series]]
) -> tuple[dict[RunKey, str], dict[RunKey, RunVerdicts]]:
    """Return the earlier run to hold each run against, and what judging the newest of them says."""
    pairs = overlapping(tuple(heads), series)
    verdicts: dict[RunKey, RunVerdicts] = {}
    left = _SERIES
    for key in sorted(pairs, reverse=True)[:_RUNS]:
        left -= len(series[key])
        if left < 0:
            break
        run_id, device_name = key
        try:
            changes = comparer.compare(reference=pairs[key], current=run_id).comparison.changes
        except StoreError:  # a file that cannot be read is named where the store is read
            continue
        verdicts[key] = run_verdicts(pairs[key], device_name, changes)
    return pairs, verdicts
