"""Changepoints: the runs at which a series moved to a new level and stayed there.

Three steps, after which a change stands only if nothing simpler explains it, and a fourth that puts it where it is:

1. A run that agrees with neither its past nor its future is an outlier; it is pulled to the nearer of the two for the
   search, so that a single spike never makes a level.
2. Exact least-squares segmentations for a range of penalties (dynamic programming over all positions, levels of at
   least MIN_RUNS runs) propose sets of changes, from none to many. In more than 2,500 runs the search goes over every fourth
   position of all but the newest 1,000, and then moves each change to the best position nearby.
3. Each set is weighed as a whole: levels plus noise that remembers its last value (AR(1)), with the memory and the size
   of the noise fitted anew for each set. A change must raise the log-likelihood by 7 + ln(runs) nats over the
   explanation without it, in which the same wandering is the noise's own memory. Memory is capped at 0.6: what
   remembers longer than that is called a level.
4. Where noise with two modes explains the runs around a change clearly better than noise with memory, the change is put
   where that noise has it: `place_of_step`. None appears or disappears by this.

The third is what tells a step from noise that sticks: a series that keeps swapping between two levels is explained more
cheaply by noise with memory than by that many changes, while one lasting step is not. The idea of judging steps against
correlated noise is also asv's (`step_detect.py`); weighing whole segmentations by the AR(1) likelihood follows Chakar
et al., Bernoulli 23(2), 2017. The 7 and the 0.6 were set by simulation; tests/lab/detectors/README.md has the error rates,
on series that were not used for that, beside other tools'.

The fourth is for noise with two modes, such as two states of the clock or two placements in memory. A change of mode looks like a
small step, and next to a step it can pull the place of that step over to itself. The modes are as far from each other after the
step as before it, so both sides are fitted together: one distance between the modes, one spread within them, and one chance to
leave each. The likelihood is that of values and modes together, at most what a hidden Markov model gives, so two modes do not win
by being flexible. Modes and step are found in turn (classification EM: Celeux and Govaert, Computational Statistics & Data
Analysis 14(3), 1992); whether there are two modes is decided by BIC with a correction for few runs (SICc: McQuarrie, Statistics &
Probability Letters 44(1), 1999). No constant was set by simulation.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from pairbench.analyze.history.drift import Slope, likelihood_of, slope_beside
from pairbench.model.plain import Value
from pairbench.stats import Floats, row_medians

_ROUNDS = 6  # the largest number of rounds. Most fits stop after three: no round may lower the likelihood.

Flags = NDArray[np.bool_]
_Fit = tuple[int, float, tuple[float, float]]


def place_of_step(stretch: Floats, cut: int, *, plain: float, least: float, shortest: int) -> int:
    """Return where the one step of a stretch is: at the given cut, unless noise of two modes puts it elsewhere, and clearly."""
    values = stretch - stretch.mean()
    best, likelihood, borders = cut, -math.inf, _parted(values, cut)
    # One start, from the given cut: from several, the step itself is often taken for the distance between modes.
    for _ in range(_ROUNDS):
        fit = _fitted(values, values > borders[0], values > borders[1], least, shortest)
        if fit is None or fit[1] <= likelihood:
            break
        best, likelihood, borders = fit
    return best if likelihood > plain + _margin(len(values)) else cut


def _margin(size: int) -> float:
    """Return the nats that two modes must gain: SICc's, for five parameters instead of three, spread not counted."""
    # Two levels, the distance and the two chances of the modes; or two levels and one memory. 5.1 for 100 runs.
    return 0.5 * size * math.log(size) * (5 / (size - 7) - 3 / (size - 5)) if size > 7 else math.inf


def _parted(values: Floats, cut: int) -> tuple[float, float]:
    """Return a border on each side of a cut: as far above both means, where it leaves least squares in two groups."""
    means = float(values[:cut].mean()), float(values[cut:].mean())
    rest = np.sort(np.concatenate([values[:cut] - means[0], values[cut:] - means[1]]))
    lower = np.arange(1, len(rest))
    split = float(rest[np.argmax(np.cumsum(rest)[:-1] ** 2 / (lower * lower[::-1]))])
    return means[0] + split, means[1] + split


def _fitted(values: Floats, before: Flags, after: Flags, least: float, shortest: int) -> _Fit | None:
    """Return the likeliest cut, its likelihood, and the values half way between the modes on both sides; None if no cut has two modes."""
    size = len(values)
    cuts = np.arange(shortest, size - shortest + 1)
    rest = size - cuts
    total = _upto(values, cuts)
    high, late = _upto(before, cuts), _from(after, cuts)
    # Least squares of the values on two levels and the mode: sums within the levels, of the mode's squares and of products.
    own = high - high**2 / cuts + late - late**2 / rest
    both = _upto(values * before, cuts) + _from(values * after, cuts) - total * (high / cuts - late / rest)
    two = (own > 1e-9) & (both > 0)
    if not two.any():
        return None
    gap = both / np.where(two, own, 1)
    squares = float(values @ values) - total**2 * size / (cuts * rest) - gap * both
    likelihood = -0.5 * size * np.log(np.maximum(squares / size, least)) + _sequence(before, after, cuts, high + late)
    best = int(np.argmax(np.where(two, likelihood, -np.inf)))
    lower = float(total[best] / cuts[best] + gap[best] * (0.5 - high[best] / cuts[best]))
    upper = float(-total[best] / rest[best] + gap[best] * (0.5 - late[best] / rest[best]))
    return int(cuts[best]), float(likelihood[best]), (lower, upper)


def _sequence(before: Flags, after: Flags, cuts: NDArray[np.intp], high: NDArray[Any]) -> Floats:
    """Return the log-probability of the modes in their order, for each cut: a Markov chain, the first run's mode even."""
    up, down = _rises(before, after, cuts), _rises(~before, ~after, cuts)
    upper = high - after[-1]
    lower = len(before) - 1 - upper
    counts = np.stack([up, lower - up, down, upper - down, lower, upper])
    terms = counts * np.log(np.maximum(counts, 1))
    chain: Floats = terms[:4].sum(axis=0) - terms[4:].sum(axis=0) - math.log(2)
    return chain


def _rises(before: Flags, after: Flags, cuts: NDArray[np.intp]) -> NDArray[Any]:
    """Return how often a run of the lower mode is followed by one of the upper, for each cut."""
    there = after[cuts] & ~before[cuts - 1]
    rises: NDArray[Any] = _upto(before[1:] & ~before[:-1], cuts - 1) + there + _from(after[1:] & ~after[:-1], cuts)
    return rises


def _upto(values: NDArray[Any], cuts: NDArray[np.intp]) -> NDArray[Any]:
    """Return the sum of all values before each cut."""
    sums: NDArray[Any] = np.cumsum(values)[cuts - 1]
    return sums


def _from(values: NDArray[Any], cuts: NDArray[np.intp]) -> NDArray[Any]:
    """Return the sum of all values from each cut on."""
    total = np.cumsum(values)
    sums: NDArray[Any] = total[-1] - total[cuts - 1]
    return sums


MIN_RUNS = 4
"""The length of the shortest level in runs; a series of fewer than twice as many runs has no changepoint yet."""

_PENALTY = 7.0
_FINEST = 1e-4  # the standard deviation in log units below which noise is not believed: 0.01 %
_CANDIDATES = 16
_MOST = 50
"""The largest number of changes in one set. The time goes with its square, and a reader does not follow more."""
_AT_ONCE = 64
"""The number of ends of levels whose rewards are computed together: time goes with their number, not with the arithmetic."""
_EXACT = 2500  # the longest series in which every place is tried
_NEWEST = 1000  # the newest runs of a longer one, in which every place is tried too: what is new is looked at
_SPACING = 4  # the places in its old part are so many runs apart
_WINDOW = 5
_OUTLIER = 4.0
FLOOR_TO_SIGMA = 1 / (1.96 * math.sqrt(2))
"""What turns a floor into a standard deviation: a floor bounds 95 % of the differences of two runs."""


class Changepoint(Value):
    """A lasting move of a series to a new level."""

    index: int
    """The index of the first run on the new level among all runs, those without a value included."""
    before: float
    after: float
    """The levels that were left and reached, as mean natural logarithms with spikes pulled in."""
    strength: float
    """The log-likelihood, in nats, by which the series with this change beats the series without it, with the noise of step 3."""

    @property
    def effect(self) -> float:
        """After over before: 1.03 is 3 % more."""
        return math.exp(self.after - self.before)


class Drift(Value):
    """A steady rise or fall of a series over many runs, which no single run brought."""

    index: int
    last: int
    """The indices of the first and the last run on the slope among all runs, those without a value included."""
    rate: float
    """The change from one run with a value to the next, in log units."""
    line: Floats = field(repr=False, compare=False)
    """What the slope adds to each run, in log units."""


def explain(
    levels: ArrayLike, *, floor: float | None = None, minimum_effect: float = 0.02, breaks: Collection[int] = ()
) -> tuple[tuple[Changepoint, ...], Drift | None]:
    """Return the changepoints of a series in order of runs, the clearest 50 at most, and the drift beside them, None where there is none.

    `levels` has one natural log a run (of a latency or of a speedup), oldest first, and NaN for a run without a value. `floor` is how far two runs of the same code
    differ in 95 % of cases, in log units: the noise is never taken for smaller, and None takes it from the series alone. `minimum_effect` is the smallest change that
    counts, up or down; 0.02 is 2 %. `breaks` are places at which something else is known to have changed, such as the driver: a changepoint that could as well lie
    there is put there.
    """
    if minimum_effect < 0 or (floor is not None and not 0 <= floor < math.inf):
        raise ValueError(f"minimum_effect is {minimum_effect} and floor {floor}, expected numbers from 0 up")
    values, places = finite(levels)
    if len(values) < 2 * MIN_RUNS:
        return (), None
    cleaned = clean(values)
    weigh = _Weigh(cleaned, floor, math.log1p(minimum_effect))
    cuts = weigh.placed(weigh.best(_proposals(cleaned)))
    drift, known = None, np.searchsorted(places, sorted(breaks)).tolist()
    if slope := weigh.slope(cuts, known):
        line = np.zeros(np.size(levels))
        line[places] = slope.line(len(values))
        drift = Drift(index=int(places[slope.start]), last=int(places[slope.stop - 1]), rate=slope.rate, line=line)
        weigh, cuts = _Weigh(cleaned - line[places], floor, math.log1p(minimum_effect)), slope.cuts
    cuts = weigh.snapped(cuts, known)
    means = weigh.levels(cuts)
    steps = tuple(
        Changepoint(index=int(places[cut]), before=means[at], after=means[at + 1], strength=weigh.gain(cuts, at))
        for at, cut in enumerate(cuts)
    )
    return steps, drift


def finite(levels: ArrayLike) -> tuple[Floats, NDArray[np.intp]]:
    """Return the values that are there, and their places in the series."""
    series = np.asarray(levels, dtype=np.float64)
    if series.ndim != 1 or np.isinf(series).any():
        what = f"levels have shape {series.shape} and {int(np.isinf(series).sum())} infinite values"
        raise ValueError(f"{what}, expected one natural log a run, or NaN for a run without a value")
    places = np.flatnonzero(~np.isnan(series))
    return series[places], places


def clean(values: Floats) -> Floats:
    """Return the values with outliers pulled to the nearer of the medians before and after them."""
    # A step agrees with what follows it and is kept; a spike agrees with neither side. The scale is that of the differences of neighbours,
    # which steps hardly touch.
    padded = np.concatenate([np.full(_WINDOW, np.nan), values, np.full(_WINDOW, np.nan)])
    middle = row_medians(sliding_window_view(padded, _WINDOW))
    left, right = middle[: len(values)], middle[_WINDOW + 1 :]
    left, right = np.where(np.isnan(left), right, left), np.where(np.isnan(right), left, right)
    nearer = np.where(np.abs(values - left) <= np.abs(values - right), left, right)
    scale = max(1.4826 * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2), _FINEST)
    return np.where(np.abs(values - nearer) > _OUTLIER * scale, nearer, values)


def _proposals(values: Floats) -> list[tuple[int, ...]]:
    """Return the best segmentations in the least-squares sense for a range of penalties, the fewest changes last."""
    size = len(values)
    centred = values - values.mean()
    total = np.concatenate([[0.0], np.cumsum(centred)])
    scale = max(float(np.mean(np.diff(values) ** 2)) / 2, _FINEST**2)
    penalties = scale * math.log(size) * np.geomspace(0.7, 80, _CANDIDATES)
    places = _places(size)
    # At how many of the places a level may begin that ends at each.
    lasts = np.searchsorted(places, places - MIN_RUNS, side="right")
    # A level's cost is its sum of squares less sum**2 / length; the squares are the same for all segmentations.
    cost = np.full((_CANDIDATES, len(places)), np.inf)
    cost[:, 0] = -penalties
    came = np.zeros((_CANDIDATES, len(places)), dtype=np.intp)
    rows = np.arange(_CANDIDATES)
    for first in range(int(np.searchsorted(places, MIN_RUNS)), len(places), _AT_ONCE):
        ends = np.arange(first, min(first + _AT_ONCE, len(places)))
        starts = places[: lasts[ends[-1]]]
        at = places[ends][:, None]
        rewards = (total[at] - total[starts]) ** 2 / np.maximum(at - starts, 1)
        for end, reward in zip(ends.tolist(), rewards, strict=True):
            last = lasts[end]
            ways = cost[:, :last] - reward[:last]
            came[:, end] = best = ways.argmin(axis=1)
            cost[:, end] = ways[rows, best] + penalties
    found: dict[tuple[int, ...], None] = {}
    for row in range(_CANDIDATES):
        cuts: list[int] = []
        end = len(places) - 1
        while (end := int(came[row, end])) > 0:
            cuts.append(int(places[end]))
        if len(cuts) <= _MOST:
            found[_refined(total, tuple(reversed(cuts)))] = None
    return list(found)


def _places(size: int) -> NDArray[np.intp]:
    """Return where levels may begin and end: anywhere, but for the old part of a long series, where only at every few runs."""
    # The search takes time with the square of their number: 10,000 runs took it 1.7 s, and take 0.1 s so.
    old = max(0, size - _NEWEST) if size > _EXACT else 0
    return np.concatenate([np.arange(0, old, _SPACING), np.arange(old, size + 1)])


def _refined(total: Floats, cuts: tuple[int, ...]) -> tuple[int, ...]:
    """Return cuts, each at the best place in the least-squares sense between those where the search looked."""
    size = len(total) - 1
    if size <= _EXACT:
        return cuts
    for number, cut in enumerate(cuts):
        start, end = (0, *cuts)[number], (*cuts, size)[number + 1]
        first, last = max(start + MIN_RUNS, cut - _SPACING + 1), min(end - MIN_RUNS, cut + _SPACING - 1)
        near = np.arange(first, last + 1, dtype=np.intp)
        reward = (total[near] - total[start]) ** 2 / (near - start) + (total[end] - total[near]) ** 2 / (end - near)
        cuts = (*cuts[:number], int(near[reward.argmax()]), *cuts[number + 1 :])
    return cuts


class _Weigh:
    """Log-likelihoods of one series, cut at given places, as levels plus AR(1) noise."""

    def __init__(self, values: Floats, floor: float | None, smallest: float) -> None:
        self._values = values
        self._total = np.concatenate([[0.0], np.cumsum(values)])
        self._floor = floor
        self._least = max((floor or 0.0) * FLOOR_TO_SIGMA, _FINEST) ** 2
        self._smallest = smallest
        self._penalty = _PENALTY + math.log(len(values))

    def levels(self, cuts: Sequence[int]) -> list[float]:
        ends = np.array([0, *cuts, len(self._values)])
        means: list[float] = (np.diff(self._total[ends]) / np.diff(ends)).tolist()
        return means

    def likelihood(self, cuts: Sequence[int]) -> float:
        """Return the profile log-likelihood: levels, memory and size of the noise fitted to this set of cuts."""
        ends = np.array([0, *cuts, len(self._values)])
        return likelihood_of(self._values - np.repeat(self.levels(cuts), np.diff(ends)), self._least)

    def slope(self, cuts: tuple[int, ...], known: Collection[int]) -> Slope | None:
        limits = {"smallest": self._smallest, "penalty": self._penalty, "least": self._least}
        return slope_beside(self._values, cuts, known, **limits)

    def gain(self, cuts: Sequence[int], number: int) -> float:
        return self.likelihood(cuts) - self.likelihood([*cuts[:number], *cuts[number + 1 :]])

    def best(self, proposals: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Return the set of cuts whose likelihood, less the penalty of its cuts, is highest; () is always in the race."""
        return max([(), *map(self._pruned, proposals)], key=self._score)

    def placed(self, cuts: tuple[int, ...]) -> tuple[int, ...]:
        """Return the cuts, each where noise of two modes puts it if there is such noise around it."""
        for number, cut in enumerate(cuts):
            start, end = (0, *cuts)[number], (*cuts, len(self._values))[number + 1]
            around = self._values[start:end]
            plain = _Weigh(around, self._floor, self._smallest).likelihood([cut - start])
            moved = start + place_of_step(around, cut - start, plain=plain, least=self._least, shortest=MIN_RUNS)
            way = (*cuts[:number], moved, *cuts[number + 1 :])
            # Levels are means, and modes need not be as frequent in both: a step stays one that counts.
            if np.abs(np.diff(self.levels(way))).min() >= self._smallest:
                cuts = way
        return cuts

    def snapped(self, cuts: tuple[int, ...], known: Sequence[int]) -> tuple[int, ...]:
        """Return the cuts, each moved to a known place within three runs if that costs less than 2 nats."""
        for number, cut in enumerate(cuts):
            others = (*cuts[:number], *cuts[number + 1 :])
            near = [place for place in known if abs(place - cut) <= 3 and 0 < place < len(self._values)]
            moved = [tuple(sorted({*others, place})) for place in near]
            fit = [way for way in moved if len(way) == len(cuts) and self.likelihood(way) > self.likelihood(cuts) - 2]
            cuts = max(fit, key=self.likelihood, default=cuts)
        return cuts

    def _score(self, cuts: Sequence[int]) -> float:
        return self.likelihood(cuts) - self._penalty * len(cuts)

    def _pruned(self, proposal: Sequence[int]) -> tuple[int, ...]:
        """Drop steps that are too small, the smallest first, and those without which the rest scores better."""
        cuts = list(proposal)
        while cuts:
            steps = np.abs(np.diff(self.levels(cuts)))
            if steps.min() < self._smallest:
                del cuts[int(np.argmin(steps))]
                continue
            fewer = max(([*cuts[:number], *cuts[number + 1 :]] for number in range(len(cuts))), key=self._score)
            if self._score(fewer) <= self._score(cuts):
                break
            cuts = fewer
        return tuple(cuts)
