"""When a case has been timed enough: a pure decision from samples, targets and clocks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairbench.model.outcome import PRECISE, SAMPLE_CAP, TIME_CAP
from pairbench.model.settings import Settings
from pairbench.stats import paired_halfwidth

_FEWEST = 10
"""Blocks that are taken even past the time cap: fewer say nothing of a median."""
_PATIENCE = 10
"""Times the cap after which even these are given up."""


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """The criterion of one round of one case."""

    target: float
    least: int
    """Blocks that are taken before precision counts."""
    most: int
    seconds: float

    @classmethod
    def of(cls, settings: Settings) -> "Stopping":
        """Share the samples that are wanted over the rounds."""
        return cls(
            target=settings.target,
            least=max(_FEWEST, math.ceil(settings.min_samples / settings.rounds)),
            most=max(_FEWEST, math.ceil(settings.max_samples / settings.rounds)),
            seconds=settings.case_seconds,
        )

    def reason(self, blocks: int, elapsed_s: float, log_ratios: list[NDArray[np.float64]]) -> str | None:
        """Return why to stop now, or None to go on.

        Args:
            blocks: Blocks that count so far.
            elapsed_s: Since the first one.
            log_ratios: Of each variant to its baseline, one value a block; empty where there is no pair.
        """
        if elapsed_s >= self.seconds and (blocks >= _FEWEST or elapsed_s >= self.seconds * _PATIENCE):
            return TIME_CAP
        if blocks >= self.most:
            return SAMPLE_CAP
        if blocks >= self.least and all(paired_halfwidth(ratios) <= self.target for ratios in log_ratios):
            return PRECISE
        return None


class Checks:
    """Applies a criterion to a growing number of blocks, ever more rarely; throttled blocks do not count."""

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self._at = 8

    def reason(
        self,
        throttled: Sequence[bool],
        elapsed_s: float,
        log_ratios: Callable[[NDArray[np.bool_]], list[NDArray[np.float64]]],
    ) -> str | None:
        """Return why to stop now, or None to go on.

        Args:
            throttled: Of each block so far.
            elapsed_s: Since the first one.
            log_ratios: Gives those of the blocks that count, see `Stopping.reason`.
        """
        over = elapsed_s >= self._stopping.seconds
        if len(throttled) < self._at and not over:
            return None
        self._at = math.ceil(len(throttled) * 1.2)
        good = ~np.array(throttled)
        if over and not remeasured(throttled):
            good[:] = True  # throttled throughout: measuring again will not help, and all blocks are used
        return self._stopping.reason(int(good.sum()), elapsed_s, log_ratios(good))


def remeasured(throttled: Sequence[bool]) -> int:
    """Return how many throttled blocks are left out: all of them, unless the GPU throttled half of the time or more."""
    count = sum(throttled)
    return count if count * 2 < len(throttled) else 0
