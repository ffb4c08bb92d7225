"""The runs of one series in order: which of them compare, and the control of each."""

import datetime as dt
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from pairbench.analyze.compare.attribute import Circumstances
from pairbench.analyze.history.changepoint import MIN_RUNS, Flags
from pairbench.model.outcome import OUT_OF_BUDGET, Status
from pairbench.model.plain import Value
from pairbench.model.plan import BASELINE
from pairbench.model.record import CALL, DEVICE, ENDS, Latency, LazyRecords, Record, derived
from pairbench.stats import Floats, Interval

Places = NDArray[np.intp]
Lines = tuple[Floats, Floats]  # the log latencies of a series and of its control
_FILLED_IN_S = 24 * 3600.0
"""Seconds after its commit from which on a run may fill in a history: a nightly run, or one of a pull request, is there sooner."""


@derived
def _numbers(records: LazyRecords, name: str) -> Floats:
    """Return a column of numbers, NaN where there is none."""
    column = records.column(name)
    return np.array(column if isinstance(column, list) else column.to_numpy(zero_copy_only=False), dtype=np.float64)


@derived
def _codes(records: LazyRecords, name: str) -> tuple[Places, list[str]]:
    """Return for each record the place of its text in a list of the column's texts, -1 for None; and that list, sorted."""
    column = records.column(name)
    if isinstance(column, list):
        known, indices = column, np.arange(len(column))
    else:
        known, indices = [*column.dictionary.to_pylist(), None], column.indices.fill_null(-1).to_numpy()
    used = np.flatnonzero(np.bincount(indices % len(known), minlength=len(known))).tolist() if known else []
    texts = sorted({known[place] for place in used} - {None})
    places = {None: -1, **{text: place for place, text in enumerate(texts)}}
    of_known = np.full(len(known), -1)
    of_known[used] = [places[known[place]] for place in used]
    return of_known[indices], texts


class SeriesPoint(Value):
    record: Record
    control: Record | None  # the control's record of the same run and device; None where the control has none there
    part: int  # the number of the run's part, from 0; a new part begins with each change of the definition
    latency: Latency = CALL
    gpu: str | None = None  # the GPU's UUID, where the run has the series on one GPU alone
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
        self.p50 = _medians(records, latency.p50)[own]
        gap = np.isnan(self.p50)
        self.low, self.high = (np.where(gap, np.nan, self.numbers(f"{latency.p50}{end}")) for end in ENDS[1:])
        p95 = self.numbers(latency.p95)
        self.p95 = np.where(gap | ~_positive(p95), np.nan, p95)
        self.control = np.where(controls < 0, np.nan, _medians(records, latency.p50)[controls])
        baseline = len(own) > 0 and records.values("implementation")[own[0]] == BASELINE
        self.speedup = self.p50 / self.control if baseline else self.control / self.p50
        self.measured = np.flatnonzero(~gap)
        self._made: dict[int, SeriesPoint] = {}

    def numbers(self, name: str) -> Floats:
        return _numbers(self.records, name)[self.own]

    @property
    def lines(self) -> Lines:
        """The natural logarithms of the points' latencies, and of their controls'; NaN where there is none."""
        return np.log(self.p50), np.log(self.control)

    def changed(self, places: Places) -> tuple[Flags, Flags]:
        """Return which of some points, but for the first, have another environment than the one before, and which another GPU."""
        environments, gpus = _codes(self.records, "environment_hash")[0][self.own[places]], self.gpus[places]
        return np.diff(environments) != 0, (np.diff(gpus) != 0) & (gpus[1:] >= 0) & (gpus[:-1] >= 0)

    @property
    def breaks(self) -> list[int]:
        """The indices of runs whose environment, or GPU, differs from that of the run with a value before them."""
        return list(self.measured[1:][np.logical_or(*self.changed(self.measured))].tolist())

    def stretches(self, moves: Iterable[int]) -> list[int]:
        """Return where levels begin, and the size: at moves, and at changes of the environment that leave enough runs on both sides."""
        # So a driver's effect on a series is no part of the effect of code some runs later.
        starts = {0, *moves, len(self)}
        for place in self.breaks:
            if all(abs(place - start) >= MIN_RUNS for start in starts):
                starts.add(place)
        return sorted(starts)

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
    return np.asarray((values > 0) & (values < math.inf))


def _is(records: LazyRecords, places: Places | slice, name: str, text: str | None) -> Flags:
    codes, texts = _codes(records, name)
    return np.asarray(codes[places] == (texts.index(text) if text in texts else -2))


@derived
def _medians(records: LazyRecords, name: str) -> Floats:
    """Return a median latency of each record in ns, NaN for a record that was not measured or has no positive one."""
    values = _numbers(records, name)
    return np.where(_positive(values) & _is(records, slice(None), "status", Status.MEASURED), values, np.nan)


class History(NamedTuple):
    """The points of a series, oldest first; `notes` are sentences about runs that were left out or moved."""

    points: Points
    timer: str | None
    control: str | None
    """The implementation that serves as control: the baseline, or for the baseline the variant most often measured."""
    notes: tuple[str, ...]


class InOrder(NamedTuple):
    """The places of the records of a case in one mode on one device model, each once, oldest first; and the number of runs that were found twice."""

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
    on_device, measured = _on_device(records)[own], np.flatnonzero(~np.isnan(_results(records)[own]))
    clocks = np.where(on_device, _codes(records, "device_timer")[0][own], -2)
    latency = DEVICE if on_device[measured[-1:]].any() else CALL
    left = measured[clocks[measured] != clocks[measured[-1:]]]
    if number := len(left):
        by = records.values("device_timer")[own[measured[-1]]]
        words = f"a device latency by {by}" if latency is DEVICE else "the latency of a call alone"
        notes.append(f"{_runs(number)} without {words} left out: another clock is another series")
        own = np.delete(own, left)
    late = own[_moments(records, "started_at")[own] < _moments(records, "commit_at")[own]]
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
    return History(points, timer, control if controls else None, tuple(notes))


@derived
def _on_device(records: LazyRecords) -> Flags:
    """Return which records have a device's latency as their result, as `result_of` says of one."""
    return ~_is(records, slice(None), "device_kind", "cpu") & _positive(_numbers(records, DEVICE.p50))


@derived
def _results(records: LazyRecords) -> Floats:
    """Return the median of the latency that is each record's result; NaN where it was not measured."""
    return np.where(_on_device(records), _medians(records, DEVICE.p50), _medians(records, CALL.p50))


def by_case(records: LazyRecords) -> Iterator[tuple[str, str, list[str], InOrder]]:
    """Yield each case and mode with the names of its implementations and its records in order; records that were out of budget are left out."""
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


def in_order(records: LazyRecords | Iterable[Record], places: Places | None = None) -> InOrder:
    """Return the records of a case, which are all, or those at some places, in the order of time."""
    whole = records if isinstance(records, LazyRecords) else LazyRecords.of(records)
    here = np.arange(len(whole)) if places is None else places
    runs, devices, names = (_codes(whole, name)[0] for name in ("run_id", "device_uuid", "implementation"))
    # Of a run that was stored twice, the first record with a value; without any, the last.
    missing, at = np.isnan(_results(whole)[here]), np.arange(len(here))
    keys = np.stack([runs[here], devices[here], names[here]])
    best = np.lexsort((np.where(missing, -at, at), missing, *keys))
    later = ~np.any(np.diff(keys[:, best], axis=1, prepend=-2), axis=0)
    again = set(runs[here[best[later]]].tolist())
    once = here[np.sort(best[~later])]
    order = np.lexsort((devices[once], runs[once], _began(whole, once)))
    return InOrder(whole, _filled_in(whole, once[order]), len(again))


def _filled_in(records: LazyRecords, ordered: Places) -> Places:
    """Return records in order of time, except runs that fill in a history, which go before the first run of a later commit."""
    # Such a run began more than a day after its commit was made, and after a run of a later commit. All others stay in the order of their clocks.
    committed, started = (_moments(records, name)[ordered] for name in ("commit_at", "started_at"))
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


@derived
def _moments(records: LazyRecords, name: str) -> Floats:
    """Return a column of moments in seconds since 1970; -infinity where a commit's is not known, NaN where a run's is not."""
    codes, texts = _codes(records, name)
    moments = np.array([*map(moment_of, texts), None], dtype=np.float64)[codes]
    return np.where(np.isnan(moments), -math.inf, moments) if name == "commit_at" else moments


def _began(records: LazyRecords, places: Places) -> Floats:
    """Return when each run began; run ids begin with the same moment, for records that do not say it."""
    codes, texts = _codes(records, "run_id")
    named = [math.inf if (moment := moment_of(text.partition("-")[0] + "+00:00")) is None else moment for text in texts]
    started = _moments(records, "started_at")[places]
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
    measured = codes[ordered[~np.isnan(_results(records)[ordered])]]
    variants = Counter(names[code] for code in measured.tolist() if code >= 0 and names[code] != BASELINE)
    return min(variants, key=lambda name: (-variants[name], name), default=None)


def _runs(number: int) -> str:
    return f"{number:,} run{'' if number == 1 else 's'}"
