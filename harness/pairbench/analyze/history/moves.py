"""Where a series moved to a new level, or drifted: by how much, beside its control, and with the likely cause."""

import math
from collections.abc import Sequence

import numpy as np

from pairbench.analyze.compare.attribute import Circumstances, moved_along, percent
from pairbench.analyze.history.changepoint import MIN_RUNS, Changepoint, Drift
from pairbench.analyze.history.drift import without_levels
from pairbench.analyze.history.points import Points
from pairbench.model.comparison import DEFAULT, Attribution, EraChange
from pairbench.model.plain import Value
from pairbench.stats import Floats, Interval

Lines = tuple[Floats, Floats]  # the log latencies of a series and of its control

_NEAR = 3  # the number of runs within which a move of the latency and one of the speedup are the same


class Move(Value):
    """A changepoint: the series, or its speedup, moved between two runs to a level that lasted; or a drift over many runs."""

    before: int
    index: int
    """`before` and `index` are the indices of the last run with a value before the move, and of the first after it."""
    own: float
    """The level of the median latency after the move over that before; 1.02 is 2 % slower."""
    control: float | None
    relative: float | None
    """`own` over `control`: the ratio without changes that both share. None, as `control`, without a control."""
    before_ns: float
    after_ns: float
    attribution: Attribution | None
    era: tuple[EraChange, ...]
    implementation_changed: bool | None
    reason: str
    last: int | None = None
    """The index of the last run of a drift, whose first is `index`; None for a changepoint."""

    @property
    def size(self) -> float:
        """The change relative to the control where the code is the likely cause, else the series' own."""
        return self.relative if self.attribution is Attribution.CODE and self.relative is not None else self.own


def lines_of(points: Points) -> Lines:
    """Return the natural logarithms of the points' latencies, and of their controls'; NaN where there is none."""
    return np.log(points.p50), np.log(points.control)


def breaks_of(points: Points) -> tuple[int, ...]:
    """Return the indices of runs whose environment, or GPU, differs from that of the run with a value before them."""
    places = points.measured
    environments, gpus = points.codes("environment_hash")[places], points.gpus[places]
    another = (np.diff(gpus) != 0) & (gpus[1:] >= 0) & (gpus[:-1] >= 0)
    return tuple(places[1:][(np.diff(environments) != 0) | another].tolist())


def moves_of(
    points: Points, lines: Lines, steps: Sequence[Sequence[Changepoint]], *, first: int = 0
) -> tuple[Move, ...]:
    """Return the moves of one part, by the changepoints of its log latency and of that over the control's."""
    # `lines` are the latency and the control without drifts. `first` is the index of the part's first point in the whole series, in which the
    # result has its indices.
    latency, beside = lines
    indices = _joined(*steps)
    stretches = stretches_of(len(points), indices, breaks_of(points))
    drifted = lines_of(points)[0] - latency
    moves = []
    for index in indices:
        place = stretches.index(index)
        start, stop = stretches[place - 1], stretches[place + 1]
        # A changepoint has values on both sides, of the latency and so of all that it is found in.
        before = int(points.measured[points.measured < index][-1])
        own, control, relative = (shift(line, index, (start, stop)) for line in (latency, beside, latency - beside))
        assert own is not None
        known = points[index].since(points[before])
        attribution, reason = cause_of(own, control, known)
        move = Move(
            before=first + before,
            index=first + index,
            own=own.estimate,
            control=control.estimate if control else None,
            relative=relative.estimate if relative else None,
            before_ns=math.exp(median_level(latency[start:index]) + drifted[before]),
            after_ns=math.exp(median_level(latency[index:stop]) + drifted[index]),
            attribution=attribution,
            era=known.era,
            implementation_changed=known.implementation_changed,
            reason=reason,
        )
        moves.append(move)
    return tuple(moves)


def without_drift(points: Points, lines: Lines, drift: Drift, *, first: int) -> tuple[Move, Lines]:
    """Return the move of a drift that was found in a latency, or in that over its control, and both lines without it."""
    near = slice(max(0, drift.index - MIN_RUNS), drift.last + 1 + MIN_RUNS)
    runs, total = drift.line[near], float(drift.line[drift.last])
    breaks = [place - near.start for place in breaks_of(points) if near.start < place < near.stop]
    own, control = (_along(line[near], runs, total, breaks) for line in lines)
    assert own is not None
    if control is not None and abs(math.log(own.estimate)) < DEFAULT.control_part * abs(total):
        attribution, shares = None, (0.0, math.log(control.estimate) / total)
    elif control is not None and moved_along(own, control):
        attribution, shares = Attribution.MACHINE, (1.0, math.log(control.estimate) / total)
    else:
        attribution, shares = Attribution.CODE, (1.0, 0.0)
    measured = points.measured.tolist()
    place, end = measured.index(drift.index), measured.index(drift.last)
    before, last = measured[place - 1], points[drift.last].record
    level = math.exp(median_level(lines[0][max(0, before + 1 - 2 * MIN_RUNS) : before + 1]))
    each = abs(math.expm1(math.log(own.estimate) / (end - place + 1)))
    moved, day = percent(own.estimate), points[drift.index].record.started_at[:10]
    rises = f"{'rises' if own.estimate > 1 else 'falls'} {100 * each:.2g} % a run"
    ended = f"{rises} from about {day} to {last.started_at[:10]}, {moved} in all"
    said = f"{rises} since about {day}, {moved} so far" if end == len(measured) - 1 else ended
    beside = f"its control moved {percent(control.estimate)}" if control else "there is no control to tell"
    move = Move(
        before=first + before,
        index=first + drift.index,
        last=first + drift.last,
        own=own.estimate,
        control=control.estimate if control else None,
        relative=own.estimate / control.estimate if control else None,
        before_ns=level,
        after_ns=level * own.estimate,
        attribution=attribution,
        era=(),
        implementation_changed=None,
        reason=f"{said}; no single commit; {beside}",
    )
    less = tuple(line - share * drift.line for line, share in zip(lines, shares, strict=True))
    return move, (less[0], less[1])


def _along(values: Floats, line: Floats, total: float, breaks: Sequence[int]) -> Interval | None:
    """Return by how much values change along with a line, whatever they do at breaks, as a ratio with a rough 95 % interval."""
    known = ~np.isnan(values)
    if known.sum() < 3:
        return None
    places = np.cumsum(known)
    cuts = sorted({int(places[at - 1]) for at in breaks} - {0, int(places[-1])})
    x, y = (without_levels(side[known], cuts) for side in (line, values))
    if not x.any():
        return None
    part = float(x @ y) / float(x @ x)
    error = math.sqrt(float(np.sum((y - part * x) ** 2)) / (len(x) - 2) / float(x @ x))
    ends = sorted(math.exp(total * (part + sign * 1.96 * error)) for sign in (-1, 1))
    return Interval(math.exp(total * part), *ends)


def stretches_of(size: int, moves: Sequence[int], breaks: Sequence[int]) -> tuple[int, ...]:
    """Return where levels begin, and the size: at moves, and at changes of the environment that leave enough runs on both sides."""
    # So a driver's effect on a series is no part of the effect of code some runs later.
    starts = sorted({0, *moves, size})
    for place in breaks:
        if all(abs(place - start) >= MIN_RUNS for start in starts):
            starts = sorted([*starts, place])
    return tuple(starts)


def median_level(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else math.nan


def shift(values: Floats, index: int, ends: tuple[int, int]) -> Interval | None:
    """Return the level from an index on over that before it, as a ratio with a rough 95 % interval; None without either."""
    sides = [side[~np.isnan(side)] for side in (values[ends[0] : index], values[index : ends[1]])]
    if not all(len(side) for side in sides):
        return None
    moved = median_level(sides[1]) - median_level(sides[0])
    errors = [float(np.std(side, ddof=1)) / math.sqrt(len(side)) for side in sides if len(side) > 1]
    # A side of one run says nothing of its error; the other's is the best guess.
    reach = 1.96 * math.hypot(*(errors if len(errors) == 2 else errors * 2)) if errors else 0.0
    return Interval(math.exp(moved), math.exp(moved - reach), math.exp(moved + reach))


def cause_of(own: Interval, control: Interval | None, known: Circumstances) -> tuple[Attribution | None, str]:
    """Return the likely cause of a move between two runs, None where only the control moved, and the sentence that says why."""
    moved = math.log(own.estimate)
    beside = math.log(control.estimate) if control is not None else 0.0
    if abs(moved) < DEFAULT.control_part * abs(moved - beside):
        return None, f"its control moved {100 * math.expm1(beside):+.1f} % and it hardly did: only the speedup changed"
    return known.cause_of_latency(own, control)


def _joined(own: Sequence[Changepoint], relative: Sequence[Changepoint]) -> list[int]:
    """Return the indices of all moves; of two nearby changepoints that of the stronger."""
    indices = {change.index: change.strength for change in own}
    for change in relative:
        near = (other for other in indices if abs(other - change.index) <= _NEAR)
        nearest = min(near, key=lambda other: abs(other - change.index), default=None)
        if nearest is None or indices[nearest] < change.strength:
            others = {index: strength for index, strength in indices.items() if index != nearest}
            indices = {**others, change.index: change.strength}
    return sorted(indices)
