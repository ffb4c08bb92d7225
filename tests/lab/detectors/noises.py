"""Simulated series: how each kind of noise is made, exactly, from a half, a kind, a size and a number.

The development half is for trying changes of the detector; the page is made from the held-out half, on which nothing is set.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HALVES = {"development": 1, "held-out": 2}
BEFORE, AFTER = 30, 30
"""Fewest runs before and after a planted step."""


def iid(size: int, cv: float, generator: Generator) -> Floats:
    return cv * generator.standard_normal(size)


def ar1(size: int, cv: float, generator: Generator, *, memory: float = 0.5) -> Floats:
    """Each run remembers half of what the one before it was off by; the spread is that of iid."""
    fresh = generator.standard_normal(size)
    noise = np.empty(size)
    noise[0] = fresh[0]
    for run in range(1, size):
        noise[run] = memory * noise[run - 1] + np.sqrt(1 - memory**2) * fresh[run]
    return cv * noise


def spikes(size: int, cv: float, generator: Generator) -> Floats:
    """Independent, and 4 % of the runs are slower by another 10 to 50 %."""
    noise = iid(size, cv, generator)
    hit = generator.random(size) < 0.04
    return noise + np.where(hit, np.log1p(generator.uniform(0.1, 0.5, size)), 0.0)


def sticky(size: int, cv: float, generator: Generator, *, switch: float = 0.2) -> Floats:
    """Two modes, 2 CV apart; a run changes the mode with probability 0.2. Within a mode, independent with half the CV."""
    mode = (np.cumsum(generator.random(size) < switch) + generator.integers(2)) % 2
    return cv * (2.0 * mode - 1) + cv / 2 * generator.standard_normal(size)


NOISES: dict[str, Callable[[int, float, Generator], Floats]] = {
    "iid": iid,
    "AR(1) 0.5": ar1,
    "4 % spikes": spikes,
    "sticky two-mode": sticky,
}
HARDER: dict[str, Callable[[int, float, Generator], Floats]] = {
    "sticky, 10 runs a mode": partial(sticky, switch=0.1),
    "AR(1) 0.8": partial(ar1, memory=0.8),
}
_NUMBERS = {name: number for number, name in enumerate([*NOISES, *HARDER])}


def null(half: str, noise: str, cv: float, number: int, size: int = 100) -> Floats:
    """Return the natural logarithms of a series on which nothing happens."""
    return (NOISES | HARDER)[noise](size, cv, _generator(half, noise, cv, number))


def step_of(half: str, noise: str, cv: float, number: int, size: int = 100) -> int:
    """Return where the step of a stepped series is: somewhere in its middle."""
    return int(_generator(half, noise, cv, number, 1).integers(BEFORE, size - AFTER + 1))


def stepped(series: Floats, place: int, step: float) -> Floats:
    """Return the series with all runs from a place on slower; step 0.03 is 3 %."""
    return series + np.where(np.arange(len(series)) >= place, np.log1p(step), 0.0)


def _generator(half: str, noise: str, cv: float, number: int, purpose: int = 0) -> Generator:
    return np.random.default_rng([HALVES[half], _NUMBERS[noise], round(cv * 1000), number, purpose])
