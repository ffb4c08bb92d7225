"""Events of a store: what happened to each series, one event for each pair of runs between which series moved.

To a series happen moves to new levels, counts that took another value, failures, and a newest run that is worse. Device
models that show the same step share an event. Of what became of a move the sums of later moves tell, not the newest latency:
what drifts slowly, and what an environment does to all alike, takes back nothing that the code did.
"""

import datetime as dt
import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pairbench.analyze.compare.attribute import era_changes, kernel_changes, outcome_of_move
from pairbench.analyze.compare.exact import METRICS, AcceptedLevel, number
from pairbench.analyze.history.changepoint import MIN_RUNS
from pairbench.analyze.history.points import Move
from pairbench.analyze.history.steps import MARGINS, STATUS, Step
from pairbench.analyze.history.trend import Trend
from pairbench.model.comparison import DEFAULT, Attribution, Change, GateOutcome, Policy, Verdict
from pairbench.model.record import Record, Series
from pairbench.model.site import ATTENTION, LIVES, CountStep, Event, Moved, RunHead, RunVerdicts


@dataclass(frozen=True, kw_only=True)
class MoveLife:
    """A move, and what became of it."""

    move: Move
    ended: int | None = None  # index among the points of the run in which it was no longer so; None while it lasts
    superseded: bool = False
    """Whether it ended because something else took its place: a new definition, or of a gain its loss."""


def lives_of(trend: Trend, policy: Policy = DEFAULT) -> tuple[MoveLife, ...]:
    """Return the moves of a series with what became of them, oldest first.

    A move of the control alone is left out, for the control's own series tells of it. So is one that does nothing but take an
    earlier one back, which is that one's end; a gain of the code's that is lost again is a regression, though.
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
    """Return the logarithm of another move on the scale of a first one.

    Where the code caused the first, both are relative to the control. Else the control's own moves count, for later changes of
    the code take back nothing that a driver did.
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


_RECENT = 2 * MIN_RUNS  # the number of runs for which a new level says the same as a worse newest run
_NEAR = 3
"""The number of runs within which a move of the latency is put where a count of the same series took another value."""
_AROUND = 30  # the number of runs before and after a change that its small chart shows
_COUNTED = frozenset({*METRICS, *MARGINS, STATUS})
Key = tuple[str, str, str | None, str]
"""What one event has in common: kind, device model, the last run before and the first run after."""


@dataclass(frozen=True, kw_only=True)
class SeriesEvent:
    """What happened to one series; with what happened to others between the same runs it makes an event."""

    key: Key
    moved: Moved
    era: tuple[str, ...]


class _Part(NamedTuple):
    """A latency or a count of a series that moved, and what became of that."""

    outcome: GateOutcome
    worse: bool
    ended: int | None
    superseded: bool
    covered: bool  # whether it was accepted on purpose


def series_events(
    trend: Trend, changes: Iterable[Change] = (), accepted: AcceptedLevel | None = None
) -> tuple[SeriesEvent, ...]:
    """Return the events of one series: failures, moves of its level and counts, and a newest run that is worse.

    Comparisons of its runs count for the newest run, unless a new level says the same, and for all while the history is too
    short for levels.
    """
    points = trend.points
    failures = [step for step in trend.steps if step.outcome is GateOutcome.FAILED]
    found = [_series_event(trend, "failed", None, [step], accepted) for step in failures]
    places: defaultdict[int, list[Step]] = defaultdict(list)
    for step in trend.steps:
        if step not in failures:
            places[step.index].append(step)
    moves: dict[int, MoveLife] = {}
    for life in lives_of(trend):
        near = [index for index in places if abs(index - life.move.index) <= _NEAR]
        moves[min(near, key=lambda index: abs(index - life.move.index), default=life.move.index)] = life
    found += [
        _series_event(trend, "moved", moves.get(index), places.get(index, []), accepted)
        for index in sorted({*moves, *places})
    ]
    moved_lately = bool(trend.moves) and trend.moves[-1].index >= len(points) - _RECENT
    short = len(points) < 2 * MIN_RUNS
    for change in changes:
        newest = bool(points) and points[-1].record.run_id in change.current_runs
        latency = any(
            one.outcome is GateOutcome.REGRESSION and one.metric not in _COUNTED for one in change.judgements
        )  # of counts and statuses the steps of the history tell
        if (short or newest) and not moved_lately and change.outcome is GateOutcome.REGRESSION and latency:
            _add_compared(found, trend, change)
    return tuple(found)


def _series_event(
    trend: Trend, kind: str, life: MoveLife | None, steps: Sequence[Step], accepted: AcceptedLevel | None
) -> SeriesEvent:
    """Return what moved at one run: the latency, counts, or both."""
    first = steps[0] if steps else None
    move = life.move if life is not None else None
    index = first.index if first else move.index if move else 0
    before = first.before if first else move.before if move else None
    now = trend.points[index].record
    then = trend.points[before].record if before is not None else None

    def covered(metric: str, value: float | str | None) -> bool:
        number = value if isinstance(value, int | float) else None
        return accepted is not None and accepted.covers(metric, number, now.definition_hash)

    parts = [
        _Part(step.outcome, step.worse, step.ended, step.superseded, covered(step.metric, step.current))
        for step in steps
    ]
    if life is not None and move is not None:
        outcome = outcome_of_move(move.size, move.attribution)
        accepted_too = covered(trend.latency.p50, move.after_ns)
        parts.append(_Part(outcome, move.size > 1, life.ended, life.superseded, accepted_too))
    reasons = [*(step.reason for step in steps), *dict.fromkeys(step.why for step in steps)]
    moved = Moved(
        series=trend.series,
        outcome=GateOutcome.UNDECIDED,
        change=move.own if move else None,
        relative=move.relative if move else None,
        before_ns=move.before_ns if move else None,
        after_ns=move.after_ns if move else None,
        control=move.control if move else None,
        attribution=move.attribution if move and not steps else first.attribution if first else None,
        reason="; ".join(filter(None, [*reasons, move.reason if move else ""])),
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


def _add_compared(found: list[SeriesEvent], trend: Trend, change: Change) -> None:
    """Add what a comparison says, beside the counts of the same run where these moved too."""
    device = trend.series.device_name
    after = min(change.current_runs)
    p50 = change.p50
    moved = Moved(
        series=change.series,
        outcome=change.outcome,
        change=p50.change.estimate if p50 and p50.change else None,
        relative=p50.change.estimate / change.control.estimate if p50 and p50.change and change.control else None,
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


def _until(trend: Trend, change: Change, moved: Moved, policy: Policy = DEFAULT) -> tuple[str, str | None]:
    """Return what became of a slower run, one of LIVES, and the id of the run that ended it: from that run on all are as fast as before."""
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


_ENOUGH = 0.5  # the part of a run's series that an earlier run has to share for none before it to be looked at
_BACK = 50  # the number of earlier runs that are looked at
_TOLD = (
    *(GateOutcome.FAILED, GateOutcome.REGRESSION, GateOutcome.MISSING, GateOutcome.IMPROVEMENT),
    *(GateOutcome.INCOMPARABLE, GateOutcome.NEW),
)
"""Outcomes that a reader of a run is told of, in this order. What is proven slower or faster by the machine comes last; all else
is noise or nothing."""

RunKey = tuple[str, str]  # A run and a device model


def overlapping(runs: Sequence[RunHead], series: Mapping[RunKey, Collection[Series]]) -> dict[RunKey, str]:
    """Return the earlier run to compare each run with: the newest that measured enough of the same series; confirmations are passed over."""
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


def run_verdicts(reference: str, device_name: str, changes: Sequence[Change]) -> RunVerdicts:
    """Return what a comparison of a run with an earlier one says of a device model, the worst and then the largest first."""
    here = [change for change in changes if change.series.device_name == device_name]
    shown = [change for change in here if change.outcome in _TOLD or change.verdict in (Verdict.SLOWER, Verdict.FASTER)]
    rank = {outcome: place for place, outcome in enumerate(_TOLD)}

    def size(change: Change) -> float:
        return abs(change.p50.change.estimate - 1) if change.p50 and change.p50.change else 0.0

    shown.sort(key=lambda change: (rank.get(change.outcome, len(rank)), -size(change), change.series))
    counts = {outcome: sum(change.outcome is outcome for change in here) for outcome in GateOutcome}
    return RunVerdicts(
        reference=reference,
        changes=tuple(shown),
        counts={str(outcome): number for outcome, number in counts.items() if number},
        outcomes={change.series: str(change.outcome) for change in here},
    )


Heads = Mapping[tuple[str, str], RunHead]  # what each run is, by run and device model


def events_of(several: Iterable[SeriesEvent], heads: Heads) -> tuple[Event, ...]:
    """Return the events of some series, the newest first; events between runs that are not in `heads` are left out."""
    by_key: defaultdict[Key, list[SeriesEvent]] = defaultdict(list)
    for one in several:
        if (one.key[3], one.key[1]) in heads:
            by_key[one.key].append(one)
    return _newest_first(_event(key, several, heads) for key, several in by_key.items())


def joined(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return events with what is the same step on several device models as one, the newest first.

    It is the same where the code moved the same series the same way, and the commits in question overlap. The device model
    that showed it first names the event, so that it keeps its key when others follow.
    """
    found: list[list[Event]] = []
    for event in sorted(events, key=lambda event: (event.after.started_at, event.key)):
        same = next((several for several in found if _same_step(several, event)), None)
        if same is None:
            found.append([event])
        else:
            same.append(event)
    return _newest_first(replace(first, elsewhere=tuple(others)) for first, *others in found)


def lasting(events: Iterable[SeriesEvent]) -> dict[Series, Moved]:
    """Return the worst move of each series that lasts and was not accepted."""
    found: dict[Series, Moved] = {}
    for one in events:
        if one.moved.life == LIVES[0]:
            known = found.get(one.moved.series, one.moved)
            found[one.moved.series] = min(one.moved, known, key=lambda moved: ATTENTION.index(moved.outcome))
    return found


def kernels_wanted(events: Sequence[Event]) -> dict[str, set[Series]]:
    """Return the series of each run whose kernels are needed to explain events."""
    wanted: defaultdict[str, set[Series]] = defaultdict(set)
    for event in (part for whole in events for part in whole.everywhere):
        for run in (event.before, event.after):
            if run is not None and event.kind != "failed":
                wanted[run.run_id] |= {one.series for one in event.moved}
    return dict(wanted)


def with_kernels(event: Event, records: Mapping[tuple[str, Series], Record], policy: Policy = DEFAULT) -> Event:
    """Return an event that says how the kernels of its series differ, as far as records of both its runs are given."""

    def told(one: Moved) -> Moved:
        before = records.get((event.before.run_id, one.series)) if event.before else None
        after = records.get((event.after.run_id, one.series))
        if one.kernels or before is None or after is None:
            return one
        return replace(one, kernels=tuple(map(str, kernel_changes(before, after, policy))))

    others = tuple(with_kernels(other, records, policy) for other in event.elsewhere)
    return replace(event, moved=tuple(map(told, event.moved)), elsewhere=others)


def _newest_first(events: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: (event.after.started_at, event.key), reverse=True))


def _event(key: Key, several: Sequence[SeriesEvent], heads: Heads) -> Event:
    kind, device_name, before, after = key
    moved = sorted((one.moved for one in several), key=lambda one: (LIVES.index(one.life), -_size(one), one.series))
    life = moved[0].life
    ends = [one.ended for one in moved if one.ended]
    return Event(
        key=hashlib.sha256("\0".join([kind, device_name, before or "", after]).encode()).hexdigest()[:12],
        kind=kind,
        direction=_direction(kind, moved),
        device_name=device_name,
        before=heads.get((before, device_name)) if before else None,
        after=heads[after, device_name],
        moved=tuple(moved),
        era=tuple(dict.fromkeys(change for one in several for change in one.era)),
        outcome=min((one.outcome for one in moved if one.life == life), key=ATTENTION.index),
        life=life,
        ended=max(ends) if life in ("recovered", "superseded") else None,
    )


def _size(one: Moved) -> float:
    return abs(one.size - 1) if one.size is not None else math.inf


def _way(one: Moved) -> str:
    if one.size is not None:
        return "slower" if one.size > 1 else "faster"
    return "better" if one.outcome is GateOutcome.IMPROVEMENT else "worse"


def _direction(kind: str, moved: Sequence[Moved]) -> str:
    if kind != "moved":  # a newest run is worse also where it became no slower
        return {"failed": "failed"}.get(kind, "worse")
    ways = {_way(one) for one in moved}
    return ways.pop() if len(ways) == 1 else "worse" if ways == {"slower", "worse"} else "both"


def _same_step(several: Sequence[Event], event: Event) -> bool:
    first = several[0]
    return (
        first.kind == event.kind
        and event.device_name not in {one.device_name for one in several}
        and _overlap(first, event)
        and not _by_code(first).isdisjoint(_by_code(event))
    )


def _by_code(event: Event) -> set[tuple[str, ...]]:
    """Return the series that the code moved, without their device model, each with its direction."""
    return {
        (one.series.suite, one.series.case, one.series.implementation, one.series.mode, _way(one))
        for one in event.moved
        if one.attribution is Attribution.CODE
    }


def _overlap(one: Event, other: Event) -> bool:
    """Return whether a commit lies in both ranges, by the moments of the commits."""
    return _moment(one.before) < _moment(other.after) and _moment(other.before) < _moment(one.after)


def _moment(head: RunHead | None) -> float:
    try:
        moment = dt.datetime.fromisoformat((head.commit_at or head.started_at) if head is not None else "")
    except ValueError:
        return -math.inf
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
