"""The four latencies of a call, the columns that hold them, and which of them is a record's result.

`device` is what the GPU needs, with the host's work hidden: a replay of the captured call, which has no gaps between launches.
`stream` is the same for the call's own launches, gaps included; `host` is what the CPU needs to issue the call; `call` is what
the caller of a single call sees. On a GPU the result is the device's, wherever it could be taken: it repeats between runs,
and the call's does not where the host limits it. On a CPU there is the call's alone.
"""

import functools
import math
from collections.abc import Callable, Container
from operator import attrgetter

from pairbench.model.environment import withheld
from pairbench.model.plain import Value
from pairbench.model.record import Record
from pairbench.stats import Interval


class Latency(Value):
    """One of the four latencies, with the names of its columns in ns: percentiles over all rounds, percentiles by round, and the speedup."""

    name: str
    rounds: tuple[str, str]
    speedup: str

    @property
    def p50(self) -> str:
        return f"{self.name}_p50_ns"

    @property
    def p95(self) -> str:
        return f"{self.name}_p95_ns"


DEVICE = Latency(name="device", rounds=("device_round_p50_ns", "device_round_p95_ns"), speedup="device_speedup")
STREAM = Latency(name="stream", rounds=("stream_round_p50_ns", "stream_round_p95_ns"), speedup="stream_speedup")
# Without the name in front, as in the files of all versions.
CALL = Latency(name="call", rounds=("round_p50_ns", "round_p95_ns"), speedup="speedup")
HOST = Latency(name="host", rounds=("host_round_p50_ns", "host_round_p95_ns"), speedup="host_speedup")
LATENCIES = (DEVICE, STREAM, CALL, HOST)
HOST_JUDGED = "host_round_lower_mean_ns"
"""The column of host times by round that are compared relative to the baseline's, and that `ab` judges."""
ENDS = ("", "_low", "_high")
"""Suffixes of the columns of an estimate and of the ends of its interval."""

RESULT_COLUMNS = (
    *("device_kind", "timer", "device_timer", "bound", "host_p50_ns"),
    *(f"{metric}{end}" for one in (DEVICE, CALL) for metric in (one.p50, one.p95) for end in ENDS),
    *(f"{one.speedup}{end}" for one in (DEVICE, CALL) for end in ENDS),
    STREAM.speedup,
)
"""The columns of a record that showing its result needs."""


def result_of(record: Record) -> Latency:
    return DEVICE if record.device_kind != "cpu" and 0 < (record.device_p50_ns or 0) < math.inf else CALL


def sampled_as(record: Record, known: Container[str]) -> str:
    """Return the name of the latency whose raw samples, if these are among the known ones, a record's result is derived from."""
    # Where a replay was not believed, the device's latency is derived from samples of the stream.
    name = result_of(record).name
    return STREAM.name if name == DEVICE.name and record.device_timer == "spin" and STREAM.name in known else name


def p50_of(record: Record, latency: Latency | None = None) -> Interval | None:
    """Return a median in ns with its 95 % interval, that of the result if no latency is named; None where there is none."""
    # The ends of the interval are NaN where they are not known.
    return interval_of(record, (latency or result_of(record)).p50)


def p95_of(record: Record, latency: Latency | None = None) -> Interval | None:
    return interval_of(record, (latency or result_of(record)).p95)


def speedup_of(record: Record | None) -> Interval | None:
    """Return a record's speedup with its interval: of the device's latency where that is known, else of the call's."""
    # None where it has none, and where it is withheld: see `environment.withheld`.
    if record is None or withheld(record.device_kind, record.environment):
        return None
    of_device = interval_of(record, DEVICE.speedup) if record.device_kind != "cpu" else None
    return of_device or interval_of(record, CALL.speedup)


def speedup_over(record: Record, other: Record | None) -> Interval | None:
    """Return how many times as fast a record is as another of its case, with the widest interval that both speedups allow; None where one is not known."""
    mine, theirs = speedup_of(record), speedup_of(other)
    if other is not None and other.role == "baseline":
        return mine
    if mine is None or theirs is None:
        return None
    return Interval(mine.estimate / theirs.estimate, mine.low / theirs.high, mine.high / theirs.low)


def speedup_is_of(record: Record) -> Latency:
    """Return the latency that a record's speedup is of: the call's where the baseline has none on the device."""
    return DEVICE if record.device_kind != "cpu" and interval_of(record, DEVICE.speedup) else CALL


def interval_of(record: Record, column: str) -> Interval | None:
    """Return a column's estimate and its interval, whose ends are NaN where they are unknown; None where the estimate is not positive and finite."""
    value, low, high = _with_ends(column)(record)
    if value is None or not 0 < value < math.inf:
        return None
    return Interval(value, math.nan if low is None else low, math.nan if high is None else high)


def interval_columns(column: str, interval: Interval) -> dict[str, float | None]:
    """Return the columns of an estimate and of the ends of its interval, null where it has none."""
    low, high = (None if math.isnan(end) else end for end in interval[1:])
    return {column: interval.estimate, f"{column}_low": low, f"{column}_high": high}


@functools.cache  # a site calls it millions of times
def _with_ends(column: str) -> Callable[[Record], tuple[float | None, float | None, float | None]]:
    return attrgetter(column, f"{column}_low", f"{column}_high")
