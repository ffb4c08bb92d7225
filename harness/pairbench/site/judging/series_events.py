"""What happened to one series: moves to new levels, counts that took another value, failures, and a newest run that is worse.

What became of a move: it lasts, a later run took it back, or something else took its place.

Sums of later moves tell, not the newest latency: what drifts slowly, and what an environment does to all alike, takes back
nothing that the code did.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pairbench.analyze.compare.attribute import era_changes, outcome_of_move
from pairbench.analyze.compare.exact import METRICS, AcceptedLevel, number
from pairbench.analyze.history.changepoint import MIN_RUNS
from pairbench.analyze.history.points import Move
from pairbench.analyze.history.steps import MARGINS, STATUS, Step
from pairbench.analyze.history.trend import Trend
from pairbench.model.comparison import DEFAULT, Attribution, Change, GateOutcome, Judgement, Policy
from pairbench.model.site import ATTENTION, CountStep, Moved


@dataclass(frozen=True, kw_only=True)
class MoveLife:
    """A move, and what became of it."""

    move: Move
    ended: int | None = None
    """Index among the points of the run in which it was no longer so; None while it lasts."""
    superseded: bool = False
    """Whether it ended because something else took its place: a new definition, or of a gain its loss."""


def lives_of(trend: Trend, policy: Policy = DEFAULT) -> tuple[MoveLife, ...]:
    """Return the moves of a series with what became of them, oldest first.

    A move of the control alone is left out, for the control's own series tells of it. So is one that does nothing but take an
    earlier one back, which is that one's end; a gain of the code's that is lost again is a regression, though.

    Args:
        trend: of the series.
        policy: the smallest change that counts.
    """
    moves = [move for move in trend.moves if move.attribution is not None]
    least = math.log1p(policy.minimum_effect)
    lives = [_life(move, moves[place + 1 :], trend.definitions, least) for place, move in enumerate(moves)]
    returns = {life.ended for life in lives if life.ended is not None and not life.superseded}
    return tuple(life for life in lives if life.move.index not in returns or not _only_returns(life, lives, least))


def _life(move: Move, later: Sequence[Move], definitions: Sequence[int], least: float) -> MoveLife:
    new = next((index for index in definitions if index > move.index), None)
    beside = [other for other in later if new is None or other.index < new]
    slower, code = move.size > 1, move.attribution is Attribution.CODE
    levels = itertools.accumulate((_of(other, move) for other in beside), initial=_of(move, move))
    ended = MoveLife(move=move) if new is None else MoveLife(move=move, ended=new, superseded=True)
    for other, level in zip(beside, list(levels)[1:], strict=True):
        gone = level < least if slower else level > -least
        if gone:
            lost = not slower and (code or other.attribution is Attribution.CODE)
            return MoveLife(move=move, ended=other.index, superseded=lost)
    return ended


def _of(other: Move, move: Move) -> float:
    """Return how far another move goes on the scale of one.

    Where the code was the cause, that is relative to the control; else what the control shares, for what the code did since takes
    nothing back of what a driver did.
    """
    if move.attribution is Attribution.CODE:
        return math.log(other.relative if other.relative is not None else other.own)
    return math.log(other.own if other is move or other.control is None else other.control)


def _only_returns(life: MoveLife, lives: Sequence[MoveLife], least: float) -> bool:
    """Return whether a move goes no further than back to where an earlier one began."""
    ended = [one.move for one in lives if one.ended == life.move.index and not one.superseded]
    first = ended[0]
    between = [one.move for one in lives if first.index <= one.move.index <= life.move.index]
    return abs(sum(_of(move, first) for move in between)) < least


_RECENT = 2 * MIN_RUNS
"""The number of runs for which a new level says the same as a worse newest run."""
_NEAR = 3
"""The number of runs within which a move of the latency is put where a count of the same series took another value."""
_AROUND = 30
"""The number of runs before and after a change that its small chart shows."""
_COUNTED = frozenset({*METRICS, *MARGINS, STATUS})
Key = tuple[str, str, str | None, str]
"""What one event has in common: kind, device model, the last run before and the first run after."""


@dataclass(frozen=True, kw_only=True)
class SeriesEvent:
    """What happened to one series; with what happened to others between the same runs it makes an event."""

    key: Key
    moved: Moved
    era: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A latency or a count of a series that moved, and what became of that."""

    outcome: GateOutcome
    worse: bool
    ended: int | None
    superseded: bool
    covered: bool
    """Whether it was accepted on purpose."""


def series_events(
    trend: Trend, changes: Iterable[Change] = (), accepted: AcceptedLevel | None = None
) -> tuple[SeriesEvent, ...]:
    """Return what happened to one series.

    Args:
        trend: its history.
        changes: what comparisons of runs of it with their references say of its latency. That of the newest run counts, unless a
            new level says the same; those of earlier ones only where the history is too short to have levels.
        accepted: the level of the series that was accepted on purpose, if there is one.
    """
    points = trend.points
    failures = [step for step in trend.steps if step.outcome is GateOutcome.FAILED]
    found = [_event(trend, "failed", None, [step], accepted) for step in failures]
    places: defaultdict[int, list[Step]] = defaultdict(list)
    for step in trend.steps:
        if step not in failures:
            places[step.index].append(step)
    moves: dict[int, MoveLife] = {}
    for life in lives_of(trend):
        near = [index for index in places if abs(index - life.move.index) <= _NEAR]
        moves[min(near, key=lambda index: abs(index - life.move.index), default=life.move.index)] = life
    found += [
        _event(trend, "moved", moves.get(index), places.get(index, []), accepted) for index in sorted({*moves, *places})
    ]
    told = bool(trend.moves) and trend.moves[-1].index >= len(points) - _RECENT
    short = len(points) < 2 * MIN_RUNS
    for change in changes:
        newest = bool(points) and points[-1].record.run_id in change.current_runs
        if (short or newest) and not told and _slower(change):
            _add_compared(found, trend, change)
    return tuple(found)


def _event(
    trend: Trend, kind: str, life: MoveLife | None, steps: Sequence[Step], accepted: AcceptedLevel | None
) -> SeriesEvent:
    """Return what moved at one run: the latency, counts, or both."""
    first = steps[0] if steps else None
    move = life.move if life is not None else None
    index = first.index if first else move.index if move else 0
    before = first.before if first else move.before if move else None
    now = trend.points[index].record
    then = trend.points[before].record if before is not None else None
    definition = now.definition_hash
    parts = [_of_step(step, accepted, definition) for step in steps]
    if life is not None:
        parts.append(_of_move(trend, life, accepted, definition))
    told = [*(step.reason for step in steps), *dict.fromkeys(step.why for step in steps)]
    moved = Moved(
        series=trend.series,
        outcome=GateOutcome.UNDECIDED,
        change=move.own if move else None,
        relative=move.relative if move else None,
        before_ns=move.before_ns if move else None,
        after_ns=move.after_ns if move else None,
        control=move.control if move else None,
        attribution=move.attribution if move and not steps else first.attribution if first else None,
        reason="; ".join(filter(None, [*told, move.reason if move else ""])),
        counts=tuple(
            CountStep(metric=step.metric, before=step.reference, after=step.current, reason=step.reason)
            for step in steps
        ),
    )
    start = max(0, index - _AROUND)
    history = _history(trend, None if life is not None or first is None else first.metric)
    moved = replace(moved, history=history[start : index + _AROUND], place=index - start)
    return SeriesEvent(
        key=(kind, trend.series.device_name, then.run_id if then else None, now.run_id),
        moved=_lived(moved, parts, trend, accepted),
        era=tuple(map(str, era_changes(then, now))) if then else (),
    )


def _history(trend: Trend, metric: str | None) -> tuple[float | None, ...]:
    """Return a count of each run, or its median latency in ns where no count is named, or only the status moved."""
    if metric is None or metric == STATUS:
        return tuple(point.p50.estimate if point.p50 else None for point in trend.points)
    return tuple(number(point.record, metric) for point in trend.points)


def _of_step(step: Step, accepted: AcceptedLevel | None, definition: str | None) -> _Part:
    value = step.current if isinstance(step.current, int | float) else None
    return _Part(
        outcome=step.outcome,
        worse=step.worse,
        ended=step.ended,
        superseded=step.superseded,
        covered=accepted is not None and accepted.covers(step.metric, value, definition),
    )


def _of_move(trend: Trend, life: MoveLife, accepted: AcceptedLevel | None, definition: str | None) -> _Part:
    move = life.move
    return _Part(
        outcome=outcome_of_move(move.size, move.attribution),
        worse=move.size > 1,
        ended=life.ended,
        superseded=life.superseded,
        covered=accepted is not None and accepted.covers(trend.latency.p50, move.after_ns, definition),
    )


def _lived(moved: Moved, parts: Sequence[_Part], trend: Trend, accepted: AcceptedLevel | None) -> Moved:
    """Return what moved with what became of it: of its parts those decide that last, and were not accepted."""
    lasting = [part for part in parts if part.ended is None]
    if not lasting:
        last = max(part.ended for part in parts if part.ended is not None)
        back = any(part.worse and not part.superseded for part in parts) or not any(part.superseded for part in parts)
        outcome = min((part.outcome for part in parts), key=ATTENTION.index)
        life = "recovered" if back else "superseded"
        return replace(moved, outcome=outcome, life=life, ended=trend.points[last].record.run_id)
    worse = [part for part in lasting if part.worse]
    if worse and accepted is not None and all(part.covered for part in worse):
        outcome = min((part.outcome for part in worse), key=ATTENTION.index)
        return replace(moved, outcome=outcome, life="accepted", accepted=accepted.acceptance.reason)
    return replace(moved, outcome=min((part.outcome for part in lasting), key=ATTENTION.index))


def _slower(change: Change) -> bool:
    """Return whether a comparison calls a latency a regression: of counts and statuses the steps of the history tell."""
    return change.outcome is GateOutcome.REGRESSION and any(_latencies(change))


def _latencies(change: Change) -> Iterator[Judgement]:
    return (
        said for said in change.judgements if said.outcome is GateOutcome.REGRESSION and said.metric not in _COUNTED
    )


def _add_compared(found: list[SeriesEvent], trend: Trend, change: Change) -> None:
    """Add what a comparison says, beside the counts of the same run where these moved too."""
    device = trend.series.device_name
    after = min(change.current_runs)
    p50 = change.p50
    moved = Moved(
        series=change.series,
        outcome=change.outcome,
        change=p50.change.estimate if p50 and p50.change else None,
        relative=_over(p50, change),
        before_ns=_number(p50.reference) if p50 else None,
        after_ns=_number(p50.current) if p50 else None,
        control=change.control.estimate if change.control else None,
        attribution=change.attribution,
        reason=change.reason,
        kernels=tuple(map(str, change.kernels)),
        accepted=change.accepted,
        history=_history(trend, None)[-_AROUND:],
        place=min(len(trend.points), _AROUND) - 1,
    )
    life, ended = _until(trend, change, moved)
    place = next(
        (place for place, one in enumerate(found) if one.key[:2] == ("moved", device) and one.key[3] == after), None
    )
    if place is not None:
        counted = found[place]
        found[place] = replace(counted, moved=replace(moved, counts=counted.moved.counts, life=counted.moved.life))
        return
    key = ("newest", device, max(change.reference_runs, default=None), after)
    found.append(SeriesEvent(key=key, moved=replace(moved, life=life, ended=ended), era=tuple(map(str, change.era))))


def _over(p50: Judgement | None, change: Change) -> float | None:
    return p50.change.estimate / change.control.estimate if p50 and p50.change and change.control else None


def _until(trend: Trend, change: Change, moved: Moved, policy: Policy = DEFAULT) -> tuple[str, str | None]:
    """Return what became of a slower run: recovered with the first of the runs since which all are as fast as before it."""
    later = [point for point in trend.points if point.p50 and point.record.run_id > max(change.current_runs)]
    if not later or moved.before_ns is None or moved.change is None:
        return ("still there", None) if not later else ("superseded", later[0].record.run_id)
    limit = moved.before_ns * math.sqrt(moved.change) if moved.change > 1 else moved.before_ns
    limit = max(limit, moved.before_ns * (1 + policy.minimum_effect / 2))
    since = next(
        (place for place in range(len(later)) if all(one.p50 and one.p50.estimate <= limit for one in later[place:])),
        None,
    )
    return ("still there", None) if since is None else ("recovered", later[since].record.run_id)


def _number(value: float | str | None) -> float | None:
    return float(value) if isinstance(value, int | float) else None
