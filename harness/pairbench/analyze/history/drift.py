"""A slope beside the steps of a series: a drift, which a detector of steps alone tells as a staircase.

A slope is one more explanation, and is weighed as steps are: by the likelihood of what it leaves as noise with a memory, less
a penalty. It may replace neighbouring steps of one direction, and stands beside all others, so that a step after a slope
stays a step. It begins at a run, and goes on to the newest or ends before, which is one more change to pay for. Places are searched
on a grid by least squares, which takes sums alone, and the best few are weighed.

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
SHORTEST = 8  # the fewest runs of a slope
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
        return np.asarray(self.rate * np.clip(np.arange(size) - self.start + 1.0, 0, self.stop - self.start))


def likelihood_of(noise: Floats, least: float) -> float:
    """Return the log-likelihood of noise that remembers its last value (AR(1)), its memory and size fitted; `least` is a variance."""
    # Not by `likelihoods_of`: slopes that fit equally well are chosen by the last bits, and another order of sums moves their first run.
    power = float(noise @ noise)
    memory = min(max(float(noise[1:] @ noise[:-1]) / power, 0.0), _MEMORY) if power else 0.0
    fresh = noise[1:] - memory * noise[:-1]
    variance = (float(fresh @ fresh) + float(noise[0]) ** 2 * (1 - memory**2)) / len(noise)
    return -0.5 * len(noise) * math.log(max(variance, least))


def likelihoods_of(values: Floats, sets: Sequence[Collection[int]], least: float) -> Floats:
    """Return the log-likelihood of the noise that each set of cuts leaves; any number of sets takes the time of two or three."""
    size = len(values)
    cuts = [number * size + cut for number, some in enumerate(sets) for cut in (0, *sorted(some))]
    noise = without_levels(np.tile(values, len(sets)), cuts[1:]).reshape(len(sets), size)
    power, beside = (np.einsum("ij,ij->i", *sides) for sides in ((noise, noise), (noise[:, 1:], noise[:, :-1])))
    memory = np.clip(beside / np.maximum(power, 1e-300), 0.0, _MEMORY)
    variance = power * (1 + memory**2) - 2 * memory * beside - memory**2 * (noise[:, 0] ** 2 + noise[:, -1] ** 2)
    return np.asarray(-0.5 * size * np.log(np.maximum(variance / size, least)), dtype=np.float64)


def without_levels(values: Floats, cuts: Sequence[int]) -> Floats:
    """Return what is left of values when the mean of each level is taken off."""
    ends = np.array([0, *cuts, len(values)])
    lengths = ends[1:] - ends[:-1]
    return np.asarray(values - (np.add.reduceat(values, ends[:-1]) / lengths).repeat(lengths))


def slope_beside(
    values: Floats, cuts: Sequence[int], known: Collection[int], smallest: float, penalty: float, least: float
) -> Slope | None:
    """Return the slope that explains a series better than its steps alone do, or than a step too small to count; None where none does."""
    # `smallest` is the least rise or fall of the whole slope. Where something else is `known` to have changed, any step is free of penalty.
    first = max(0, len(values) - _NEWEST)
    old = tuple(cut for cut in cuts if cut <= first)
    values, cuts = values[first:], tuple(cut - first for cut in cuts if cut > first)
    size = len(values)
    free = frozenset(place - first for place in known if first < place < len(values))
    if size < 2 * SHORTEST:
        return None

    def score(sets: Sequence[Collection[int]]) -> float:
        costs = [penalty * len(set(cuts) - free) for cuts in sets]
        return float((likelihoods_of(values, sets, least) - costs).max())

    search = functools.partial(_likeliest, values, free=free, smallest=smallest, penalty=penalty, least=least)
    sets = [with_free for kept in _sets(values, cuts) for with_free in {kept, tuple(sorted({*kept, *free}))}]
    found = (one for each in sets for one in search(_grid(size), each))
    most, best = max(found, key=lambda found: found[0], default=(0.0, None))
    if best is None or most <= score([cuts, free.union(cuts)]) + _MARGIN:
        return None
    if (step := size // _PLACES) > 1:
        near = np.arange(-step, step + 1)
        stops = best.stop + near if best.stop < size else np.array([size])
        around = _Ramps.of(size, *(one.ravel() for one in np.meshgrid(best.start + near, stops)))
        refined = search(around, best.cuts)
        # Computed as its neighbours are.
        own = [one for one in refined if (one[1].start, one[1].stop) == (best.start, best.stop)]
        most, best = max([*(own or [(most, best)]), *refined], key=lambda found: found[0])
    places = range(max(1, best.start - SHORTEST), min(size, best.stop + SHORTEST))
    if score([{*best.cuts, place} for place in places]) + _MARGIN > most:
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
    """Slopes of one log unit a run, with the length and the sum of squares of each; `lines` has a column for each, and is None on a coarse grid."""

    starts: NDArray[np.intp]
    stops: NDArray[np.intp]
    lengths: Floats
    squares: Floats
    lines: Floats | None

    @classmethod
    def of(cls, size: int, starts: NDArray[np.intp], stops: NDArray[np.intp], *, apart: bool = False) -> "_Ramps":
        able = (starts >= 1) & (stops <= size) & (stops - starts >= SHORTEST)
        starts, stops = starts[able], stops[able]
        lengths = (stops - starts).astype(np.float64)
        squares = lengths * (lengths + 1) * (2 * lengths + 1) / 6 + lengths**2 * (size - stops)
        lines = None if apart else np.clip(np.arange(size)[:, None] - starts + 1.0, 0, lengths)
        return cls(starts=starts, stops=stops, lengths=lengths, squares=squares, lines=lines)


@functools.lru_cache(maxsize=4)  # the series of a store have about as many runs
def _grid(size: int) -> _Ramps:
    places = np.unique(np.linspace(0, size, min(size, _PLACES) + 1).astype(np.intp))
    return _Ramps.of(size, *(one.ravel() for one in np.meshgrid(places, places)), apart=size >= 2 * _PLACES)


def _likeliest(
    values: Floats, ramps: _Ramps, cuts: Cuts, *, free: Collection[int], smallest: float, penalty: float, least: float
) -> list[tuple[float, Slope]]:
    size, ends = len(values), np.array([0, *cuts, len(values)])[:, None]
    rest = without_levels(values, cuts)
    # Least squares on levels and slope: what the levels explain of a slope comes off its squares.
    risen = np.minimum(np.maximum(ends - ramps.starts, 0), ramps.lengths)
    sums = risen * (risen + 1) / 2 + ramps.lengths * np.maximum(ends - ramps.stops, 0)
    squares = ramps.squares - ((sums[1:] - sums[:-1]) ** 2 / np.diff(ends, axis=0)).sum(axis=0)
    if ramps.lines is not None:  # beside a cut two neighbours may fit equally well, and rounding chooses
        products = rest @ ramps.lines
    else:  # A slope is a sum of steps of one unit, and the product with a step the sum of all that is left from it on.
        total = np.append(0.0, rest[::-1].cumsum()[::-1].cumsum())
        products = total[ramps.stops] - total[ramps.starts]
    rates = np.where(squares > 1e-6, products / np.maximum(squares, 1e-6), 0.0)
    counts = np.abs(rates) * ramps.lengths >= smallest
    if not counts.any():
        return []
    power = float(rest @ rest)
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
