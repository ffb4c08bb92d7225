"""The history of one series: where it moved, between which commits, the likely cause, and what its newest run says."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from pairbench.analyze.compare.accepted import AcceptedLevel
from pairbench.analyze.compare.attribute import another_gpu, era_changes
from pairbench.analyze.history.changepoint import Changepoint, detect
from pairbench.analyze.history.latest import Latest, latest, unless_accepted
from pairbench.analyze.history.moves import Move, breaks_of, lines_of, median_level, moves_of, stretches_of
from pairbench.analyze.history.points import SeriesPoint, history
from pairbench.analyze.history.steps import Step, steps_of
from pairbench.model.comparison import DEFAULT, EraChange, Floor, Policy
from pairbench.model.latency import CALL, Latency
from pairbench.model.plan import BASELINE
from pairbench.model.record import Record, Series


@dataclass(frozen=True, kw_only=True)
class Level:
    """Runs between two moves, or changes of the environment."""

    start: int
    stop: int
    """`start` and `stop` are the indices of the first and the last of the level's runs among the points."""
    p50_ns: float
    """The median of the runs' median latencies in ns; NaN where no run has a value."""
    speedup: float | None


@dataclass(frozen=True, kw_only=True)
class Era:
    """A change of environment, or of the GPU, right before a run."""

    index: int
    changes: tuple[EraChange, ...]


@dataclass(frozen=True, kw_only=True)
class Trend:
    """What became of a series; places count its points from 0, oldest first."""

    series: Series
    points: tuple[SeriesPoint, ...]
    timer: str | None
    control: str | None
    """The implementation that serves as control; None where there is none."""
    moves: tuple[Move, ...]
    steps: tuple[Step, ...]
    """Where what is counted took another value, as far as the points have counts."""
    levels: tuple[Level, ...]
    eras: tuple[Era, ...]
    definitions: tuple[int, ...]
    """The indices of the runs with which a new definition, and so a new series, begins."""
    newest: Latest | None
    """What the newest run says; None where there is no run."""
    notes: tuple[str, ...] = ()
    latency: Latency = CALL
    """The latency that this is the trend of."""


def make_trend(
    records: Iterable[Record],
    series: Series,
    *,
    timer: str | None = None,
    last: int | None = None,
    floor: Floor | None = None,
    accepted: AcceptedLevel | None = None,
    policy: Policy = DEFAULT,
) -> Trend:
    """Return the trend of a series.

    Args:
        records: of the series' case in its mode on its device model, all implementations, in any order.
        series: whose trend.
        timer: of whose values; that of the newest run where not given.
        last: runs to take, the newest; all where not given.
        floor: the series' noise floor, where it is known; one of another latency than the trend's says nothing.
        accepted: the level of this series that was accepted on purpose, if there is one.
        policy: thresholds.
    """
    past = history(records, series.implementation, timer=timer)
    points = past.points[-last:] if last else past.points
    limit = floor.p50 if floor is not None and floor.latency == past.latency.name else None
    parts = [list(part) for _, part in itertools.groupby(range(len(points)), key=lambda index: points[index].part)]
    moves: list[Move] = []
    levels: list[Level] = []
    own: tuple[Changepoint, ...] = ()
    for part in parts:
        here = points[part[0] : part[-1] + 1]
        lines, breaks = lines_of(here), breaks_of(here)
        own, relative = (
            detect(line, floor=limit, minimum_effect=policy.minimum_effect, breaks=breaks)
            for line in (lines.own, lines.relative)
        )
        moved = moves_of(here, own, relative, first=part[0], policy=policy)
        moves += moved
        sign = 1 if series.implementation == BASELINE else -1
        cuts = stretches_of(len(here), [move.index - part[0] for move in moved], breaks)
        for begin, end in itertools.pairwise(cuts):
            side, start, stop = slice(begin, end), part[0] + begin, part[0] + end
            ratio = median_level(lines.relative[side])
            speedup = None if math.isnan(ratio) else math.exp(sign * ratio)
            levels.append(
                Level(start=start, stop=stop - 1, p50_ns=math.exp(median_level(lines.own[side])), speedup=speedup)
            )
    newest = latest(points, parts[-1][0], moves, own, floor=limit, policy=policy) if parts else None
    return Trend(
        series=series,
        points=points,
        timer=past.timer,
        control=past.control,
        moves=tuple(moves),
        steps=steps_of(points, policy),
        levels=tuple(levels),
        eras=_eras(points),
        definitions=tuple(part[0] for part in parts[1:]),
        newest=unless_accepted(newest, points, accepted) if newest else None,
        notes=past.notes,
        latency=past.latency,
    )


def _eras(points: tuple[SeriesPoint, ...]) -> tuple[Era, ...]:
    eras = [
        Era(index=index, changes=(*era_changes(before.record, after.record), *_gpu_change(before, after)))
        for index, (before, after) in enumerate(itertools.pairwise(points), start=1)
        if before.record.environment_hash != after.record.environment_hash or another_gpu(before.gpu, after.gpu)
    ]
    return tuple(era for era in eras if era.changes)


def _gpu_change(before: SeriesPoint, after: SeriesPoint) -> tuple[EraChange, ...]:
    if not another_gpu(before.gpu, after.gpu):
        return ()
    return (EraChange(field="another GPU of the model", reference=before.gpu, current=after.gpu),)
