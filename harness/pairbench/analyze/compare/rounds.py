"""Latencies of records: those that are shown, and those of each round, which are judged.

What is judged is the device's latency where both sides have it, taken in the same way, else the call's; see
`pairbench.model.latency`. The latency of a run, wherever it is shown, is the record's: the median of all samples of its
rounds, as `show` prints it; the 95th percentile likewise. A side of several runs has the median of its runs' latencies.

What is judged is the change between the means of the rounds' logarithms, for rounds are the independent unit: processes of
their own, whose spread says how sure a change is. A round counts by its median or 95th percentile; of the host, by the mean
of its lower half. Where rounds disagree, by more than one state of the machine, say, the two can differ: a median of pooled
samples takes the side of most samples, a mean of rounds counts each round alike.

How often something can happen at most, from how often it was seen.
"""

import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pairbench.model.latency import CALL, DEVICE, HOST, HOST_JUDGED, LATENCIES, Latency, result_of
from pairbench.model.record import Record, Series


def upper_bound(seen: int, tries: int, *, confidence: float = 0.95) -> float:
    """Return the largest rate that the count does not contradict (Clopper and Pearson 1934, one-sided).

    Args:
        seen: times it happened.
        tries: times it could have; taken as independent.
        confidence: with which the true rate is below.
    """
    if not 0 <= seen <= tries:
        raise ValueError(f"seen {seen} times in {tries} tries, expected 0 to {tries}")
    if seen == tries:
        return 1.0
    return float(special.betaincinv(seen + 1, tries - seen, confidence))


_ROUNDS = {
    **{
        metric: rounds
        for latency in LATENCIES
        for metric, rounds in zip((latency.p50, latency.p95), latency.rounds, strict=True)
    },
    # What interrupts the host only adds to its time, so the lower half of a round's samples repeats better than their median.
    HOST.p50: HOST_JUDGED,
}
"""The column with the latency of each round that is judged, by the column with that of all of them."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The rounds of runs in log units, one entry a run of a series; rounds are independent only within their run."""

    series: Ints
    """The index of the run's series, counted from 0."""
    current: Bools
    """Whether the run is on the current side."""
    count: Floats
    """The number of rounds of the run."""
    mean: Floats
    """The mean of the logarithms of the rounds' latencies."""
    square: Floats
    """The sum of the squared distances of these logarithms to their mean."""


class LogRounds(NamedTuple):
    """The rounds of a run of one series, as logarithms: their number, their mean, and the squared distances to it."""

    rounds: int
    mean: float
    square: float

    @classmethod
    def of(cls, logs: Sequence[float]) -> "LogRounds":
        """Return what is kept of the logarithms of a run's rounds; there is one at least."""
        mean = sum(logs) / len(logs)
        return cls(len(logs), mean, sum([(value - mean) ** 2 for value in logs]))


@dataclass(frozen=True, kw_only=True)
class MeasuredSides:
    """The records of a series that were measured on both sides, oldest first."""

    series: Series
    reference: tuple[Record, ...]
    current: tuple[Record, ...]

    @functools.cached_property
    def latency(self) -> Latency:
        """The latency by which the series is judged."""
        return judged_latency((*self.reference, *self.current))

    @property
    def is_baseline(self) -> bool:
        """Whether it is a baseline, which its variants are held against."""
        return self.current[-1].role == "baseline"


Pair = tuple[str, str, str, str]


def pair_of(series: Series) -> Pair:
    """Return what a variant shares with its baseline: the device model, the suite, the case and the mode."""
    return series.device_name, series.suite, series.case, series.mode


def usable(record: Record) -> bool:
    """Return whether a record says that it was measured."""
    return record.status == "measured"


def judged_latency(records: Iterable[Record]) -> Latency:
    """Return the latency that is judged where these records are compared: the device's if all have it from one clock."""
    several = list(records)
    of_device = all(result_of(record) is DEVICE for record in several)
    return DEVICE if of_device and len({record.device_timer for record in several}) == 1 else CALL


def is_median(metric: str) -> bool:
    """Return whether a metric is the median of the latency that is judged, by which a series gets its verdict."""
    return metric in (DEVICE.p50, CALL.p50)


def is_tail(metric: str) -> bool:
    """Return whether a metric is the 95th percentile of that latency."""
    return metric in (DEVICE.p95, CALL.p95)


def damage(record: Record) -> str | None:
    """Return what is wrong with the latencies of a measured record, as a sentence; None where nothing is."""
    for metric in (CALL.p50, CALL.p95, DEVICE.p50, DEVICE.p95, HOST.p50):
        values = round_values(record, metric)
        if metric == CALL.p50 and not values:
            return f"run {record.run_id} is marked as measured and holds no latency"
        for value in values:
            if not 0 < value < math.inf:
                return f"run {record.run_id} has a latency of {value} ns in {metric}, expected a positive number"
    return None


def log_rounds(record: Record, metric: str) -> LogRounds | None:
    """Return the rounds of a measured, undamaged record; None where it does not have this latency.

    Files written before a latency was stored by round have one number a run. It counts as one round, for nothing tells
    how far the rounds behind it spread.
    """
    values = round_values(record, metric)
    if not values:
        return None
    return LogRounds.of([math.log(value) for value in values])


def mean_log(metric: str, records: Sequence[Record]) -> float:
    """Return the mean of runs, each the mean of its rounds, in log units; NaN where none has this latency."""
    means = [rounds.mean for record in records if (rounds := log_rounds(record, metric)) is not None]
    return math.fsum(means) / len(means) if means else math.nan


def latency_of_runs(records: Iterable[Record], metric: str) -> float:
    """Return the latency of some runs in ns, as it is shown: the median of the runs' own; NaN where none has one."""
    values = [value for record in records if (value := latency_of_run(record, metric)) is not None]
    return statistics.median(values) if values else math.nan


def latency_of_run(record: Record, metric: str) -> float | None:
    """Return a latency of one run in ns, as `show` prints it; the median of its rounds where only these were stored."""
    shown: float | None = getattr(record, metric)
    if shown is not None and 0 < shown < math.inf:
        return float(shown)
    values = round_values(record, metric)
    return statistics.median(values) if values else None


def collect(sides: Sequence[tuple[Sequence[Record], Sequence[Record]]], metric: str, *, pooled: bool = False) -> Runs:
    """Return the runs of many series, each given as its reference and its current records, measured and undamaged.

    Args:
        sides: The records of each series.
        metric: The latency.
        pooled: Whether a run counts as one round with the latency that is shown of it.
    """
    several = [
        (index, bool(side), _as_one_round(record, metric) if pooled else log_rounds(record, metric))
        for index, both in enumerate(sides)
        for side, records in enumerate(both)
        for record in records
    ]
    return as_runs([(index, side, values) for index, side, values in several if values is not None])


def as_runs(known: Sequence[tuple[int, bool, LogRounds]]) -> Runs:
    """Return runs as arrays, each given as the index of its series, whether it is on the current side, and its rounds."""
    return Runs(
        series=np.array([index for index, _, _ in known], dtype=np.int64),
        current=np.array([side for _, side, _ in known], dtype=np.bool_),
        count=np.array([values.rounds for _, _, values in known], dtype=np.float64),
        mean=np.array([values.mean for _, _, values in known], dtype=np.float64),
        square=np.array([values.square for _, _, values in known], dtype=np.float64),
    )


def _as_one_round(record: Record, metric: str) -> LogRounds | None:
    shown = latency_of_run(record, metric)
    return None if shown is None else LogRounds(1, math.log(shown), 0.0)


def round_values(record: Record, metric: str) -> tuple[float, ...]:
    """Return a latency of each round in ns, or of all together where rounds were not stored; empty where there is none."""
    rounds: tuple[float, ...] | None = getattr(record, _ROUNDS[metric])
    if rounds:
        return tuple([math.nan if value is None else value for value in rounds]) if None in rounds else rounds
    pooled = getattr(record, metric)
    return () if pooled is None else (float(pooled),)
