"""Columns of a text table: what each says, how wide it is, and which go first where the terminal is too narrow."""

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
    """One thing said of each row."""

    header: str
    text: Callable[[Row], str]
    right: bool = True
    drop: int = 0
    """Those with the highest number go first where the terminal is too narrow; 0 stays."""
    usual: str = ""
    """A column in which every cell says this, or nothing, is left out."""


def cells_of(columns: Sequence[Column[Row]], row: Row) -> dict[str, str]:
    """Return what each column says of a row, by its header."""
    return {column.header: clean(column.text(row)) for column in columns}


def telling(columns: Sequence[Column[Row]], cells: Sequence[Mapping[str, str]]) -> list[Column[Row]]:
    """Return the columns that say something which does not go without saying."""
    return [column for column in columns if any(row[column.header] not in ("", column.usual) for row in cells)]


@dataclass(frozen=True, kw_only=True)
class Layout(Generic[Row]):
    """Which columns there is room for, and how wide each is."""

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
        """A sentence on what there was no room for, or empty."""
        names = ", ".join(self.left_out)
        return f"Left out for want of width: {names}. --format json has everything." if names else ""
