"""A strip of speedups on a logarithmic scale: one dot a group, stacked where they lie close, as an SVG without scripts."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pairbench.model.site import OverviewRow
from pairbench.report import units

_BINS = 90
_HIGHEST = 12
"""Number of dots that fit on each other; more are drawn over the highest."""
_FAR = 8.0
"""How many times further than the median from 1x a group lies that is named."""
_NAMED = 4
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Dots in a box of 100 x 40, y counted from its top."""

    dots: tuple[tuple[float, float, str], ...]
    """Place and state of each: faster, open or slower."""
    ticks: tuple[tuple[float, str], ...]
    one: float
    """Place of 1x."""
    far: tuple[OverviewRow, ...]
    """Groups that lie far from all others, the furthest first."""
    words: str


def strip(groups: Sequence[OverviewRow], median: float | None, among: Sequence[OverviewRow] = ()) -> Strip | None:
    """Return the strip of some groups; None where fewer than three have a speedup.

    Args:
        groups: what to show.
        median: of their speedups, from which others lie far.
        among: groups whose speedups the scale holds, too, so that several strips can be compared; then one group is enough.
    """
    known = [(row, row.speedup) for row in groups if row.speedup is not None and row.speedup.estimate > 0]
    if len(known) < (1 if among else 3) or median is None:
        return None
    values = [speedup.estimate for _, speedup in known]
    scale = [*values, *(row.speedup.estimate for row in among if row.speedup is not None and row.speedup.estimate > 0)]
    low, high = math.log(min(*scale, 0.9)), math.log(max(*scale, 1.1))
    reach = 1.04 * (high - low)
    start = low - 0.02 * (high - low)

    def place(value: float) -> float:
        return round(100 * (math.log(value) - start) / reach, 2)

    stacked: Counter[int] = Counter()
    dots = []
    for _, speedup in sorted(known, key=lambda pair: pair[1].estimate):
        own = int(place(speedup.estimate) * _BINS / 100)
        state = "faster" if speedup.low > 1 else "slower" if speedup.high < 1 else "open"
        height = min(stacked[own], _HIGHEST)
        dots.append((round(100 * (own + 0.5) / _BINS, 2), round(38 - 3.0 * height, 1), state))
        stacked[own] += 1
    ticks = [(place(tick), f"{tick:g}x") for tick in _TICKS if low <= math.log(tick) <= high]
    step = max(1, math.ceil(len(ticks) / 6))
    middle = next((number for number, (_, label) in enumerate(ticks) if label == "1x"), 0)
    far = sorted(known, key=lambda pair: -abs(math.log(pair[1].estimate) - math.log(median)))
    limit = max(math.log(_FAR), abs(math.log(median)) * 2)
    return Strip(
        dots=tuple(dots),
        ticks=tuple(tick for number, tick in enumerate(ticks) if (number - middle) % step == 0),
        one=place(1.0),
        far=tuple(row for row, value in far if abs(math.log(value.estimate) - math.log(median)) > limit)[:_NAMED],
        words=f"{len(known)} speedups from {units.ratio(min(values))} to {units.ratio(max(values))}, median {units.ratio(median)}",
    )
