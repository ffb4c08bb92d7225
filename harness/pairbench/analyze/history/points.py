"""The runs of one series in order: which of them compare, what control each has, and where a new part begins."""

import bisect
import datetime as dt
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pairbench.model.latency import CALL, DEVICE, Latency, p50_of, p95_of, result_of
from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE
from pairbench.model.record import Record
from pairbench.stats import Interval

_FILLED_IN_S = 24 * 3600.0
"""Seconds after its commit from which on a run may fill in a history: a nightly run, or one of a pull request, is there sooner."""


@dataclass(frozen=True, kw_only=True)
class SeriesPoint:
    """What one run says of the series."""

    record: Record
    control: Record | None
    """The record of the control of the same run on the same device; None where there is none."""
    part: int
    """The number of the part that the run belongs to, counted from 0; a new part begins with each change of the
    definition."""
    latency: Latency = CALL
    """The latency that the history is of."""
    gpu: str | None = None
    """The GPU's UUID, where the run has the series on one GPU alone: one that has it on several moved to none of them."""

    p50: Interval | None = field(init=False, compare=False, repr=False)
    """Median latency in ns with its 95 % interval; the ends are NaN where they are not known. None for a gap."""
    p95_ns: float | None = field(init=False, compare=False, repr=False)
    """95th percentile of the latency in ns; None for a gap."""
    control_ns: float | None = field(init=False, compare=False, repr=False)
    """Median latency of the control in ns."""
    speedup: float | None = field(init=False, compare=False, repr=False)
    """The baseline over the variant, within the run; None where either has no value."""

    def __post_init__(self) -> None:
        """Derive what is asked of every point; a cached property takes a lock each time, and a site has 100,000 points."""
        p50 = median(self.record, self.latency)
        p95 = p95_of(self.record, self.latency) if p50 else None
        beside = median(self.control, self.latency) if self.control is not None else None
        control = beside.estimate if beside else None
        speedup = None
        if p50 is not None and control is not None:
            speedup = p50.estimate / control if self.record.implementation == BASELINE else control / p50.estimate
        found = {"p50": p50, "p95_ns": p95.estimate if p95 else None, "control_ns": control, "speedup": speedup}
        vars(self).update(found)  # frozen for everybody else


@dataclass(frozen=True, kw_only=True)
class History:
    """The points of a series, oldest first, and what a reader should know of how they were put together."""

    points: tuple[SeriesPoint, ...]
    timer: str | None
    control: str | None
    """The implementation that serves as control: the baseline, or for the baseline the variant most often measured."""
    notes: tuple[str, ...] = ()
    latency: Latency = CALL
    """The latency of the points: the one that is the result of the newest run."""


def median(record: Record, latency: Latency | None = None) -> Interval | None:
    """Return a record's median latency with its interval, in ns; None unless it was measured and is a positive number.

    Args:
        record: Of one run.
        latency: Which; the record's result where none is named.
    """
    return p50_of(record, latency) if record.status == Status.MEASURED else None


def history(records: Iterable[Record], implementation: str, *, timer: str | None = None) -> History:
    """Return the history of one implementation of a case.

    Args:
        records: of one case in one mode on one device model, all implementations, in any order.
        implementation: whose history.
        timer: of whose values; that of the newest run where not given. Runs without a value are in every history.
    """
    notes: list[str] = []
    ordered, again = _in_order(records)
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
    others = [record for record in own if median(record) and _clock(record) != clock]
    if others:
        words = f"a device latency by {clock[1]}" if clock[0] is DEVICE else "the latency of a call alone"
        notes.append(f"{_runs(len(others))} without {words} left out: another clock is another series")
        own = [record for record in own if record not in others]
    late = [record.run_id for record in own if _before_its_commit(record)]
    if late:
        notes.append(
            f"{_runs(len(late))} began before its own commit was made, {late[0]} the first: a clock is wrong there, "
            "and runs are in the order of their clocks"
        )
    control = _control(ordered, implementation)
    controls = {_place(record): record for record in ordered if record.implementation == control}
    controls = {place: record for place, record in controls.items() if record.timer in (None, timer)}
    counts = Counter(record.run_id for record in own)
    points: list[SeriesPoint] = []
    part, definition = 0, None
    for record in own:
        if record.definition_hash is not None:
            part += definition is not None and record.definition_hash != definition
            definition = record.definition_hash
        points.append(
            SeriesPoint(
                record=record,
                control=controls.get(_place(record)),
                part=part,
                latency=clock[0],
                gpu=record.device_uuid if counts[record.run_id] == 1 else None,
            )
        )
    devices = {record.device_uuid for record in own}
    if len(devices) > 1:
        notes.append(f"the runs are of {len(devices)} devices of this model")
    return History(
        points=tuple(points),
        timer=timer,
        control=control if controls else None,
        notes=tuple(notes),
        latency=clock[0],
    )


def _clock(record: Record) -> tuple[Latency, str | None]:
    """Return which latency is a record's result, and how it was taken on the device."""
    latency = result_of(record)
    return latency, record.device_timer if latency is DEVICE else None


def _in_order(records: Iterable[Record]) -> tuple[list[Record], int]:
    """Return records by when their run started, or by their commit where they fill in a history, each once, and how many runs were there more than once."""
    by_run: dict[tuple[str, str | None, str | None], Record] = {}
    again = set()
    for record in records:
        key = (*_place(record), record.implementation)
        if key in by_run:
            again.add(record.run_id)
        # Of a run that was stored twice, what has a value.
        if key not in by_run or median(by_run[key]) is None:
            by_run[key] = record
    return _filled_in(sorted(by_run.values(), key=_when)), len(again)


def _filled_in(ordered: list[Record]) -> list[Record]:
    """Return records in order of time, but those that fill in a history at the place of their commit.

    Such a run began more than a day after its commit was made, and after a run of a later commit. It is put before the first run of a
    later commit; all others stay in the order of their clocks, as what moved a machine came in that order.
    """
    kept: list[Record] = []
    late: list[Record] = []
    newest = -math.inf
    for record in ordered:
        committed, started = _moment(record.commit_at), _moment(record.started_at)
        if committed is not None and started is not None and committed < newest and started - committed > _FILLED_IN_S:
            late.append(record)
            continue
        kept.append(record)
        newest = max(newest, committed if committed is not None else newest)
    if not late:
        return ordered
    # Of each place the newest commit so far, which never falls, so that a place can be looked up.
    reached = list(itertools.accumulate((_committed(record) for record in kept), max))
    before: dict[int, list[Record]] = {}
    for record in sorted(late, key=_committed):  # stable: runs of one commit stay in the order of their clocks
        before.setdefault(bisect.bisect_right(reached, _committed(record)), []).append(record)
    return [record for place, one in enumerate(kept) for record in (*before.get(place, ()), one)]


def _committed(record: Record) -> float:
    moment = _moment(record.commit_at)
    return -math.inf if moment is None else moment


def _when(record: Record) -> tuple[float, str, str]:
    started = _moment(record.started_at)
    if started is None:
        # Run ids begin with the same moment.
        started = _moment(record.run_id.partition("-")[0] + "+00:00")
    return started if started is not None else math.inf, record.run_id, record.device_uuid or ""


@functools.lru_cache(maxsize=4096)  # of the same runs in every series
def _moment(text: str | None) -> float | None:
    try:
        moment = dt.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()


def _before_its_commit(record: Record) -> bool:
    started, committed = _moment(record.started_at), _moment(record.commit_at)
    return started is not None and committed is not None and started < committed


def _control(records: Sequence[Record], implementation: str) -> str | None:
    if implementation != BASELINE:
        return BASELINE
    variants = Counter(
        record.implementation
        for record in records
        if record.implementation not in (None, BASELINE) and median(record) is not None
    )
    return min(variants, key=lambda name: (-variants[name], name or ""), default=None)


def _place(record: Record) -> tuple[str, str | None]:
    return record.run_id, record.device_uuid


def _runs(number: int) -> str:
    return f"{number:,} run{'' if number == 1 else 's'}"
