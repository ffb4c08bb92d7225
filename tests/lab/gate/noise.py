"""Made-up comparisons whose truth is known: latencies, how far rounds and runs spread, and what was planted.

The spreads are those measured on an H200 between fresh processes: 3 % at 6 us, 0.7 % at 14 us and 0.15 % from 100 us up (0.2 % in
the worse half), straight lines between them in logarithms. A round is a process. The 95th percentile moves with the median, and
by half as much again on its own. One kind of noise is that of the device latencies of all reference runs, as the page beside
this file has them.
"""

from dataclasses import dataclass

import numpy as np

from pairbench.analyze.compare.rounds import Bools, Floats, Ints, Runs

SERIES = 500
ROUNDS = 3
SHORTEST_NS, LONGEST_NS = 5e3, 1e7
MARKS_NS = (6e3, 14e3, 100e3)
"""Latencies that series are planted at, and from the last one up."""
OF_CASE = 3
"""Series of one case: a baseline and its variants."""
QUICKER = 0.7
"""The most by which variants are quicker than their baseline, in log units: a speedup of 2."""
_SPREADS = (0.03, 0.007)
P95_SPREAD = 1.5
"""Of the 95th percentile's own movement, in units of the median's."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How latencies spread between runs of the same code."""

    name: str
    steady: float = 0.0015
    """Between rounds, from 100 us up."""
    of_run: float = 0.0
    """That all rounds of a run have in common, at any latency."""
    freedom: float | None = None
    """Degrees of freedom of Student's t instead of the normal distribution; the spread is the same."""
    short: tuple[float, float] = _SPREADS
    """Between rounds, at 6 and at 14 us."""
    uneven: float = 0.0
    """How far the spread itself differs between series of one latency, log units."""


NOISES = (
    Noise(name="0.15 %"),
    Noise(name="0.2 %", steady=0.002),
    Noise(name="0.15 %, runs differ by 0.2 % more", of_run=0.002),
    Noise(name="0.15 %, t with 4 df", freedom=4),
    Noise(name="0.15 %, uneven by a factor of 1.6", uneven=0.5),
    Noise(name="device latencies of all reference runs", short=(0.014, 0.0062), steady=0.002, uneven=0.9),
)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The series of a comparison."""

    latency_ns: Floats
    null: Bools
    """The first of each case: the baseline."""

    @property
    def groups(self) -> Ints:
        """One device and mode."""
        return np.zeros(len(self.latency_ns), dtype=np.int64)

    @property
    def baseline_of(self) -> Ints:
        """The place of each series' baseline."""
        places: Ints = np.arange(len(self.latency_ns)) // OF_CASE * OF_CASE
        return places


@dataclass(frozen=True, kw_only=True)
class Side:
    """Rounds of one side: log latencies less the series' own, in an array of series, runs, rounds."""

    p50: Floats
    p95: Floats


def make_bench(rng: np.random.Generator, series: int = SERIES, *, alike: bool = False) -> Bench:
    """Return series of all latencies."""
    logs = rng.uniform(np.log(SHORTEST_NS), np.log(LONGEST_NS), series)
    if alike:
        logs = np.repeat(logs[::OF_CASE], OF_CASE)[:series] - np.where(
            np.arange(series) % OF_CASE, rng.uniform(0, QUICKER, series), 0
        )
    return Bench(latency_ns=np.exp(logs), null=np.arange(series) % OF_CASE == 0)


def spread_of(bench: Bench, noise: Noise, rng: np.random.Generator) -> Floats:
    """Return for each series how far its rounds spread."""
    marks, spreads = np.log(MARKS_NS), np.log([*noise.short, noise.steady])
    slope = (spreads[1] - spreads[0]) / (marks[1] - marks[0])
    logs = np.log(bench.latency_ns)
    usual = np.interp(logs, marks, spreads) + slope * np.minimum(logs - marks[0], 0)
    spread: Floats = np.exp(usual + noise.uneven * rng.standard_normal(len(logs)))
    return spread


def draw(bench: Bench, noise: Noise, spread: Floats, rng: np.random.Generator, *, runs: int) -> Side:
    """Return one side of a comparison."""
    shape = (len(bench.latency_ns), runs, ROUNDS)

    def values(size: tuple[int, ...]) -> Floats:
        if noise.freedom is None:
            return rng.standard_normal(size)
        scaled: Floats = rng.standard_t(noise.freedom, size) * np.sqrt(1 - 2 / noise.freedom)
        return scaled

    p50 = spread[:, None, None] * values(shape) + noise.of_run * values((*shape[:2], 1))
    own = P95_SPREAD * (spread[:, None, None] * values(shape) + noise.of_run * values((*shape[:2], 1)))
    return Side(p50=p50, p95=p50 + own)


def runs_of(bench: Bench, reference: Floats, current: Floats, *, chosen: Bools | None = None) -> Runs:
    """Return both sides as the harness has them, of the chosen series only if any are."""
    parts = []
    for side, values in enumerate((reference, current)):
        logs = values + np.log(bench.latency_ns)[:, None, None]
        mean = logs.mean(axis=2)
        square = ((logs - mean[..., None]) ** 2).sum(axis=2)
        series = np.repeat(np.arange(len(logs)), logs.shape[1])
        kept = np.ones(len(series), dtype=np.bool_) if chosen is None else chosen[series]
        parts.append((series[kept], np.full(kept.sum(), bool(side)), mean.ravel()[kept], square.ravel()[kept]))
    series, current_side, mean, square = (np.concatenate(items) for items in zip(*parts, strict=True))
    count = np.full(len(series), float(ROUNDS))
    return Runs(series=series, current=current_side, count=count, mean=mean, square=square)
