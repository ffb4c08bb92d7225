"""How probable it is of each commit that it moved a latency, given the rounds so far.

Commits are numbered from 1, the first after the good end, to the bad end. A round sets one of them beside the good end and leaves a
log ratio: noise alone before the culprit, noise around one unknown step from the culprit on. Neither the step nor the noise is
known beforehand. The step has a flat prior and the variance an inverse gamma one, so that both are integrated out in closed
form, and few rounds make no one surer than they should (Gelman et al., Bayesian Data Analysis, section 3.2).

The next round is of the commit whose round is expected to leave the least entropy. Commits that no round can tell apart, for none
between them can be measured, are one candidate: `Candidate`. A count needs no statistics: it is bisected, around commits that
cannot be counted.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairbench.model.comparison import DEFAULT, Policy

Floats = NDArray[np.float64]

UNTOUCHED = 0.05
"""The prior weight of a commit that leaves the implementation's hash unchanged; one that changes it has 1.

Code that no hash covers moves latencies too: an imported library, a build, a setting. The weight is a guess, and a wrong one costs rounds,
not the result: log2(1 / 0.05) is 4.3 bits of evidence.
"""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round of a commit beside the good end."""

    commit: int
    log_ratio: float
    """The logarithm of the latency of the commit over the latency of the good end."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The prior of how far log ratios of rounds spread: a scaled inverse chi-squared distribution of the variance."""

    deviation: float
    weight: float

    @classmethod
    def least(cls, policy: Policy = DEFAULT) -> "Spread":
        """Return the prior without a calibration: the least difference between two processes, with the weight of one round."""
        return cls(deviation=float(np.sqrt(2) * policy.least_spread), weight=1.0)

    @classmethod
    def of_floor(cls, floor: float, rounds: int) -> "Spread":
        """Return the prior that a noise floor implies.

        The floor exceeds 95 % of the changes between two runs of `rounds` rounds each, in log units. Such a change has the variance of
        two means of that many rounds, and a log ratio has the variance of two rounds.
        """
        return cls(deviation=float(floor / 1.959963984540054 * np.sqrt(rounds)), weight=4.0)


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """The posterior of the culprit, with the step and the noise at its mode."""

    probability: Floats
    """The probability of each commit, beginning with commit 1."""
    step: float
    deviation: float


def prior_of(changed: Sequence[bool | None]) -> Floats:
    weight = np.array([UNTOUCHED if one is False else 1.0 for one in changed])
    normed: Floats = weight / weight.sum()
    return normed


def posterior(prior: Floats, rounds: Sequence[Round], spread: Spread) -> Posterior:
    """Return the posterior after some rounds, of which at least one is of the bad end."""
    number = np.array([one.commit for one in rounds])
    ratios = np.array([one.log_ratio for one in rounds])
    size = len(prior)
    count = np.bincount(number, minlength=size + 1)[1:]
    total = np.bincount(number, ratios, minlength=size + 1)[1:]
    # From each commit on, to the bad end.
    behind = np.cumsum(count[::-1])[::-1].astype(np.float64)
    sums = np.cumsum(total[::-1])[::-1]
    squares = spread.weight * spread.deviation**2 + float((ratios**2).sum()) - sums**2 / behind
    freedom = spread.weight + len(ratios) - 1
    logs = np.log(prior) - np.log(behind) / 2 - freedom / 2 * np.log(squares)
    weight = np.exp(logs - logs.max())
    best = int(logs.argmax())
    return Posterior(
        probability=weight / weight.sum(),
        step=float(sums[best] / behind[best]),
        deviation=float(np.sqrt(squares[best] / freedom)),
    )


ENOUGH = 0.99
"""The probability at which the search stops."""
_REACH, _POINTS = 5.0, 101
"""The range of log ratios to integrate over, in deviations beyond both means, and its number of points."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A range of commits that no round can tell apart; one commit, unless some cannot be measured."""

    first: int
    last: int
    """Only the last commit can be measured."""
    probability: float


def candidates(probability: Floats, skipped: Collection[int]) -> tuple[Candidate, ...]:
    """Return the candidates, the most probable first."""
    ends = [number for number in range(1, len(probability) + 1) if number not in skipped]
    found = (
        Candidate(first=before + 1, last=end, probability=float(probability[before:end].sum()))
        for before, end in itertools.pairwise([0, *ends])
    )
    return tuple(sorted(found, key=lambda one: -one.probability))


def next_probe(known: Posterior, skipped: Collection[int]) -> int:
    open_ = np.array([number for number in range(1, len(known.probability) + 1) if number not in skipped])
    moved = np.cumsum(known.probability)[open_ - 1]
    fall = expected_fall(moved, abs(known.step) / known.deviation)
    return int(open_[fall.argmax()])


def expected_fall(moved: Floats, step: float) -> Floats:
    """Return by how many nats a round of each commit is expected to lower the entropy over the commits.

    `moved` is the probability that the step is at or before each commit, and `step` is in units of the noise.
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


class Open(NamedTuple):
    """The last commit known to have the good count, and the first known to have another."""

    good: int
    bad: int


def still_open(counts: Mapping[int, float], last: int) -> Open:
    bad = min((number for number, count in counts.items() if count != counts[0]), default=last)
    good = max(number for number, count in counts.items() if count == counts[0] and number < bad)
    return Open(good, bad)


def next_count(open_: Open, skipped: Collection[int]) -> int | None:
    """Return the index of the countable commit nearest to the middle, or None."""
    middle = (open_.good + open_.bad) / 2
    able = [number for number in range(open_.good + 1, open_.bad) if number not in skipped]
    return min(able, key=lambda number: (abs(number - middle), number), default=None)
