"""Tables of a notebook: records, and the text of any other result, as HTML that needs no style sheet."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from pairbench.model.latency import speedup_of
from pairbench.model.outcome import Status
from pairbench.model.record import Record
from pairbench.report.render import clean, telling
from pairbench.report.rows import (
    COLUMNS,
    RecordRow,
    case_line,
    case_of,
    load_remarks,
    note,
    operator_of,
    rows_of,
    title,
)

_CELL = "padding: 1px 8px; white-space: nowrap"
_GREEN, _RED, _GREY = "#00713F", "#B34700", "#6E6E6E"


def html_table(records: Sequence[Record], problems: Iterable[str] = ()) -> str:
    """Return the records of a run as HTML: a table for each operator, with a line for each remark.

    Args:
        records: In the order in which implementations were declared, as far as it is known.
        problems: Sentences for the end.
    """
    rows = rows_of(records)
    columns = telling(COLUMNS, [row.cells for row in rows])
    several = len({row.record.device_uuid for row in rows}) > 1
    parts = []
    for _, of_operator in groupby(rows, key=lambda row: operator_of(row.record)):
        in_operator = list(of_operator)
        heads = "".join(_cell("th", one.header, right=one.right) for one in columns)
        body = []
        for _, of_case in groupby(in_operator, key=lambda row: case_of(row.record)):
            in_case = list(of_case)
            heading = escape(case_line(in_case[0].record, several_devices=several))
            body.append(f'<tr><th colspan="{len(columns)}" style="{_CELL}; text-align: left">{heading}</th></tr>')
            for row in in_case:
                cells = (
                    _cell("td", row.cells[one.header], right=one.right, color=_color(row, one.header))
                    for one in columns
                )
                body.append(f"<tr>{''.join(cells)}</tr>")
                if remark := note(row.record):
                    color = _RED if Status(row.record.status).bad else _GREY
                    body.append(
                        f'<tr><td colspan="{len(columns)}" style="{_CELL}; text-align: left; color: {color}; white-space: normal">'
                        f"{escape(remark)}</td></tr>"
                    )
        parts.append(
            f"<p><b>{escape(title(in_operator[0].record))}</b></p>"
            f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        )
    said = [*load_remarks(records), *problems]
    return "".join([*parts, *(f"<p>{escape(clean(line))}</p>" for line in said)])


def _cell(kind: str, text: str, *, right: bool, color: str = "") -> str:
    style = f"{_CELL}; text-align: {'right' if right else 'left'}{f'; color: {color}' if color else ''}"
    return f'<{kind} style="{style}">{escape(text)}</{kind}>'


def _color(row: RecordRow, header: str) -> str:
    """Return the colour of a speedup whose whole interval lies on one side of 1."""
    speedup = speedup_of(row.record) if header == "speedup" and row.record.role != "baseline" else None
    return "" if speedup is None else _GREEN if speedup.low > 1 else _RED if speedup.high < 1 else ""


def html_text(text: str) -> str:
    """Return what the command line prints as HTML."""
    return f'<pre style="white-space: pre; overflow-x: auto">{escape(text)}</pre>'
