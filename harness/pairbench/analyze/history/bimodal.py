"""Where a step is when the noise has two modes, such as two states of the clock or two placements in memory.

A change of mode looks like a small step, and next to a step it can pull the place of that step over to itself. What tells
them apart: the modes are as far from each other after the step as before it. So both sides are fitted together, with one
distance between the modes, one spread within them, and one chance to leave each. Every run's mode is one more unknown:
it is the one that the run is nearer to, and it is paid for, because the likelihood is that of values and modes together.
That is at most what a hidden Markov model gives, so two modes do not win by being flexible.

Modes and step are found in turn (classification EM: Celeux and Govaert, Computational Statistics & Data Analysis 14(3),
1992); for given modes, all places of the step are fitted at once. Whether there are two modes is decided by BIC with a
correction for few runs (SICc: McQuarrie, Statistics & Probability Letters 44(1), 1999). No constant was set by simulation.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairbench.stats import Floats

_ROUNDS = 6
"""The largest number of rounds. Most fits stop after three: no round may lower the likelihood."""

Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """A step in noise of two modes."""

    cut: int
    likelihood: float
    borders: tuple[float, float]
    """The values half way between the modes, before the step and after it."""


def place_of_step(stretch: Floats, cut: int, *, plain: float, least: float, shortest: int) -> int:
    """Return where the one step of a stretch is: at the given cut, unless noise of two modes puts it elsewhere, and clearly.

    Args:
        stretch: the runs from the changepoint before this one to the one after it.
        cut: number of the first run after the step, as found without modes.
        plain: log-likelihood of the stretch with that cut and noise of one mode with memory, as -n/2 ln(variance).
        least: variance below which noise is not believed.
        shortest: runs that a level has at least; 2 or more.
    """
    values = stretch - stretch.mean()
    best: _Fit | None = None
    borders = _parted(values, cut)
    # One start, from the given cut: from several, the step itself is often taken for the distance between modes.
    for _ in range(_ROUNDS):
        fit = _fitted(values, values > borders[0], values > borders[1], least, shortest)
        if fit is None or (best is not None and fit.likelihood <= best.likelihood):
            break
        best, borders = fit, fit.borders
    return best.cut if best is not None and best.likelihood > plain + _margin(len(values)) else cut


def _margin(size: int) -> float:
    """Return the nats that two modes must gain: SICc's, for five parameters instead of three, spread not counted.

    Two levels, the distance and the two chances of the modes; or two levels and one memory. 5.1 for 100 runs.
    """
    return 0.5 * size * math.log(size) * (5 / (size - 7) - 3 / (size - 5)) if size > 7 else math.inf


def _parted(values: Floats, cut: int) -> tuple[float, float]:
    """Return a border on each side of a cut: as far above both means, where it leaves least squares in two groups."""
    means = float(values[:cut].mean()), float(values[cut:].mean())
    rest = np.sort(np.concatenate([values[:cut] - means[0], values[cut:] - means[1]]))
    lower = np.arange(1, len(rest))
    split = float(rest[np.argmax(np.cumsum(rest)[:-1] ** 2 / (lower * lower[::-1]))])
    return means[0] + split, means[1] + split


def _fitted(values: Floats, before: Flags, after: Flags, least: float, shortest: int) -> _Fit | None:
    """Return the likeliest fit over all cuts, None if none has two modes.

    Args:
        values: centred on 0.
        before: whether a run is in the upper mode if it is before the step.
        after: the same if it is after.
    """
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
    return _Fit(
        cut=int(cuts[best]),
        likelihood=float(likelihood[best]),
        borders=(
            float(total[best] / cuts[best] + gap[best] * (0.5 - high[best] / cuts[best])),
            float(-total[best] / rest[best] + gap[best] * (0.5 - late[best] / rest[best])),
        ),
    )


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
