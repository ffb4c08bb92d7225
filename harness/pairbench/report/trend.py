"""A trend as `pairbench trend` prints it: the newest run's verdict, then moves and changes, then the newest runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.padding import Padding
from rich.text import Text

from pairbench.analyze.history.points import Move, SeriesPoint
from pairbench.analyze.history.trend import Trend
from pairbench.report import units
from pairbench.report.comparison.words import OUTCOME_STYLES, era, short_commit, shorten
from pairbench.report.latency_words import AXES
from pairbench.report.render import FORMATS, Terminal, clean, markdown_text, render_rows, to_json
from pairbench.report.rows import MEANINGS

_SHOWN = 15
"""Most rows of each table: newest runs, and runs without a value; JSON has all."""


@dataclass(frozen=True, kw_only=True)
class _TitledRows:
    title: str
    rows: Sequence[Mapping[str, object]]


def render_trend(trend: Trend, output: str, *, problems: Sequence[str] = (), terminal: Terminal | None = None) -> str:
    """Return a trend in one of the formats; only JSON has every run.

    Args:
        trend: the series' history with its moves.
        output: table, markdown or json.
        problems: what could not be read, listed at the end.
        terminal: stdout where not given.
    """
    if output not in FORMATS:
        raise ValueError(f"format {output!r} is unknown, expected one of {', '.join(FORMATS)}")
    if output == "json":
        return to_json(document(trend, problems))
    name = f"{shorten(trend.series.name, 400)} ({trend.series.device_name})"
    lines = [newest_line(trend), _summary(trend)]
    meanings = [f"±: {MEANINGS['±']}"] if any(point.p50 for point in trend.points) else []
    notes = [shorten(note, 400) for note in (*meanings, *trend.notes, *problems)]
    if output == "markdown":
        parts = [f"### {markdown_text(name)}\n", *(f"{markdown_text(line)}\n" for line in lines)]
        parts += [render_rows(block.title, block.rows, output) for block in _blocks(trend)]
        parts += ["".join(f"- {markdown_text(note)}\n" for note in notes)] if notes else []
        return "\n".join(parts)
    terminal = terminal or Terminal.of_stdout()
    style = OUTCOME_STYLES.get(trend.newest.outcome, "") if trend.newest else ""
    head: list[Text | Padding] = [Text(clean(name), style="bold"), Text(lines[0], style=style), Text(lines[1]), Text()]
    body = "\n".join(render_rows(block.title, block.rows, output, terminal=terminal) for block in _blocks(trend))
    return terminal.paint(*head) + body + terminal.paint(*(Text(note, style="yellow") for note in notes))


def newest_line(trend: Trend) -> str:
    """Return the newest run's verdict in one line."""
    if trend.newest is None:
        return "no run"
    point = trend.points[trend.newest.index]
    moved = units.change(trend.newest.change)
    words = [str(trend.newest.outcome), moved, f"({trend.newest.attribution})" if trend.newest.attribution else ""]
    text = " ".join(word for word in words if word)
    return shorten(f"newest run {point.record.run_id}{_at(point)}: {text}: {trend.newest.reason}", 600)


def document(trend: Trend, problems: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON document of a trend; `index` counts the points from 0."""
    return {
        "name": trend.series.name,
        "series": trend.series,
        "timer": trend.timer,
        "latency": trend.latency.name,
        "control": trend.control,
        "newest": trend.newest,
        "moves": [{**vars(move), **_range(trend, move)} for move in trend.moves],
        "levels": trend.levels,
        "eras": trend.eras,
        "definitions": trend.definitions,
        "points": [_plain(point) for point in trend.points],
        "notes": trend.notes,
        "problems": problems,
    }


def _plain(point: SeriesPoint) -> dict[str, Any]:
    record = point.record
    names: tuple[str, ...] = (
        "run_id",
        "started_at",
        "commit",
        "commit_at",
        "branch",
        "dirty",
        "hostname",
        "device_uuid",
        "confirms",
    )
    names += ("status", "reason", "timer", "definition_hash", "implementation_hash", "environment_hash")
    return {
        **{name: getattr(record, name) for name in names},
        "part": point.part,
        "p50_ns": point.p50,
        "p95_ns": point.p95_ns,
        "control_p50_ns": point.control_ns,
        "speedup": point.speedup,
    }


def _range(trend: Trend, move: Move) -> dict[str, Any]:
    """Return the runs and commits between which a series moved: the last before, and the first after."""
    before, after = trend.points[move.before].record, trend.points[move.index].record
    return {"runs": [before.run_id, after.run_id], "commits": [before.commit, after.commit]}


def _summary(trend: Trend) -> str:
    points = trend.points
    if not points:
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


def _blocks(trend: Trend) -> Iterator[_TitledRows]:
    if trend.moves:
        yield _TitledRows(
            title=f"Moved ({len(trend.moves)})", rows=[_move(trend, move) for move in reversed(trend.moves)]
        )
    if events := [*_events(trend)]:
        yield _TitledRows(title=f"Changed ({len(events)})", rows=events[:_SHOWN])
    gaps = [point for point in reversed(trend.points) if point.p50 is None]
    if gaps:
        shown = f", the newest {_SHOWN}" if len(gaps) > _SHOWN else ""
        rows = [
            {
                **_run(point),
                "status": shorten(point.record.status, 20),
                "reason": shorten(point.record.reason or "", 200),
            }
            for point in gaps[:_SHOWN]
        ]
        yield _TitledRows(title=f"Without a value ({len(gaps):,}{shown})", rows=rows)
    newest = [point for point in reversed(trend.points) if point.p50][:_SHOWN]
    if newest:
        yield _TitledRows(title="Newest runs", rows=[_value(point) for point in newest])


def _move(trend: Trend, move: Move) -> dict[str, object]:
    before, after = trend.points[move.before].record, trend.points[move.index].record
    commits = [(record.commit or "no commit")[:10] + ("+" if record.dirty else "") for record in (before, after)]
    return {
        "since run": shorten(after.run_id, 40),
        "commits": "..".join(commits),
        "P50": f"{units.duration(move.before_ns)} -> {units.duration(move.after_ns)}",
        "change": units.change(move.own),
        "control": units.change(move.control),
        "attribution": move.attribution or "only the control",
        "why": shorten(move.reason, 300),
    }


def _events(trend: Trend) -> Iterator[dict[str, object]]:
    """Return changes of environment and of definition, the newest first."""
    eras = {change.index: era(change.changes) for change in trend.eras}
    for index in sorted({*eras, *trend.definitions}, reverse=True):
        changes = ["definition changed: a new series begins"] if index in trend.definitions else []
        yield {**_run(trend.points[index]), "what": "; ".join([*changes, *([eras[index]] if index in eras else [])])}


def _value(point: SeriesPoint) -> dict[str, object]:
    p50 = point.p50
    assert p50 is not None
    return {
        **_run(point),
        "P50": units.duration(p50.estimate),
        "±": units.spread(p50.estimate, p50.low, p50.high),
        "P95": units.duration(point.p95_ns),
        "control": units.duration(point.control_ns),
        "speedup": units.ratio(point.speedup),
    }


def _run(point: SeriesPoint) -> dict[str, object]:
    record = point.record
    return {
        "run": shorten(record.run_id, 40),
        "started": record.started_at[:16].replace("T", " "),
        "commit": short_commit(record, 10),
    }


def _at(point: SeriesPoint) -> str:
    commit = point.record.commit
    return f" ({', '.join(filter(None, [point.record.started_at[:10], commit[:10] if commit else '']))})"
