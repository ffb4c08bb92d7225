"""Records as `pairbench show` prints them: by operator and case, the baseline first, remarks below their row."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from typing import Any

from rich.padding import Padding
from rich.text import Text

from pairbench.model.latency import CALL, result_of, speedup_of
from pairbench.model.load import withheld
from pairbench.model.outcome import OUT_OF_BUDGET, Status
from pairbench.model.record import Record
from pairbench.report.latency_words import LEGEND
from pairbench.report.layout import INDENT, Column, Layout, telling
from pairbench.report.render import FORMATS, Terminal, clean, markdown_table, markdown_text, to_json
from pairbench.report.rows import (
    COLUMNS,
    RecordRow,
    case_line,
    case_of,
    heading,
    legend,
    load_remarks,
    note,
    operator_of,
    precision_remark,
    rows_of,
    title,
)

_NAMED = 10
"""How many cases a line names."""
_BAD = tuple(status for status in Status if status.bad)


def render(
    records: Sequence[Record], output: str, *, problems: Sequence[str] = (), terminal: Terminal | None = None
) -> str:
    """Return the records of one run or more in one of the formats.

    Args:
        records: in the order in which implementations were declared, as far as it is known.
        output: table, markdown or json.
        problems: what could not be read, listed at the end.
        terminal: stdout where not given.
    """
    if output == "json":
        document = {"records": [expanded(record) for record in records], "problems": problems}
        return to_json({**document, "notes": precision_remark(records)})
    problems = [*problems, *load_remarks(records), *_out_of_budget(records)]
    if output == "markdown":
        return _markdown(records, problems)
    if output != "table":
        raise ValueError(f"format {output!r} is unknown, expected one of {', '.join(FORMATS)}")
    terminal = terminal or Terminal.of_stdout()
    return terminal.paint(*_lines(records, problems, terminal.width))


def expanded(record: Record) -> dict[str, Any]:
    """Return a record as a dict, with objects where its columns hold JSON."""
    return {**asdict(record), "axes": _object(record.axes), "environment": _object(record.environment)}


def _lines(records: Sequence[Record], problems: Sequence[str], width: int | None) -> Iterator[Text | Padding]:
    rows = rows_of(_tried(records))
    layout = Layout.fit(COLUMNS, [row.cells for row in rows], width)
    several = _several_devices(rows)
    explained = legend((column.header for column in layout.widths), rows)
    for _, of_run in groupby(rows, key=lambda row: row.record.run_id):
        in_run = list(of_run)
        yield Text(heading(in_run[0].record), style="dim")
        yield Text()
        for _, of_operator in groupby(in_run, key=lambda row: operator_of(row.record)):
            yield from _operator_lines(list(of_operator), layout, several_devices=several)
            if explained:
                yield from (Text(explained, style="dim"), Text())
            explained = ""  # below the first table alone
    if _on_gpu(records):
        yield Text(LEGEND, style="dim")
    if rows:
        counts = Counter(record.status for record in records)
        yield Text(", ".join(f"{number} {status}" for status, number in counts.most_common()))
    yield from (Text(line, style="dim") for line in precision_remark(records))
    if layout.note:
        yield Text(layout.note, style="dim")
    yield from (Text(clean(problem), style="yellow") for problem in problems)


def _operator_lines(
    rows: list[RecordRow], layout: Layout[Record], *, several_devices: bool
) -> Iterator[Text | Padding]:
    yield Text(title(rows[0].record), style="bold")
    yield layout.line(lambda column: column.header, lambda _: "dim")
    for _, of_case in groupby(rows, key=lambda row: case_of(row.record)):
        in_case = list(of_case)
        yield Text(f"  {case_line(in_case[0].record, several_devices=several_devices)}", style="cyan")
        for row in in_case:
            yield layout.line(partial(_cell, row), partial(_style, row.record))
            if remark := note(row.record):
                style = "red" if row.record.status in _BAD else "yellow" if row.record.reason else "dim"
                yield Padding(Text(remark, style=style), (0, 0, 0, INDENT + 2), expand=False)
    yield Text()


def _tried(records: Sequence[Record]) -> Sequence[Record]:
    """Return the records without those for which a run had no time: they may be most, and are named in one line."""
    return [record for record in records if record.reason != OUT_OF_BUDGET]


def _out_of_budget(records: Sequence[Record]) -> Iterator[str]:
    left = list(dict.fromkeys(str(record.case) for record in records if record.reason == OUT_OF_BUDGET))
    if left:
        more = f" and {len(left) - _NAMED} more, which --format json names" if len(left) > _NAMED else ""
        number = f"{len(left)} case{'' if len(left) == 1 else 's'}"
        yield f"skipped, {OUT_OF_BUDGET}, and first in the next run with one: {number}, {', '.join(left[:_NAMED])}{more}"


def _on_gpu(records: Sequence[Record]) -> bool:
    """Tell whether the table has another latency than the call's: a CPU has no other."""
    return any(result_of(record) is not CALL for record in records)


def _several_devices(rows: Sequence[RecordRow]) -> bool:
    return len({row.record.device_uuid for row in rows}) > 1


def _cell(row: RecordRow, column: Column[Record]) -> str:
    return row.cells[column.header]


def _style(record: Record, column: Column[Record]) -> str:
    if column.header not in ("speedup", "interval") or record.role == "baseline":
        return ""
    if withheld(record.device_kind, record.environment):
        return ""
    # Coloured only where the whole interval lies on one side.
    speedup = speedup_of(record)
    if speedup is None:
        return ""
    return "green" if speedup.low > 1 else "red" if speedup.high < 1 else ""


def _object(text: str | None) -> object:
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return text


def _markdown(records: Sequence[Record], problems: Sequence[str]) -> str:
    rows = rows_of(_tried(records))
    columns = telling(COLUMNS, [row.cells for row in rows])
    several = _several_devices(rows)
    names = ["case", *(column.header for column in columns), "remarks"]
    explained = legend(names, rows)
    right = [False, *(column.right for column in columns), False]
    parts: list[str] = []
    for _, of_run in groupby(rows, key=lambda row: row.record.run_id):
        in_run = list(of_run)
        parts.append(f"{markdown_text(heading(in_run[0].record))}\n")
        for _, of_operator in groupby(in_run, key=lambda row: operator_of(row.record)):
            in_operator = list(of_operator)
            parts.append(f"### {markdown_text(title(in_operator[0].record))}\n")
            cells = [
                [
                    case_line(row.record, several_devices=several),
                    *(row.cells[column.header] for column in columns),
                    note(row.record),
                ]
                for row in in_operator
            ]
            parts.append(markdown_table(names, cells, right=right))
            if explained:
                parts.append(f"{markdown_text(explained)}\n")
            explained = ""
    if _on_gpu(records):
        parts.append(f"{markdown_text(LEGEND)}\n")
    parts += [f"{markdown_text(line)}\n" for line in precision_remark(records)]
    parts += [f"- {markdown_text(problem)}\n" for problem in problems]
    return "\n".join(parts)
