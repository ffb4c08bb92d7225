"""The runs of one series in order: which of them compare, the control of each, and where they moved to a new level, with the likely cause."""

import datetime as dt
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from pairbench.analyze.compare.attribute import Circumstances, moved_along, percent
from pairbench.analyze.history.changepoint import MIN_RUNS, Changepoint, Drift
from pairbench.analyze.history.drift import without_levels
from pairbench.model.comparison import DEFAULT, Attribution, EraChange
from pairbench.model.latency import CALL, DEVICE, ENDS, Latency
from pairbench.model.outcome import OUT_OF_BUDGET, Status
from pairbench.model.plain import Value
from pairbench.model.plan import BASELINE
from pairbench.model.record import LazyRecords, Record
from pairbench.stats import Floats, Interval

Places = NDArray[np.intp]
Flags = NDArray[np.bool_]
Lines = tuple[Floats, Floats]  # the log latencies of a series and of its control
_FILLED_IN_S = 24 * 3600.0
"""Seconds after its commit from which on a run may fill in a history: a nightly run, or one of a pull request, is there sooner."""


def _numbers(records: LazyRecords, name: str) -> Floats:
    """Return a column of numbers, NaN where there is none."""
    found: Floats = records.derived(_as_numbers, name)
    return found


def _as_numbers(records: LazyRecords, name: str) -> Floats:
    column = records.column(name)
    return np.array(column if isinstance(column, list) else column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _codes(records: LazyRecords, name: str) -> tuple[Places, list[str]]:
    """Return for each record the place of its text in a list of the column's texts, -1 for None; and that list, sorted."""
    found: tuple[Places, list[str]] = records.derived(_as_codes, name)
    return found


def _as_codes(records: LazyRecords, name: str) -> tuple[Places, list[str]]:
    column = records.column(name)
    if isinstance(column, list):
        known, indices = column, np.arange(len(column))
    else:
        known, indices = [*column.dictionary.to_pylist(), None], column.indices.fill_null(-1).to_numpy()
    used = np.flatnonzero(np.bincount(indices % len(known), minlength=len(known))).tolist() if len(known) else []
    texts = sorted({known[place] for place in used} - {None})
    places = {None: -1, **{text: place for place, text in enumerate(texts)}}
    of_known = np.full(len(known), -1)
    of_known[used] = [places[known[place]] for place in used]
    return of_known[indices], texts


class SeriesPoint(Value):
    record: Record
    control: Record | None
    """The record of the control of the same run on the same device; None where there is none."""
    part: int
    """The number of the run's part, from 0; a new part begins with each change of the definition."""
    latency: Latency = CALL
    gpu: str | None = None
    """The GPU's UUID, where the run has the series on one GPU alone."""
    p50: Interval | None
    """Median latency in ns with its 95 % interval; the ends are NaN where they are not known. None, like the three below, for a gap."""
    p95_ns: float | None
    control_ns: float | None
    speedup: float | None

    def since(self, before: "SeriesPoint") -> Circumstances:
        controls, gpus = (before.control, self.control), (before.gpu, self.gpu)
        return Circumstances.between(before.record, self.record, controls, gpus=gpus)


class Points(Sequence[SeriesPoint]):
    """The points of a series, oldest first, as columns with a value for each point; NaN and -1 stand for None."""

    def __init__(
        self, records: LazyRecords, own: Places, controls: Places, *, parts: Places, latency: Latency, gpus: Places
    ) -> None:
        """Take the places of a series' records and of their controls, and for each point its part and the place of its GPU's UUID."""
        self.records, self.own, self.controls = records, own, controls
        self.parts, self.latency, self.gpus = parts, latency, gpus
        self.p50 = _medians(records, own, latency)
        gap = np.isnan(self.p50)
        self.low, self.high = (np.where(gap, np.nan, self.numbers(f"{latency.p50}{end}")) for end in ENDS[1:])
        p95 = self.numbers(latency.p95)
        self.p95 = np.where(gap | ~_positive(p95), np.nan, p95)
        self.control = np.where(controls < 0, np.nan, _medians(records, controls, latency))
        baseline = len(own) > 0 and records.values("implementation")[own[0]] == BASELINE
        self.speedup = self.p50 / self.control if baseline else self.control / self.p50
        self.measured = np.flatnonzero(~gap)
        self._made: dict[int, SeriesPoint] = {}

    def numbers(self, name: str) -> Floats:
        return _numbers(self.records, name)[self.own]

    def codes(self, name: str) -> Places:
        return _codes(self.records, name)[0][self.own]

    def values(self, name: str) -> list[Any]:
        values = self.records.values(name)
        return [values[place] for place in self.own.tolist()]

    def __len__(self) -> int:
        return len(self.own)

    @overload
    def __getitem__(self, place: int) -> SeriesPoint: ...
    @overload
    def __getitem__(self, place: slice) -> "Points": ...
    def __getitem__(self, place: int | slice) -> "SeriesPoint | Points":
        if isinstance(place, slice):
            own, controls, parts, gpus = (one[place] for one in (self.own, self.controls, self.parts, self.gpus))
            return Points(self.records, own, controls, parts=parts, latency=self.latency, gpus=gpus)
        if place not in self._made:
            self._made[place] = self._point(range(len(self.own))[place])
        return self._made[place]

    def by_part(self) -> list["Points"]:
        ends = [0, *(np.flatnonzero(np.diff(self.parts)) + 1).tolist(), len(self)]
        return [self[start:end] for start, end in itertools.pairwise(ends)] if len(ends) > 2 else [self] * bool(self)

    def _point(self, at: int) -> SeriesPoint:
        columns = (self.p50, self.low, self.high, self.p95, self.control, self.speedup)
        p50, low, high, p95, control, speedup = (float(one[at]) for one in columns)
        return SeriesPoint(
            record=self.records[int(self.own[at])],
            control=self.records[int(self.controls[at])] if self.controls[at] >= 0 else None,
            part=int(self.parts[at]),
            latency=self.latency,
            gpu=_codes(self.records, "device_uuid")[1][self.gpus[at]] if self.gpus[at] >= 0 else None,
            p50=None if math.isnan(p50) else Interval(p50, low, high),
            p95_ns=_known(p95),
            control_ns=_known(control),
            speedup=_known(speedup),
        )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _positive(values: Floats) -> Flags:
    found: Flags = (values > 0) & (values < math.inf)
    return found


def _is(records: LazyRecords, places: Places | slice, name: str, text: str | None) -> Flags:
    codes, texts = _codes(records, name)
    found: Flags = codes[places] == (texts.index(text) if text in texts else -2)
    return found


def _medians(records: LazyRecords, places: Places | slice, latency: Latency) -> Floats:
    """Return the median latency of each record in ns; NaN unless it was measured and is a positive number."""
    found: Floats = records.derived(_as_medians, latency.p50)[places]
    return found


def _as_medians(records: LazyRecords, name: str) -> Floats:
    values = _numbers(records, name)
    return np.where(_positive(values) & _is(records, slice(None), "status", Status.MEASURED), values, np.nan)


class History(NamedTuple):
    """The points of a series, oldest first; `notes` are sentences about runs that were left out or moved."""

    points: Points
    timer: str | None
    control: str | None
    """The implementation that serves as control: the baseline, or for the baseline the variant most often measured."""
    notes: tuple[str, ...]
    latency: Latency


class InOrder(NamedTuple):
    """The places of the records of a case in one mode on one device model, each once, oldest first; and the number of runs that were there twice."""

    records: LazyRecords
    places: Places
    again: int


def history(of_case: InOrder, implementation: str, *, timer: str | None = None) -> History:
    """Return the history of one implementation, from all records of a case in one mode on one device model."""
    # It has the values of one timer, by default that of the newest run, and all runs without a value.
    notes: list[str] = []
    records, ordered, again = of_case
    if again:
        notes.append(f"{_runs(again)} found twice in the store and counted once")
    own = ordered[_is(records, ordered, "implementation", implementation)]
    timers, names = _codes(records, "timer")
    known = timers[own][timers[own] >= 0]
    timer = timer or (names[known[-1]] if len(known) else None)
    timed = own[timers[own] >= 0]
    others = Counter(names[code] for code in timers[timed[~_is(records, timed, "timer", timer)]].tolist())
    notes += [
        f"{_runs(number)} timed by {name} left out: another timer is another series"
        for name, number in sorted(others.items())
    ]
    own = own[(timers[own] < 0) | _is(records, own, "timer", timer)]
    on_device, measured = records.derived(_on_device)[own], np.flatnonzero(~np.isnan(records.derived(_results)[own]))
    clocks = np.where(on_device, _codes(records, "device_timer")[0][own], -2)
    latency = DEVICE if on_device[measured[-1:]].any() else CALL
    left = measured[clocks[measured] != clocks[measured[-1:]]]
    if number := len(left):
        by = records.values("device_timer")[own[measured[-1]]]
        words = f"a device latency by {by}" if latency is DEVICE else "the latency of a call alone"
        notes.append(f"{_runs(number)} without {words} left out: another clock is another series")
        own = np.delete(own, left)
    late = own[_moments(records, own, "started_at") < _moments(records, own, "commit_at")]
    if len(late):
        wrong = f"{records.values('run_id')[late[0]]} the first: a clock is wrong there, and runs are in the order of their clocks"
        notes.append(f"{_runs(len(late))} began before its own commit was made, {wrong}")
    control = _control(of_case, implementation)
    beside = ordered[_is(records, ordered, "implementation", control)]
    beside = beside[(timers[beside] < 0) | _is(records, beside, "timer", timer)]
    runs, devices = _codes(records, "run_id")[0], _codes(records, "device_uuid")[0]
    on = runs * (devices.max(initial=0) + 2) + devices
    controls = dict(zip(on[beside].tolist(), beside.tolist(), strict=True))
    places = np.array([controls.get(run, -1) for run in on[own].tolist()], dtype=np.intp)
    definitions = _codes(records, "definition_hash")[0][own]
    defined = np.flatnonzero(definitions >= 0)
    parts = np.zeros(len(own), dtype=np.intp)
    parts[defined[1:][np.diff(definitions[defined]) != 0]] = 1
    alone = np.bincount(runs[own], minlength=1)[runs[own]] == 1
    gpus = np.where(alone, devices[own], -1)
    points = Points(records, own, places, parts=np.cumsum(parts), latency=latency, gpus=gpus)
    if (number := len(np.unique(devices[own]))) > 1:
        notes.append(f"the runs are of {number} devices of this model")
    return History(points, timer, control if controls else None, tuple(notes), latency)


def _on_device(records: LazyRecords) -> Flags:
    """Return which records have a device's latency as their result, as `result_of` says of one."""
    found: Flags = ~_is(records, slice(None), "device_kind", "cpu") & _positive(_numbers(records, DEVICE.p50))
    return found


def _results(records: LazyRecords) -> Floats:
    """Return the median of the latency that is each record's result; NaN where it was not measured."""
    of_device, of_call = (_medians(records, slice(None), latency) for latency in (DEVICE, CALL))
    return np.where(records.derived(_on_device), of_device, of_call)


def by_case(records: LazyRecords) -> Iterator[tuple[str, str, list[str], InOrder]]:
    """Yield case and mode, the names of its implementations, and its records in order, without those that a run had no time for."""
    columns = [_codes(records, name) for name in ("case", "mode", "implementation")]
    (cases, modes, names), texts = zip(*columns, strict=True)
    here = np.flatnonzero((cases >= 0) & (modes >= 0) & ~_is(records, slice(None), "reason", OUT_OF_BUDGET))
    here = here[np.lexsort((here, modes[here], cases[here]))]
    starts = np.flatnonzero(np.diff(cases[here], prepend=-1) | np.diff(modes[here], prepend=-1))
    for places in np.split(here, starts[1:]):
        if len(places):
            used = np.unique(names[places][names[places] >= 0]).tolist()
            case, mode = texts[0][cases[places[0]]], texts[1][modes[places[0]]]
            yield case, mode, [texts[2][code] for code in used], in_order(records, places)


def in_order(records: Iterable[Record], places: Places | None = None) -> InOrder:
    """Return the records of a case, which are all, or those at some places, in the order of time."""
    whole = records if isinstance(records, LazyRecords) else LazyRecords.of(records)
    here = np.arange(len(whole)) if places is None else places
    runs, devices, names = (_codes(whole, name)[0] for name in ("run_id", "device_uuid", "implementation"))
    # Of a run that was stored twice, the first record with a value; without any, the last.
    missing, at = np.isnan(whole.derived(_results)[here]), np.arange(len(here))
    keys = np.stack([runs[here], devices[here], names[here]])
    best = np.lexsort((np.where(missing, -at, at), missing, *keys))
    later = ~np.any(np.diff(keys[:, best], axis=1, prepend=-2), axis=0)
    again = set(runs[here[best[later]]].tolist())
    once = here[np.sort(best[~later])]
    order = np.lexsort((devices[once], runs[once], _began(whole, once)))
    return InOrder(whole, _filled_in(whole, once[order]), len(again))


def _filled_in(records: LazyRecords, ordered: Places) -> Places:
    """Return records in order of time, except runs that fill in a history, which go before the first run of a later commit."""
    # Such a run began more than a day after its commit was made, and after a run of a later commit. All others stay in the order of their clocks, in
    # which the machine changed.
    committed, started = (_moments(records, ordered, name) for name in ("commit_at", "started_at"))
    # A run that fills in never is of the latest commit so far.
    earlier = (committed < np.maximum.accumulate(committed)) & (committed > -math.inf)
    late = earlier & (started - committed > _FILLED_IN_S)
    if not late.any():
        return ordered
    # The newest commit up to each record never falls, so it can be bisected.
    reached = np.maximum.accumulate(committed[~late])
    filled = np.argsort(committed[late], kind="stable")  # runs of one commit stay in the order of their clocks
    before = np.searchsorted(reached, committed[late][filled], side="right")
    return np.insert(ordered[~late], before, ordered[late][filled])


def _moments(records: LazyRecords, places: Places, name: str) -> Floats:
    """Return a column of moments in seconds since 1970; -infinity where a commit's is not known, NaN where a run's is not."""
    found: Floats = records.derived(_as_moments, name)[places]
    return np.where(np.isnan(found), -math.inf, found) if name == "commit_at" else found


def _as_moments(records: LazyRecords, name: str) -> Floats:
    codes, texts = _codes(records, name)
    return np.array([*map(moment_of, texts), None], dtype=np.float64)[codes]


def _began(records: LazyRecords, places: Places) -> Floats:
    """Return when each run began; run ids begin with the same moment, for records that do not say it."""
    codes, texts = _codes(records, "run_id")
    named = [math.inf if (moment := moment_of(text.partition("-")[0] + "+00:00")) is None else moment for text in texts]
    started = _moments(records, places, "started_at")
    return np.where(np.isnan(started), np.array([*named, math.inf])[codes[places]], started)


@functools.lru_cache(maxsize=4096)  # of the same runs in every series
def moment_of(text: str | None) -> float | None:
    """Return a moment in ISO 8601, in UTC unless it says otherwise, as seconds since 1970; None for other text."""
    try:
        moment = dt.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()


def _control(of_case: InOrder, implementation: str) -> str | None:
    if implementation != BASELINE:
        return BASELINE
    records, ordered, _ = of_case
    codes, names = _codes(records, "implementation")
    measured = codes[ordered[~np.isnan(records.derived(_results)[ordered])]]
    variants = Counter(names[code] for code in measured.tolist() if code >= 0 and names[code] != BASELINE)
    return min(variants, key=lambda name: (-variants[name], name), default=None)


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


def lines_of(points: Points) -> Lines:
    """Return the natural logarithms of the points' latencies, and of their controls'; NaN where there is none."""
    return np.log(points.p50), np.log(points.control)


def breaks_of(points: Points) -> tuple[int, ...]:
    """Return the indices of runs whose environment, or GPU, differs from that of the run with a value before them."""
    places = points.measured
    environments, gpus = points.codes("environment_hash")[places], points.gpus[places]
    another = (np.diff(gpus) != 0) & (gpus[1:] >= 0) & (gpus[:-1] >= 0)
    return tuple(places[1:][(np.diff(environments) != 0) | another].tolist())


def moves_of(
    points: Points, lines: Lines, steps: Sequence[Sequence[Changepoint]], *, first: int = 0
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
        before = int(points.measured[points.measured < index][-1])
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


def without_drift(points: Points, lines: Lines, drift: Drift, *, first: int) -> tuple[Move, Lines]:
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
