"""Latencies of records: as they are shown, by round, as they are judged, and relative to a baseline.

The device's latency is judged where both sides have it, taken in the same way, else the call's; see `pairbench.model.record`.
The latency of a run, wherever it is shown, is the record's: the median of all samples of its rounds, as `show` prints it; the 95th
percentile likewise. A side of several runs has the median of its runs' latencies.

The judged change is that between the means of the rounds' logarithms, for rounds are the independent unit: processes of
their own, whose spread says how sure a change is. A round counts by its median or 95th percentile; of the host, by the mean
of its lower half. Where rounds disagree, by more than one state of the machine, say, the two can differ: a median of pooled
samples takes the side of most samples, a mean of rounds counts each round alike.

A variant and its baseline are measured in the same blocks, so a machine that got 0.7 % faster hides as much of a variant that got
1.9 % slower. Relative to the baseline all of it shows.
"""

import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairbench.model.plain import Value
from pairbench.model.record import CALL, DEVICE, HOST, HOST_JUDGED, LATENCIES, Latency, Record, Series, result_of

_ROUNDS = {column: rounds for one in LATENCIES for column, rounds in zip((one.p50, one.p95), one.rounds, strict=True)}
"""The column with the latency of each round that is judged, by the column with that of all of them."""
# Interruptions of the host only add to its time, so the lower half of a round's samples repeats better than their median.
_ROUNDS[HOST.p50] = HOST_JUDGED

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Runs(Value):
    """The rounds of runs in log units, one entry a run of a series; rounds are independent only within their run."""

    series: Ints
    current: Bools
    count: Floats
    mean: Floats
    square: Floats
    """`series` is the index of the run's series, and `current` its side; the others are those of the run's `LogRounds`."""


class LogRounds(NamedTuple):
    """Statistics of the logarithms of the rounds' latencies of a run: their number, their mean, and the sum of squared deviations from it."""

    rounds: int
    mean: float
    square: float

    @classmethod
    def of(cls, logs: Sequence[float]) -> "LogRounds":
        mean = sum(logs) / len(logs)
        return cls(len(logs), mean, sum([(value - mean) ** 2 for value in logs]))


class MeasuredSides(Value):
    """The records of a series that were measured on both sides, oldest first."""

    series: Series
    reference: tuple[Record, ...]
    current: tuple[Record, ...]

    @functools.cached_property
    def latency(self) -> Latency:
        """The latency by which the records are compared: the device's where all records have it and one timer took it, else the call's."""
        known = (*self.reference, *self.current)
        of_device = all(result_of(record) is DEVICE for record in known)
        return DEVICE if of_device and len({record.device_timer for record in known}) == 1 else CALL

    @property
    def is_baseline(self) -> bool:
        return self.current[-1].role == "baseline"


def pair_of(series: Series) -> tuple[str, str, str, str]:
    return series.device_name, series.suite, series.case, series.mode


def usable(record: Record) -> bool:
    return record.status == "measured"


def is_median(metric: str) -> bool:
    """Return whether a metric is the median latency of the device or of the call: a series gets its verdict by one of them."""
    return metric in (DEVICE.p50, CALL.p50)


def damage(record: Record) -> str | None:
    """Return a sentence about damaged latencies of a measured record; None where they are sound."""
    for metric in (CALL.p50, CALL.p95, DEVICE.p50, DEVICE.p95, HOST.p50):
        values = round_values(record, metric)
        if metric == CALL.p50 and not values:
            return f"run {record.run_id} is marked as measured and holds no latency"
        for value in values:
            if not 0 < value < math.inf:
                return f"run {record.run_id} has a latency of {value} ns in {metric}, expected a positive number"
    return None


def log_rounds(record: Record, metric: str) -> LogRounds | None:
    """Return the rounds of a measured, undamaged record; None where it does not have this latency."""
    # Files without this latency by round have one number a run. It counts as one round, for the spread of its rounds is not known.
    values = round_values(record, metric)
    return LogRounds.of([math.log(value) for value in values]) if values else None


def mean_log(metric: str, records: Sequence[Record]) -> float:
    """Return the mean of runs, each the mean of its rounds, in log units; NaN where none has this latency."""
    means = [rounds.mean for record in records if (rounds := log_rounds(record, metric)) is not None]
    return statistics.fmean(means) if means else math.nan


def latency_of_runs(records: Iterable[Record], metric: str) -> float:
    """Return the latency in ns that is shown for several runs: the median of the latencies of the single runs; NaN where no run has a latency."""
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
    """Return the runs of many series, each given as its reference and its current records, measured and undamaged."""
    # `pooled` takes one number a run, as it is shown, instead of its rounds.
    known = []
    for index, both in enumerate(sides):
        for current, record in ((current, record) for current, records in enumerate(both) for record in records):
            rounds = log_rounds(record, metric)
            if pooled and (shown := latency_of_run(record, metric)) is not None:
                rounds = LogRounds(1, math.log(shown), 0.0)
            if rounds is not None:
                known.append((index, current, *rounds))
    return _as_runs(known)


def _as_runs(known: Sequence[tuple[int, int, int, float, float]]) -> Runs:
    """Return runs as arrays, each given as the index of its series, whether it is on the current side, and its rounds."""
    series, current, count, mean, square = np.array(known, dtype=np.float64).reshape(-1, 5).T
    return Runs(series=series.astype(np.int64), current=current.astype(np.bool_), count=count, mean=mean, square=square)


def round_values(record: Record, metric: str) -> tuple[float, ...]:
    """Return a percentile of the latency in ns for each round, one of all samples where rounds were not stored, or none where it was not measured."""
    rounds: tuple[float, ...] | None = getattr(record, _ROUNDS[metric])
    if rounds:
        return tuple([math.nan if value is None else value for value in rounds]) if None in rounds else rounds
    pooled = getattr(record, metric)
    return () if pooled is None else (float(pooled),)


def relative_to_baselines(all_measured: Sequence[MeasuredSides], metric: str, chosen: Sequence[bool]) -> Runs:
    """Return the rounds of the chosen variants, divided by those of their baselines and multiplied by the baselines' mean over all runs."""
    # Left out are runs in which the two differ in their number of rounds, and variants with another latency or a changed or unknown baseline.
    known = []
    for index, place in enumerate(baselines_of(all_measured)):
        if place is None or not chosen[index]:
            continue
        variant, baseline = all_measured[index], all_measured[place]
        controls = {run_of(record): record for record in (*baseline.reference, *baseline.current)}
        level = mean_log(metric, list(controls.values()))
        for current, side in enumerate((variant.reference, variant.current)):
            of_runs = (relative_rounds(record, controls.get(run_of(record)), metric) for record in side)
            known += [(index, current, own.rounds, own.mean + level, own.square) for own in of_runs if own]
    return _as_runs(known)


def baselines_of(all_measured: Sequence[MeasuredSides]) -> list[int | None]:
    """Return for each variant the index of its baseline, if the two can be divided; None for others, and for baselines."""
    places = {}
    for place, sides in enumerate(all_measured):
        sources = {record.implementation_hash for record in (*sides.reference, *sides.current)}
        if sides.is_baseline and len(sources) == 1 and None not in sources:
            places[pair_of(sides.series), sides.latency] = place
    return [None if sides.is_baseline else places.get((pair_of(sides.series), sides.latency)) for sides in all_measured]


def run_of(record: Record) -> tuple[str, str | None]:
    """Return the run and the device, which a variant's record shares with its baseline's."""
    return record.run_id, record.device_uuid


def relative_rounds(variant: Record, baseline: Record | None, metric: str) -> LogRounds | None:
    """Return the rounds of a variant's record divided by those of its baseline's; None where these are not as many, or none."""
    mine, its = round_values(variant, metric), round_values(baseline, metric) if baseline is not None else ()
    if not mine or len(mine) != len(its):
        return None
    return LogRounds.of([math.log(value / other) for value, other in zip(mine, its, strict=True)])


def mean_relative(metric: str, records: Iterable[Record], baselines: Iterable[Record]) -> float:
    """Return the mean of a variant's runs relative to its baseline's, in log units; NaN where no run has both."""
    of_run = {run_of(record): record for record in baselines}
    pairs = [relative_rounds(record, of_run.get(run_of(record)), metric) for record in records]
    means = [rounds.mean for rounds in pairs if rounds is not None]
    return statistics.fmean(means) if means else math.nan
