"""How far rounds and runs spread: what a series tells itself, and what others like it lend.

Three rounds a side say little about their own spread. Series of one device and mode with similar latency spread alike,
so each series' variance is moderated by theirs, as limma does for genes (Smyth 2004, doi:10.2202/1544-6115.1027): the
prior variance follows the latency, and its weight in degrees of freedom comes from how much the series' variances
differ beyond chance. Both are fitted by quartiles, since a few series with an outlying round must not cost all others
their certainty.
"""

import functools

import numpy as np
from scipy import special

from pairbench.analyze.compare.rounds import Bools, Floats, Ints

_LEAST = 8
"""The number of series below which nothing is lent."""
_WINDOW = 60
"""The number of series of neighbouring latency that tell what is usual at a latency."""
_NARROWEST = 15
"""The least number of neighbouring series, if there are as many; otherwise a third of all series, for what is usual
is no straight line."""
_BAND = 30
"""The number of controls that tell how much further runs spread than their rounds."""


def prior(log_latency: Floats, variance: Floats, freedom: Floats, most: float) -> tuple[Floats, Floats]:
    """Return, for each series of a group, the variance that its neighbours suggest and the degrees of freedom of that.

    Args:
        log_latency: What similar means.
        variance: Between the rounds of a run, above 0.
        freedom: Degrees of freedom of each variance; where it is 0 the variance is ignored.
        most: Degrees of freedom that may be lent.
    """
    told = freedom > 0
    number = int(told.sum())
    if number < _LEAST:
        return np.ones_like(variance), np.zeros_like(variance)
    typical = float(np.median(freedom[told]))
    # The median of a chi-squared over its degrees of freedom is below 1.
    centre = np.log(special.chdtri(freedom[told], 0.5) / freedom[told])
    height = np.log(variance[told]) - centre
    order = np.argsort(log_latency[told], kind="stable")
    x, y = log_latency[told][order], height[order]
    fitted, share = _smooth(x, _clipped(x, y))
    residual = y - fitted
    low, high = np.percentile(residual, [25, 75])
    # Quartiles of few series lie by chance too near to each other, and a line through few follows their noise.
    lent = min(_lent(float(high - low) * (1 + 1 / np.sqrt(number)), typical), most)
    doubt = share * special.polygamma(1, typical / 2)
    trusted = 1 / (1 / lent + doubt / 2)
    usual = np.exp(np.interp(log_latency, x, fitted + float(np.median(residual))))
    return usual, np.interp(log_latency, x, trusted)


def excess(z: Floats, freedom: Floats, log_latency: Floats, null: Bools, guess: Floats) -> Floats:
    """Return by what factor the variance of changes exceeds what the rounds explain, 1 or more.

    Only controls tell: a change of the code moves variants, perhaps all of them, but what moves baselines this way and
    that is noise between runs. The shortest interval with half of them tells their spread whatever the other half does,
    and wherever its centre lies, for a machine that is slower altogether is no noise. (The robust scale is that of
    Rousseeuw and Leroy 1988; the idea is that of genomic control, Devlin and Roeder 1999.)

    Args:
        z: Changes over their standard errors.
        freedom: Of the standard errors.
        log_latency: Neighbours in latency are judged together.
        null: Which series are controls.
        guess: What to return where they are too few.
    """
    told = np.flatnonzero(null)
    if len(told) < 2 * _LEAST:
        return guess
    order = told[np.argsort(log_latency[told], kind="stable")]
    places, factors = [], []
    for band in np.array_split(order, max(1, len(order) // _BAND)):
        ordered = np.sort(z[band])
        half = len(band) // 2
        shortest = float(np.min(ordered[half:] - ordered[: len(ordered) - half])) / 2
        expected = float(special.stdtrit(float(np.median(freedom[band])), 0.75))
        # That of a sample is shorter than that of its distribution: simulated, 16 to 200 normal values.
        factors.append(max(1.0, (shortest / expected * (1 + 1 / np.sqrt(len(band)))) ** 2))
        places.append(float(np.mean(log_latency[band])))
    found: Floats = np.interp(log_latency, places, factors)
    return found


def _clipped(x: Floats, y: Floats) -> Floats:
    """Return values with those far from their neighbours drawn in."""
    first, _ = _smooth(x, np.clip(y, *_fences(y)))
    return first + np.clip(y - first, *_fences(y - first))


def _fences(values: Floats) -> tuple[float, float]:
    low, high = np.percentile(values, [25, 75])
    return float(low - 1.5 * (high - low)), float(high + 1.5 * (high - low))


def _smooth(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return a straight line's value at each point, fitted to its neighbours, and the share of its own noise in it.

    Args:
        x: Where the values lie, sorted.
        y: The values.
    """
    width = min(len(x), max(_NARROWEST, min(len(x) // 3, _WINDOW)))
    start = np.clip(np.arange(len(x)) - width // 2, 0, len(x) - width)
    x = x - x.mean()

    def mean(values: Floats) -> Floats:
        total = np.concatenate([[0.0], np.cumsum(values)])
        window: Floats = (total[start + width] - total[start]) / width
        return window

    mean_x, mean_y = mean(x), mean(y)
    spread = mean(x * x) - mean_x**2
    together = mean(x * y) - mean_x * mean_y
    straight = spread > 1e-6
    slope = np.where(straight, together / np.maximum(spread, 1e-6), 0.0)
    fitted: Floats = mean_y + slope * (x - mean_x)
    share: Floats = (1 + np.where(straight, (x - mean_x) ** 2 / np.maximum(spread, 1e-6), 0.0)) / width
    return fitted, share


def _lent(spread: float, freedom: float) -> float:
    """Return the prior's degrees of freedom at which variances would have this interquartile range of logarithms."""
    freedoms, spreads = _table(round(freedom))
    # Falling in the prior's degrees of freedom.
    return float(np.exp(np.interp(-spread, -spreads, np.log(freedoms))))


@functools.lru_cache(maxsize=64)
def _table(freedom: int) -> tuple[Floats, Floats]:
    lent = np.geomspace(0.5, 1000, 40)
    low, high = (np.log(special.fdtri(max(freedom, 1), lent, q)) for q in (0.25, 0.75))
    return lent, high - low


def groups_of(labels: Ints) -> list[Ints]:
    """Return the places of each label."""
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]
