"""The values of a trend chart, whatever draws it: points, lines and marks over the order of runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pairbench.analyze.compare.exact import number
from pairbench.analyze.history.points import SeriesPoint
from pairbench.analyze.history.steps import STATUS, Step
from pairbench.analyze.history.trend import Trend
from pairbench.report import units
from pairbench.report.comparison.words import short_commit, shorten
from pairbench.report.latency_words import AXES
from pairbench.report.units import axis, count_change, order

NAN = math.nan
_COUNTED = 3
"""Number of counts that have a line."""
_LABELS = 12
"""Number of labels that fit below the axis."""
_NAMED = 12
"""Number of marks of one kind up to which each has a label."""
_LOG_FROM = 4.0
"""Ratio of the largest to the smallest value from which the axis is logarithmic."""


@dataclass(frozen=True, kw_only=True)
class LevelStep:
    """A level that held from one run to another, both included."""

    start: int
    stop: int
    value: float


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A change right before a run, or a gap at it."""

    at: int
    kind: str
    """Kind of mark: `era`, `definition`, `gap`, or the cause of a move: `code`, `machine`, `environment`, or `control`
    where only the control moved."""
    label: str
    """Label of the mark; empty where there are too many of its kind."""


@dataclass(frozen=True, kw_only=True)
class CountLine:
    """Something that is counted, one value for each run, NaN for runs that did not count it."""

    label: str
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class SeriesChart:
    """A trend's lines, one value for each run in `unit`, NaN for runs without one; runs are counted from 0."""

    title: str
    subtitle: str
    unit: str
    latency: str
    """What the axis of latencies says."""
    p50: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    p95: tuple[float, ...]
    control: tuple[float, ...]
    control_name: str
    """Name of the control; empty where there is none."""
    speedup: tuple[float, ...]
    speedup_low: tuple[float, ...]
    speedup_high: tuple[float, ...]
    levels: tuple[LevelStep, ...]
    speedup_levels: tuple[LevelStep, ...]
    counts: tuple[CountLine, ...]
    """What is counted and ever took another value, the most telling first."""
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[int, str], ...]
    runs: tuple[str, ...]
    """Id, date and commit of each run."""
    log: bool
    """Whether the axis of latencies is logarithmic."""


def series_chart(trend: Trend) -> SeriesChart:
    """Return what to draw of a trend."""
    points = trend.points
    largest = max((point.p50.estimate for point in points if point.p50), default=1.0)
    scale, unit = units.scale_of(largest)
    p50 = _scaled([point.p50.estimate if point.p50 else NAN for point in points], scale)
    low = _scaled([point.p50.low if point.p50 else NAN for point in points], scale)
    high = _scaled([point.p50.high if point.p50 else NAN for point in points], scale)
    p95 = _scaled([point.p95_ns for point in points], scale)
    control = _scaled([point.control_ns for point in points], scale)
    values = [value for line in (p50, p95) for value in line if value > 0]
    return SeriesChart(
        title=shorten(trend.series.name, 115),
        subtitle=shorten(_subtitle(trend), 140),
        unit=unit,
        latency=AXES[trend.latency.name],
        p50=p50,
        low=low,
        high=high,
        p95=p95,
        control=control,
        control_name=shorten(trend.control or "", 30),
        speedup=tuple(point.speedup or NAN for point in points),
        speedup_low=_scaled([_speedup_end(point, "_low") for point in points], 1.0),
        speedup_high=_scaled([_speedup_end(point, "_high") for point in points], 1.0),
        levels=tuple(
            LevelStep(start=one.start, stop=one.stop, value=one.p50_ns / scale)
            for one in trend.levels
            if not math.isnan(one.p50_ns)
        ),
        speedup_levels=tuple(
            LevelStep(start=one.start, stop=one.stop, value=one.speedup)
            for one in trend.levels
            if one.speedup is not None
        ),
        counts=_counts(trend),
        marks=tuple(_marks(trend)),
        ticks=tuple((index, _tick(points[index])) for index in _thinned(len(points))),
        runs=tuple(f"{point.record.run_id} {_tick(point)}" for point in points),
        log=bool(values) and max(values) / min(values) >= _LOG_FROM,
    )


def _speedup_end(point: SeriesPoint, end: str) -> float | None:
    """Return an end of the recorded interval of a speedup; none for a baseline."""
    if point.record.role == "baseline" or point.speedup is None:
        return None
    value: float | None = getattr(point.record, f"{point.latency.speedup}{end}")
    return value


def _scaled(values: Sequence[float | None], scale: float) -> tuple[float, ...]:
    return tuple(NAN if value is None or not math.isfinite(value) else value / scale for value in values)


def _subtitle(trend: Trend) -> str:
    number = sum(point.p50 is not None for point in trend.points)
    gaps = len(trend.points) - number
    parts = [trend.series.device_name, f"{number:,} run{'' if number == 1 else 's'}"]
    parts += [f"{gaps:,} without a value"] if gaps else []
    return ", ".join([*parts, *([f"timer {trend.timer}"] if trend.timer else [])])


def _counts(trend: Trend) -> tuple[CountLine, ...]:
    """Return a line for each count that has a step; a status has none."""
    metrics = sorted({step.metric for step in trend.steps} - {STATUS}, key=order)
    records = [point.record for point in trend.points]
    return tuple(
        CountLine(
            label=axis(metric),
            values=_scaled([number(record, metric) for record in records], 2**20 if metric == "peak_bytes" else 1.0),
        )
        for metric in metrics[:_COUNTED]
    )


def _steps(trend: Trend) -> list[Mark]:
    """Return a mark for each run at which counts took other values; a failure is a gap already."""
    at: dict[int, list[Step]] = {}
    for step in sorted(trend.steps, key=lambda step: order(step.metric)):
        if step.metric != STATUS:
            at.setdefault(step.index, []).append(step)
    marks = []
    for index, steps in sorted(at.items()):
        first = steps[0]
        more = f" and {len(steps) - 1} more" if len(steps) > 1 else ""
        label = f"{count_change(first.metric, first.reference, first.current)}{more}"
        marks.append(Mark(at=index, kind=str(first.attribution), label=label))
    return marks


def _marks(trend: Trend) -> list[Mark]:
    moves = [
        Mark(
            at=move.index,
            kind=move.attribution or "control",
            label=f"{units.change(move.own)} {move.attribution}"
            if move.attribution
            else f"control {units.change(move.control)}",
        )
        for move in trend.moves
    ]
    eras = [
        Mark(at=era.index, kind="era", label=shorten(", ".join(str(change) for change in era.changes[:2]), 60))
        for era in trend.eras
    ]
    definitions = [Mark(at=index, kind="definition", label="new definition") for index in trend.definitions]
    gaps = [
        Mark(at=index, kind="gap", label=shorten(str(point.record.status), 20))
        for index, point in enumerate(trend.points)
        if point.p50 is None
    ]
    marks: list[Mark] = []
    for kind in (moves, _steps(trend), eras, definitions, gaps):
        marks += kind if len(kind) <= _NAMED else [Mark(at=mark.at, kind=mark.kind, label="") for mark in kind]
    return marks


def _thinned(number: int) -> list[int]:
    """Return the indices of runs that get a label: evenly spaced, the newest always among them."""
    if number <= _LABELS:
        return list(range(number))
    step = -(-number // _LABELS)
    return sorted(range(number - 1, -1, -step))


def _tick(point: SeriesPoint) -> str:
    record = point.record
    return shorten(" ".join(filter(None, [record.started_at[:10], short_commit(record)])), 30)
