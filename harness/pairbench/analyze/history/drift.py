"""A slope beside the steps of a series: a drift, which a detector of steps alone tells as a staircase.

A slope is one more explanation, and is weighed as steps are: by the likelihood of what it leaves as noise with a memory, less
a penalty. It may replace neighbouring steps of one direction, and stands beside all others, so that a step after a slope
stays a step. It begins at a run, and goes on to the newest or ends before, which is one more change to pay for. Places are searched
on a grid by least squares, which is one product of matrices, and the best few are weighed.

Of the two constants the length is that of two levels, and the margin was set by simulation on the development half of the series in
tests/lab/detectors, whose README.md has the delays and the false drifts on the other half.
"""

import functools
import math
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pairbench.model.plain import Value
from pairbench.stats import Floats

Cuts = tuple[int, ...]
SHORTEST = 8
"""The fewest runs of a slope."""
_MARGIN = 2.0  # the nats by which a slope must beat the steps alone, beyond its penalty
_MEMORY = 0.6
_PLACES = 40  # the places at which slopes may begin or end before they are refined
_REPLACED = 6  # the most steps that a slope replaces
_WEIGHED = 4  # the slopes of each set of steps that are weighed
_NEWEST = 1000  # the newest runs, in which a slope is looked for


class Slope(Value):
    """A steady rise or fall of `rate` in log units a run, from the level before `start` to that of run `stop` - 1."""

    start: int
    stop: int
    rate: float
    cuts: Cuts

    def line(self, size: int) -> Floats:
        line: Floats = self.rate * np.clip(np.arange(size) - self.start + 1.0, 0, self.stop - self.start)
        return line


def likelihood_of(noise: Floats, least: float) -> float:
    """Return the log-likelihood of noise that remembers its last value (AR(1)), its memory and size fitted; `least` is a variance."""
    power = float(noise @ noise)
    memory = min(max(float(noise[1:] @ noise[:-1]) / power, 0.0), _MEMORY) if power else 0.0
    fresh = noise[1:] - memory * noise[:-1]
    variance = (float(fresh @ fresh) + float(noise[0]) ** 2 * (1 - memory**2)) / len(noise)
    return -0.5 * len(noise) * math.log(max(variance, least))


def without_levels(values: Floats, cuts: Sequence[int]) -> Floats:
    """Return what is left of values when the mean of each level is taken off."""
    ends = [0, *cuts, len(values)]
    lengths = np.diff(ends)
    left: Floats = values - np.repeat(np.add.reduceat(values, ends[:-1]) / lengths, lengths)
    return left


def slope_beside(
    values: Floats, cuts: Sequence[int], known: Collection[int] = (), *, smallest: float, penalty: float, least: float
) -> Slope | None:
    """Return the slope that explains a series better than its steps alone do, or than a step too small to count; None where none does."""
    # `smallest` is the least rise or fall of the whole slope. At places where something else is `known` to have changed, a series may have any
    # step, and pays no penalty.
    first = max(0, len(values) - _NEWEST)
    old = tuple(cut for cut in cuts if cut <= first)
    values, cuts = values[first:], tuple(cut - first for cut in cuts if cut > first)
    size = len(values)
    free = frozenset(place - first for place in known if first < place < len(values))
    if size < 2 * SHORTEST:
        return None

    def score(cuts: Collection[int]) -> float:
        return likelihood_of(without_levels(values, sorted(cuts)), least) - penalty * len(set(cuts) - free)

    best, most = None, max(score(cuts), score({*cuts, *free})) + _MARGIN
    search = functools.partial(_likeliest, values, free=free, smallest=smallest, penalty=penalty, least=least)
    for kept in _sets(values, cuts):
        for with_free in {kept, tuple(sorted({*kept, *free}))}:
            for found, slope in search(_grid(size), with_free):
                if found > most:
                    best, most = slope, found
    if best is None:
        return None
    if (step := size // _PLACES) > 1:
        near = np.arange(-step, step + 1)
        stops = best.stop + near if best.stop < size else np.array([size])
        around = _Ramps.of(size, *(one.ravel() for one in np.meshgrid(best.start + near, stops)))
        most, best = max([(most, best), *search(around, best.cuts)], key=lambda found: found[0])
    for place in range(max(1, best.start - SHORTEST), min(size, best.stop + SHORTEST)):
        if score({*best.cuts, place}) + _MARGIN > most:
            return None
    kept = (*old, *(cut + first for cut in best.cuts if cut in cuts or cut not in free))
    return Slope(start=best.start + first, stop=best.stop + first, rate=best.rate, cuts=kept)


def _sets(values: Floats, cuts: Cuts) -> Iterator[Cuts]:
    """Yield the steps, and all that is left of them without neighbours of one direction."""
    yield cuts
    ends = [0, *cuts, len(values)]
    up = np.diff(np.add.reduceat(values, ends[:-1]) / np.diff(ends)) > 0
    for begin in range(len(cuts)):
        for end in range(begin + 1, min(begin + _REPLACED, len(cuts)) + 1):
            if up[begin:end].all() or not up[begin:end].any():
                yield cuts[:begin] + cuts[end:]


class _Ramps(Value):
    """Slopes of one log unit a run, a column each, with their sums up to each run and their squares."""

    starts: NDArray[np.intp]
    stops: NDArray[np.intp]
    lines: Floats
    sums: Floats
    squares: Floats

    @classmethod
    def of(cls, size: int, starts: NDArray[np.intp], stops: NDArray[np.intp]) -> "_Ramps":
        able = (starts >= 1) & (stops <= size) & (stops - starts >= SHORTEST)
        starts, stops = starts[able], stops[able]
        lines = np.clip(np.arange(size)[:, None] - starts + 1.0, 0, stops - starts)
        sums = np.concatenate([np.zeros((1, len(starts))), np.cumsum(lines, axis=0)])
        return cls(starts=starts, stops=stops, lines=lines, sums=sums, squares=(lines**2).sum(axis=0))


@functools.lru_cache(maxsize=4)  # the series of a store have about as many runs
def _grid(size: int) -> _Ramps:
    places = np.unique(np.linspace(0, size, min(size, _PLACES) + 1).astype(np.intp))
    return _Ramps.of(size, *(one.ravel() for one in np.meshgrid(places, places)))


def _likeliest(
    values: Floats, ramps: _Ramps, cuts: Cuts, *, free: Collection[int], smallest: float, penalty: float, least: float
) -> list[tuple[float, Slope]]:
    size, ends = len(values), [0, *cuts, len(values)]
    rest = without_levels(values, cuts)
    # Least squares on levels and slope: what the levels explain of a slope comes off its squares.
    inside = np.diff(ramps.sums[ends], axis=0)
    squares = ramps.squares - (inside**2 / np.diff(ends)[:, None]).sum(axis=0)
    products = rest @ ramps.lines
    rates = np.where(squares > 1e-6, products / np.maximum(squares, 1e-6), 0.0)
    power = float(rest @ rest)
    counts = np.abs(rates) * (ramps.stops - ramps.starts) >= smallest
    left = np.maximum(power - products * rates, 1e-12 * power + 1e-300)
    # What does not pay for itself without a memory does not pay with one, which explains more of a slope.
    counts &= size / 2 * np.log(max(power, 1e-300) / left) >= penalty
    found = []
    for place in np.argsort(np.where(counts, left, np.inf))[: min(_WEIGHED, int(counts.sum()))].tolist():
        slope = Slope(start=int(ramps.starts[place]), stop=int(ramps.stops[place]), rate=float(rates[place]), cuts=cuts)
        noise = rest - without_levels(slope.line(size), cuts)
        ended = penalty if slope.stop < size else 0.0
        found.append((likelihood_of(noise, least) - penalty * (len(set(cuts) - set(free)) + 1) - ended, slope))
    return found
