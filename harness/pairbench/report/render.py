"""The three formats that every verb offers: text on a terminal, Markdown for job summaries, JSON."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pairbench.model.plain import Value, plain

FORMATS = ("table", "markdown", "json")

_ENDLESS = 10_000


class Terminal(Value):
    """The terminal, file or pipe that the output goes to."""

    width: int | None = None  # width in columns; None where nothing limits it, as in a pipe
    color: bool = False

    @classmethod
    def of_stdout(cls) -> "Terminal":
        """Return the terminal behind stdout; NO_COLOR and COLUMNS are respected."""
        if not sys.stdout.isatty():
            return cls()
        return cls(width=Console().width, color="NO_COLOR" not in os.environ)

    def paint(self, *things: Any) -> str:
        system = "standard" if self.color else None
        tint: dict[str, Any] = {"force_terminal": self.color, "no_color": not self.color, "color_system": system}
        console = Console(
            file=io.StringIO(), width=self.width or _ENDLESS, highlight=False, legacy_windows=False, **tint
        )
        with console.capture() as capture:
            for thing in things:
                console.print(thing)
        return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def render_rows(
    title: str, rows: Sequence[Mapping[str, object]], output: str, *, terminal: Terminal | None = None
) -> str:
    """Return rows of one kind (operators, runs, facts of a machine) in one of `FORMATS`.

    The title is the heading, or the key of the JSON document; the rows map columns to values, the first gives the order.
    """
    if output not in FORMATS:
        raise ValueError(f"format {output!r} is unknown, expected one of {', '.join(FORMATS)}")
    if output == "json":
        return to_json({title: rows})
    if not rows:
        return f"{clean(title)}: none\n"
    if output == "markdown":
        names, cells, numeric = _cells_of(rows)
        return f"### {markdown_text(title)}\n\n{markdown_table(names, cells, right=numeric)}"
    return (terminal or Terminal.of_stdout()).paint(rows_table(title, rows))


def rows_table(title: str, rows: Sequence[Mapping[str, object]]) -> Table:
    return rich_table(*_cells_of(rows), clean(title))


def _cells_of(rows: Sequence[Mapping[str, object]]) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return the columns' names, the text of each row, and which columns hold numbers."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    numeric = [all(isinstance(row.get(name), int | float | None) for row in rows) for name in columns]
    return [name.replace("_", " ") for name in columns], cells, numeric


def rich_table(headers: Sequence[str], rows: Iterable[Iterable[str]], right: Sequence[bool], title: str = "") -> Table:
    heading = Text(title, style="bold") if title else None
    table = Table(title=heading, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for header, side in zip(headers, right, strict=True):
        table.add_column(Text(header), justify="right" if side else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[bool]) -> str:
    """Return a Markdown table; cells are escaped here."""
    rule = f"| {' | '.join('---:' if side else '---' for side in right)} |\n"
    return "".join([markdown_row(columns), rule, *map(markdown_row, rows)])


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |\n"


def markdown_text(text: str) -> str:
    """Return text that shows as itself in Markdown, also within a table."""
    text = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\`*_|[]#~$" else letter for letter in text)


def clean(text: str) -> str:
    """Return text on one line without control characters: names and messages come from anywhere."""
    if text.isprintable():  # nearly all are, and a site has hundreds of thousands
        return " ".join(text.split())
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def shorten(text: str, width: int) -> str:
    """Return text on one line, its middle left out where it is longer: names differ at both ends."""
    text = clean(text)
    if len(text) <= width:
        return text
    tail = width // 3
    return f"{text[: width - tail - 1]}…{text[-tail:]}"


def to_json(value: object, *, lines: bool = False) -> str:
    """Return one JSON document, on one line on request: dataclasses and named tuples as objects, NaN and infinities as null."""
    return json.dumps(plain(value), indent=None if lines else 2, ensure_ascii=False, allow_nan=False) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{item} {key}" for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(_cell(item) for item in value)
    return clean(f"{value:.6g}" if isinstance(value, float) else str(value))


INDENT = 4
_GAP = "  "

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    header: str
    text: Callable[[Row], str]
    right: bool = True
    drop: int = 0  # rank in which it is left out where the terminal is too narrow, the highest first; 0 always stays
    usual: str = ""  # the usual text: a column is left out where every cell has this text or none


def cells_of(columns: Sequence[Column[Row]], row: Row) -> dict[str, str]:
    return {column.header: clean(column.text(row)) for column in columns}


def filled_columns(columns: Sequence[Column[Row]], cells: Sequence[Mapping[str, str]]) -> list[Column[Row]]:
    """Return the columns that have a cell with more than the usual text."""
    return [column for column in columns if any(row[column.header] not in ("", column.usual) for row in cells)]


class Layout(Value):
    """The columns that fit on a terminal, with their widths."""

    widths: Mapping[Column[Any], int]
    left_out: tuple[str, ...] = ()

    @classmethod
    def fit(cls, columns: Sequence[Column[Any]], cells: Sequence[Mapping[str, str]], width: int | None) -> Self:
        """Return the layout of rows for a terminal so many columns wide, or endless."""
        filled = filled_columns(columns, cells)
        widths = {one: max([len(one.header), *(len(row[one.header]) for row in cells)]) for one in filled}
        left_out: list[str] = []
        while width and widths and INDENT + sum(widths.values()) + len(_GAP) * (len(widths) - 1) > width:
            last = max(widths, key=lambda column: column.drop)
            if not last.drop:
                break
            left_out.append(last.header)
            del widths[last]
        return cls(widths=widths, left_out=tuple(left_out))

    def line(self, cells: Mapping[str, str], styles: Mapping[str, str], style: str = "") -> Text:
        """Return one line of cells and their styles, both by the column's header; all others have the one style."""
        line = Text(" " * INDENT)
        for number, (column, width) in enumerate(self.widths.items()):
            cell = cells[column.header]
            line.append(_GAP if number else "")
            line.append(cell.rjust(width) if column.right else cell.ljust(width), styles.get(column.header, style))
        line.rstrip()
        return line

    @property
    def note(self) -> str:
        """A sentence on the columns that did not fit; empty where all did."""
        names = ", ".join(self.left_out)
        return f"Left out for want of width: {names}. --format json has everything." if names else ""
