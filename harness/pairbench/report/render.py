"""The page model, headings, lines, lists and tables, in the formats that every verb offers: text on a terminal, Markdown, HTML of a notebook, and JSON."""

import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any, Generic, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
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
        width, shown = self.width or _ENDLESS, io.StringIO()
        console = Console(file=shown, width=width, highlight=False, legacy_windows=False, **tint)
        for thing in things:
            console.print(thing)
        return "".join(f"{line.rstrip()}\n" for line in shown.getvalue().splitlines())


def render_rows(
    title: str, rows: Sequence[Mapping[str, object]], output: str, *, terminal: Terminal | None = None
) -> str:
    """Return rows of one kind (operators, runs, facts of a machine) in one of `FORMATS`."""
    # The title is the heading, or the key of the JSON document; the rows map columns to values, the first gives the order.
    return render_page(output, lambda: {title: rows}, lambda: [Rows(title=title, rows=rows)], terminal)


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


_CELL = "padding: 1px 8px; white-space: nowrap"
_HTML_COLOURS = {"green": "#00713F", "red": "#B34700"}
_GREY = "#6E6E6E"


class Heading(Value):
    text: str
    level: int  # 1 for that of the page


class Line(Value):
    """A line of a terminal, which is a paragraph in Markdown."""

    text: str | Callable[[Layout], str]  # or a function of the columns that are shown; empty leaves it out
    style: str = ""
    markdown: bool = True  # whether Markdown has the line, too
    gap: bool = False  # whether an empty line follows on a terminal

    def shown(self, layout: Layout) -> str:
        return self.text if isinstance(self.text, str) else self.text(layout)


BLANK = Line(text="", markdown=False)


class Items(Value):
    texts: tuple[str, ...]
    mark: str = "- "  # what stands before each on a terminal
    style: str = ""
    gap: bool = True  # whether an empty line follows on a terminal


class TableBlock(Value):
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]
    title: str = ""  # the line above the table; where the table is folded, the line that unfolds it
    fold_above: int | None = None  # number of rows above which the table is folded; None for never


class Rows(Value):
    title: str
    rows: Sequence[Mapping[str, object]]


class Entry(Value):
    """A record or a change in a `Grouped` table: its rows, and remarks below them."""

    case: str  # the heading that it shares with others on a terminal and in HTML
    name: str  # its first cell in Markdown
    rows: Sequence[tuple[dict[str, str], dict[str, str]]]  # cells and their styles, by the column's header
    remarks: Sequence[str]  # lines below the rows on a terminal and in HTML
    remark_cell: str  # the remarks as one cell of Markdown
    style: str = "dim"  # style of the remarks
    without: str = ""  # the line that a terminal has in place of rows where there are none


class Grouped(Value):
    """Entries under their cases. All that stand on one page share their columns, and on a terminal their widths."""

    columns: Sequence[Column[Any]]
    entries: Sequence[Entry]
    filled: Sequence[Column[Any]]  # the columns that are not empty, which Markdown and HTML show
    head: str = "case"  # header of the first column in Markdown
    remarks: bool = True  # whether Markdown has a column of remarks


class Section(Value):
    title: str
    blocks: Sequence["Block"]
    level: int = 0  # level of the title as a heading in Markdown; 0 for a title in bold
    folded: bool = False  # whether Markdown folds it


Block = Heading | Line | Items | TableBlock | Rows | Grouped | Section


def table_of(
    columns: Sequence[Column[Row]], rows: Sequence[Row], *, title: str = "", fold_above: int | None = None
) -> TableBlock:
    """Return rows as a table, without the columns that are empty."""
    cells = [cells_of(columns, row) for row in rows]
    kept = filled_columns(columns, cells)
    return TableBlock(
        headers=tuple(column.header for column in kept),
        rows=tuple(tuple(row[column.header] for column in kept) for row in cells),
        right=tuple(column.right for column in kept),
        title=title,
        fold_above=fold_above,
    )


def render_page(
    output: str, document: Callable[[], object], blocks: Callable[[], Sequence[Block]], terminal: Terminal | None
) -> str:
    """Return a page in one of `FORMATS`: the document as JSON, or the blocks."""
    if output not in FORMATS:
        raise ValueError(f"format {output!r} is unknown, expected one of {', '.join(FORMATS)}")
    if output == "json":
        return to_json(document())
    shown = blocks()
    if output == "markdown":
        return to_markdown(shown)
    terminal = terminal or Terminal.of_stdout()
    layout = _layout(shown, terminal.width)
    return terminal.paint(*(thing for block in shown for thing in _painted(block, layout)))


def to_markdown(blocks: Sequence[Block]) -> str:
    """Return blocks as Markdown; all text is escaped here."""
    return fit_bytes(blocks, math.inf)[0]


def fit_bytes(blocks: Sequence[Block], room: float) -> tuple[str, int]:
    """Return as many of the blocks as fit into so many bytes, and the number of entries that are left out."""
    # Once something is left out, all that comes after is, so that no gap goes unnoticed; what was opened is closed.
    layout = _layout(blocks, None)
    parts: list[str] = []
    left_out = 0
    for block in blocks:
        closing = ""
        for place, (text, entries, end) in enumerate(_markdown(block, layout)):
            shown = f"\n{text}" if parts and not place else text
            room -= len(f"{shown}{end}".encode())
            if room < 0:
                room, left_out = -math.inf, left_out + entries
            else:
                parts.append(shown)
                closing = end or closing
        parts += [closing] if closing else []
    return "".join(parts), left_out


def _markdown(block: Block, layout: Layout) -> Iterator[tuple[str, int, str]]:
    """Yield pieces of text that are taken whole: each with its number of entries, and the text that must close it later."""
    match block:
        case Heading():
            yield f"{'#' * block.level} {markdown_text(block.text)}\n", 0, ""
        case Line():
            if block.markdown and (line := clean(block.shown(layout))):
                yield f"{markdown_text(line)}\n", 0, ""
        case Items():
            yield from ((f"- {markdown_text(text)}\n", 1, "") for text in block.texts)
        case TableBlock():
            yield _markdown_table(block), 0, ""
        case Rows():
            names, cells, numeric = _cells_of(block.rows)
            table = f"### {markdown_text(block.title)}\n\n{markdown_table(names, cells, right=numeric)}"
            yield table if block.rows else f"{clean(block.title)}: none\n", 0, ""
        case Grouped():
            yield from _markdown_rows(block)
        case Section():
            title = f"{'#' * block.level} {markdown_text(block.title)}\n" if block.level else f"**{block.title}**\n"
            folded = (f"<details><summary>{block.title}</summary>\n", 0, "\n</details>\n")
            yield folded if block.folded else (title, 0, "")
            for inner in block.blocks:
                for place, (text, entries, end) in enumerate(_markdown(inner, layout)):
                    yield text if place else f"\n{text}", entries, end


def _markdown_table(block: TableBlock) -> str:
    table, title = markdown_table(block.headers, block.rows, right=block.right), markdown_text(block.title)
    if block.fold_above is not None and len(block.rows) > block.fold_above:
        # GitHub reads Markdown in there only behind an empty line.
        return f"<details><summary>{title or f'{len(block.rows)} rows'}</summary>\n\n{table}\n</details>\n"
    return f"{title}\n\n{table}" if title else table


def _markdown_rows(block: Grouped) -> Iterator[tuple[str, int, str]]:
    last = ["remarks"] if block.remarks else []
    headers = [column.header for column in block.filled]
    right = [False, *(column.right for column in block.filled), *(False for _ in last)]
    yield markdown_table([block.head, *headers, *last], [], right=right), 0, ""
    for entry in block.entries:
        text = ""
        for place, (cells, _) in enumerate(entry.rows or [({}, {})]):
            # The name and the remarks hold for all of its rows.
            name, remark = ("", "") if place else (entry.name, entry.remark_cell)
            text += markdown_row([name, *(cells.get(header, "") for header in headers), *(remark for _ in last)])
        yield text, 1, ""


def _painted(block: Block, layout: Layout) -> Iterator[Any]:
    match block:
        case Heading():
            yield Text(clean(block.text), style="bold")
        case Line():
            if (text := block.shown(layout)) or block is BLANK:
                yield Text(text, style=block.style)
                yield from [Text()] if block.gap else []
        case Items():
            yield from (Text(f"{block.mark}{clean(text)}", style=block.style) for text in block.texts)
            yield from [Text()] if block.gap else []
        case TableBlock():
            yield from [Text(clean(block.title))] if block.title else []
            yield rich_table(block.headers, [map(clean, row) for row in block.rows], block.right)
        case Rows():
            title = clean(block.title)
            yield rich_table(*_cells_of(block.rows), title) if block.rows else Text(f"{title}: none")
        case Grouped():
            yield from _painted_entries(block, layout)
        case Section():
            yield Text(block.title, style="bold")
            if any(table.entries for table in _tables(block.blocks)):
                yield layout.line({column.header: column.header for column in layout.widths}, {}, "dim")
            yield from (thing for inner in block.blocks for thing in _painted(inner, layout))
            yield Text()


def _painted_entries(block: Grouped, layout: Layout) -> Iterator[Any]:
    for case, entries in groupby(block.entries, key=lambda entry: entry.case):
        yield Text(f"  {case}", style="cyan")
        for entry in entries:
            yield from (layout.line(cells, styles) for cells, styles in entry.rows)
            if not entry.rows:
                yield Text(f"{' ' * INDENT}{entry.without}")
            for remark in entry.remarks:
                yield Padding(Text(remark, style=entry.style), (0, 0, 0, INDENT + 2), expand=False)


def to_html(blocks: Sequence[Block]) -> str:
    """Return the tables of a page, and its lists, as HTML that needs no style sheet."""
    parts = []
    for block in blocks:
        if isinstance(block, Section):
            tables = "".join(map(_html_table, _tables(block.blocks)))
            parts.append(f"<p><b>{escape(block.title)}</b></p>{tables}")
        elif isinstance(block, Items):
            parts += [f"<p>{escape(clean(text))}</p>" for text in block.texts]
    return "".join(parts)


def _html_table(table: Grouped) -> str:
    def row(kind: str, cells: dict[str, str], styles: dict[str, str]) -> str:
        shown = (
            f'<{kind} style="{_CELL}; text-align: {"right" if one.right else "left"}'
            f'{_html_colour(styles.get(one.header, ""))}">{escape(cells[one.header])}</{kind}>'
            for one in table.filled
        )
        return f"<tr>{''.join(shown)}</tr>"

    def wide(kind: str, style: str, text: str) -> str:
        return f'<tr><{kind} colspan="{len(table.filled)}" style="{_CELL}; text-align: left{style}">{escape(text)}</{kind}></tr>'

    body = []
    for case, entries in groupby(table.entries, key=lambda entry: entry.case):
        body.append(wide("th", "", case))
        for entry in entries:
            body += [row("td", cells, styles) for cells, styles in entry.rows]
            colour = _html_colour(entry.style) or f"; color: {_GREY}"
            body += [wide("td", f"{colour}; white-space: normal", remark) for remark in entry.remarks]
    head = row("th", {one.header: one.header for one in table.filled}, {})
    return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"


def _html_colour(style: str) -> str:
    return f"; color: {_HTML_COLOURS[style]}" if style in _HTML_COLOURS else ""


def html_text(text: str) -> str:
    return f'<pre style="white-space: pre; overflow-x: auto">{escape(text)}</pre>'


def _layout(blocks: Sequence[Block], width: int | None) -> Layout:
    """Return the layout of the tables among blocks for a terminal so many columns wide, or endless."""
    tables = list(_tables(blocks))
    cells = [cells for table in tables for entry in table.entries for cells, _ in entry.rows]
    filled = filled_columns(tables[0].columns if tables else (), cells)
    widths = {one: max([len(one.header), *(len(row[one.header]) for row in cells)]) for one in filled}
    left_out: list[str] = []
    while width and widths and INDENT + sum(widths.values()) + len(_GAP) * (len(widths) - 1) > width:
        last = max(widths, key=lambda column: column.drop)
        if not last.drop:
            break
        left_out.append(last.header)
        del widths[last]
    return Layout(widths=widths, left_out=tuple(left_out))


def _tables(blocks: Sequence[Block]) -> Iterator[Grouped]:
    for block in blocks:
        if isinstance(block, Grouped):
            yield block
        elif isinstance(block, Section):
            yield from _tables(block.blocks)
