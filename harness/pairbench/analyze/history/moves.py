"""Where a series moved to a new level, and the likely cause: its own latency beside that of its control."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pairbench.analyze.compare.attribute import Circumstances, another_gpu, elsewhere, era_changes, of_latency
from pairbench.analyze.history.changepoint import MIN_RUNS, Changepoint
from pairbench.analyze.history.points import SeriesPoint
from pairbench.model.comparison import DEFAULT, Attribution, EraChange, Policy
from pairbench.model.record import Record
from pairbench.stats import Floats, Interval

_NEAR = 3
"""The number of runs within which a move of the latency and one of the speedup are the same."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """A changepoint: the series, or its speedup, moved between two runs to a level that lasted."""

    before: int
    """The index among the points of the last run with a value before the move."""
    index: int
    """The index among the points of the first run after the move."""
    own: float
    """The level of the median latency after the move over that before; 1.02 is 2 % slower."""
    control: float | None
    """Ratio of the control's levels, after over before; None where there is no control."""
    relative: float | None
    """The level over the control's after the move, over that before: what both share is gone. None where there is no control."""
    before_ns: float
    after_ns: float
    attribution: Attribution | None
    """The likely cause; None where only the control moved."""
    era: tuple[EraChange, ...]
    implementation_changed: bool | None
    reason: str

    @property
    def size(self) -> float:
        """The change that tells most: relative to the control where the code is the likely cause, else the series' own."""
        return self.relative if self.attribution is Attribution.CODE and self.relative is not None else self.own


@dataclass(frozen=True, kw_only=True)
class Lines:
    """One part of a series as numbers, NaN where there are none; natural logarithms, a value for each point."""

    own: Floats
    control: Floats

    @property
    def relative(self) -> Floats:
        """Own latency over the control's: what both share is gone."""
        relative: Floats = self.own - self.control
        return relative


def lines_of(points: Sequence[SeriesPoint]) -> Lines:
    """Return the latencies of points as logarithms."""
    own = [math.log(point.p50.estimate) if point.p50 else math.nan for point in points]
    control = [math.log(point.control_ns) if point.control_ns else math.nan for point in points]
    return Lines(own=np.array(own), control=np.array(control))


def breaks_of(points: Sequence[SeriesPoint]) -> tuple[int, ...]:
    """Return the places of runs whose environment, or GPU, is another than that of the run with a value before them."""
    measured = [at for at, point in enumerate(points) if point.p50]
    return tuple(
        after
        for before, after in itertools.pairwise(measured)
        if points[before].record.environment_hash != points[after].record.environment_hash
        or another_gpu(points[before].gpu, points[after].gpu)
    )


def moves_of(
    points: Sequence[SeriesPoint],
    own: Sequence[Changepoint],
    relative: Sequence[Changepoint],
    *,
    first: int = 0,
    policy: Policy = DEFAULT,
) -> tuple[Move, ...]:
    """Return where the points of one part moved.

    Args:
        points: of one definition and one timer.
        own: changepoints of their log latency.
        relative: changepoints of their log latency over the control's.
        first: index of the first of them in the whole series; indices in the result are in the whole series.
        policy: how much of a move a control must share.
    """
    lines = lines_of(points)
    indices = _joined(own, relative)
    stretches = stretches_of(len(points), indices, breaks_of(points))
    return tuple(_move(points, lines, index, _around(stretches, index), first, policy) for index in indices)


def stretches_of(size: int, moves: Sequence[int], breaks: Sequence[int]) -> tuple[int, ...]:
    """Return where levels begin, and the size: at moves, and at changes of the environment that leave enough runs on both sides.

    What a driver does to a series is no part of what the code did to it some runs later.
    """
    starts = sorted({0, *moves, size})
    for place in breaks:
        if all(abs(place - start) >= MIN_RUNS for start in starts):
            starts = sorted([*starts, place])
    return tuple(starts)


def _around(starts: Sequence[int], index: int) -> tuple[int, int]:
    place = starts.index(index)
    return starts[place - 1], starts[place + 1]


def median_level(values: Floats) -> float:
    """Return the median of the values that are there, NaN where none is."""
    there = values[~np.isnan(values)]
    return float(np.median(there)) if len(there) else math.nan


def shift(values: Floats, index: int, ends: tuple[int, int]) -> Interval | None:
    """Return the level from a place on over that before it, as a ratio with a rough 95 % interval; None without either."""
    sides = [side[~np.isnan(side)] for side in (values[ends[0] : index], values[index : ends[1]])]
    if not all(len(side) for side in sides):
        return None
    moved = median_level(sides[1]) - median_level(sides[0])
    errors = [float(np.std(side, ddof=1)) / math.sqrt(len(side)) for side in sides if len(side) > 1]
    # A side of one run says nothing of its error; the other's is the best guess.
    reach = 1.96 * math.hypot(*(errors if len(errors) == 2 else errors * 2)) if errors else 0.0
    return Interval(math.exp(moved), math.exp(moved - reach), math.exp(moved + reach))


def cause_of(
    own: Interval, control: Interval | None, before: SeriesPoint, after: SeriesPoint, policy: Policy = DEFAULT
) -> tuple[Attribution | None, str]:
    """Return the likely cause of a move between two runs, and the sentence that says why; None where only the control moved."""
    moved = math.log(own.estimate)
    beside = math.log(control.estimate) if control is not None else 0.0
    if abs(moved) < policy.control_part * abs(moved - beside):
        return None, f"its control moved {100 * math.expm1(beside):+.1f} % and it hardly did: only the speedup changed"
    controls = (before.control, after.control)
    return of_latency(
        own,
        control,
        Circumstances(
            era=era_changes(before.record, after.record),
            implementation_changed=_differs(before.record, after.record),
            control_changed=_differs(*controls),
            elsewhere=elsewhere(before.record, after.record),
            another_gpu=another_gpu(before.gpu, after.gpu),
        ),
        policy,
    )


def _differs(before: Record | None, after: Record | None) -> bool | None:
    hashes = [record.implementation_hash if record else None for record in (before, after)]
    return None if None in hashes else hashes[0] != hashes[1]


def _joined(own: Sequence[Changepoint], relative: Sequence[Changepoint]) -> list[int]:
    """Return the places of all moves; where both lines have one nearby, that of the one that shows it more clearly."""
    indices = {change.index: change.strength for change in own}
    for change in relative:
        near = [other for other in indices if abs(other - change.index) <= _NEAR]
        other = min(near, key=lambda other: abs(other - change.index), default=None)
        if other is not None and indices[other] >= change.strength:
            continue
        if other is not None:
            del indices[other]
        indices[change.index] = change.strength
    return sorted(indices)


def _move(
    points: Sequence[SeriesPoint], lines: Lines, index: int, ends: tuple[int, int], first: int, policy: Policy
) -> Move:
    # A changepoint has values on both sides, of the latency and so of all that it is found in.
    before = max(at for at in range(index) if points[at].p50)
    own, control = shift(lines.own, index, ends), shift(lines.control, index, ends)
    assert own is not None
    relative = shift(lines.relative, index, ends)
    attribution, reason = cause_of(own, control, points[before], points[index], policy)
    return Move(
        before=first + before,
        index=first + index,
        own=own.estimate,
        control=control.estimate if control else None,
        relative=relative.estimate if relative else None,
        before_ns=math.exp(median_level(lines.own[ends[0] : index])),
        after_ns=math.exp(median_level(lines.own[index : ends[1]])),
        attribution=attribution,
        era=era_changes(points[before].record, points[index].record),
        implementation_changed=_differs(points[before].record, points[index].record),
        reason=reason,
    )
