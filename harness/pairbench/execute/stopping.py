"""When a case has been timed enough: a pure decision from samples, targets and clocks."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairbench.model.environment import Settings
from pairbench.model.outcome import PRECISE, SAMPLE_CAP, TIME_CAP
from pairbench.model.plain import Value
from pairbench.stats import Floats, paired_halfwidth

_FEWEST = 10  # blocks that are taken even past the time cap: fewer say nothing of a median
_PATIENCE = 5  # times the cap after which even these are given up
_UNSURE = 2
"""Times the target to which ratios of device latencies have to be known at the cap, and times the cap that they have otherwise.

Calls at the power limit of a GPU that does not rest scatter by 3 %: after a quarter of a second their ratio is known to 2.7 %.
"""
_BETWEEN_ROUNDS_NS = 100.0
"""About how far the median device latency of a short call moves from one process to the next: on an H200 by 50 to 180 ns for
calls of 4 to 50 us. A round that is more precise than that by itself makes the run no more precise."""


class BlockLatencies(NamedTuple):
    """One entry's latencies in ns, a value a block."""

    call_ns: Sequence[float]
    device_ns: Sequence[float] | None  # the device latencies; None where any is missing


class PairedBlocks(NamedTuple):
    """Two entries beside one another: a variant and its baseline, or one entry of two commits."""

    log_ratios: Floats  # the logarithms of one latency over the other, of each block that counts
    device_ns: float | None  # the shorter of the two median device latencies in ns; None where the ratios are of calls

    @classmethod
    def of(cls, one: BlockLatencies, other: BlockLatencies, good: NDArray[np.bool_]) -> "PairedBlocks":
        """Pair two entries, numerator first, over the good blocks, by the device latency where both have it, else by the call's."""
        # What the host adds to a call never settles, and waiting for it would use up the time of most cases.
        on_device = one.device_ns is not None and other.device_ns is not None
        latencies = (item.device_ns if on_device else item.call_ns for item in (one, other))
        over, under = (np.array(values, dtype=np.float64)[good] for values in latencies)
        shorter = min(float(np.median(over)), float(np.median(under))) if on_device and good.any() else None
        return cls(np.log(over / under), shorter)


class Stopping(Value):
    """The criterion of one round of one case."""

    target: float
    least: int  # blocks that are taken before precision counts
    most: int
    seconds: float
    unsure_seconds: float  # the cap where a ratio of device latencies is not known well

    @classmethod
    def of(cls, settings: Settings) -> "Stopping":
        """Share the samples that are wanted over the rounds."""
        wanted, seconds = (settings.min_samples, settings.max_samples), settings.case_seconds
        least, most = (max(_FEWEST, math.ceil(samples / settings.rounds)) for samples in wanted)
        return cls(target=settings.target, least=least, most=most, seconds=seconds, unsure_seconds=_UNSURE * seconds)

    @property
    def longest_s(self) -> float:
        """Return the seconds from which on no block is begun, however few there are."""
        return self.seconds * _PATIENCE

    def reason(self, blocks: int, elapsed_s: float, pairs: Sequence[PairedBlocks]) -> str | None:
        """Return why to stop after some seconds with so many good blocks, or None to go on; a case without a pair has none in `pairs`."""
        enough = blocks >= _FEWEST or elapsed_s >= self.longest_s
        if enough and elapsed_s >= self.seconds:
            # More blocks would help where a ratio of device latencies is known badly.
            unsure = any(pair.device_ns and not self._is_precise(pair, _UNSURE) for pair in pairs)
            if not unsure or elapsed_s >= self.unsure_seconds:
                return TIME_CAP
        if blocks >= self.most:
            return SAMPLE_CAP
        if blocks >= self.least and all(self._is_precise(pair) for pair in pairs):
            return PRECISE
        return None

    def _is_precise(self, pair: PairedBlocks, times: float = 1.0) -> bool:
        between_rounds = _BETWEEN_ROUNDS_NS / pair.device_ns if pair.device_ns else 0.0
        return paired_halfwidth(pair.log_ratios) <= times * max(self.target, between_rounds)


class Checks:
    """Applies a criterion to a growing number of blocks, ever more rarely; throttled blocks do not count."""

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self._at = 8

    def reason(
        self, throttled: Sequence[bool], elapsed_s: float, pairs: Callable[[NDArray[np.bool_]], Sequence[PairedBlocks]]
    ) -> str | None:
        """Return why to stop now, or None to go on; `pairs` makes the pairs of the good blocks for `Stopping.reason`."""
        over = elapsed_s >= self._stopping.seconds
        if len(throttled) < self._at and not over:
            return None
        self._at = math.ceil(len(throttled) * 1.2)
        good = ~np.array(throttled)
        if over and not remeasured(throttled):
            good[:] = True  # throttled throughout: measuring again will not help, and all blocks are used
        return self._stopping.reason(int(good.sum()), elapsed_s, pairs(good))


def remeasured(throttled: Sequence[bool]) -> int:
    """Return how many throttled blocks are left out: all of them, unless the GPU throttled half of the time or more."""
    count = sum(throttled)
    return count if count * 2 < len(throttled) else 0
