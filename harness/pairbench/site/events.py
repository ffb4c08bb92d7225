"""Events of a store: what happened to each series, one event for each pair of runs between which series moved.

To a series happen moves to new levels, counts that took another value, failures, and a newest run that is worse. Device
models that show the same step share an event. Of what became of a move the sums of later moves tell, not the newest latency:
what drifts slowly, and what an environment does to all alike, takes back nothing that the code did.
"""

import hashlib
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from pairbench.analyze.compare.attribute import era_changes, kernel_changes, outcome_of_move
from pairbench.analyze.compare.exact import METRICS, AcceptedLevel
from pairbench.analyze.history.changepoint import MIN_RUNS
from pairbench.analyze.history.moves import MARGINS, STATUS, Move, Step
from pairbench.analyze.history.points import moment_of
from pairbench.analyze.history.trend import Trend
from pairbench.model.comparison import DEFAULT, Attribution, Change, GateOutcome
from pairbench.model.plain import Value, grouped
from pairbench.model.record import Record, Series
from pairbench.model.site import ATTENTION, LIVES, CountStep, Event, Moved, RunHead


class MoveLife(NamedTuple):
    move: Move
    ended: int | None = None  # index among the points of the run in which it was no longer so; None while it lasts
    superseded: bool = False  # whether it ended because of a new definition, or is a gain that was lost


def lives_of(trend: Trend) -> tuple[MoveLife, ...]:
    """Return the moves of a series, oldest first, each with the run in which it ended, if it did."""
    # A move of the control alone is left out, for the control's own series tells of it. So is one that does nothing but
    # take an earlier one back, which is that one's end; a gain of the code's that is lost again is a regression, though.
    moves = [move for move in trend.moves if move.attribution is not None]
    least = math.log1p(DEFAULT.minimum_effect)
    lives = [_life(move, moves[place + 1 :], trend.definitions, least) for place, move in enumerate(moves)]
    returns = {life.ended for life in lives if life.ended is not None and not life.superseded}
    return tuple(life for life in lives if life.move.index not in returns or not _only_returns(life, lives, least))


def _life(move: Move, later: Sequence[Move], definitions: Sequence[int], least: float) -> MoveLife:
    new = next((index for index in definitions if index > move.index), None)
    beside = [other for other in later if new is None or other.index < new]
    slower, code = move.size > 1, move.attribution is Attribution.CODE
    levels = itertools.accumulate((_of(other, move) for other in beside), initial=_of(move, move))
    for other, level in zip(beside, list(levels)[1:], strict=True):
        if level < least if slower else level > -least:
            return MoveLife(move, other.index, not slower and (code or other.attribution is Attribution.CODE))
    return MoveLife(move, new, new is not None)


def _of(other: Move, move: Move) -> float:
    """Return the logarithm of another move on the scale of a first one."""
    # Where the code caused the first, both are relative to the control. Else the control's own moves count, for later
    # changes of the code take back nothing that a driver did.
    if move.attribution is Attribution.CODE:
        return math.log(other.relative if other.relative is not None else other.own)
    return math.log(other.own if other is move or other.control is None else other.control)


def _only_returns(life: MoveLife, lives: Sequence[MoveLife], least: float) -> bool:
    """Return whether a move takes an earlier one back, and goes no further than the level before that."""
    first = next(other.move for other in lives if other.ended == life.move.index and not other.superseded)
    between = [other.move for other in lives if first.index <= other.move.index <= life.move.index]
    return abs(sum(_of(move, first) for move in between)) < least


_CLEAR = 6  # a change of this many standard deviations of the reference's runs came after all of them
_RECENT = 2 * MIN_RUNS  # the number of runs for which a new level says the same as a worse newest run
_NEAR = 3  # the number of runs within which a move of the latency is put where a count of its series took another value
_AROUND = 30  # the number of runs before and after a change that its small chart shows
_COUNTED = frozenset({*METRICS, *MARGINS, STATUS})
TOLD_TOGETHER = ("environment", "new")  # the kinds of events that are no fault of their series
Key = tuple[str, str, str]
"""What one event has in common, and what its id is made of: a word for its kinds, the device model, and a name.

A level is named after the first run of the unbroken stretch of runs that are nearer to it than to the level before, which is the
same run on the night of the first alarm as later, when a changepoint is found within some runs of it. A drift, whose first run
wanders as runs come, is named after its operator.
"""


class SeriesEvent(Value):
    """What happened to one series; with what happened to others of the same key it makes an event."""

    key: Key
    kind: str
    before: str | None
    after: str
    moved: Moved
    era: tuple[str, ...]
    last: str | None = None  # the last run of a drift


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
    """Return the events of one series: failures, moves of its level and counts, and a newest run that is worse."""
    # Comparisons of its runs count for the newest run, unless a new level says the same, and for all in a short history.
    points = trend.points
    failures = [step for step in trend.steps if step.outcome is GateOutcome.FAILED]
    found = [_series_event(trend, "failed", None, [step], accepted) for step in failures]
    places = grouped((step.index, step) for step in trend.steps if step not in failures)
    moves: dict[int, MoveLife] = {}
    for life in lives_of(trend):
        if life.move.attribution is Attribution.ENVIRONMENT:
            continue  # which is told of all series together
        near = [index for index in places if abs(index - life.move.index) <= _NEAR and life.move.last is None]
        moves[min(near, key=lambda index: abs(index - life.move.index), default=life.move.index)] = life
    found += [_series_event(trend, "moved", moves.get(at), places[at], accepted) for at in sorted({*moves, *places})]
    moved_lately = any((move.last or move.index) >= len(points) - _RECENT for move in trend.moves)
    short = len(points) < 2 * MIN_RUNS
    for change in changes:
        newest = bool(points) and points[-1].record.run_id in change.current_runs
        # Of counts and statuses the steps of the history tell.
        worse = {item.metric for item in change.judgements if item.outcome is GateOutcome.REGRESSION} - _COUNTED
        if (short or newest) and not moved_lately and change.outcome is GateOutcome.REGRESSION and worse:
            _add_compared(found, trend, change)
    return tuple(found)


def _series_event(
    trend: Trend, kind: str, life: MoveLife | None, steps: Sequence[Step], accepted: AcceptedLevel | None
) -> SeriesEvent:
    first = steps[0] if steps else None
    move = life.move if life is not None else None
    start_of = first or move
    index, before = (start_of.index, start_of.before) if start_of else (0, None)
    now = trend.points[index].record
    then = trend.points[before].record if before is not None else None

    def covers(metric: str, value: float | str | None) -> bool:
        number = value if isinstance(value, int | float) else None
        return accepted is not None and accepted.covers(metric, number, now.definition_hash)

    parts = [_Part(one.outcome, one.worse, one.ended, one.superseded, covers(one.metric, one.current)) for one in steps]
    if life is not None and move is not None:
        outcome = outcome_of_move(move.size, move.attribution)
        on_purpose = covers(trend.latency.p50, move.after_ns)
        parts.append(_Part(outcome, move.size > 1, life.ended, life.superseded, on_purpose))
    reasons = [*(step.reason for step in steps), *dict.fromkeys(step.why for step in steps)]
    start = max(0, index - _AROUND)
    history = _history(trend, None if life is not None or first is None else first.metric)
    counts = [CountStep(metric=one.metric, before=one.reference, after=one.current, reason=one.reason) for one in steps]
    latency = partial(Moved, series=trend.series)
    if move is not None:
        latency = partial(latency, change=move.own, relative=move.relative, control=move.control)
        latency = partial(latency, before_ns=move.before_ns, after_ns=move.after_ns)
    moved = latency(
        attribution=move.attribution if move and not steps else first.attribution if first else None,
        reason="; ".join(filter(None, [*reasons, move.reason if move else ""])),
        counts=tuple(counts),
        history=history[start : index + _AROUND],
        place=index - start,
        **_fate(parts, trend, accepted),
    )
    name = now.run_id
    if move is not None and move.last is not None:
        operator = f"{trend.series.suite}\0{trend.series.operator}"
        kind, name = "drift", "" if move.attribution is Attribution.MACHINE else operator
    elif move is not None and not steps:
        name = _begins(trend, index, move.before_ns, move.after_ns)
    named = partial(SeriesEvent, key=(kind, trend.series.device_name, name), kind=kind, after=now.run_id, moved=moved)
    last = trend.points[move.last].record.run_id if move is not None and move.last is not None else None
    era = tuple(map(str, era_changes(then, now))) if then else ()
    return named(before=then.run_id if then else None, last=last, era=era)


def _begins(trend: Trend, place: int, before_ns: float, after_ns: float) -> str:
    """Return the first of the runs in a row, around a given one, whose latencies are all nearer to the new level than to the level before."""
    middle, up = math.sqrt(before_ns * after_ns), after_ns > before_ns
    near = [not math.isnan(p50) and (p50 > middle) == up for p50 in trend.points.p50.tolist()]
    place = next((index for index in range(place, min(place + _NEAR + 1, len(near))) if near[index]), place)
    while place > 0 and near[place - 1]:
        place -= 1
    return trend.points[place].record.run_id


def _history(trend: Trend, metric: str | None) -> tuple[float | None, ...]:
    """Return a count of each run, or its median latency in ns where no count is named, or only the status moved."""
    points = trend.points
    values = points.p50 if metric is None or metric == STATUS else points.numbers(metric)
    return tuple(value if math.isfinite(value) else None for value in values.tolist())


def _fate(parts: Sequence[_Part], trend: Trend, accepted: AcceptedLevel | None) -> dict[str, Any]:
    """Return outcome and life of what moved: of its parts those decide that last, and were not accepted."""
    deciding = [part for part in parts if part.ended is None]
    fate: dict[str, Any] = {}
    if not deciding:
        deciding = list(parts)
        last = max(part.ended for part in parts if part.ended is not None)
        back = any(part.worse and not part.superseded for part in parts) or not any(part.superseded for part in parts)
        fate = {"life": "recovered" if back else "superseded", "ended": trend.points[last].record.run_id}
    elif (worse := [part for part in deciding if part.worse]) and accepted and all(part.covered for part in worse):
        deciding, fate = worse, {"life": "accepted", "accepted": accepted.acceptance.reason}
    return {"outcome": min((part.outcome for part in deciding), key=ATTENTION.index), **fate}


def _add_compared(found: list[SeriesEvent], trend: Trend, change: Change) -> None:
    """Add what a comparison says, beside the counts of the same run where these moved too."""
    after, p50 = min(change.current_runs), change.p50
    shown = (p50.reference, p50.current) if p50 else (None, None)
    before_ns, after_ns = (float(value) if isinstance(value, int | float) else None for value in shown)
    own = p50.change.estimate if p50 and p50.change else None
    control = change.control.estimate if change.control else None
    told = partial(Moved, series=change.series, outcome=change.outcome, reason=change.reason, accepted=change.accepted)
    moved = told(
        change=own,
        relative=own / control if own is not None and control is not None else None,
        before_ns=before_ns,
        after_ns=after_ns,
        control=control,
        attribution=change.attribution,
        kernels=tuple(map(str, change.kernels)),
        history=_history(trend, None)[-_AROUND:],
        place=min(len(trend.points), _AROUND) - 1,
    )
    life, ended = _until(trend, change, moved)
    place = next((place for place, one in enumerate(found) if (one.kind, one.after) == ("moved", after)), None)
    if place is not None:
        counted = found[place]
        found[place] = replace(counted, moved=replace(moved, counts=counted.moved.counts, life=counted.moved.life))
        return
    name, index = after, next((at for at, run_id in enumerate(trend.points.values("run_id")) if run_id == after), None)
    if index is not None and before_ns and after_ns:
        name = _begins(trend, index, before_ns, after_ns)
    moved, era = replace(moved, life=life, ended=ended), tuple(map(str, change.era))
    key, before = ("moved", trend.series.device_name, name), _last_before(trend, change, before_ns, after_ns)
    found.append(SeriesEvent(key=key, kind="newest", before=before, after=after, moved=moved, era=era))


def _last_before(trend: Trend, change: Change, before_ns: float | None, after_ns: float | None) -> str | None:
    """Return the last run that is surely before a change: the newest run of the reference if the change is far beyond the spread of its runs, else the oldest."""
    reference = [(one.record.run_id, math.log(one.p50.estimate)) for one in trend.points if one.p50]
    reference = [(run_id, log) for run_id, log in reference if run_id in change.reference_runs]
    if len(reference) > 2 and before_ns and after_ns:
        clear = _CLEAR * statistics.stdev(log for _, log in reference)
        if abs(math.log(after_ns / before_ns)) > clear:
            return reference[-1][0]
    return min(change.reference_runs, default=None)


def _until(trend: Trend, change: Change, moved: Moved) -> tuple[str, str | None]:
    """Return what became of a slower run, one of LIVES, and the id of the run that ended it: from that run on all are as fast as before."""
    later = [point for point in trend.points if point.p50 and point.record.run_id > max(change.current_runs)]
    if not later or moved.before_ns is None or moved.change is None:
        return ("still there", None) if not later else ("superseded", later[0].record.run_id)
    limit = moved.before_ns * math.sqrt(moved.change) if moved.change > 1 else moved.before_ns
    limit = max(limit, moved.before_ns * (1 + DEFAULT.minimum_effect / 2))
    slow = [place for place, point in enumerate(later) if not (point.p50 and point.p50.estimate <= limit)]
    since = slow[-1] + 1 if slow else 0
    return ("recovered", later[since].record.run_id) if since < len(later) else ("still there", None)


RunKey = tuple[str, str]  # a run and a device model
Heads = Mapping[RunKey, RunHead]
Measured = Mapping[RunKey, Collection[Series]]


def events_of(several: Iterable[SeriesEvent], heads: Heads) -> tuple[Event, ...]:
    """Return the events of some series, the newest first; events between runs that are not in `heads` are left out."""
    by_key = grouped((one.key, one) for one in several if (one.after, one.key[1]) in heads)
    ids, runs = set(map(id_of, by_key)), runs_by_device(heads)
    return _newest_first(
        _event(key, several, heads, tuple(_other_ids(key, several, runs[key[1]], ids)))
        for key, several in by_key.items()
    )


def runs_by_device(heads: Heads) -> dict[str, list[RunHead]]:
    """Return the runs of each device model, the oldest first."""
    in_order = sorted(heads.items(), key=lambda one: (one[1].started_at, one[0]))
    return grouped((device_name, head) for (_, device_name), head in in_order)


def id_of(key: Key) -> str:
    return hashlib.sha256("\0".join(key).encode()).hexdigest()[:12]


def _other_ids(key: Key, several: Sequence[SeriesEvent], heads: Iterable[RunHead], taken: set[str]) -> Iterable[str]:
    """Yield ids that the event may have had while fewer runs were known: that of a level that begins nearby, or in the drift."""
    if key[0] not in ("moved", "drift"):
        return
    runs = [head.run_id for head in heads]
    first = runs.index(min(one.after for one in several))
    last = runs.index(max(one.last or one.after for one in several))
    for run in runs[max(0, first - _NEAR) : min(last, first + _AROUND) + _NEAR + 1]:
        if (other := id_of(("moved", key[1], run))) not in taken:
            yield other


def joined(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return events with what is the same step on several device models as one, the newest first."""
    # It is the same where the code moved the same series the same way, and the commits in question overlap. The device
    # model that showed it first names the event, so that it keeps its key when others follow.
    steps: list[list[Event]] = []
    for event in reversed(_newest_first(events)):
        same = next((step for step in steps if _same_step(step, event)), None)
        if same is None:
            steps.append(same := [])
        same.append(event)
    whole = []
    for first, *others in steps:
        aliases = [*first.aliases, *(name for other in others for name in (other.key, *other.aliases))]
        whole.append(replace(first, elsewhere=tuple(others), aliases=tuple(dict.fromkeys(aliases))))
    return _newest_first(whole)


def lasting(events: Iterable[SeriesEvent]) -> dict[Series, SeriesEvent]:
    """Return the worst event of each series that lasts and was not accepted."""
    worst: dict[Series, SeriesEvent] = {}
    for event in events:
        if event.moved.life == LIVES[0] and event.kind not in TOLD_TOGETHER:
            known = worst.get(event.moved.series, event)
            worst[event.moved.series] = min(event, known, key=lambda one: ATTENTION.index(one.moved.outcome))
    return worst


def kernels_wanted(events: Sequence[Event]) -> tuple[set[str], set[str]]:
    """Return the runs and the cases whose kernels say what moved."""
    parts = [part for whole in events for part in whole.everywhere if part.kind not in ("failed", *TOLD_TOGETHER)]
    runs = {run.run_id for part in parts for run in (part.before, part.after) if run is not None}
    return runs, {one.series.case for part in parts for one in part.moved}


def with_kernels(event: Event, records: Mapping[tuple[str, Series], Record]) -> Event:
    """Return an event that says how the kernels of its series differ, as far as records of both its runs are given."""

    def explained(one: Moved) -> Moved:
        before = records.get((event.before.run_id, one.series)) if event.before else None
        after = records.get((event.after.run_id, one.series))
        if one.kernels or before is None or after is None:
            return one
        return replace(one, kernels=tuple(map(str, kernel_changes(before, after))))

    others = tuple(with_kernels(other, records) for other in event.elsewhere)
    return replace(event, moved=tuple(map(explained, event.moved)), elsewhere=others)


def _newest_first(events: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: (event.after.started_at, event.key), reverse=True))


def _event(key: Key, several: Sequence[SeriesEvent], heads: Heads, aliases: tuple[str, ...]) -> Event:
    device_name = key[1]
    # A changepoint says more than the alarms of one run.
    kind = "moved" if any(one.kind == "moved" for one in several) else several[0].kind
    sure = [one for one in several if one.kind == kind]
    wide = kind in ("newest", "drift")
    places = Counter((one.before, one.after) for one in sure).most_common(1)[0][0]
    before = min((one.before for one in sure if one.before), default=None) if wide else places[0]
    after = min(one.after for one in sure) if wide else places[1]
    last = max((one.last for one in sure if one.last), default=None)

    def rank(moved: Moved) -> tuple[int, float, Series]:
        size = math.inf if moved.size is None else abs(moved.size - 1)
        return LIVES.index(moved.life), -size, moved.series

    moved = sorted((one.moved for one in several), key=rank)
    life = moved[0].life
    ends = [one.ended for one in moved if one.ended]
    named = partial(Event, key=id_of(key), kind=kind, device_name=device_name, aliases=aliases, moved=tuple(moved))
    return named(
        direction=_direction(kind, {_way(one) for one in moved}),
        before=heads.get((before, device_name)) if before else None,
        after=heads[after, device_name],
        last=heads.get((last, device_name)) if last else None,
        era=tuple(dict.fromkeys(change for one in several for change in one.era)),
        outcome=min((one.outcome for one in moved if one.life == life), key=ATTENTION.index),
        life=life,
        ended=max(ends) if life in ("recovered", "superseded") else None,
    )


def _way(one: Moved) -> str:
    if one.size is not None:
        return "slower" if one.size > 1 else "faster"
    return "better" if one.outcome is GateOutcome.IMPROVEMENT else "worse"


def _direction(kind: str, ways: set[str]) -> str:
    if kind not in ("moved", "drift"):  # a newest run is worse also where it became no slower
        return "failed" if kind == "failed" else "worse"
    return ways.pop() if len(ways) == 1 else "worse" if ways == {"slower", "worse"} else "both"


def _same_step(several: Sequence[Event], event: Event) -> bool:
    first = several[0]
    if first.kind != event.kind or event.device_name in {one.device_name for one in several}:
        return False
    if event.kind == "environment":
        return first.era == event.era
    if event.kind == "new":
        ours, theirs = ({(one.series.suite, one.series.operator) for one in whole.moved} for whole in (first, event))
        return ours == theirs
    # A commit lies in both ranges, by the moments of the commits.
    overlap = _moment(first.before) < _moment(event.end) and _moment(event.before) < _moment(first.end)
    return overlap and not _by_code(first).isdisjoint(_by_code(event))


def _by_code(event: Event) -> set[tuple[str, ...]]:
    """Return the series that the code moved, without their device model, each with its direction."""
    return {
        (one.series.suite, one.series.case, one.series.implementation, one.series.mode, _way(one))
        for one in event.moved
        if one.attribution is Attribution.CODE
    }


def _moment(head: RunHead | None) -> float:
    moment = moment_of(head.commit_at or head.started_at) if head is not None else None
    return -math.inf if moment is None else moment
