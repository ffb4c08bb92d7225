"""The parts of a page (headings, paragraphs, lists, tables), as Markdown and for a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from pairbench.report.render import Column, Row, Terminal, cells_of, clean, markdown_table, markdown_text, telling


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading; level 1 is the page's own."""

    text: str
    level: int


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """A paragraph of plain sentences."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Items:
    """A list with bullets."""

    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TableBlock:
    """Rows of text under headers."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]
    title: str = ""
    """The line above the table; where the table is folded, the line that unfolds it."""
    fold_above: int | None = None
    """Number of rows above which the table is folded; None for never."""


Block = Heading | Paragraph | Items | TableBlock


def table_of(
    columns: Sequence[Column[Row]], rows: Sequence[Row], *, title: str = "", fold_above: int | None = None
) -> TableBlock:
    """Return rows as a table, without the columns that are empty."""
    cells = [cells_of(columns, row) for row in rows]
    kept = telling(columns, cells)
    return TableBlock(
        headers=tuple(column.header for column in kept),
        rows=tuple(tuple(row[column.header] for column in kept) for row in cells),
        right=tuple(column.right for column in kept),
        title=title,
        fold_above=fold_above,
    )


def to_markdown(blocks: Sequence[Block]) -> str:
    """Return blocks as Markdown; all text is escaped here."""
    return "\n".join(_markdown(block) for block in blocks)


def to_terminal(blocks: Sequence[Block], terminal: Terminal | None = None) -> str:
    """Return blocks for a terminal; stdout where not given."""
    return (terminal or Terminal.of_stdout()).paint(*(thing for block in blocks for thing in _painted(block)))


def _markdown(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {markdown_text(block.text)}\n"
        case Paragraph():
            return f"{markdown_text(block.text)}\n"
        case Items():
            return "".join(f"- {markdown_text(text)}\n" for text in block.texts)
    table = markdown_table(block.headers, block.rows, right=block.right)
    if block.fold_above is not None and len(block.rows) > block.fold_above:
        # GitHub reads Markdown in there only behind an empty line.
        title = markdown_text(block.title or f"{len(block.rows)} rows")
        return f"<details><summary>{title}</summary>\n\n{table}\n</details>\n"
    return f"{markdown_text(block.title)}\n\n{table}" if block.title else table


def _painted(block: Block) -> Iterator[Text | RichTable]:
    match block:
        case Heading():
            yield Text(clean(block.text), style="bold")
        case Paragraph():
            yield Text(clean(block.text))
        case Items():
            yield from (Text(f"- {clean(text)}") for text in block.texts)
        case TableBlock():
            if block.title:
                yield Text(clean(block.title))
            table = RichTable(box=SIMPLE_HEAD, pad_edge=False)
            for header, right in zip(block.headers, block.right, strict=True):
                table.add_column(Text(header), justify="right" if right else "left", overflow="fold")
            for row in block.rows:
                table.add_row(*(Text(clean(cell)) for cell in row))
            yield table
    if not isinstance(block, Heading | TableBlock):
        yield Text()
