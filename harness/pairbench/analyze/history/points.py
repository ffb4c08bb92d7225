"""The runs of one series in order: which of them compare, the control of each, and where they moved to a new level, with the likely cause."""

import bisect
import datetime as dt
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np

from pairbench.analyze.compare.attribute import Circumstances, another_gpu, moved_along, percent
from pairbench.analyze.compare.rounds import run_of
from pairbench.analyze.history.changepoint import MIN_RUNS, Changepoint, Drift
from pairbench.analyze.history.drift import without_levels
from pairbench.model.comparison import DEFAULT, Attribution, EraChange
from pairbench.model.latency import CALL, DEVICE, Latency, p50_of, p95_of, result_of
from pairbench.model.outcome import Status
from pairbench.model.plain import Value
from pairbench.model.plan import BASELINE
from pairbench.model.record import Record
from pairbench.stats import Floats, Interval

Lines = tuple[Floats, Floats]  # the log latencies of a series and of its control
_FILLED_IN_S = 24 * 3600.0
"""Seconds after its commit from which on a run may fill in a history: a nightly run, or one of a pull request, is there sooner."""


class SeriesPoint(Value):
    record: Record
    control: Record | None
    """The record of the control of the same run on the same device; None where there is none."""
    part: int
    """The number of the run's part, from 0; a new part begins with each change of the definition."""
    latency: Latency = CALL
    gpu: str | None = None
    """The GPU's UUID, where the run has the series on one GPU alone."""

    p50: Interval | None = field(init=False, compare=False, repr=False)
    """Median latency in ns with its 95 % interval; the ends are NaN where they are not known. None, like the three below, for a gap."""
    p95_ns: float | None = field(init=False, compare=False, repr=False)
    control_ns: float | None = field(init=False, compare=False, repr=False)
    speedup: float | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Derive the values of every point; a cached property takes a lock each time, and a site has 100,000 points."""
        p50 = median(self.record, self.latency)
        p95 = p95_of(self.record, self.latency) if p50 else None
        beside = median(self.control, self.latency) if self.control is not None else None
        control = beside.estimate if beside else None
        speedup = None
        if p50 is not None and control is not None:
            speedup = p50.estimate / control if self.record.implementation == BASELINE else control / p50.estimate
        derived = {"p50": p50, "p95_ns": p95.estimate if p95 else None, "control_ns": control, "speedup": speedup}
        vars(self).update(derived)  # frozen for everybody else

    def since(self, before: "SeriesPoint") -> Circumstances:
        controls, gpus = (before.control, self.control), (before.gpu, self.gpu)
        return Circumstances.between(before.record, self.record, controls, gpus=gpus)


class History(NamedTuple):
    """The points of a series, oldest first; `notes` are sentences about runs that were left out or moved."""

    points: tuple[SeriesPoint, ...]
    timer: str | None
    control: str | None
    """The implementation that serves as control: the baseline, or for the baseline the variant most often measured."""
    notes: tuple[str, ...]
    latency: Latency


def median(record: Record, latency: Latency | None = None) -> Interval | None:
    """Return a record's median latency with its interval, in ns; None unless it was measured and is a positive number."""
    return p50_of(record, latency) if record.status == Status.MEASURED else None


class InOrder(NamedTuple):
    """Records of a case in one mode on one device model, each once, oldest first, and the number of runs that were there twice."""

    records: Sequence[Record]
    again: int


def history(of_case: InOrder, implementation: str, *, timer: str | None = None) -> History:
    """Return the history of one implementation, from all records of a case in one mode on one device model."""
    # It has the values of one timer, by default that of the newest run, and all runs without a value.
    notes: list[str] = []
    ordered, again = of_case
    if again:
        notes.append(f"{_runs(again)} found twice in the store and counted once")
    own = [record for record in ordered if record.implementation == implementation]
    timers = Counter(record.timer for record in own if record.timer)
    timer = timer or next((record.timer for record in reversed(own) if record.timer), None)
    notes += [
        f"{_runs(number)} timed by {name} left out: another timer is another series"
        for name, number in sorted(timers.items())
        if name != timer
    ]
    own = [record for record in own if record.timer in (None, timer)]
    clock = next((_clock(record) for record in reversed(own) if median(record)), (CALL, None))
    others = [record for record in own if _clock(record) != clock and median(record)]
    if others:
        words = f"a device latency by {clock[1]}" if clock[0] is DEVICE else "the latency of a call alone"
        notes.append(f"{_runs(len(others))} without {words} left out: another clock is another series")
        own = [record for record in own if record not in others]
    late = [record.run_id for record in own if (moment_of(record.started_at) or math.inf) < _committed(record)]
    if late:
        wrong = f"{late[0]} the first: a clock is wrong there, and runs are in the order of their clocks"
        notes.append(f"{_runs(len(late))} began before its own commit was made, {wrong}")
    control = _control(ordered, implementation)
    controls = {
        run_of(record): record
        for record in ordered
        if record.implementation == control and record.timer in (None, timer)
    }
    counts = Counter(record.run_id for record in own)
    points: list[SeriesPoint] = []
    part, definition = 0, None
    for record in own:
        if record.definition_hash is not None:
            part += definition is not None and record.definition_hash != definition
            definition = record.definition_hash
        control_record = controls.get(run_of(record))
        gpu = record.device_uuid if counts[record.run_id] == 1 else None
        points.append(SeriesPoint(record=record, control=control_record, part=part, latency=clock[0], gpu=gpu))
    devices = {record.device_uuid for record in own}
    if len(devices) > 1:
        notes.append(f"the runs are of {len(devices)} devices of this model")
    return History(tuple(points), timer, control if controls else None, tuple(notes), clock[0])


def _clock(record: Record) -> tuple[Latency, str | None]:
    latency = result_of(record)
    return latency, record.device_timer if latency is DEVICE else None


def in_order(records: Iterable[Record]) -> InOrder:
    by_run: dict[tuple[str, str | None, str | None], Record] = {}
    again = set()
    for record in records:
        key = (*run_of(record), record.implementation)
        if key in by_run:
            again.add(record.run_id)
        # Of a run that was stored twice, the record with a value.
        if key not in by_run or median(by_run[key]) is None:
            by_run[key] = record
    return InOrder(_filled_in(sorted(by_run.values(), key=_when)), len(again))


def _filled_in(ordered: list[Record]) -> list[Record]:
    """Return records in order of time, except runs that fill in a history, which go before the first run of a later commit."""
    # Such a run began more than a day after its commit was made, and after a run of a later commit. All others stay in the order of their clocks, in
    # which the machine changed.
    kept: list[Record] = []
    late: list[Record] = []
    newest = -math.inf
    for record in ordered:
        committed, started = moment_of(record.commit_at), moment_of(record.started_at)
        if committed is not None and started is not None and committed < newest and started - committed > _FILLED_IN_S:
            late.append(record)
            continue
        kept.append(record)
        newest = max(newest, committed if committed is not None else newest)
    if not late:
        return ordered
    # The newest commit up to each record never falls, so it can be bisected.
    reached = list(itertools.accumulate((_committed(record) for record in kept), max))
    before: dict[int, list[Record]] = {}
    for record in sorted(late, key=_committed):  # stable: runs of one commit stay in the order of their clocks
        before.setdefault(bisect.bisect_right(reached, _committed(record)), []).append(record)
    return [record for place, one in enumerate(kept) for record in (*before.get(place, ()), one)]


def _committed(record: Record) -> float:
    return -math.inf if (moment := moment_of(record.commit_at)) is None else moment


def _when(record: Record) -> tuple[float, str, str]:
    started = moment_of(record.started_at)
    if started is None:  # run ids begin with the same moment
        started = moment_of(record.run_id.partition("-")[0] + "+00:00")
    return math.inf if started is None else started, record.run_id, record.device_uuid or ""


@functools.lru_cache(maxsize=4096)  # of the same runs in every series
def moment_of(text: str | None) -> float | None:
    """Return a moment in ISO 8601, in UTC unless it says otherwise, as seconds since 1970; None for other text."""
    try:
        moment = dt.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()


def _control(records: Sequence[Record], implementation: str) -> str | None:
    if implementation != BASELINE:
        return BASELINE
    measured = (record.implementation for record in records if median(record) is not None)
    variants = Counter(name for name in measured if name not in (None, BASELINE))
    return min(variants, key=lambda name: (-variants[name], name or ""), default=None)


def _runs(number: int) -> str:
    return f"{number:,} run{'' if number == 1 else 's'}"


_NEAR = 3  # the number of runs within which a move of the latency and one of the speedup are the same


class Move(Value):
    """A changepoint: the series, or its speedup, moved between two runs to a level that lasted; or a drift over many runs."""

    before: int
    index: int
    """`before` and `index` are the indices of the last run with a value before the move, and of the first after it."""
    own: float
    """The level of the median latency after the move over that before; 1.02 is 2 % slower."""
    control: float | None
    relative: float | None
    """`own` over `control`: the ratio without changes that both share. None, as `control`, without a control."""
    before_ns: float
    after_ns: float
    attribution: Attribution | None
    era: tuple[EraChange, ...]
    implementation_changed: bool | None
    reason: str
    last: int | None = None
    """The index of the last run of a drift, whose first is `index`; None for a changepoint."""

    @property
    def size(self) -> float:
        """The change relative to the control where the code is the likely cause, else the series' own."""
        return self.relative if self.attribution is Attribution.CODE and self.relative is not None else self.own


def lines_of(points: Sequence[SeriesPoint]) -> Lines:
    """Return the natural logarithms of the points' latencies, and of their controls'; NaN where there is none."""
    own = [math.log(point.p50.estimate) if point.p50 else math.nan for point in points]
    control = [math.log(point.control_ns) if point.control_ns else math.nan for point in points]
    return np.array(own), np.array(control)


def breaks_of(points: Sequence[SeriesPoint]) -> tuple[int, ...]:
    """Return the indices of runs whose environment, or GPU, differs from that of the run with a value before them."""
    measured = [at for at, point in enumerate(points) if point.p50]
    return tuple(
        after
        for before, after in itertools.pairwise(measured)
        if points[before].record.environment_hash != points[after].record.environment_hash
        or another_gpu(points[before].gpu, points[after].gpu)
    )


def moves_of(
    points: Sequence[SeriesPoint], lines: Lines, steps: Sequence[Sequence[Changepoint]], *, first: int = 0
) -> tuple[Move, ...]:
    """Return the moves of one part, by the changepoints of its log latency and of that over the control's."""
    # `lines` are the latency and the control without drifts. `first` is the index of the part's first point in the whole series, in which the
    # result has its indices.
    latency, beside = lines
    indices = _joined(*steps)
    stretches = stretches_of(len(points), indices, breaks_of(points))
    drifted = lines_of(points)[0] - latency
    moves = []
    for index in indices:
        place = stretches.index(index)
        start, stop = stretches[place - 1], stretches[place + 1]
        # A changepoint has values on both sides, of the latency and so of all that it is found in.
        before = max(at for at in range(index) if points[at].p50)
        own, control, relative = (shift(line, index, (start, stop)) for line in (latency, beside, latency - beside))
        assert own is not None
        known = points[index].since(points[before])
        attribution, reason = cause_of(own, control, known)
        move = Move(
            before=first + before,
            index=first + index,
            own=own.estimate,
            control=control.estimate if control else None,
            relative=relative.estimate if relative else None,
            before_ns=math.exp(median_level(latency[start:index]) + drifted[before]),
            after_ns=math.exp(median_level(latency[index:stop]) + drifted[index]),
            attribution=attribution,
            era=known.era,
            implementation_changed=known.implementation_changed,
            reason=reason,
        )
        moves.append(move)
    return tuple(moves)


def without_drift(points: Sequence[SeriesPoint], lines: Lines, drift: Drift, *, first: int) -> tuple[Move, Lines]:
    """Return the move of a drift that was found in a latency, or in that over its control, and both lines without it."""
    near = slice(max(0, drift.index - MIN_RUNS), drift.last + 1 + MIN_RUNS)
    runs, total = drift.line[near], float(drift.line[drift.last])
    breaks = [place - near.start for place in breaks_of(points) if near.start < place < near.stop]
    own, control = (_along(line[near], runs, total, breaks) for line in lines)
    assert own is not None
    if control is not None and abs(math.log(own.estimate)) < DEFAULT.control_part * abs(total):
        attribution, shares = None, (0.0, math.log(control.estimate) / total)
    elif control is not None and moved_along(own, control):
        attribution, shares = Attribution.MACHINE, (1.0, math.log(control.estimate) / total)
    else:
        attribution, shares = Attribution.CODE, (1.0, 0.0)
    measured = [at for at, point in enumerate(points) if point.p50]
    place, end = measured.index(drift.index), measured.index(drift.last)
    before, last = measured[place - 1], points[drift.last].record
    level = math.exp(median_level(lines[0][max(0, before + 1 - 2 * MIN_RUNS) : before + 1]))
    each = abs(math.expm1(math.log(own.estimate) / (end - place + 1)))
    moved, day = percent(own.estimate), points[drift.index].record.started_at[:10]
    rises = f"{'rises' if own.estimate > 1 else 'falls'} {100 * each:.2g} % a run"
    ended = f"{rises} from about {day} to {last.started_at[:10]}, {moved} in all"
    said = f"{rises} since about {day}, {moved} so far" if end == len(measured) - 1 else ended
    beside = f"its control moved {percent(control.estimate)}" if control else "there is no control to tell"
    move = Move(
        before=first + before,
        index=first + drift.index,
        last=first + drift.last,
        own=own.estimate,
        control=control.estimate if control else None,
        relative=own.estimate / control.estimate if control else None,
        before_ns=level,
        after_ns=level * own.estimate,
        attribution=attribution,
        era=(),
        implementation_changed=None,
        reason=f"{said}; no single commit; {beside}",
    )
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


def stretches_of(size: int, moves: Sequence[int], breaks: Sequence[int]) -> tuple[int, ...]:
    """Return where levels begin, and the size: at moves, and at changes of the environment that leave enough runs on both sides."""
    # So a driver's effect on a series is no part of the effect of code some runs later.
    starts = sorted({0, *moves, size})
    for place in breaks:
        if all(abs(place - start) >= MIN_RUNS for start in starts):
            starts = sorted([*starts, place])
    return tuple(starts)


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
