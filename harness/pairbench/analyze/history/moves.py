"""Where a series moved to a new level, or drifted: by how much, beside its control, and with the likely cause; and the steps of its counts.

A count (launches, operators, memory, correctness, status) needs no statistics, so a step begins with the first run that shows it, and
stays, where a comparison of the newest run is forgotten with the next run. Each value is judged against the last one that counted, as
`compare` judges two runs, so that a slow drift within the slack of memory becomes a step, too.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter, eq

import numpy as np

from pairbench.analyze.compare.attribute import Circumstances, moved_along, percent
from pairbench.analyze.compare.exact import LAUNCHES, METRICS, bad, judge_exact, judge_margin, judge_status, number
from pairbench.analyze.compare.rounds import usable
from pairbench.analyze.history.changepoint import MIN_RUNS, Changepoint, Drift
from pairbench.analyze.history.drift import without_levels
from pairbench.analyze.history.points import Lines, Points
from pairbench.model.comparison import DEFAULT, Attribution, EraChange, GateOutcome, Judgement
from pairbench.model.outcome import Status
from pairbench.model.plain import Value
from pairbench.model.record import Record
from pairbench.stats import Floats, Interval

_NEAR = 3  # the number of runs within which a move of the latency and one of the speedup are the same


class Move(Value):
    """A changepoint: the series, or its speedup, moved between two runs to a level that lasted; or a drift over many runs."""

    before: int
    index: int  # `before`, `index`: indices of the last run with a value before the move, and of the first after it
    own: float  # the level of the median latency after the move over that before; 1.02 is 2 % slower
    control: float | None
    relative: float | None
    """`own` over `control`: the ratio without changes that both share. None, as `control`, without a control."""
    before_ns: float
    after_ns: float
    attribution: Attribution | None
    era: tuple[EraChange, ...]
    implementation_changed: bool | None
    reason: str
    last: int | None = None  # the index of the last run of a drift, whose first is `index`; None for a changepoint

    @property
    def size(self) -> float:
        """The change relative to the control where the code is the likely cause, else the series' own."""
        return self.relative if self.attribution is Attribution.CODE and self.relative is not None else self.own


def moves_of(points: Points, lines: Lines, *steps: Sequence[Changepoint], first: int = 0) -> tuple[Move, ...]:
    """Return the moves of one part, by the changepoints of its log latency and of that over the control's."""
    # `lines` are the latency and the control without drifts. `first` is the index of the part's first point in the whole series, as are those of the result.
    latency, beside = lines
    indices = _joined(*steps)
    stretches = points.stretches(indices)
    drifted = points.lines[0] - latency
    moves = []
    for index in indices:
        place = stretches.index(index)
        start, stop = stretches[place - 1], stretches[place + 1]
        # A changepoint has values on both sides, of the latency and so of all that it is found in.
        before = int(points.measured[points.measured < index][-1])
        own, control, relative = (shift(line, index, (start, stop)) for line in (latency, beside, latency - beside))
        assert own is not None
        known = points[index].since(points[before])
        attribution, reason = cause_of(own, control, known)
        named = partial(Move, before=first + before, index=first + index, attribution=attribution, reason=reason)
        named = partial(named, era=known.era, implementation_changed=known.implementation_changed, own=own.estimate)
        move = named(
            control=control.estimate if control else None,
            relative=relative.estimate if relative else None,
            before_ns=math.exp(median_level(latency[start:index]) + drifted[before]),
            after_ns=math.exp(median_level(latency[index:stop]) + drifted[index]),
        )
        moves.append(move)
    return tuple(moves)


def without_drift(points: Points, lines: Lines, drift: Drift, *, first: int) -> tuple[Move, Lines]:
    """Return the move of a drift that was found in a latency, or in that over its control, and both lines without it."""
    near = slice(max(0, drift.index - MIN_RUNS), drift.last + 1 + MIN_RUNS)
    runs, total = drift.line[near], float(drift.line[drift.last])
    breaks = [place - near.start for place in points.breaks if near.start < place < near.stop]
    own, control = (_along(line[near], runs, total, breaks) for line in lines)
    assert own is not None
    if control is not None and abs(math.log(own.estimate)) < DEFAULT.control_part * abs(total):
        attribution, shares = None, (0.0, math.log(control.estimate) / total)
    elif control is not None and moved_along(own, control):
        attribution, shares = Attribution.MACHINE, (1.0, math.log(control.estimate) / total)
    else:
        attribution, shares = Attribution.CODE, (1.0, 0.0)
    measured = points.measured.tolist()
    place, end = measured.index(drift.index), measured.index(drift.last)
    before, last = measured[place - 1], points[drift.last].record
    level = math.exp(median_level(lines[0][max(0, before + 1 - 2 * MIN_RUNS) : before + 1]))
    each = abs(math.expm1(math.log(own.estimate) / (end - place + 1)))
    moved, day = percent(own.estimate), points[drift.index].record.started_at[:10]
    rises = f"{'rises' if own.estimate > 1 else 'falls'} {100 * each:.2g} % a run"
    ended = f"{rises} from about {day} to {last.started_at[:10]}, {moved} in all"
    said = f"{rises} since about {day}, {moved} so far" if end == len(measured) - 1 else ended
    beside = f"its control moved {percent(control.estimate)}" if control else "there is no control to tell"
    reason, moved_too = f"{said}; no single commit; {beside}", control.estimate if control else None
    named = partial(Move, before=first + before, index=first + drift.index, last=first + drift.last, reason=reason)
    named = partial(named, own=own.estimate, control=moved_too, before_ns=level, after_ns=level * own.estimate)
    relative = own.estimate / control.estimate if control else None
    move = named(relative=relative, attribution=attribution, era=(), implementation_changed=None)
    less = tuple(line - share * drift.line for line, share in zip(lines, shares, strict=True))
    return move, (less[0], less[1])


def _along(values: Floats, line: Floats, total: float, breaks: Sequence[int]) -> Interval | None:
    """Return by how much values change along with a line, whatever they do at breaks, as a ratio with a rough 95 % interval."""
    known = ~np.isnan(values)
    if known.sum() < 3:
        return None
    places = np.cumsum(known)
    cuts = sorted({int(places[at - 1]) for at in breaks} - {0, int(places[-1])})
    x, y = (without_levels(side[known], cuts) for side in (line, values))
    if not x.any():
        return None
    part = float(x @ y) / float(x @ x)
    error = math.sqrt(float(np.sum((y - part * x) ** 2)) / (len(x) - 2) / float(x @ x))
    ends = sorted(math.exp(total * (part + sign * 1.96 * error)) for sign in (-1, 1))
    return Interval(math.exp(total * part), *ends)


def median_level(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else math.nan


def shift(values: Floats, index: int, ends: tuple[int, int]) -> Interval | None:
    """Return the level from an index on over that before it, as a ratio with a rough 95 % interval; None without either."""
    sides = [side[~np.isnan(side)] for side in (values[ends[0] : index], values[index : ends[1]])]
    if not all(len(side) for side in sides):
        return None
    moved = median_level(sides[1]) - median_level(sides[0])
    errors = [float(np.std(side, ddof=1)) / math.sqrt(len(side)) for side in sides if len(side) > 1]
    # A side of one run says nothing of its error; the other's is the best guess.
    reach = 1.96 * math.hypot(*(errors if len(errors) == 2 else errors * 2)) if errors else 0.0
    return Interval(math.exp(moved), math.exp(moved - reach), math.exp(moved + reach))


def cause_of(own: Interval, control: Interval | None, known: Circumstances) -> tuple[Attribution | None, str]:
    """Return the likely cause of a move between two runs, None where only the control moved, and the sentence that says why."""
    moved = math.log(own.estimate)
    beside = math.log(control.estimate) if control is not None else 0.0
    if abs(moved) < DEFAULT.control_part * abs(moved - beside):
        return None, f"its control moved {100 * math.expm1(beside):+.1f} % and it hardly did: only the speedup changed"
    return known.cause_of_latency(own, control)


def _joined(own: Sequence[Changepoint], relative: Sequence[Changepoint]) -> list[int]:
    """Return the indices of all moves; of two nearby changepoints that of the stronger."""
    indices = {change.index: change.strength for change in own}
    for change in relative:
        near = (other for other in indices if abs(other - change.index) <= _NEAR)
        nearest = min(near, key=lambda other: abs(other - change.index), default=None)
        if nearest is None or indices[nearest] < change.strength:
            others = {index: strength for index, strength in indices.items() if index != nearest}
            indices = {**others, change.index: change.strength}
    return sorted(indices)


MARGINS = ("margin", "oracle_ratio")
STATUS = "status"
COLUMNS = (*METRICS, *MARGINS, "launch_status")  # columns of a record that steps are found in, besides its status

_WORSE = (GateOutcome.FAILED, GateOutcome.REGRESSION, GateOutcome.UNDECIDED)
_METRICS = (*METRICS, *MARGINS)
_TEXTS = (STATUS, "launch_status")
_WATCHED = (STATUS, *COLUMNS)
_values = attrgetter(*_WATCHED)


class Step(Value):
    """One metric that took another value at a run, and whether that lasts."""

    metric: str
    level: int | None
    before: int | None
    """`level` and `before` are the indices of the first and the last run with the value before; None where the first run of all failed."""
    index: int
    outcome: GateOutcome
    reference: float | str | None
    current: float | str | None  # `reference` and `current` are the values before and after, in the unit of the column
    reason: str
    attribution: Attribution | None
    why: str
    """The sentence that says why `attribution` is the likely cause, which a failure that was never seen to work has not."""
    era: tuple[EraChange, ...]
    ended: int | None = None  # index of the run in which it was no longer so; None while it lasts
    superseded: bool = False
    """Whether the move ended because something replaced it, such as a new definition, and not because it was undone."""

    @property
    def worse(self) -> bool:
        return self.outcome in _WORSE


def steps_of(points: Points) -> tuple[Step, ...]:
    """Return the steps of a series; a return to an earlier value ends the step away from it, and is none itself."""
    walk = _Walk(points)
    columns = [points.parts, *(points.codes(name) for name in _TEXTS), *map(points.numbers, _METRICS)]
    same = [(one[1:] == one[:-1]) | ((one[1:] != one[1:]) & (one[:-1] != one[:-1])) for one in columns]  # NaN is NaN
    changed = (np.flatnonzero(~np.all(same, axis=0)) + 1).tolist()
    if not changed and points.values(STATUS)[:1] in ([], [Status.MEASURED]):
        return ()
    for index in [0, *changed]:
        if index and points.parts[index] != points.parts[index - 1]:
            walk.new_definition(index)
        walk.take(index, points[index].record)
    steps = [*walk.done, *itertools.chain(*walk.lasting.values())]
    return tuple(sorted(steps, key=attrgetter("index", "metric")))


class _Walk:
    """Goes along a series, and keeps for each metric the first run with the present value and the last with any."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self.done: list[Step] = []
        self._begin()

    def _begin(self) -> None:
        self._levels: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._last: Sequence[object] = (object(),) * len(_WATCHED)
        self._counted: list[str] = []
        self.lasting: defaultdict[str, list[Step]] = defaultdict(list)

    def new_definition(self, index: int) -> None:
        for metric in list(self.lasting):
            self._end(metric, index, superseded=True)
        self._begin()

    def take(self, index: int, record: Record) -> None:
        """Take the next run that differs from the one before it."""
        values = _values(record)
        for metric in self._counted:
            self._seen[metric] = index - 1
        same = dict(zip(_WATCHED, map(eq, values, self._last), strict=True))
        self._last = values
        if not same[STATUS]:
            self._status(index, record)
        exact = record.launch_status == "exact"  # else launches are not known
        known = (metric for metric in _METRICS if number(record, metric) is not None)
        self._counted = [metric for metric in known if usable(record) and (exact or metric not in LAUNCHES)]
        for metric in self._counted:
            if not same[metric] or not same["launch_status"] or not same[STATUS]:
                self._metric(metric, index)
        self._counted.append(STATUS)

    def _status(self, index: int, record: Record) -> None:
        before, failed = self._levels.get(STATUS), bad(record)
        if usable(record):
            self._end(STATUS, index)
        elif not failed:  # skipped on purpose
            self._end(STATUS, index, lambda step: step.outcome is GateOutcome.FAILED, superseded=True)
        judgement = self._judged(STATUS, before, index)
        was = before is not None and bad(self._points[before].record)
        if (failed and not was) or judgement.outcome is GateOutcome.REGRESSION:
            self.lasting[STATUS].append(self._step(judgement, index))
        self._levels[STATUS] = index

    def _metric(self, metric: str, index: int) -> None:
        if (level := self._levels.setdefault(metric, index)) == index:
            return
        judgement = self._judged(metric, level, index)
        moved = judgement.outcome is not GateOutcome.UNCHANGED
        if judgement.outcome in _WORSE:
            # Earlier improvements are lost.
            self._end(metric, index, lambda step: not step.worse and not self._holds(step, index), superseded=True)
            self.lasting[metric].append(self._step(judgement, index))
        else:
            if ended := self._end(metric, index, lambda step: step.worse and self._holds(step, index)):
                judgement = self._judged(metric, ended[0].level, index)
            if judgement.outcome is GateOutcome.IMPROVEMENT:
                self.lasting[metric].append(self._step(judgement, index))
        if moved or metric in MARGINS:
            self._levels[metric] = index

    def _holds(self, step: Step, index: int) -> bool:
        """Return whether a run is as good as those before a worsening were, or as that with an improvement."""
        good = step.level if step.worse else step.index
        return self._judged(step.metric, good, index).outcome not in _WORSE

    def _end(
        self, metric: str, index: int, over: Callable[[Step], bool] | None = None, *, superseded: bool = False
    ) -> list[Step]:
        ended = [step for step in self.lasting[metric] if over is None or over(step)]
        self.lasting[metric] = [step for step in self.lasting[metric] if step not in ended]
        self.done += [replace(step, ended=index, superseded=superseded) for step in ended]
        return ended

    def _judged(self, metric: str, before: int | None, index: int) -> Judgement:
        now = self._points[index].record
        then = self._points[before].record if before is not None else now
        if metric == STATUS:
            return judge_status([then], [now])
        judge = judge_margin if metric in MARGINS else judge_exact
        return next(judgement for judgement in judge(then, now) if judgement.metric == metric)

    def _step(self, judgement: Judgement, index: int) -> Step:
        before, now = self._seen.get(judgement.metric), self._points[index].record
        then = self._points[before].record if before is not None else None
        known = Circumstances.between(then or now, now)
        failed = judgement.outcome is GateOutcome.FAILED
        cause, why = known.cause_of_failure(then, [now]) if failed else known.cause_of_count()
        named = partial(Step, metric=judgement.metric, before=before, index=index, outcome=judgement.outcome)
        named = partial(named, level=self._levels.get(judgement.metric), attribution=cause, why=why, era=known.era)
        reason = judgement.reason.partition("; failing since ")[0]
        reference = judgement.reference if before is not None else None
        return named(reference=reference, current=judgement.current, reason=reason)
