"""Which commit to probe next, and when enough is known: the commit whose round is expected to leave the least entropy.

Two commits that no round can tell apart, for none between them can be measured, are one candidate: `Candidates`.
"""

import itertools
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from pairbench.analyze.bisect.posterior import Floats, Posterior

ENOUGH = 0.99
"""The probability at which it stops."""
_REACH, _POINTS = 5.0, 101
"""How many deviations beyond both means the ratios of the next round are looked at, and how many of them."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The commits that cannot be told apart; one, unless some cannot be measured."""

    first: int
    last: int
    """The numbers of the first and the last; only the last can be measured."""
    probability: float


def candidates(probability: Floats, skipped: Collection[int]) -> tuple[Candidate, ...]:
    """Return the candidates, the most probable first.

    Args:
        probability: Of each commit.
        skipped: The numbers of those that cannot be measured.
    """
    ends = [number for number in range(1, len(probability) + 1) if number not in skipped]
    found = (
        Candidate(first=before + 1, last=end, probability=float(probability[before:end].sum()))
        for before, end in itertools.pairwise([0, *ends])
    )
    return tuple(sorted(found, key=lambda one: -one.probability))


def next_probe(known: Posterior, skipped: Collection[int]) -> int:
    """Return the number of the commit to probe next.

    Args:
        known: What is known so far.
        skipped: The numbers of commits that cannot be measured.
    """
    open_ = np.array([number for number in range(1, len(known.probability) + 1) if number not in skipped])
    moved = np.cumsum(known.probability)[open_ - 1]
    fall = expected_fall(moved, abs(known.step) / known.deviation)
    return int(open_[fall.argmax()])


def expected_fall(moved: Floats, step: float) -> Floats:
    """Return by how many nats a round is expected to lower the entropy over the commits: what it tells of one question, has it moved yet.

    Args:
        moved: For each commit the probability that the step is at or before it.
        step: The step in units of the noise.
    """
    ratio = np.linspace(-_REACH, step + _REACH, _POINTS)
    width = ratio[1] - ratio[0]
    still, beyond = (np.exp(-((ratio - mean) ** 2) / 2) / np.sqrt(2 * np.pi) for mean in (0.0, step))
    moved = np.clip(moved, 1e-12, 1 - 1e-12)[:, None]
    either = np.maximum(moved * beyond + (1 - moved) * still, 1e-300)
    left = either * _entropy(moved * beyond / either)
    fall: Floats = _entropy(moved[:, 0]) - left.sum(axis=1) * width
    return fall


def _entropy(part: Floats) -> Floats:
    part = np.clip(part, 1e-300, 1 - 1e-16)
    entropy: Floats = -part * np.log(part) - (1 - part) * np.log1p(-part)
    return entropy
