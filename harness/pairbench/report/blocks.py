"""The page model: headings, lines, lists and tables, written as Markdown, for a terminal and as HTML of a notebook."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from rich.padding import Padding
from rich.text import Text

from pairbench.model.plain import Value
from pairbench.report import render
from pairbench.report.render import INDENT, Column, Layout, Row, Terminal, clean, filled_columns, markdown_text

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
    cells = [render.cells_of(columns, row) for row in rows]
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
    if output not in render.FORMATS:
        raise ValueError(f"format {output!r} is unknown, expected one of {', '.join(render.FORMATS)}")
    if output == "json":
        return render.to_json(document())
    return to_markdown(blocks()) if output == "markdown" else to_terminal(blocks(), terminal)


def to_markdown(blocks: Sequence[Block]) -> str:
    """Return blocks as Markdown; all text is escaped here."""
    return fit_bytes(blocks, math.inf)[0]


def fit_bytes(blocks: Sequence[Block], room: float) -> tuple[str, int]:
    """Return as many of the blocks as fit into so many bytes, and the number of entries that are left out.

    Once something is left out, all that comes after is, so that no gap goes unnoticed; what was opened is closed.
    """
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
            yield render.render_rows(block.title, block.rows, "markdown"), 0, ""
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
    table, title = render.markdown_table(block.headers, block.rows, right=block.right), markdown_text(block.title)
    if block.fold_above is not None and len(block.rows) > block.fold_above:
        # GitHub reads Markdown in there only behind an empty line.
        return f"<details><summary>{title or f'{len(block.rows)} rows'}</summary>\n\n{table}\n</details>\n"
    return f"{title}\n\n{table}" if title else table


def _markdown_rows(block: Grouped) -> Iterator[tuple[str, int, str]]:
    last = ["remarks"] if block.remarks else []
    headers = [column.header for column in block.filled]
    right = [False, *(column.right for column in block.filled), *(False for _ in last)]
    yield render.markdown_table([block.head, *headers, *last], [], right=right), 0, ""
    for entry in block.entries:
        text = ""
        for place, (cells, _) in enumerate(entry.rows or [({}, {})]):
            # The name and the remarks hold for all of its rows.
            name, remark = ("", "") if place else (entry.name, entry.remark_cell)
            text += render.markdown_row([name, *(cells.get(header, "") for header in headers), *(remark for _ in last)])
        yield text, 1, ""


def to_terminal(blocks: Sequence[Block], terminal: Terminal | None = None) -> str:
    terminal = terminal or Terminal.of_stdout()
    layout = _layout(blocks, terminal.width)
    return terminal.paint(*(thing for block in blocks for thing in _painted(block, layout)))


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
            yield render.rich_table(block.headers, [map(clean, row) for row in block.rows], block.right)
        case Rows():
            yield render.rows_table(block.title, block.rows)
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
    tables = list(_tables(blocks))
    rows = [cells for table in tables for entry in table.entries for cells, _ in entry.rows]
    return Layout.fit(tables[0].columns if tables else (), rows, width)


def _tables(blocks: Sequence[Block]) -> Iterator[Grouped]:
    for block in blocks:
        if isinstance(block, Grouped):
            yield block
        elif isinstance(block, Section):
            yield from _tables(block.blocks)
