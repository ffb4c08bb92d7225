"""Rules by which other tools call a benchmark slower or faster, restated in a line or two each, on the same numbers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from pairbench.analyze.compare.rounds import Bools, Floats
from tests.lab.gate.noise import Side

SAMPLES = 50
"""Of a round."""
SAMPLE_SPREAD = 0.01
"""Between the samples of a round."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A rule that sees log latencies of the reference and of the current side, one row a series."""

    name: str
    rule: Callable[[Floats, Floats], Bools]
    samples: bool
    """Whether it sees the pooled samples instead of each round's median."""


def ratio(limit: float) -> Callable[[Floats, Floats], Bools]:
    """Medians further apart than a factor."""
    return lambda before, now: np.abs(np.median(now, axis=1) - np.median(before, axis=1)) > np.log(limit)


def rank_test(p: float, factor: float = 1.0) -> Callable[[Floats, Floats], Bools]:
    """Mann-Whitney's U, two-sided, and medians further apart than a factor."""
    far = ratio(factor)
    return lambda before, now: (stats.mannwhitneyu(now, before, axis=1, method="auto").pvalue < p) & far(before, now)


def apart(before: Floats, now: Floats) -> Bools:
    """Tell where the 99 % intervals of both medians, from order statistics, do not overlap."""

    def ends(values: Floats) -> tuple[Floats, Floats]:
        ordered = np.sort(values, axis=1)
        rank = max(int(stats.binom.ppf(0.005, values.shape[1], 0.5)) - 1, 0)
        return ordered[:, rank], ordered[:, -1 - rank]

    (low_before, high_before), (low_now, high_now) = ends(before), ends(now)
    found: Bools = (low_now > high_before) | (low_before > high_now)
    return found


PEERS = (
    Peer(name="ratio of medians > 1.05", rule=ratio(1.05), samples=False),
    Peer(name="Mann-Whitney p < .05 on rounds", rule=rank_test(0.05), samples=False),
    Peer(name="Mann-Whitney p < .05 on pooled samples", rule=rank_test(0.05), samples=True),
    Peer(name="Mann-Whitney p < .002 on pooled samples and ratio > 1.05", rule=rank_test(0.002, 1.05), samples=True),
    Peer(name="99 % intervals of the medians do not overlap, pooled samples", rule=apart, samples=True),
)


def samples_of(side: Side, rng: np.random.Generator) -> Floats:
    """Return the samples of all rounds of a side, one row a series."""
    size = (*side.p50.shape, SAMPLES)
    values = side.p50[..., None] + SAMPLE_SPREAD * rng.standard_normal(size)
    return values.reshape(len(values), -1)


def rounds_of(side: Side) -> Floats:
    """Return the medians of all rounds of a side, one row a series."""
    return side.p50.reshape(len(side.p50), -1)
