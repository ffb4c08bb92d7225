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

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairbench.analyze.history.drift import Cuts, likelihoods_of, slope_beside
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
    # The nats that two modes must gain are SICc's, for five parameters instead of three, spread not counted: two levels, the distance and the
    # two chances of the modes; or two levels and one memory. 5.1 for 100 runs.
    size = len(values)
    margin = 0.5 * size * math.log(size) * (5 / (size - 7) - 3 / (size - 5)) if size > 7 else math.inf
    return best if likelihood > plain + margin else cut


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
    sums = np.zeros((7, size))
    sums[:5] = values, before, after, values * before, values * after
    sums[5:, 1:] = before[1:] > before[:-1], after[1:] > after[:-1]
    there = (after[cuts] > before[cuts - 1]) - sums[6, cuts]
    sums.cumsum(axis=1, out=sums)  # from here on: of all values before each cut, and from it on
    upto = sums[:, shortest - 1 : size - shortest]
    later = sums[:, -1:] - upto
    total, high, late = upto[0], upto[1], later[2]
    # Least squares of the values on two levels and the mode: sums within the levels, of the mode's squares and of products.
    own = high - high**2 / cuts + late - late**2 / rest
    both = upto[3] + later[4] - total * (high / cuts - late / rest)
    two = (own > 1e-9) & (both > 0)
    if not two.any():
        return None
    gap = both / np.where(two, own, 1)
    squares = float(values @ values) - total**2 * size / (cuts * rest) - gap * both
    rises = upto[5] + there + later[6]
    likelihood = -0.5 * size * np.log(np.maximum(squares / size, least)) + _sequence(before, after, rises, high + late)
    best = int(np.argmax(np.where(two, likelihood, -np.inf)))
    lower = float(total[best] / cuts[best] + gap[best] * (0.5 - high[best] / cuts[best]))
    upper = float(-total[best] / rest[best] + gap[best] * (0.5 - late[best] / rest[best]))
    return int(cuts[best]), float(likelihood[best]), (lower, upper)


def _sequence(before: Flags, after: Flags, rises: Floats, high: Floats) -> Floats:
    """Return the log-probability of the modes in their order, for each cut: a Markov chain, the first run's mode even."""
    falls = rises + (float(before[0]) - float(after[-1]))
    upper = high - float(after[-1])
    lower = len(before) - 1 - upper
    counts = np.array([rises, lower - rises, falls, upper - falls, lower, upper])
    terms = counts * np.log(np.maximum(counts, 1))
    return np.asarray(terms[:4].sum(axis=0) - terms[4:].sum(axis=0) - math.log(2))


MIN_RUNS = 4  # length of the shortest level in runs; a series of fewer than twice as many runs has no changepoint yet

_PENALTY = 7.0
_FINEST = 1e-4  # the standard deviation in log units below which noise is not believed: 0.01 %
_CANDIDATES = 16
_MOST = 50
"""The largest number of changes in one set. The time goes with its square, and a reader does not follow more."""
_TOGETHER = 20000  # the number of values searched together, 40 series of 200: fewer spend the time on calls, more exceed the cache
_EXACT = 2500  # the longest series in which every place is tried
_NEWEST = 1000  # the newest runs of a longer one, in which every place is tried too: what is new is looked at
_SPACING = 4  # the places in its old part are so many runs apart
_WINDOW = 5
_OUTLIER = 4.0
FLOOR_TO_SIGMA = 1 / (1.96 * math.sqrt(2))
"""What turns a floor into a standard deviation: a floor bounds 95 % of the differences of two runs."""


class Changepoint(Value):
    """A lasting move of a series to a new level."""

    index: int  # the index of the first run on the new level among all runs, those without a value included
    before: float
    after: float  # the levels that were left and reached, as mean natural logarithms with spikes pulled in
    strength: float
    """The log-likelihood, in nats, by which the series with this change beats the series without it, with the noise of step 3."""

    @property
    def effect(self) -> float:
        """After over before: 1.03 is 3 % more."""
        return math.exp(self.after - self.before)


class Drift(Value):
    """A steady rise or fall of a series over many runs, which no single run brought."""

    index: int
    last: int  # the indices of the first and the last run on the slope among all runs, those without a value included
    rate: float  # the change from one run with a value to the next, in log units
    line: Floats = field(repr=False, compare=False)  # what the slope adds to each run, in log units


class Found(NamedTuple):
    """The segmentations that a search proposes for a series, with what it takes to weigh them."""

    size: int
    places: NDArray[np.intp]  # the indices of the runs with a value
    cleaned: Floats  # their values, with outliers pulled in
    smallest: float
    proposals: Sequence[Cuts]

    def explained(self, floor: float | None, breaks: Collection[int]) -> tuple[tuple[Changepoint, ...], Drift | None]:
        """Return the changepoints of the series in order of runs, the clearest 50 at most, and the drift beside them, None where there is none."""
        # `floor` is how far two runs of the same code differ in 95 % of cases, in log units: the noise is never taken for smaller, and None takes it from the series
        # alone. `breaks` are places at which something else is known to have changed, such as the driver: a changepoint that could as well lie there is put there.
        if floor is not None and not 0 <= floor < math.inf:
            raise ValueError(f"floor is {floor}, expected numbers from 0 up")
        if len(self.cleaned) < 2 * MIN_RUNS:
            return (), None
        weigh, places = _Weigh(self.cleaned, floor, self.smallest), self.places
        cuts = weigh.placed(weigh.best(self.proposals))
        drift, known = None, np.searchsorted(places, sorted(breaks)).tolist()
        if slope := slope_beside(self.cleaned, cuts, known, self.smallest, weigh.penalty, weigh.least):
            line = np.zeros(self.size)
            line[places] = slope.line(len(places))
            drift = Drift(index=int(places[slope.start]), last=int(places[slope.stop - 1]), rate=slope.rate, line=line)
            weigh, cuts = _Weigh(self.cleaned - line[places], floor, self.smallest), slope.cuts
        cuts = weigh.snapped(cuts, known)
        each = zip(places[[*cuts]].tolist(), itertools.pairwise(weigh.levels(cuts)), weigh.gains(cuts), strict=True)
        steps = (Changepoint(index=at, before=old, after=new, strength=gain) for at, (old, new), gain in each)
        return tuple(steps), drift


def searched(several: Iterable[ArrayLike], *, minimum_effect: float = 0.02) -> list[Found]:
    """Search several series together, which takes a third of the time of one after the other, and finds the same."""
    # Each has one natural log a run (of a latency or of a speedup), oldest first, and NaN without a value. Smaller changes than `minimum_effect` (0.02 is 2 %) do not count.
    if minimum_effect < 0:
        raise ValueError(f"minimum_effect is {minimum_effect}, expected numbers from 0 up")
    smallest = math.log1p(minimum_effect)
    left = [(number, np.size(levels), *finite(levels)) for number, levels in enumerate(several)]
    left.sort(key=lambda one: -len(one[2]))  # those of about a length together
    found: dict[int, Found] = {}
    while left:
        longest = max(len(left[0][2]), 2 * MIN_RUNS)
        count = 1 if longest > _EXACT else _TOGETHER // longest
        some, left = left[:count], left[count:]
        rows = np.full((len(some), longest), np.nan)
        for row, (_, _, values, _) in zip(rows, some, strict=True):
            row[: len(values)] = values
        rows = clean(rows)
        # The runs of a level fall into groups of 4 to 7, so it lies between the least and the greatest mean of such groups. Where these are
        # less than the smallest step apart, no cut stands.
        total = np.cumsum(np.insert(rows, 0, 0.0, axis=1), axis=1)
        groups = [(total[:, runs:] - total[:, :-runs]) / runs for runs in range(MIN_RUNS, 2 * MIN_RUNS)]
        most, least = (ends.reduce(np.concatenate(groups, axis=1), axis=1) for ends in (np.fmax, np.fmin))
        moving = np.flatnonzero(most - least >= smallest - 1e-9).tolist()
        sizes = [len(some[row][2]) for row in moving]
        proposals = dict(zip(moving, _proposals(rows[moving], sizes) if moving else (), strict=True))
        for at, (number, size, values, places) in enumerate(some):
            found[number] = Found(size, places, rows[at, : len(values)], smallest, proposals.get(at, ()))
    return [found[number] for number in range(len(found))]


def finite(levels: ArrayLike) -> tuple[Floats, NDArray[np.intp]]:
    """Return the values that are there, and their places in the series."""
    series = np.asarray(levels, dtype=np.float64)
    if series.ndim != 1 or np.isinf(series).any():
        what = f"levels have shape {series.shape} and {int(np.isinf(series).sum())} infinite values"
        raise ValueError(f"{what}, expected one natural log a run, or NaN for a run without a value")
    places = np.flatnonzero(~np.isnan(series))
    return series[places], places


def clean(values: Floats) -> Floats:
    """Return the values, or those of each row, with outliers pulled to the nearer of the medians before and after them."""
    # A step agrees with what follows it and is kept; a spike agrees with neither side. The scale is that of the differences of neighbours,
    # which steps hardly touch. A row may end in NaN.
    edge, size = np.full((*values.shape[:-1], _WINDOW), np.nan), values.shape[-1]
    padded = np.concatenate([edge, values, edge], axis=-1)
    middle = row_medians(np.stack([padded[..., at : size + _WINDOW + 1 + at] for at in range(_WINDOW)], axis=-1))
    left, right = middle[..., :size], middle[..., _WINDOW + 1 :]
    left, right = np.where(np.isnan(left), right, left), np.where(np.isnan(right), left, right)
    nearer = np.where(np.abs(values - left) <= np.abs(values - right), left, right)
    scale = np.maximum(1.4826 * row_medians(np.abs(np.diff(values))) / math.sqrt(2), _FINEST)
    return np.where(np.abs(values - nearer) > _OUTLIER * scale[..., None], nearer, values)


def _proposals(rows: Floats, sizes: Sequence[int]) -> Iterator[list[Cuts]]:
    """Yield the best segmentations of each row in the least-squares sense for a range of penalties, the fewest changes last."""
    total = np.zeros((len(rows), rows.shape[1] + 1))
    penalties = np.empty((len(rows), _CANDIDATES))
    for at, size in enumerate(sizes):
        values = rows[at, :size]
        np.cumsum(values - values.mean(), out=total[at, 1 : size + 1])
        scale = max(float(np.mean(np.diff(values) ** 2)) / 2, _FINEST**2)
        penalties[at] = scale * math.log(size) * np.geomspace(0.7, 80, _CANDIDATES)
    # Levels may begin and end anywhere, but in the old part of a long series only at every few runs. The search takes time with the
    # square of their number: 10,000 runs took it 1.7 s, and take 0.1 s so.
    longest = rows.shape[1]
    old = max(0, longest - _NEWEST) if longest > _EXACT else 0
    places = np.concatenate([np.arange(0, old, _SPACING), np.arange(old, longest + 1)])
    # A level's cost is its sum of squares less sum**2 / length; the squares are the same for all segmentations.
    cost = np.full((*penalties.shape, len(places)), np.inf)
    cost[:, :, 0] = -penalties
    came, space = np.zeros(cost.shape, dtype=np.intp), np.empty(cost.size)  # a new array for each end takes longer
    lasts, known = np.searchsorted(places, places - MIN_RUNS, side="right").tolist(), total[:, places]
    each = np.arange(len(rows))[:, None], np.arange(_CANDIDATES)
    for end in range(int(np.searchsorted(places, MIN_RUNS)), len(places)):
        last = lasts[end]  # at how many of the places a level may begin that ends here
        rewards = (known[:, end, None] - known[:, :last]) ** 2 / (places[end] - places[:last])
        ways = space[: penalties.size * last].reshape(*penalties.shape, last)
        np.subtract(cost[:, :, :last], rewards[:, None], out=ways)
        came[:, :, end] = best = ways.argmin(axis=2)
        cost[:, :, end] = ways[(*each, best)] + penalties
    # From the last end back, for all rows and penalties at once; what began at 0 stays there.
    ends = [np.repeat(np.searchsorted(places, sizes)[:, None], _CANDIDATES, axis=1)]
    while ends[-1].any() and len(ends) < _MOST + 2:
        ends.append(came[(*each, ends[-1])])
    for at, ways in enumerate(places[np.stack(ends[:0:-1], axis=2)].tolist()):
        several = (tuple(cut for cut in way if cut) for way in ways)
        yield list(dict.fromkeys(_refined(total[at, : sizes[at] + 1], cuts) for cuts in several if len(cuts) <= _MOST))


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
        self._total = [0.0, *np.cumsum(values).tolist()]
        self.least = max((floor or 0.0) * FLOOR_TO_SIGMA, _FINEST) ** 2
        self._smallest = smallest
        self.penalty = _PENALTY + math.log(len(values))

    def levels(self, cuts: Sequence[int]) -> list[float]:
        total, spans = self._total, itertools.pairwise((0, *cuts, len(self._values)))
        return [(total[end] - total[start]) / (end - start) for start, end in spans]

    def scores(self, *sets: Sequence[int]) -> list[float]:
        """Return profile log-likelihoods less the penalty: levels, memory and size of the noise fitted to each set of cuts."""
        likelihoods = likelihoods_of(self._values, sets, self.least).tolist()
        return [one - self.penalty * len(cuts) for one, cuts in zip(likelihoods, sets, strict=True)]

    def gains(self, cuts: Cuts) -> list[float]:
        own, *fewer = self.scores(cuts, *(cuts[:at] + cuts[at + 1 :] for at in range(len(cuts)))) if cuts else [0.0]
        return [own - one + self.penalty for one in fewer]

    def best(self, proposals: Sequence[Cuts]) -> Cuts:
        """Return the set of cuts whose likelihood, less the penalty of its cuts, is highest; () is always in the race."""
        sets = list(dict.fromkeys([(), *map(self._pruned, proposals)]))
        return sets[int(np.argmax(self.scores(*sets)))] if len(sets) > 1 else ()

    def placed(self, cuts: tuple[int, ...]) -> tuple[int, ...]:
        """Return the cuts, each where noise of two modes puts it if there is such noise around it."""
        for number, cut in enumerate(cuts):
            start, end = (0, *cuts)[number], (*cuts, len(self._values))[number + 1]
            around = self._values[start:end]
            plain = float(likelihoods_of(around, [[cut - start]], self.least)[0])
            moved = start + place_of_step(around, cut - start, plain=plain, least=self.least, shortest=MIN_RUNS)
            way = (*cuts[:number], moved, *cuts[number + 1 :])
            # Levels are means, and modes need not be as frequent in both: a step stays one that counts.
            if min(abs(after - before) for before, after in itertools.pairwise(self.levels(way))) >= self._smallest:
                cuts = way
        return cuts

    def snapped(self, cuts: tuple[int, ...], known: Sequence[int]) -> tuple[int, ...]:
        """Return the cuts, each moved to a known place within three runs if that costs less than 2 nats."""
        for number, cut in enumerate(cuts):
            rest = (*cuts[:number], *cuts[number + 1 :])
            near = [place for place in known if abs(place - cut) <= 3 and 0 < place < len(self._values)]
            moved = [tuple(sorted({*rest, place})) for place in near]
            if ways := [way for way in moved if len(way) == len(cuts)]:
                own, *others = self.scores(cuts, *ways)
                cuts = ways[others.index(max(others))] if max(others) > own - 2 else cuts
        return cuts

    def _pruned(self, proposal: Sequence[int]) -> Cuts:
        """Drop steps that are too small, the smallest first, and those without which the rest scores better."""
        cuts = list(proposal)
        while cuts:
            steps = [abs(after - before) for before, after in itertools.pairwise(self.levels(cuts))]
            if min(steps) < self._smallest:
                del cuts[steps.index(min(steps))]
                continue
            own, *fewer = self.scores(cuts, *(cuts[:at] + cuts[at + 1 :] for at in range(len(cuts))))
            if max(fewer) <= own:
                break
            del cuts[fewer.index(max(fewer))]
        return tuple(cuts)
