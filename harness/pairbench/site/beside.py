"""What is said of a run on its page: its verdicts against the runs before it, and the earlier run that it can be seen beside."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from pairbench.model.comparison import Change, GateOutcome, Verdict
from pairbench.model.record import Series
from pairbench.model.site import RunHead, RunVerdicts
from pairbench.report import comparison_words as words

_ENOUGH = 0.5  # the part of a run's series that an earlier run has to share for none before it to be looked at
_BACK = 50  # the number of earlier runs that are looked at
_TOLD = (
    *(GateOutcome.FAILED, GateOutcome.REGRESSION, GateOutcome.MISSING, GateOutcome.IMPROVEMENT),
    GateOutcome.INCOMPARABLE,
)
"""Outcomes that a reader of a run is told of, in this order. What is proven slower or faster by the machine comes last; new series
stand by themselves; all else is noise or nothing."""

RunKey = tuple[str, str]  # a run and a device model


def overlapping(runs: Sequence[RunHead], series: Mapping[RunKey, Collection[Series]]) -> dict[RunKey, str]:
    """Return the earlier run to show each run beside: the newest that measured enough of the same series; confirmations are passed over."""
    found: dict[RunKey, str] = {}
    earlier: defaultdict[str, list[str]] = defaultdict(list)
    for head in sorted(runs, key=lambda head: (head.started_at, head.run_id)):
        if head.confirms is not None:
            continue
        own = frozenset(series.get((head.run_id, head.device_name), ()))
        best, most = None, 0
        for run_id in reversed(earlier[head.device_name][-_BACK:]):
            shared = len(own.intersection(series.get((run_id, head.device_name), ())))
            if shared > most:
                best, most = run_id, shared
            if shared >= _ENOUGH * len(own) > 0:
                break
        if best is not None:
            found[head.run_id, head.device_name] = best
        earlier[head.device_name].append(head.run_id)
    return found


def run_verdicts(device_name: str, changes: Sequence[Change], pages: Collection[RunKey]) -> RunVerdicts:
    """Return what a comparison of a run with those before it says of a device model, the worst and then the largest first.

    `pages` are the runs that have one.
    """
    here = [change for change in changes if change.series.device_name == device_name]
    shown = [change for change in here if change.outcome in _TOLD or change.verdict in (Verdict.SLOWER, Verdict.FASTER)]
    rank = {outcome: place for place, outcome in enumerate(_TOLD)}

    def size(change: Change) -> float:
        return abs(change.p50.change.estimate - 1) if change.p50 and change.p50.change else 0.0

    shown.sort(key=lambda change: (rank.get(change.outcome, len(rank)), -size(change), change.series))
    references = {run_id for change in here for run_id in change.reference_runs}
    counts = {outcome: sum(change.outcome is outcome for change in here) for outcome in GateOutcome}
    return RunVerdicts(
        references={run_id: (run_id, device_name) in pages for run_id in sorted(references)},
        changes=tuple(shown),
        new=tuple(sorted(change.series for change in here if change.outcome is GateOutcome.NEW)),
        counts={str(outcome): number for outcome, number in counts.items() if number},
        outcomes={change.series: str(change.outcome) for change in here},
        moves=tuple(words.moves(here)),
        era=tuple(words.eras(here)),
    )
