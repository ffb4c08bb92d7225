"""One parquet file of a store, read whole and checked before anything of it is believed. Every reader goes through here.

Anybody may have put a file there, a disk may have changed it, and a newer version may have written it. `read` returns columns
in the types of this version's schema, or refuses the file in a sentence. Suites may lie elsewhere now than when runs were made. Series go by
the names of suites, so rows are read under the new names.

A checksum of the whole file lies where no reader of parquet looks: between its pages and its footer. Parquet's own checksums
are of the bytes of its pages; a bit that flips in the header of a page, or in the footer, whose statistics stand for values,
passes them. Files without this checksum are read, too.
"""

import contextlib
import errno
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from pairbench.errors import StoreFailedError
from pairbench.store.location import StoreLocation, run_files
from pairbench.store.schema import IDENTITY, UnsoundError, checked_constant, conformed, fields_of, texts_of, version_of

CHANGED = "its content does not fit its checksum: it was changed, or the disk has changed it"
_MARK = b"pairbench:crc32:"
WIDTH = 4
SEAL = len(_MARK) + WIDTH  # bytes of the mark and the checksum behind it
END = 8  # bytes behind the footer: its length, and parquet's own mark


def sealed(content: pa.Buffer) -> pa.Buffer:
    view = memoryview(content)
    pages, rest = view[: footer_of(view)], view[footer_of(view) :]
    return pa.py_buffer(b"".join((pages, _MARK, checksum_of(pages, rest), rest)))


def check_seal(content: pa.Buffer) -> bool:
    view = memoryview(content)
    footer = footer_of(view)
    begin = footer - SEAL
    if begin < 0 or view[begin : footer - WIDTH] != _MARK:
        return False
    if checksum_of(view[:begin], view[footer:]) != bytes(view[footer - WIDTH : footer]):
        raise UnsoundError(CHANGED)
    return True


def footer_of(end: memoryview | bytes) -> int:
    """Return the offset of the footer in a file, or in the end of one; a negative one where it begins before that, or there is none."""
    return len(end) - END - int.from_bytes(end[-END:-WIDTH], "little") if len(end) >= END else -1


def checksum_of(*pieces: memoryview | bytes) -> bytes:
    value = 0
    for piece in pieces:
        value = zlib.crc32(piece, value)
    return value.to_bytes(WIDTH, "little")


LARGEST = 2**30
"""The most bytes of a file, and of its columns once they are decoded. A run of 60,000 records has some 100 MB, with 9 million samples."""
LARGEST_DOCUMENT = 2**26
MOST_ROWS = {"records": 200_000, "samples": 1_000_000}
"""The most rows of a file of each dataset. A record takes some kilobytes once it is a row."""


def check_size(size: int, most: int = LARGEST) -> None:
    if size > most:
        raise UnsoundError(f"has {_shown(size)}, expected at most {_shown(most)}")


def check_footer(metadata: Any, dataset: str, groups: Iterable[int] | None = None) -> None:
    """Raise UnsoundError where the footer says that a file, or some of its row groups, are too large once decoded."""
    if metadata.num_rows > MOST_ROWS[dataset]:
        raise UnsoundError(f"has {metadata.num_rows:,} rows, expected at most {MOST_ROWS[dataset]:,}")
    size = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups) if groups is None else groups):
        for column in map(group.column, range(group.num_columns)):
            # A column of one value a million times is a few bytes in the file, and a million numbers or indices in memory.
            size += column.total_uncompressed_size + 8 * column.num_values
            if size > LARGEST:
                raise UnsoundError(f"holds more than {_shown(LARGEST)} once it is decoded, expected at most that")


def check_texts(table: pa.Table) -> None:
    """Raise UnsoundError for a column whose texts, few and long, are too large once each row has a copy."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        may_be_long = pa.types.is_dictionary(column.type) or pa.types.is_nested(column.type)
        if may_be_long and any(_length(chunk) > LARGEST for chunk in column.chunks):
            raise UnsoundError(f"column {name!r} holds more than {_shown(LARGEST)} of text, expected at most that")


def _length(array: pa.Array) -> int:
    """Return the bytes of an array's texts once each row has a copy; 0 where the bound that is cheap to compute is small enough."""
    if pa.types.is_dictionary(array.type):
        if array.dictionary.nbytes * len(array) <= LARGEST:
            return 0  # no text is longer than the whole dictionary, and measuring each takes time
        lengths = pc.binary_length(array.dictionary)
        longest = pc.max(lengths).as_py() or 0
        most: int = longest * len(array)
        return most if most <= LARGEST else int(pc.sum(lengths.take(array.indices)).as_py() or 0)
    if pa.types.is_struct(array.type):
        return sum(_length(inner) for inner in array.flatten())
    is_list = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    return _length(array.flatten()) if is_list else 0


def _shown(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


class ForeignFileError(Exception):
    """A parquet file that pairbench did not write."""


BROKEN = (
    *(ForeignFileError, UnsoundError, OSError, pa.ArrowException),
    *(ValueError, KeyError, OverflowError, MemoryError, RecursionError),
)
"""Errors of reading a file that is gone, foreign, damaged, or made to harm."""


def problem_of(path: str, error: BaseException) -> str:
    if isinstance(error, ForeignFileError):
        return f"{path}: not written by pairbench, left out; move it out of the store"
    (first, *_) = str(error).splitlines() or [type(error).__name__]
    return f"{path}: cannot be read, left out: {first}"


_PHYSICAL = {"string": "BYTE_ARRAY", "int64": "INT64", "bool": "BOOLEAN"}
"""Parquet's type for each type of column whose statistics can be believed."""


class OpenedFile:
    """A parquet file whose footer was read; columns are decoded as they are asked for."""

    # Opening raises FileNotFoundError where the file is gone, StoreFailedError where a store elsewhere does not give it,
    # ForeignFileError where pairbench did not write it, and UnsoundError or one of `BROKEN` where it is damaged.

    _decoded_at_once: Sequence[int] | None = None  # the row groups whose size is checked at once; None for all

    def __init__(self, place: StoreLocation, path: str, dataset: str) -> None:
        self.path = path
        self.moved = place.moved
        self._content, self.sealed, metadata = self._load(place)
        self.dataset = dataset
        self._parquet = _open(self._content, texts_of(fields_of(dataset).values()), metadata)
        self.metadata = self._parquet.metadata
        if (version := version_of(self.metadata.metadata)) is None:
            raise ForeignFileError(path)
        check_footer(self.metadata, dataset, self._decoded_at_once)
        self.version = version  # the schema version; 0 where that is no number
        schema, known = self.metadata.schema, fields_of(dataset)
        # The schema names the leaves of a list or a struct; asking for all the paths would double the time.
        self.places = {
            (name if name in known else schema.column(place).path.partition(".")[0]): place
            for place, name in enumerate(schema.names)
        }
        """The index of each column, or of its last leaf, among all leaves."""
        if missing := [name for name in IDENTITY[dataset] if name not in self.places]:
            raise UnsoundError(f"has no column {missing[0]!r}, expected the columns of a run")

    def _load(self, place: StoreLocation) -> tuple[pa.Buffer, bool, pq.FileMetaData | None]:
        held = None if place.is_local else place.held.get(self.path)
        content = read_content(place, self.path) if held is None else held
        sealed = check_seal(content)
        # Another round replaces a part.
        if held is None and not place.is_local and not run_files([self.path])[0].is_part:
            place.held.put(self.path, content)
        return content, sealed, None

    @property
    def size(self) -> int:
        return int(self._content.size)

    @property
    def num_rows(self) -> int:
        return int(self.metadata.num_rows)

    def read(self, names: Sequence[str], cases: Collection[object] | None = None) -> pa.Table:
        """Return some columns as this version has them, texts as dictionaries; a column that the file lacks is null."""
        # Rows of cases that are not among `cases`, if given, may be left out.
        stored = [name for name in names if name in self.places]
        table = self._decoded(stored or ["run_id"], cases)
        check_texts(table)
        return conformed(table, self.dataset, names, self.moved)

    def _decoded(self, stored: Sequence[str], cases: Collection[object] | None) -> pa.Table:
        del cases  # one run's file has too few rows to be read in parts
        table = self._read_all(self._reader(stored), stored)
        if table.num_rows != self.num_rows:
            raise UnsoundError(f"has {table.num_rows} rows, {self.num_rows} by its own account")
        return table

    def _reader(self, names: Collection[str] | None = None) -> pq.ParquetFile:
        """Return what reads some columns, or all, with their texts as dictionaries, also those inside of lists."""
        known = fields_of(self.dataset)
        if names is not None and not any(name in known and pa.types.is_nested(known[name].type) for name in names):
            return self._parquet
        leaves = map(self.metadata.schema.column, range(len(self.metadata.schema.names)))
        paths = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        wanted = [path for path in paths if names is None or path.partition(".")[0] in names]
        is_open = set(wanted).issubset(texts_of(known.values()))  # opening takes as long as reading a few columns
        return self._parquet if is_open else _open(self._content, wanted, self.metadata)

    def constants(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of those columns that have one, by the footer's statistics, so that they need not be decoded: most do in a run's file."""
        # A file with several row groups, or unwanted rows, has several runs; its statistics are not used.
        alone = self.metadata.num_row_groups == 1 and self.metadata.num_rows == self.num_rows
        group = self.metadata.row_group(0) if alone else None
        values = {}
        for name in names:
            found = self._constant(group, name) if name in self.places else (None,)
            if found is not None:
                values[name] = checked_constant(found[0], self.dataset, name, self.moved)
        return values

    def _constant(self, group: Any, name: str) -> tuple[Any] | None:
        if group is None:
            return None
        # NaN is in no minimum, so floats that differ from it would pass for constant; a list has a minimum of its own kind.
        column, field = group.column(self.places[name]), fields_of(self.dataset).get(name)
        physical = _PHYSICAL.get(str(field.type)) if field is not None else None
        if column.physical_type != physical or column.path_in_schema != name:
            return None
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        if statistics.null_count == group.num_rows:
            return (None,)
        if statistics.null_count or not statistics.has_min_max:
            return None
        with contextlib.suppress(ValueError):  # no UTF-8, which is said where it is decoded
            if statistics.min == statistics.max:
                return (statistics.min,)
        return None

    def raw(self) -> pa.Table:
        """Return the whole file as it was written, with its schema version and columns of newer versions."""
        return self.as_written(self._read_all(self._reader(), None))

    def _read_all(self, reader: pq.ParquetFile, columns: Sequence[str] | None) -> pa.Table:
        # One group at a time, as pyarrow does not join texts inside of lists that each group has a dictionary of.
        groups = range(self.metadata.num_row_groups)
        pieces = [reader.read_row_group(number, columns=columns, use_threads=False) for number in groups]
        return pa.concat_tables(pieces or [reader.read(columns=columns, use_threads=False)])

    def as_written(self, table: pa.Table) -> pa.Table:
        check_texts(table)
        return table.cast(_open(self._content, (), self.metadata).schema_arrow)


def read_content(place: StoreLocation, path: str, most: int = LARGEST) -> pa.Buffer:
    """Return the content of a file in one read: a run that goes on replaces its files."""
    with read_errors(place, path), place.filesystem.open_input_file(path) as stream:
        check_size(stream.size(), most)
        return stream.read_buffer()


@contextlib.contextmanager
def read_errors(place: StoreLocation, path: str) -> Iterator[None]:
    """Turn errors of an object store into FileNotFoundError or StoreFailedError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        if place.is_local:
            raise
        gone = False
        # An object store is asked for the size of a file, and then for the file, which may be gone by then.
        with contextlib.suppress(OSError, pa.ArrowException):
            gone = place.filesystem.get_file_info(path).type == fs.FileType.NotFound
        if gone:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
        raise StoreFailedError(f"store {place.name!r}: {path} cannot be read: {error}") from error


def _open(content: pa.Buffer, wanted: Sequence[str], metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Open a file whose columns of the wanted names, as far as it has them, are decoded as dictionaries."""
    metadata = metadata or pq.read_metadata(pa.BufferReader(content))
    known = set(metadata.schema.names)
    # Texts repeat; left as they lie in the file, they take half the time to read.
    texts = [name for name in wanted if "." in name or name in known]
    file = pa.BufferReader(content)
    return pq.ParquetFile(file, metadata=metadata, read_dictionary=texts, page_checksum_verification=True)
