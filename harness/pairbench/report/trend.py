"""The page that `pairbench trend` prints, and the values that a trend's chart draws."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from pairbench.analyze.history.moves import STATUS, Move
from pairbench.analyze.history.points import SeriesPoint
from pairbench.analyze.history.trend import Level, Trend
from pairbench.model.plain import Value
from pairbench.model.plan import BASELINE
from pairbench.model.record import ENDS
from pairbench.report import units
from pairbench.report.comparison_words import OUTCOME_STYLES, era, short_commit
from pairbench.report.render import BLANK, Block, Heading, Items, Line, Rows, Terminal, render_page, shorten
from pairbench.report.rows import MEANINGS
from pairbench.report.units import AXES
from pairbench.stats import Floats

_SHOWN = 15  # most rows of each table: newest runs, and runs without a value; JSON has all
_RECORDED = (
    *("run_id", "started_at", "commit", "commit_at", "branch", "dirty", "hostname", "device_uuid", "confirms"),
    *("status", "reason", "timer", "definition_hash", "implementation_hash", "environment_hash"),
)


def render_trend(trend: Trend, output: str, *, problems: Sequence[str] = (), terminal: Terminal | None = None) -> str:
    """Return a trend in one of `FORMATS`, on stdout's terminal where none is given; only JSON has every run."""
    return render_page(output, lambda: _document(trend, problems), lambda: _blocks(trend, problems), terminal)


def _blocks(trend: Trend, problems: Sequence[str]) -> list[Block]:
    tables = [Rows(title=title, rows=rows) for title, rows in _tables(trend) if rows]
    meanings = [f"±: {MEANINGS['±']}"] if any(point.p50 for point in trend.points) else []
    notes = tuple(shorten(note, 400) for note in (*meanings, *trend.notes, *problems))
    return [
        Heading(text=f"{shorten(trend.series.name, 400)} ({trend.series.device_name})", level=3),
        Line(text=_newest_line(trend), style=OUTCOME_STYLES.get(trend.newest.outcome, "") if trend.newest else ""),
        Line(text=_summary(trend)),
        *(block for table in tables for block in (BLANK, table)),
        *([Items(texts=notes, mark="", style="yellow", gap=False)] if notes else []),
    ]


def _newest_line(trend: Trend) -> str:
    if trend.newest is None:
        return "no run"
    point = trend.points[trend.newest.index]
    moved = units.change(trend.newest.change)
    cause = f"({trend.newest.attribution})" if trend.newest.attribution else ""
    text = " ".join(filter(None, [str(trend.newest.outcome), moved, cause]))
    at = ", ".join(filter(None, [point.record.started_at[:10], (point.record.commit or "")[:10]]))
    return shorten(f"newest run {point.record.run_id} ({at}): {text}: {trend.newest.reason}", 600)


def _document(trend: Trend, problems: Sequence[str]) -> dict[str, Any]:
    records = [point.record for point in trend.points]
    # Runs and commits between which a series moved: the last before, and the first after.
    ends = [(records[move.before], records[move.index]) for move in trend.moves]
    moves = [
        {**vars(move), "runs": [one.run_id for one in both], "commits": [one.commit for one in both]}
        for move, both in zip(trend.moves, ends, strict=True)
    ]
    points = []
    for point in trend.points:
        own = {"part": point.part, "p50_ns": point.p50, "p95_ns": point.p95_ns, "control_p50_ns": point.control_ns}
        points.append({name: getattr(point.record, name) for name in _RECORDED} | own | {"speedup": point.speedup})
    whole = {"name": trend.series.name, "series": trend.series, "timer": trend.timer, "latency": trend.latency.name}
    whole |= {"control": trend.control, "newest": trend.newest, "moves": moves, "levels": trend.levels}
    whole |= {"eras": trend.eras, "definitions": trend.definitions, "points": points, "notes": trend.notes}
    return whole | {"problems": problems}


def _summary(trend: Trend) -> str:
    if not (points := trend.points):
        return "0 runs"
    gaps = sum(point.p50 is None for point in points)
    first, last = (point.record.started_at[:10] for point in (points[0], points[-1]))
    parts = [
        f"{len(points):,} run{'' if len(points) == 1 else 's'}, {first} to {last}",
        f"{gaps:,} without a value" if gaps else "",
        f"timer {trend.timer}" if trend.timer else "",
        f"control {trend.control}" if trend.control else "no control",
        AXES[trend.latency.name] if any(point.record.device_kind != "cpu" for point in points) else "",
    ]
    return shorten(", ".join(part for part in parts if part), 400)


def _tables(trend: Trend) -> list[tuple[str, list[dict[str, object]]]]:
    eras = {change.index: era(change.changes) for change in trend.eras}
    events: list[dict[str, object]] = []
    for index in sorted({*eras, *trend.definitions}, reverse=True):
        definition = "definition changed: a new series begins" if index in trend.definitions else ""
        changes = "; ".join(filter(None, [definition, eras.get(index)]))
        events.append({**_run(trend.points[index]), "what": changes})
    gaps = [point for point in reversed(trend.points) if point.p50 is None]
    ended: list[dict[str, object]] = [
        {**_run(one), "status": shorten(one.record.status, 20), "reason": shorten(one.record.reason or "", 200)}
        for one in gaps[:_SHOWN]
    ]
    shown = f", the newest {_SHOWN}" if len(gaps) > _SHOWN else ""
    newest: list[dict[str, object]] = []
    for point, p50 in [(point, point.p50) for point in reversed(trend.points) if point.p50][:_SHOWN]:
        own = {"P50": units.duration(p50.estimate), "±": units.spread(*p50), "P95": units.duration(point.p95_ns)}
        own |= {"control": units.duration(point.control_ns), "speedup": units.ratio(point.speedup)}
        newest.append({**_run(point), **own})
    return [
        (f"Moved ({len(trend.moves)})", [_move(trend, move) for move in reversed(trend.moves)]),
        (f"Changed ({len(events)})", events[:_SHOWN]),
        (f"Without a value ({len(gaps):,}{shown})", ended),
        ("Newest runs", newest),
    ]


def _move(trend: Trend, move: Move) -> dict[str, object]:
    before, after = trend.points[move.before].record, trend.points[move.index].record
    commits = [(record.commit or "no commit")[:10] + ("+" if record.dirty else "") for record in (before, after)]
    since = f"{'about ' if move.last is not None else ''}{shorten(after.run_id, 40)}"
    times = f"{units.duration(move.before_ns)} -> {units.duration(move.after_ns)}"
    row: dict[str, object] = {"since run": since, "commits": "..".join(commits), "P50": times}
    row |= {"change": units.change(move.own), "control": units.change(move.control)}
    return row | {"attribution": move.attribution or "only the control", "why": shorten(move.reason, 300)}


def _run(point: SeriesPoint) -> dict[str, object]:
    record, started = point.record, point.record.started_at[:16].replace("T", " ")
    commit = short_commit(record.commit, record.dirty, 10)
    return {"run": shorten(record.run_id, 40), "started": started, "commit": commit}


_COUNTED = 3  # number of counts that have a line
_LABELS = 12  # number of labels that fit below the axis
_NAMED = 12  # number of marks of one kind up to which each has a label
_LOG_FROM = 4.0  # ratio of the largest to the smallest value from which the axis is logarithmic


class LevelStep(NamedTuple):
    """A level that held from one run to another, both included, or the slope of a drift."""

    start: int
    stop: int
    value: float
    end: float  # the value at `stop`, which only in a drift is another one


class Mark(NamedTuple):
    """A change right before a run, or a gap at it."""

    at: int
    kind: str  # `era`, `definition`, `gap`, or the cause of a move; `control` where only that moved
    label: str  # empty where there are too many marks of its kind


class SeriesChart(Value):
    """What a trend's chart draws; runs are counted from 0."""

    title: str
    subtitle: str
    unit: str
    latency: str  # what the axis of latencies says
    lines: Mapping[str, tuple[float, ...]]
    """A value for each run, by the line's name: p50, low, high, p95 and control in `unit`, and the speedup with its ends; NaN for runs without one."""
    control_name: str  # empty where there is none
    levels: tuple[LevelStep, ...]
    speedup_levels: tuple[LevelStep, ...]
    counts: tuple[tuple[str, tuple[float, ...]], ...]  # label and values of each count that has a step
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[int, str], ...]
    log: bool  # whether the axis of latencies is logarithmic


def series_chart(trend: Trend) -> SeriesChart:
    points = trend.points
    known = points.p50[points.measured]
    scale, unit = units.scale_of(float(known.max()) if len(known) else 1.0)
    lines = {name: _scaled(getattr(points, name), scale) for name in ("p50", "low", "high", "p95", "control")}
    # A baseline has no interval of a speedup.
    without = np.isnan(points.speedup) | (trend.series.implementation == BASELINE)
    lines["speedup"] = _scaled(points.speedup, 1.0)
    for end in ENDS[1:]:
        ends = points.numbers(f"{points.latency.speedup}{end}")
        lines[f"speedup{end}"] = _scaled(np.where(without, math.nan, ends), 1.0)
    positive = np.concatenate([lines[name][lines[name] > 0] for name in ("p50", "p95")])
    ticks = []
    started, commits, dirty = map(points.values, ("started_at", "commit", "dirty"))
    # Evenly spaced, the newest run always among them.
    for index in reversed(range(len(points) - 1, -1, -max(1, math.ceil(len(points) / _LABELS)))):
        label = " ".join(filter(None, [started[index][:10], short_commit(commits[index], dirty[index])]))
        ticks.append((index, shorten(label, 30)))
    number = len(points.measured)
    subtitle = [trend.series.device_name, f"{number:,} run{'' if number == 1 else 's'}"]
    subtitle += [f"{len(points) - number:,} without a value"] if number < len(points) else []
    subtitle += [f"timer {trend.timer}"] if trend.timer else []
    # A status has no line.
    metrics = sorted({step.metric for step in trend.steps} - {STATUS}, key=units.order)[:_COUNTED]
    scales = {"peak_bytes": 2.0**20}
    counts = [(units.axis(name), _scaled(points.numbers(name), scales.get(name, 1.0))) for name in metrics]
    middles = [level.speedup or math.nan for level in trend.levels]
    title, under = shorten(trend.series.name, 115), shorten(", ".join(subtitle), 140)
    named = partial(SeriesChart, title=title, subtitle=under, unit=unit, latency=AXES[trend.latency.name])
    return named(
        lines={name: tuple(line.tolist()) for name, line in lines.items()},
        control_name=shorten(trend.control or "", 30),
        levels=tuple(_steps(trend.levels, [one.p50_ns / scale for one in trend.levels], "rise", lines["p50"])),
        speedup_levels=tuple(_steps(trend.levels, middles, "speedup_rise", lines["speedup"])),
        counts=tuple((label, tuple(line.tolist())) for label, line in counts),
        marks=tuple(_chart_marks(trend)),
        ticks=tuple(ticks),
        log=bool(len(positive) and positive.max() / positive.min() >= _LOG_FROM),
    )


def _steps(levels: Sequence[Level], middles: Sequence[float], rise: str, line: Floats) -> Iterator[LevelStep]:
    """Yield the levels in parts: each ends before a run without a value, and goes on behind it."""
    for level, middle in zip(levels, middles, strict=True):
        length, factor = max(level.stop - level.start, 1), getattr(level, rise)
        known = level.start + np.flatnonzero(~np.isnan(line[level.start : level.stop + 1] + middle))
        firsts = known[np.diff(known, prepend=-2) > 1].tolist()
        lasts = known[np.diff(known, append=math.inf) > 1].tolist()
        for first, last in zip(firsts, lasts, strict=True):
            start, stop = (middle * factor ** ((at - level.start) / length - 0.5) for at in (first, last))
            yield LevelStep(first, last, start, stop)


def _scaled(values: Floats, scale: float) -> Floats:
    return np.where(np.isfinite(values), values / scale, math.nan)


def _count_marks(trend: Trend) -> list[Mark]:
    """Return a mark for each run at which counts took other values; a failure is a gap already."""
    ordered = sorted(trend.steps, key=lambda step: (step.index, units.order(step.metric)))
    marks = []
    for index, same_run in groupby((step for step in ordered if step.metric != STATUS), key=attrgetter("index")):
        first, *others = same_run
        more = f" and {len(others)} more" if others else ""
        label = f"{units.count_change(first.metric, first.reference, first.current)}{more}"
        marks.append(Mark(index, str(first.attribution), label))
    return marks


def _chart_marks(trend: Trend) -> list[Mark]:
    moves = []
    for move in trend.moves:
        label = f"control {units.change(move.control)}"
        if move.attribution:
            label = f"{'drift ' if move.last is not None else ''}{units.change(move.own)} {move.attribution}"
        moves.append(Mark(move.index, move.attribution or "control", label))
    eras = [Mark(era.index, "era", shorten(", ".join(map(str, era.changes[:2])), 60)) for era in trend.eras]
    definitions = [Mark(index, "definition", "new definition") for index in trend.definitions]
    statuses, without = trend.points.values("status"), np.flatnonzero(np.isnan(trend.points.p50)).tolist()
    gaps = [Mark(index, "gap", shorten(str(statuses[index]), 20)) for index in without]
    marks: list[Mark] = []
    for kind in (moves, _count_marks(trend), eras, definitions, gaps):
        marks += kind if len(kind) <= _NAMED else [mark._replace(label="") for mark in kind]
    return marks
