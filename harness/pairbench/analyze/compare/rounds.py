"""From records to the numbers that are judged: each round's latency, by run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairbench.model.record import Record

P50, P95 = "call_p50_ns", "call_p95_ns"
"""The latencies that are judged."""

_ROUNDS = {P50: "round_p50_ns", P95: "round_p95_ns"}

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The rounds of runs in log units, one entry a run of a series; rounds are independent only within their run."""

    series: Ints
    """Index of the series, from 0."""
    current: Bools
    """Which side the run is on."""
    count: Floats
    """Rounds."""
    mean: Floats
    """Of their logarithms."""
    square: Floats
    """Sum of the squared distances to that mean."""


class RunLevel(NamedTuple):
    """A run's latencies of one series, in log units."""

    rounds: int
    mean: float
    square: float


def usable(record: Record) -> bool:
    """Return whether a record says that it was measured."""
    return record.status == "measured"


def damage(record: Record) -> str | None:
    """Return what is wrong with the latencies of a measured record, as a sentence; None where nothing is."""
    for metric in (P50, P95):
        values = round_values(record, metric)
        if metric == P50 and not values:
            return f"run {record.run_id} is marked as measured and holds no latency"
        for value in values:
            if not 0 < value < math.inf:
                return f"run {record.run_id} has a latency of {value} ns in {metric}, expected a positive number"
    return None


def level(record: Record, metric: str) -> RunLevel | None:
    """Return what a measured, undamaged record says of a latency.

    Files written before a latency was stored by round have one number a run. It counts as one round, for nothing tells
    how far the rounds behind it spread.
    """
    values = round_values(record, metric)
    if not values:
        return None
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    return RunLevel(len(logs), mean, sum([(value - mean) ** 2 for value in logs]))


def mean_level(metric: str, records: Sequence[Record]) -> float:
    """Return the mean of runs, each the mean of its rounds, in log units; NaN where none has this latency."""
    levels = [found.mean for record in records if (found := level(record, metric)) is not None]
    return math.fsum(levels) / len(levels) if levels else math.nan


def collect(sides: Sequence[tuple[Sequence[Record], Sequence[Record]]], metric: str) -> Runs:
    """Return the runs of many series, each given as its reference and its current records, measured and undamaged."""
    found = [
        (index, bool(side), level(record, metric))
        for index, both in enumerate(sides)
        for side, records in enumerate(both)
        for record in records
    ]
    known = [(index, side, values) for index, side, values in found if values is not None]
    return Runs(
        series=np.array([index for index, _, _ in known], dtype=np.int64),
        current=np.array([side for _, side, _ in known], dtype=np.bool_),
        count=np.array([values.rounds for _, _, values in known], dtype=np.float64),
        mean=np.array([values.mean for _, _, values in known], dtype=np.float64),
        square=np.array([values.square for _, _, values in known], dtype=np.float64),
    )


def round_values(record: Record, metric: str) -> tuple[float, ...]:
    """Return a latency of each round in ns, or of all together where rounds were not stored; empty where there is none."""
    rounds: tuple[float, ...] | None = getattr(record, _ROUNDS[metric])
    if rounds:
        return tuple([math.nan if value is None else value for value in rounds]) if None in rounds else rounds
    pooled = getattr(record, metric)
    return () if pooled is None else (float(pooled),)
