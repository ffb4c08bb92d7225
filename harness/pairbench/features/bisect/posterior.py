"""How probable it is of each commit that it moved a latency, given the rounds so far.

Commits are numbered from 1, the first after the good end, to the bad end. A round sets one of them beside the good end, or an earlier
one, and leaves a log ratio: noise around one unknown step where the culprit is between the two, else noise alone. The step has a flat
prior and the variance an inverse gamma one, and both are summed over a grid, so that few rounds make no one surer than they should. Any
round may be an outlier, so one round alone decides nothing. The next round is of the commit that is expected to leave the least entropy.
Commits that no round can tell apart are one `Candidate`. A count needs no statistics: it is bisected.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pairbench.model.comparison import DEFAULT
from pairbench.stats import Floats

# The prior weight of a commit that leaves the implementation's hash unchanged, for code that no hash covers (a library, a build, a setting)
# moves latencies too; one that changes it has 1. A wrong weight costs rounds, not the result: log2(1 / 0.05) is 4.3 bits of evidence.
UNTOUCHED = 0.05
_OUTLIERS = 0.05  # the part of rounds that say nothing: half of them read as the other side, half as anything
_STEPS, _DEVIATIONS = 25, 9  # how many steps and deviations are summed over, besides the outer steps
ENOUGH = 0.99  # the probability at which the search stops
UNTOUCHED_ENOUGH = 1 - (1 - ENOUGH) * UNTOUCHED  # ENOUGH, for commits that leave the implementation's hash unchanged
_REACH, _POINTS = 5.0, 101  # the log ratios to integrate over: deviations beyond both means, and the number of points


class Round(NamedTuple):
    commit: int
    log_ratio: float  # the logarithm of the latency of the commit over that of its base
    base: int = 0  # the earlier commit beside it; 0 is the good end


class Spread(NamedTuple):
    """The prior of how far log ratios of rounds spread: a scaled inverse chi-squared distribution of the variance."""

    deviation: float
    weight: float

    @classmethod
    def least(cls) -> "Spread":
        """Return the prior without a calibration: the least difference between two processes, with the weight of one round."""
        return cls(deviation=float(np.sqrt(2) * DEFAULT.least_spread), weight=1.0)

    @classmethod
    def of_floor(cls, floor: float, rounds: int) -> "Spread":
        """Return the prior that a floor implies, which exceeds 95 % of the log changes between two runs of `rounds` rounds each."""
        # Such a change has the variance of two means of that many rounds, and a log ratio has the variance of two rounds.
        return cls(deviation=float(floor / 1.959963984540054 * np.sqrt(rounds)), weight=4.0)


class Posterior(NamedTuple):
    """The posterior of the culprit, with the mean step and noise if it is the most probable one."""

    probability: Floats  # the probability of each commit, beginning with commit 1
    step: float
    deviation: float


def prior_of(changed: Sequence[bool | None]) -> Floats:
    weight = np.array([UNTOUCHED if one is False else 1.0 for one in changed])
    return np.asarray(weight / weight.sum())


def posterior(prior: Floats, rounds: Sequence[Round], spread: Spread) -> Posterior:
    """Return the posterior after some rounds, of which at least one is of the bad end beside the good one."""
    size = len(prior)
    base, number = (np.array([getattr(one, end) for one in rounds]) for end in ("base", "commit"))
    ratios = np.array([one.log_ratio for one in rounds])
    steps, deviations, weights = _grid(ratios, ratios[(base == 0) & (number == size)], spread)
    still, moved = (_normal(ratios, middle, deviations) for middle in (0.0, steps))
    wide = _normal(ratios, steps / 2, np.abs(steps) + 5 * deviations)
    before = np.log((1 - _OUTLIERS) * still + _OUTLIERS / 2 * (moved + wide))
    gain = np.log((1 - _OUTLIERS) * moved + _OUTLIERS / 2 * (still + wide)) - before
    # Which rounds have each commit between their sides; neighbours of which that is the same have the same evidence.
    culprit = np.arange(1, size + 1)
    between = (base[:, None] < culprit) & (culprit <= number[:, None])
    first = np.flatnonzero(np.r_[True, (between[:, 1:] != between[:, :-1]).any(axis=0)])
    logs = (weights + before.sum(axis=1))[:, None] + gain @ between[:, first].astype(np.float64)
    parts = np.exp(logs - logs.max())
    probability = prior * np.repeat(parts.sum(axis=0), np.diff([*first, size]))
    part = parts[:, int(np.searchsorted(first, int(probability.argmax()), side="right")) - 1]
    part = part / part.sum()
    step, deviation = float(part @ steps[:, 0]), float(np.sqrt(part @ deviations[:, 0] ** 2))
    return Posterior(probability / probability.sum(), step, deviation)


def _grid(ratios: Floats, ends: Floats, spread: Spread) -> tuple[Floats, Floats, Floats]:
    """Return the steps and deviations to sum over, a column each, and the logarithms of their weights."""
    # Steps lie around the median of the ends, deviations around that of the rounds, each beside the nearer of no step and that one.
    middle = float(np.median(ends))
    reach = 1.4826 * float(np.median(np.abs(ends - middle)))
    near = 1.4826 * float(np.median(np.minimum(np.abs(ratios), np.abs(ratios - middle))))
    scale = max(reach, near, spread.deviation * 0.3, 1e-6)
    inner = 6 * scale / np.sqrt(len(ends))
    outer = max(float(np.abs(ends - middle).max()), 4 * scale) + 2 * scale
    half = np.r_[np.linspace(0, inner, _STEPS // 2 + 1), np.linspace(inner, max(outer, inner + scale), 6)[1:]]
    steps = middle + np.r_[-half[:0:-1], half]
    factor = 1 + 8 / np.sqrt(len(ratios))
    deviations = scale * np.geomspace(1 / factor, 2 * factor, _DEVIATIONS)
    step, deviation = (one.reshape(-1, 1) for one in np.meshgrid(steps, deviations, indexing="ij"))
    variance = deviation[:, 0] ** 2
    # The density of the variance times its width in logarithms, and the width of each step.
    known = -spread.weight / 2 * (np.log(variance) + spread.deviation**2 / variance)
    return step, deviation, known + np.log(np.repeat(np.gradient(steps), _DEVIATIONS))


def _normal(values: Floats, middle: Floats | float, deviation: Floats) -> Floats:
    return np.asarray(np.exp(-(((values - middle) / deviation) ** 2) / 2) / (np.sqrt(2 * np.pi) * deviation))


class Candidate(NamedTuple):
    """A range of commits that no round can tell apart; one commit, unless some cannot be measured."""

    first: int
    last: int  # only the last commit can be measured
    probability: float


def candidates(probability: Floats, skipped: Collection[int]) -> tuple[Candidate, ...]:
    ends = [number for number in range(1, len(probability) + 1) if number not in skipped]
    ranges = itertools.pairwise([0, *ends])
    found = (Candidate(before + 1, end, float(probability[before:end].sum())) for before, end in ranges)
    return tuple(sorted(found, key=lambda one: -one.probability))


def is_enough(found: Candidate, changed: Sequence[bool | None]) -> bool:
    """Return whether a candidate is probable enough; `changed` says of each commit whether it changed the hash."""
    untouched = all(one is False for one in changed[found.first - 1 : found.last])
    return found.probability >= (UNTOUCHED_ENOUGH if untouched and changed else ENOUGH)


def next_probe(known: Posterior, skipped: Collection[int]) -> int:
    open_ = np.array([number for number in range(1, len(known.probability) + 1) if number not in skipped])
    fall = expected_fall(np.cumsum(known.probability)[open_ - 1], abs(known.step) / known.deviation)
    return int(open_[fall.argmax()])


def expected_fall(moved: Floats, step: float) -> Floats:
    """Return by how many nats a round of each commit is expected to lower the entropy; `step` is in units of the noise."""
    ratio = np.linspace(-_REACH, step + _REACH, _POINTS)
    width = ratio[1] - ratio[0]
    still, beyond = (np.exp(-((ratio - mean) ** 2) / 2) / np.sqrt(2 * np.pi) for mean in (0.0, step))
    moved = np.clip(moved, 1e-12, 1 - 1e-12)[:, None]
    either = np.maximum(moved * beyond + (1 - moved) * still, 1e-300)
    left = either * _entropy(moved * beyond / either)
    return np.asarray(_entropy(moved[:, 0]) - left.sum(axis=1) * width)


def _entropy(part: Floats) -> Floats:
    part = np.clip(part, 1e-300, 1 - 1e-16)
    return np.asarray(-part * np.log(part) - (1 - part) * np.log1p(-part))


def still_open(counts: Mapping[int, float], last: int) -> tuple[int, int]:
    """Return the last commit known to have the good count, and the first known to have another."""
    bad = min((number for number, count in counts.items() if count != counts[0]), default=last)
    good = max(number for number, count in counts.items() if count == counts[0] and number < bad)
    return good, bad


def next_count(good: int, bad: int, skipped: Collection[int]) -> int | None:
    middle = (good + bad) / 2
    able = [number for number in range(good + 1, bad) if number not in skipped]
    return min(able, key=lambda number: (abs(number - middle), number), default=None)
