"""The columns of a text table: their text and width, and which are left out where the terminal is too narrow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.text import Text

from pairbench.report.render import clean

INDENT = 4
_GAP = "  "

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class Column(Generic[Row]):
    """A column: its header, and the text of its cell in each row."""

    header: str
    text: Callable[[Row], str]
    right: bool = True
    drop: int = 0
    """Rank in which the column is left out where the terminal is too narrow, the highest first; 0 always stays."""
    usual: str = ""
    """The usual text: a column is left out where every cell has this text or none."""


def cells_of(columns: Sequence[Column[Row]], row: Row) -> dict[str, str]:
    """Return the text of each column's cell in a row, by the column's header."""
    return {column.header: clean(column.text(row)) for column in columns}


def telling(columns: Sequence[Column[Row]], cells: Sequence[Mapping[str, str]]) -> list[Column[Row]]:
    """Return the columns that have a cell with more than the usual text."""
    return [column for column in columns if any(row[column.header] not in ("", column.usual) for row in cells)]


@dataclass(frozen=True, kw_only=True)
class Layout(Generic[Row]):
    """The columns that fit on a terminal, with their widths."""

    widths: dict[Column[Row], int]
    left_out: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls, columns: Sequence[Column[Row]], cells: Sequence[Mapping[str, str]], width: int | None
    ) -> "Layout[Row]":
        """Return the layout of rows for a terminal so many columns wide, or endless."""
        widths = {
            column: max([len(column.header), *(len(row[column.header]) for row in cells)])
            for column in telling(columns, cells)
        }
        left_out: list[str] = []
        while width and widths and INDENT + sum(widths.values()) + len(_GAP) * (len(widths) - 1) > width:
            last = max(widths, key=lambda column: column.drop)
            if not last.drop:
                break
            left_out.append(last.header)
            del widths[last]
        return cls(widths=widths, left_out=tuple(left_out))

    def line(self, text: Callable[[Column[Row]], str], style: Callable[[Column[Row]], str]) -> Text:
        """Return one line with a cell from each column."""
        line = Text(" " * INDENT)
        for number, (column, width) in enumerate(self.widths.items()):
            cell = text(column)
            line.append(_GAP if number else "")
            line.append(cell.rjust(width) if column.right else cell.ljust(width), style=style(column))
        line.rstrip()
        return line

    @property
    def note(self) -> str:
        """A sentence on the columns that did not fit; empty where all did."""
        names = ", ".join(self.left_out)
        return f"Left out for want of width: {names}. --format json has everything." if names else ""
