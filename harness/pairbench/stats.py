"""Percentiles, intervals and outlier labels: numbers in, numbers out.

A percentile is the linear interpolation between order statistics that NumPy has as its default, everywhere. The
independent unit is the round (one fresh process), because processes differ by more than their samples show.

An interval is the hull of two, both around the pooled estimate:

- the hierarchical bootstrap: rounds drawn with replacement, then blocks within each drawn round;
- Student's t over the rounds' own logarithms, since a bootstrap of few rounds can't know how far rounds spread.

Share of simulated 95 % intervals that held the truth (400 runs, 60 blocks of 1 % spread in a round), and why the hull:

    rounds    rounds equal            rounds spread by 2 %
              bootstrap  t     hull   bootstrap  t     hull
    2         0.97       0.95  0.99   0.57       0.96  0.96
    3         0.98       0.96  0.99   0.76       0.97  0.97
    5         0.99       0.95  0.99   0.89       0.96  0.97
    10        0.98       0.94  0.98   0.93       0.95  0.97

Two rounds are of little use (5 to 11 times as wide as the bootstrap); three are the least that is useful.
One round has no t, and its interval does not cover other processes; with fewer than six samples it has none. The 95th
percentile is covered less well: where rounds spread more than their samples do, few rounds miss its tail (0.82 to
0.91); elsewhere it is covered like the median.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_CONFIDENCE = 0.95
FEWEST_ALONE = 6
"""Fewest samples with which a single round has an interval: the extremes of five enclose the median in 94 % of cases."""
_CHUNK = 1 << 17  # number of draws that are worked on at a time, so that they stay in the CPU's cache


class Interval(NamedTuple):
    """An estimate with the ends of its 95 % interval, NaN where there are too few samples for one."""

    estimate: float
    low: float
    high: float


def percentile(values: ArrayLike, q: float) -> float:
    """Return the q-th percentile, q from 0 to 100, by linear interpolation; ValueError where there is no value."""
    return percentiles(values, (q,))[0]


def percentiles(values: ArrayLike, several: Sequence[float]) -> tuple[float, ...]:
    """Return several percentiles, each from 0 to 100."""
    return tuple(np.percentile(_checked(values), several).tolist())


def quick(values: Sequence[float]) -> float:
    """Return the value that a tenth of the others are below; of fewer than ten, the least."""
    return sorted(values)[len(values) // 10]


def row_medians(values: Floats) -> Floats:
    """Return the median of each row's numbers, NaN where it has none: np.nanmedian would warn of those."""
    ordered = np.sort(values, axis=-1).reshape(-1, values.shape[-1])
    count, rows = np.sum(~np.isnan(ordered), axis=1), np.arange(len(ordered))
    medians = (ordered[rows, np.maximum(count - 1, 0) // 2] + ordered[rows, count // 2]) / 2
    return np.reshape(medians, values.shape[:-1])


def rounded(lines: ArrayLike, digits: int) -> list[list[float | None]]:
    """Return rows of numbers with so many significant digits each, whole ones as `int`, and None for NaN and infinities."""
    # Each is the double nearest to its decimal number; a tie may go either way.
    numbers = np.asarray(lines, dtype=np.float64)
    sizes = np.abs(numbers)
    usual = (sizes >= 1e-12) & (sizes <= 1e12)
    tame = np.where(usual, numbers, 1.0)
    after = digits - 1 - np.floor(np.log10(np.abs(tame)))
    # A quotient of a whole number and a power of ten below 1e23 is that double.
    below, above = 10.0 ** np.maximum(after, 0), 10.0 ** np.maximum(-after, 0)
    found = np.where(usual & (numbers != np.trunc(numbers)), np.rint(tame * below / above) / below * above, numbers)
    for row, place in np.argwhere(~usual & np.isfinite(numbers) & (numbers != np.trunc(numbers))).tolist():
        found[row, place] = float(f"{numbers[row, place]:.{digits - 1}e}")
    rows: list[list[Any]] = found.tolist()
    for row, place in np.argwhere(found == np.trunc(found)).tolist():
        value = rows[row][place]
        rows[row][place] = int(value) if math.isfinite(value) else None
    for row in np.flatnonzero(np.isnan(found).any(axis=1)).tolist():
        rows[row] = [None if math.isnan(value or 0.0) else value for value in rows[row]]
    return rows


def lower_mean(values: ArrayLike) -> float:
    """Return the mean of the lower half of some values, the middle one of an odd number among them."""
    ordered = np.sort(_checked(values))
    return float(ordered[: (len(ordered) + 1) // 2].mean())


def latency_intervals(
    rounds: Sequence[ArrayLike], several: Sequence[float], *, resamples: int = 1000
) -> tuple[Interval, ...]:
    """Return percentiles, each from 0 to 100, of the pooled samples of all rounds, with their 95 % intervals, in the samples' unit."""
    # Rounds may differ in length; none may be empty, and samples are positive and finite: else there is a ValueError.
    pooled = _Pool([_positive(values) for values in rounds])
    estimates = percentiles(pooled.values, several)
    drawn = np.concatenate([pooled.percentiles(draw, several) for draw in _draws(pooled.lengths, resamples)], 1)
    of_rounds = np.array([percentiles(values, several) for values in pooled.rounds]).T
    return tuple(_interval(*each, len(pooled.values)) for each in zip(estimates, drawn, of_rounds, strict=True))


def speedup_interval(
    baseline_rounds: Sequence[ArrayLike], variant_rounds: Sequence[ArrayLike], *, resamples: int = 1000
) -> Interval:
    """Return the pooled median of the baseline over that of the variant, with its interval."""
    # Samples at the same index in both are of the same block, and are drawn together: what slows a block or a round cancels.
    baseline = _Pool([_positive(values) for values in baseline_rounds])
    variant = _Pool([_positive(values) for values in variant_rounds])
    if baseline.lengths.tolist() != variant.lengths.tolist():
        found = f"{baseline.lengths.tolist()} for the baseline, {variant.lengths.tolist()} for the variant"
        expected = "expected the same: only blocks that hold both can be compared"
        raise ValueError(f"samples per round are {found}, {expected}")
    estimate = percentile(baseline.values, 50) / percentile(variant.values, 50)
    draws = _draws(baseline.lengths, resamples)
    drawn = [baseline.percentiles(draw, (50,))[0] / variant.percentiles(draw, (50,))[0] for draw in draws]
    pairs = zip(baseline.rounds, variant.rounds, strict=True)
    of_rounds = [percentile(ours, 50) / percentile(theirs, 50) for ours, theirs in pairs]
    return _interval(estimate, np.concatenate(drawn), np.array(of_rounds), len(baseline.values))


def ratio_interval(numerator: Interval, denominator: Interval) -> Interval:
    """Return the ratio of two independent estimates; its ends are NaN where those of one are not known."""
    # In log units the ends of independent intervals add like standard deviations.
    ratio = numerator.estimate / denominator.estimate
    if not (numerator.low > 0 and denominator.low > 0):
        return Interval(ratio, float("nan"), float("nan"))
    (_, down, up), (_, below, above) = (np.log(np.array(one) / one.estimate) for one in (numerator, denominator))
    return Interval(ratio, float(ratio * np.exp(-np.hypot(down, above))), float(ratio * np.exp(np.hypot(up, below))))


def rounds_interval(logs: ArrayLike) -> Interval:
    """Return the geometric mean of latencies or ratios, given the logarithm of each round's, with Student's 95 % interval."""
    # It speaks for the spread between rounds alone; the ends are NaN for fewer than two.
    values = _checked(logs)
    middle = float(values.mean())
    if len(values) < 2:
        return Interval(float(np.exp(middle)), float("nan"), float("nan"))
    reach = _reach(values)
    return Interval(*(float(np.exp(end)) for end in (middle, middle - reach, middle + reach)))


def paired_halfwidth(log_ratios: ArrayLike) -> float:
    """Return the distance from the median to the farther end of its 95 % interval; infinite for fewer than 8 values."""
    # From order statistics (the sign test turned round), so it assumes no distribution and costs microseconds: it decides
    # between two blocks whether to go on. It speaks for one round only.
    values = np.asarray(log_ratios, dtype=np.float64)
    if len(values) < 8:
        return float("inf")
    rank = _median_rank(len(values))
    ordered = np.partition(values, [rank, len(values) - 1 - rank])
    median = np.median(values)
    return float(max(median - ordered[rank], ordered[len(values) - 1 - rank] - median))


def upper_bound(seen: int, tries: int) -> float:
    """Return the upper confidence limit of the rate of an event that was seen so often in independent tries (Clopper and Pearson 1934, one-sided)."""
    from scipy import special

    if not 0 <= seen <= tries:
        raise ValueError(f"seen {seen} times in {tries} tries, expected 0 to {tries}")
    return 1.0 if seen == tries else float(special.betaincinv(seen + 1, tries - seen, _CONFIDENCE))


def outliers(values: ArrayLike) -> NDArray[np.bool_]:
    """Return for each value whether it lies more than three interquartile ranges beyond the quartiles, as a bool array."""
    # A label only: nothing is dropped.
    array = np.asarray(values, dtype=np.float64)
    if not len(array):
        return np.zeros(0, dtype=bool)
    low, high = np.percentile(array, [25, 75])
    reach = 3 * (high - low)
    return np.asarray((array < low - reach) | (array > high + reach))


class _Draw(NamedTuple):
    """Some resamples at once: `picks` holds the drawn indices into the pool, those of one resample after another."""

    picks: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rows: NDArray[np.int64]
    """`sizes` are the numbers of draws in the resamples, and `rows` the indices of the resamples that the picks belong to."""


def _draws(lengths: NDArray[np.int64], resamples: int) -> Iterator[_Draw]:
    generator = np.random.default_rng(0)  # the same samples have the same interval
    starts = np.cumsum(lengths) - lengths
    chunk = max(1, _CHUNK // int(lengths.sum()))
    for done in range(0, resamples, chunk):
        chosen = generator.integers(len(lengths), size=(min(chunk, resamples - done), len(lengths)))
        counts = lengths[chosen]
        flat = counts.ravel()
        within = (generator.random(int(flat.sum())) * np.repeat(flat, flat)).astype(np.int64)
        sizes = counts.sum(axis=1)
        yield _Draw(np.repeat(starts[chosen].ravel(), flat) + within, sizes, np.repeat(np.arange(len(sizes)), sizes))


class _Pool:
    """The samples of all rounds, sorted once, so that a resample's percentile is a look-up."""

    def __init__(self, rounds: list[Floats]) -> None:
        if not rounds:
            raise ValueError("no rounds, expected at least one")
        self.rounds = rounds
        self.lengths = np.array([len(values) for values in rounds], dtype=np.int64)
        self.values = np.concatenate(rounds)
        order = np.argsort(self.values, kind="stable")
        self._sorted = self.values[order]
        self._rank = np.empty(len(order), dtype=np.int64)
        self._rank[order] = np.arange(len(order))

    def percentiles(self, draw: _Draw, several: Sequence[float]) -> Floats:
        """Return each percentile, a row, of each resample, a column: equal to sorting and interpolating each."""
        size = len(self.values)
        counts = np.bincount(draw.rows * size + self._rank[draw.picks], minlength=len(draw.sizes) * size)
        # Summed over all resamples in a row, the counts only ever rise, so one search serves them all.
        reached = np.cumsum(counts)
        before = np.cumsum(draw.sizes) - draw.sizes
        offset = np.arange(len(draw.sizes)) * size
        position = (draw.sizes - 1) * (np.asarray(several, dtype=np.float64)[:, None] / 100)
        floor = np.floor(position).astype(np.int64)
        low = self._sorted[np.searchsorted(reached, before + floor, side="right") - offset]
        next_one = before + np.minimum(floor + 1, draw.sizes - 1)
        high = self._sorted[np.searchsorted(reached, next_one, side="right") - offset]
        return np.asarray(low + (high - low) * (position - floor))


def _interval(estimate: float, drawn: Floats, of_rounds: Floats, samples: int) -> Interval:
    if len(of_rounds) == 1 and samples < FEWEST_ALONE:
        return Interval(estimate, float("nan"), float("nan"))
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.percentile(drawn, [100 * tail, 100 - 100 * tail])
    reach = np.exp(_reach(np.log(of_rounds))) if len(of_rounds) > 1 else 1.0
    return Interval(estimate, float(min(low, estimate / reach)), float(max(high, estimate * reach)))


def _reach(logs: Floats) -> float:
    """Return how far Student's 95 % interval of the mean reaches to either side."""
    from scipy import special  # takes a third of a second to import, which callers of other functions need not wait for

    error = np.std(logs, ddof=1) / np.sqrt(len(logs))
    return float(special.stdtrit(len(logs) - 1, (1 + _CONFIDENCE) / 2) * error)


@functools.lru_cache(maxsize=4096)
def _median_rank(size: int) -> int:
    """Return the rank from either end whose order statistics enclose the median with at least 95 %."""
    # Counted exactly: SciPy has the function, and a worker that times needs nothing else of it, which takes half a second to import.
    allowed = (1 - Fraction(str(_CONFIDENCE))) / 2 * 2**size
    rank, ways, below = 0, 1, 1
    while below <= allowed:
        ways = ways * (size - rank) // (rank + 1)
        rank += 1
        below += ways
    return rank - 1


def _checked(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"values of shape {array.shape}, expected a list of at least one number")
    return array


def _positive(values: ArrayLike) -> Floats:
    array = _checked(values)
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise ValueError("a latency is zero, negative or not finite, expected positive nanoseconds")
    return array
