"""One parquet file of a store, read whole and checked before anything of it is believed. Every reader goes through here.

Anybody may have put a file there, a disk may have changed it, and a newer version may have written it. What comes out of
`read` is in the columns and types of this version's schema, or the file is refused in a sentence.

The parts of a run: which of them the run's one file has made superfluous.

A checksum of a whole parquet file, where no reader of parquet looks: between its pages and its footer.

Parquet's own checksums are of the bytes of its pages. A bit that flips in the header of a page, or in the footer, whose statistics
stand for values, passes them. Files that were written without this one are read as before.

How much a file may hold: what is small on the disk can be endless in memory, and is refused before it is.
"""

import contextlib
import errno
import os
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from pairbench.errors import StoreFailedError
from pairbench.store.files.conform import (
    IDENTITY,
    UnsoundError,
    check_beside,
    checked,
    conformed,
    fields_of,
    lacking,
    texts,
    type_of,
)
from pairbench.store.location import RunFile, StoreLocation, is_part
from pairbench.store.schema import version_of

_MARK = b"pairbench:crc32:"
_SIZE = 4
"""Bytes of the checksum behind the mark."""
SEAL = len(_MARK) + _SIZE
"""Bytes of both."""
_END = 8
"""Bytes behind the footer: its length, and parquet's own mark."""


def sealed(content: pa.Buffer) -> pa.Buffer:
    """Return the content of a parquet file with its checksum."""
    view = memoryview(content)
    footer = _footer(view)
    pages, rest = view[:footer], view[footer:]
    checksum = zlib.crc32(rest, zlib.crc32(pages)).to_bytes(_SIZE, "little")
    return pa.py_buffer(b"".join((pages, _MARK, checksum, rest)))


def check_seal(content: pa.Buffer) -> bool:
    """Return whether a file has a checksum.

    Raises:
        UnsoundError: it has one, and something in it has changed since.
    """
    view = memoryview(content)
    footer = _footer(view)
    begin = footer - len(_MARK) - _SIZE
    if begin < 0 or view[begin : begin + len(_MARK)] != _MARK:
        return False
    if zlib.crc32(view[footer:], zlib.crc32(view[:begin])) != int.from_bytes(view[footer - _SIZE : footer], "little"):
        raise UnsoundError("its content does not fit its checksum: it was changed, or the disk has changed it")
    return True


def _footer(view: memoryview) -> int:
    """Return where the footer begins; a negative place where there is none."""
    return len(view) - _END - int.from_bytes(view[-_END : -_END + 4], "little") if len(view) >= _END else -1


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


BROKEN = (OSError, pa.ArrowException, ValueError, KeyError, OverflowError, MemoryError, RecursionError)
"""What reading a file raises whose content is damaged, or made to harm."""


class ForeignFileError(Exception):
    """A parquet file that pairbench did not write."""


class OpenedFile:
    """A parquet file, as far as its footer tells; columns are decoded as they are asked for."""

    _decoded_at_once: Sequence[int] | None = None
    """The row groups that are looked at before anything is asked for; None for all."""

    def __init__(self, place: StoreLocation, path: str, dataset: str) -> None:
        """Read the file.

        Args:
            place: The store.
            path: The file on the store's file system.
            dataset: Whose columns it is to have: records or samples.

        Raises:
            FileNotFoundError: it is not there, or no more.
            StoreFailedError: the store is elsewhere, and does not give it.
            ForeignFileError: it is not ours.
            UnsoundError: it cannot be what it ought to be; so can one of `BROKEN` say.
        """
        self.path = path
        self._content, self.sealed, metadata = self._load(place)
        """The content, and whether a checksum shows that nothing in it has changed."""
        self.dataset = dataset
        self._parquet = _open(self._content, texts(dataset), metadata)
        self.metadata = self._parquet.metadata
        version = version_of(self.metadata.metadata)
        if version is None:
            raise ForeignFileError(path)
        check_footer(self.metadata, dataset, self._decoded_at_once)
        self.version = version
        """The version of the schema that it was written by; 0 where that is no number."""
        schema, known = self.metadata.schema, fields_of(dataset)
        self.known = known
        """The columns of this version."""
        # Of a list or a struct the schema names what is inside; asking for all the paths would double the time.
        self.places = {
            (name if name in known else schema.column(place).path.partition(".")[0]): place
            for place, name in enumerate(schema.names)
        }
        """The place of each column, or of the last one inside it, among all that parquet counts."""
        if missing := [name for name in IDENTITY[dataset] if name not in self.places]:
            raise UnsoundError(f"has no column {missing[0]!r}, expected the columns of a run")

    def _load(self, place: StoreLocation) -> tuple[pa.Buffer, bool, pq.FileMetaData | None]:
        """Return the content, whether it is sealed, and its footer if that has been read already."""
        held = None if place.is_local else place.held.get(self.path)
        content = read_content(place, self.path) if held is None else held
        sealed = check_seal(content)
        if held is None and not place.is_local and not is_part(self.path):
            place.held.put(self.path, content)
        return content, sealed, None

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return int(self._content.size)

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return int(self.metadata.num_rows)

    def read(self, names: Sequence[str], cases: Collection[object] | None = None) -> pa.Table:
        """Return some columns as this version has them, texts as dictionaries; one that the file lacks is null.

        Args:
            names: The columns.
            cases: A hint: rows of other cases are not needed, and may be there all the same. All are where not given.

        Raises:
            UnsoundError: a column does not hold what it ought to; so can one of `BROKEN` say.
        """
        there = [name for name in names if name in self.places]
        table, count = self._decoded(there, cases)
        found = {}
        for name in there:
            check_texts(name, table.column(name))
            found[name] = conformed(table.column(name), self.dataset, name)
        if self.dataset == "samples":
            check_beside(found)
        types = {name: type_of(self.dataset, name) for name in names}
        columns = [found[name] if name in found else lacking(self.dataset, name, count) for name in names]
        return pa.Table.from_arrays(columns, schema=pa.schema(list(types.items())))

    def _decoded(self, there: Sequence[str], cases: Collection[object] | None) -> tuple[pa.Table, int]:
        """Return columns that are there as they lie in the file, and how many rows that is."""
        del cases  # one run's file has too few rows to be read by pieces
        table = self._reader(there).read(columns=there, use_threads=False)
        if there and table.num_rows != self.num_rows:
            raise UnsoundError(f"has {table.num_rows} rows, {self.num_rows} by its own account")
        return table, self.num_rows

    def _reader(self, names: Sequence[str]) -> pq.ParquetFile:
        """Return what reads some columns, with their texts as dictionaries at any depth."""
        nested = [name for name in names if name in self.known and pa.types.is_nested(self.known[name].type)]
        return self._with_inner_texts(nested) if nested else self._parquet

    def raw(self) -> pa.Table:
        """Return the whole of it as it was written, with its version and columns that are not known here.

        Raises:
            UnsoundError: it holds too much; so can one of `BROKEN` say.
        """
        return self.as_written(self._all_texts().read(use_threads=False))

    def as_written(self, table: pa.Table) -> pa.Table:
        """Return a table, whose texts are dictionaries, in the types of the file.

        Raises:
            UnsoundError: it holds too much.
        """
        for name in table.column_names:
            check_texts(name, table.column(name))
        return table.cast(_open(self._content, (), self.metadata).schema_arrow)

    def _all_texts(self) -> pq.ParquetFile:
        schema = self.metadata.schema
        columns = (schema.column(place) for place in range(len(schema.names)))
        inner = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
        return _open(self._content, inner, self.metadata)

    def checked(self, name: str, value: Any) -> Any:
        """Return the one value of a column, which nobody has decoded, as `read` would.

        Raises:
            UnsoundError: the column cannot hold that.
        """
        return checked(value, self.dataset, name)

    def _with_inner_texts(self, nested: Iterable[str]) -> pq.ParquetFile:
        schema = self.metadata.schema
        inner = [
            column.path
            for column in (schema.column(place) for place in range(len(schema.names)))
            if column.physical_type == "BYTE_ARRAY" and column.path.partition(".")[0] in nested
        ]
        if not inner:
            return self._parquet
        flat = [name for name in texts(self.dataset) if name in self.places]
        return _open(self._content, [*flat, *inner], self.metadata)


def read_content(place: StoreLocation, path: str, most: int = LARGEST) -> pa.Buffer:
    """Return what a file holds, all of one moment: parts of a run are replaced while it goes on.

    Args:
        place: The store.
        path: The file on the store's file system.
        most: How many bytes it may have.

    Raises:
        FileNotFoundError: it is not there, or no more.
        OSError, pa.ArrowException: it cannot be read.
        StoreFailedError: the store is elsewhere, and does not give it.
        UnsoundError: it is too large.
    """
    with telling(place, path), place.filesystem.open_input_file(path) as stream:
        check_size(stream.size(), most)
        return stream.read_buffer()


@contextlib.contextmanager
def telling(place: StoreLocation, path: str) -> Iterator[None]:
    """Tell what fails as a file is read the way `read_content` does."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        if place.is_local:
            raise
        # An object store is asked for the size of a file, and then for the file, which may be gone by then.
        if _is_gone(place, path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
        raise StoreFailedError(f"store {place.name!r}: {path} cannot be read: {error}") from error


def _is_gone(place: StoreLocation, path: str) -> bool:
    try:
        return bool(place.filesystem.get_file_info(path).type == fs.FileType.NotFound)
    except (OSError, pa.ArrowException):
        return False


def _open(content: pa.Buffer, wanted: Sequence[str], metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    def opened(names: Sequence[str]) -> pq.ParquetFile:
        return pq.ParquetFile(
            pa.BufferReader(content), metadata=metadata, read_dictionary=names, page_checksum_verification=True
        )

    try:
        # Texts repeat; left as they lie in the file, they take half the time to read.
        return opened(wanted)
    except KeyError:  # a file without one of them: older, or none of ours
        there = set(opened(()).metadata.schema.names)
        return opened([name for name in wanted if name in there])


def doubled(files: Iterable[RunFile]) -> dict[str, list[str]]:
    """Return the parts that lie beside the one file which was made of them, by that file's path."""
    files = list(files)
    wholes = {file.path for file in files if not file.is_part}
    parts: dict[str, list[str]] = defaultdict(list)
    for file in files:
        if file.is_part and file.whole in wholes:
            parts[file.whole].append(file.path)
    return dict(parts)


def tidy(location: StoreLocation, files: Iterable[RunFile]) -> None:
    """Delete doubled parts where the one file is sound and holds as many rows: a run was killed while it closed.

    Safe while others read or do the same, and where nothing may be deleted nothing is.
    """
    for whole, parts in doubled(files).items():
        try:
            sound = _rows(location, whole) >= sum(_rows(location, part) for part in parts)
        except (ForeignFileError, UnsoundError, StoreFailedError, *BROKEN):
            continue
        if sound:
            location.delete(parts)


def _rows(location: StoreLocation, path: str) -> int:
    """Return how many rows a file holds, after making sure that all of it is sound."""
    dataset = path[len(location.root) + 1 :].partition("/")[0]
    opened = OpenedFile(location, path, dataset)
    return opened.num_rows if opened.sealed else len(opened.raw())
