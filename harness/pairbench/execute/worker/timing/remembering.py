"""Whether calls on values that were never seen take so much longer than on known ones that results must be remembered."""

import statistics
from collections.abc import Callable

from pairbench.execute.worker import trusted

_FACTOR, _BEYOND_NS = 2.0, {"cuda": 5e3, "cpu": 50e3}
"""Factor, and ns by device kind that the clock is off by, beyond which calls on new values are slower than those on known ones."""
_PAIRS, _PAIRS_S = (9, 24), 1.0
"""Least and most pairs of calls that are made before a call is said to remember; beyond the least, no more are begun after these seconds."""
_SHARE = 0.75
"""Share of the pairs in which the call on new values must be slower: something else slows either call of a pair at times."""


def suspicious(known_ns: float, new_ns: float, *, device_type: str) -> bool:
    """Return whether a call on new values took so much longer than on known ones that pairs of both must tell.

    Args:
        known_ns: Latency on values that came again and again.
        new_ns: Latency on new values.
        device_type: Kind of the device, which says what the clock is off by.
    """
    return new_ns > _limit_ns(known_ns, device_type)


def remembers(more: Callable[[int], list[tuple[float, float]]], *, device_type: str) -> str | None:
    """Return a sentence where calls on new values are so much slower than those on known ones that these must be remembered.

    On a busy machine every other call takes twice as long. By chance alone, 24 pairs look like that for one honest implementation in
    two millions. As soon as half of the pairs do not, no more are made.

    Args:
        more: Takes some pairs, given the number of the attempt from 1 on: latencies in ns of a call on known values and of one on
            new values right behind it.
        device_type: Kind of the device, which says what the clock is off by.
    """
    pairs = list[tuple[float, float]]()
    until = trusted.perf_counter() + _PAIRS_S
    least, most = _PAIRS
    attempt = 0
    while len(pairs) < least or (len(pairs) < most and trusted.perf_counter() < until):
        attempt += 1
        pairs += more(attempt)
        slower = sum(new_ns > _limit_ns(known_ns, device_type) for known_ns, new_ns in pairs)
        if slower <= len(pairs) / 2:
            return None
    if slower < _SHARE * len(pairs):
        return None
    known_us, new_us = (statistics.median(latencies) / 1e3 for latencies in zip(*pairs, strict=True))
    return (
        f"a call takes {new_us:.1f} us on values that it has not seen, and {known_us:.1f} us on those that it has: it "
        "remembers results; nothing may be kept between calls"
    )


def _limit_ns(known_ns: float, device_type: str) -> float:
    return _FACTOR * known_ns + _BEYOND_NS[device_type]
