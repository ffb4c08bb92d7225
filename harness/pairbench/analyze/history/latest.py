"""What the newest run of a series means: on its level or off it, the likely cause, and so whether it is a regression."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pairbench.analyze.compare.accepted import AcceptedLevel
from pairbench.analyze.compare.attribute import outcome_of_move
from pairbench.analyze.compare.rounds import latency_of_runs
from pairbench.analyze.history.changepoint import MIN_RUNS, Changepoint
from pairbench.analyze.history.moves import Move, cause_of, lines_of, shift
from pairbench.analyze.history.off_level import NewestRuns, judge_newest
from pairbench.analyze.history.points import SeriesPoint
from pairbench.model.comparison import Attribution, GateOutcome, Verdict
from pairbench.model.outcome import Status
from pairbench.model.policy import DEFAULT, Policy
from pairbench.stats import Interval

_NEWS = 2 * MIN_RUNS
"""The number of runs for which a new level is news: half of them it takes to be seen."""


@dataclass(frozen=True, kw_only=True)
class Latest:
    """The verdict of the newest run."""

    index: int
    outcome: GateOutcome
    verdict: Verdict | None = None
    """What the latency says; None where there is no latency to judge."""
    change: float | None = None
    """The median latency of the newest run over its level, or the new level over the one before; 1.02 is 2 % slower."""
    attribution: Attribution | None = None
    reason: str


def latest(
    points: Sequence[SeriesPoint],
    first: int,
    moves: Sequence[Move],
    own: Sequence[Changepoint],
    *,
    floor: float | None = None,
    policy: Policy = DEFAULT,
) -> Latest:
    """Return what the newest point says.

    Args:
        points: of one series, at least one.
        first: index at which the newest definition begins.
        moves: of the series, oldest first.
        own: changepoints of the latency since `first`, indices counted from there.
        floor: noise floor in log units, where it is known.
        policy: the minimum effect, and how much of a change a control must share.
    """
    index = len(points) - 1
    record = points[index].record
    if points[index].p50 is None:
        bad = record.status not in (Status.MEASURED, Status.SKIPPED)
        return Latest(
            index=index,
            outcome=GateOutcome.FAILED if bad else GateOutcome.UNDECIDED,
            reason=f"{record.status}: {record.reason or 'no value was stored'}",
        )
    recent = next((move for move in reversed(moves) if move.index >= max(first, len(points) - _NEWS)), None)
    if recent is not None and abs(math.log(recent.own)) >= math.log1p(policy.minimum_effect):
        verdict = Verdict.SLOWER if recent.own > 1 else Verdict.FASTER
        return Latest(
            index=index,
            outcome=outcome_of_move(recent.own, recent.attribution),
            verdict=verdict,
            change=recent.own,
            attribution=recent.attribution,
            reason=f"on a new level since run {points[recent.index].record.run_id}: {recent.reason}",
        )
    here = points[first:]
    said = judge_newest(lines_of(here).own, own, floor=floor, minimum_effect=policy.minimum_effect)
    if said.verdict in (Verdict.SLOWER, Verdict.FASTER) and said.effect is not None:
        return _off_level(here, said.effect, said, own, index=index, policy=policy)
    outcome = GateOutcome.UNCHANGED if said.verdict is Verdict.SAME else GateOutcome.UNDECIDED
    if first and len(here) == 1:
        return Latest(index=index, outcome=GateOutcome.NEW, reason="the first run of a new definition")
    return Latest(index=index, outcome=outcome, verdict=said.verdict, change=said.effect, reason=said.reason)


def unless_accepted(said: Latest, points: Sequence[SeriesPoint], accepted: AcceptedLevel | None) -> Latest:
    """Return a slower newest run as unchanged where its level was accepted on purpose, or a slower one."""
    if accepted is None or said.verdict is not Verdict.SLOWER:
        return said
    last = points[said.index].record
    run_id = last.confirms or last.run_id
    # What measured the suspects of a run again is one with it, as in a comparison.
    together = [
        point.record for point in points if point.p50 and run_id in (point.record.run_id, point.record.confirms)
    ]
    metric = points[said.index].latency.p50
    if not accepted.covers(metric, latency_of_runs(together, metric), last.definition_hash):
        return said
    acceptance = accepted.acceptance
    reason = f"{said.reason}; accepted in {acceptance.run_id}: {acceptance.reason}"
    return replace(said, outcome=GateOutcome.UNCHANGED, reason=reason)


def _off_level(
    points: Sequence[SeriesPoint],
    effect: float,
    said: NewestRuns,
    own: Sequence[Changepoint],
    *,
    index: int,
    policy: Policy,
) -> Latest:
    """Return what it means that the newest runs are off their level."""
    measured = [at for at, point in enumerate(points) if point.p50]
    after, before = measured[-said.runs], measured[-said.runs - 1]
    start = own[-1].index if own else 0
    control = shift(lines_of(points).control, after, (start, len(points)))
    attribution, why = cause_of(Interval(effect, effect, effect), control, points[before], points[-1], policy)
    if said.runs == 1 and said.verdict is Verdict.SLOWER:
        outcome = GateOutcome.UNDECIDED
        told = "one run alone is a suspect: another one, or `pairbench run --confirm`, will tell"
    else:
        outcome = outcome_of_move(effect, attribution)
        told = "" if said.runs == 1 else f"{said.runs} runs in a row"
    reason = "; ".join(filter(None, [said.reason, told, why]))
    return Latest(
        index=index, outcome=outcome, verdict=said.verdict, change=effect, attribution=attribution, reason=reason
    )
