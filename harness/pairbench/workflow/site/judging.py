"""Judges runs for the site as `pairbench compare` does, the newest first, as far as that takes little time."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from pairbench.analyze.site.pairs import RunKey, overlapping, run_verdicts
from pairbench.errors import StoreError
from pairbench.model.comparison import Change
from pairbench.model.series import Series
from pairbench.model.site import RunHead, RunVerdicts
from pairbench.workflow.compare.comparer import Comparer

_COMPARED = 6
"""The number of newest runs that are compared with their references; series whose newest run is another one are
judged by their history."""
_SHORT, _LATEST = 40, 12
"""The latest `_LATEST` runs of a store of at most `_SHORT` are all compared; a longer history shows what lasted as
levels."""
_SERIES = 2_000
"""The number of series that are judged in all. Some 2,000 take a second."""
_RUNS = 40
"""The number of runs that are judged: each takes a while to be read, however small it is."""


def compared(
    comparer: Comparer, heads: Collection[RunHead], newest: Mapping[Series, str]
) -> defaultdict[Series, list[Change]]:
    """Return what comparisons of the newest runs with their references say of each series, the oldest run first.

    Args:
        comparer: of the store.
        heads: all runs.
        newest: the newest run of each series.
    """
    confirms = {head.run_id: head.confirms for head in heads}
    wanted = Counter(confirms[run_id] or run_id for run_id in newest.values())
    chosen = {run_id for run_id, _ in wanted.most_common(_COMPARED)}
    own = sorted(run_id for run_id, confirmed in confirms.items() if confirmed is None)
    if len(own) <= _SHORT:
        chosen |= set(own[-_LATEST:])
    changes: defaultdict[Series, list[Change]] = defaultdict(list)
    for run_id in sorted(chosen):
        with contextlib.suppress(StoreError):  # a run that confirms one which is not in the store
            for change in comparer.compare(current=run_id).comparison.changes:
                if change.current_runs:
                    changes[change.series].append(change)
    return changes


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
