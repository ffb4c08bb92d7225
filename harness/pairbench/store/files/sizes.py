"""How much a file may hold: what is small on the disk can be endless in memory, and is refused before it is."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pairbench.store.files.conform import UnsoundError

LARGEST = 2**30
"""The most bytes of a file, and of what it holds once it is decoded. A run of 60,000 records has some 100 MB, with 9 million samples."""
LARGEST_DOCUMENT = 2**26
"""The most bytes of a small JSON file."""
MOST_ROWS = {"records": 200_000, "samples": 1_000_000}
"""The most rows of a file of each dataset. A record takes some kilobytes once it is a row."""


def check_size(size: int, most: int) -> None:
    """Refuse a file that is too large to be read.

    Raises:
        UnsoundError: it is.
    """
    if size > most:
        raise UnsoundError(f"has {_shown(size)}, expected at most {_shown(most)}")


def check_footer(metadata: Any, dataset: str, groups: Iterable[int] | None = None) -> None:
    """Refuse a parquet file that holds too much, by what its footer says.

    Args:
        metadata: The footer.
        dataset: Whose file it is.
        groups: The row groups that are going to be decoded; all where not given.

    Raises:
        UnsoundError: it does.
    """
    if metadata.num_rows > MOST_ROWS[dataset]:
        raise UnsoundError(f"has {metadata.num_rows:,} rows, expected at most {MOST_ROWS[dataset]:,}")
    size = 0
    for number in range(metadata.num_row_groups) if groups is None else groups:
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            # A column of one value a million times is a few bytes here, and a million numbers, or places in a dictionary, there.
            size += column.total_uncompressed_size + 8 * column.num_values
            if size > LARGEST:
                raise UnsoundError(f"holds more than {_shown(LARGEST)} once it is decoded, expected at most that")


def check_texts(name: str, column: pa.ChunkedArray) -> None:
    """Refuse a column whose texts, few and long, would be too much once each has its own.

    Args:
        name: The column.
        column: With its texts as dictionaries, at any depth.

    Raises:
        UnsoundError: they would.
    """
    if not (pa.types.is_dictionary(column.type) or pa.types.is_nested(column.type)):
        return
    for chunk in column.chunks:
        if _length(chunk) > LARGEST:
            raise UnsoundError(f"column {name!r} holds more than {_shown(LARGEST)} of text, expected at most that")


def _length(array: pa.Array) -> int:
    """Return how many bytes the texts of an array have once each has its own; 0 where that is too little to be counted."""
    if pa.types.is_dictionary(array.type):
        if array.dictionary.nbytes * len(array) <= LARGEST:
            return 0  # none is longer than all of them, and asking each takes time
        lengths = pc.binary_length(array.dictionary)
        longest = pc.max(lengths).as_py() or 0
        most: int = longest * len(array)
        return most if most <= LARGEST else int(pc.sum(lengths.take(array.indices)).as_py() or 0)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _length(array.flatten())
    if pa.types.is_struct(array.type):
        return sum(_length(inner) for inner in array.flatten())
    return 0


def _shown(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
