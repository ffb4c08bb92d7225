"""One parquet file of a store, read whole and checked before anything of it is believed. Every reader goes through here.

Anybody may have put a file there, a disk may have changed it, and a newer version may have written it. What comes out of
`read` is in the columns and types of this version's schema, or the file is refused in a sentence.
"""

import functools
import json
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pairbench.errors import StoreFailedError
from pairbench.store.location import StoreLocation, is_run_id
from pairbench.store.schema import ROW_TYPES, schema_of, texts_of, version_of

BROKEN = (OSError, pa.ArrowException, ValueError, KeyError, OverflowError, MemoryError, RecursionError)
"""What reading a file raises whose content is damaged, or made to harm."""

IDENTITY = {
    "records": ("run_id", "device_name", "suite", "status"),
    "samples": ("run_id", "device_name", "suite", "case", "implementation", "mode", "round", "call_ns"),
}
"""Columns of each dataset without which a row is nobody's: they are in all files and never null."""

_OBJECTS = ("axes", "environment")
"""Columns of text that hold a JSON object."""
_BESIDE = ("block", "position", "at_ns", "call_ns", "host_ns", "device_ns", "throttled", "outlier")
"""Columns of samples that have a value for each sample."""
_TEXT = pa.dictionary(pa.int32(), pa.string())
"""How texts are handed on: few values, many times."""
_WORDS = {"string": "text", "double": "numbers", "int64": "whole numbers", "bool": "true or false"}


class UnsoundError(Exception):
    """A file whose content cannot be believed; the message says what is wrong with it."""


class ForeignFileError(Exception):
    """A parquet file that pairbench did not write."""


class OpenedFile:
    """A parquet file, as far as its footer tells; columns are decoded as they are asked for."""

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
        self._content = read_content(place, path)
        self._wanted = _wanted(dataset)
        self.dataset = dataset
        self._parquet = _open(self._content, _texts(dataset))
        self.metadata = self._parquet.metadata
        version = version_of(self.metadata.metadata)
        if version is None:
            raise ForeignFileError(path)
        self.version = version
        """The version of the schema that it was written by; 0 where that is no number."""
        schema = self.metadata.schema
        # Of a list or a struct the schema names what is inside; asking for all the paths would double the time.
        self.places = {
            (name if name in self._wanted else schema.column(place).path.partition(".")[0]): place
            for place, name in enumerate(schema.names)
        }
        """The place of each column, or of the last one inside it, among all that parquet counts."""
        if missing := [name for name in IDENTITY[dataset] if name not in self.places]:
            raise UnsoundError(f"has no column {missing[0]!r}, expected the columns of a run")

    @property
    def num_rows(self) -> int:
        """How many rows it has."""
        return int(self.metadata.num_rows)

    def read(self, names: Sequence[str]) -> pa.Table:
        """Return some columns as this version has them, texts as dictionaries; one that the file lacks is null.

        Raises:
            UnsoundError: a column does not hold what it ought to; so can one of `BROKEN` say.
        """
        there = [name for name in names if name in self.places]
        nested = [name for name in there if not _is_flat(self._wanted[name].type)]
        table = (self._with_inner_texts(nested) if nested else self._parquet).read(columns=there, use_threads=False)
        if there and table.num_rows != self.num_rows:
            raise UnsoundError(f"has {table.num_rows} rows, {self.num_rows} by its own account")
        found = {name: self._conform(table.column(name), self._wanted[name]) for name in there}
        if self.dataset == "samples":
            _check_beside({name: found[name] for name in _BESIDE if name in found})
        types = {name: _TEXT if name in _texts(self.dataset) else self._wanted[name].type for name in names}
        columns = [found[name] if name in found else self._lacking(name, types[name]) for name in names]
        return pa.Table.from_arrays(columns, schema=pa.schema(list(types.items())))

    def raw(self) -> pa.Table:
        """Return the whole of it as it was written, with its version and columns that are not known here.

        Raises:
            One of `BROKEN`: it cannot be read.
        """
        return pq.ParquetFile(pa.BufferReader(self._content), page_checksum_verification=True).read(use_threads=False)

    def _lacking(self, name: str, kind: pa.DataType) -> pa.Array:
        empty = "" if name in _required(self.dataset) else None
        return (
            pa.array([empty] * self.num_rows, pa.string()).cast(kind)
            if empty is not None
            else pa.nulls(self.num_rows, kind)
        )

    def checked(self, name: str, value: Any) -> Any:
        """Return the one value of a column, which nobody has decoded, as `read` would.

        Raises:
            UnsoundError: the column cannot hold that.
        """
        if value in (None, "") and name in IDENTITY[self.dataset]:
            raise UnsoundError(f"column {name!r} has no value")
        if value is None and name in _required(self.dataset):
            return ""
        if isinstance(value, str):
            _check_text(name, value)
        return value

    def _with_inner_texts(self, nested: Iterable[str]) -> pq.ParquetFile:
        schema = self.metadata.schema
        inner = [
            column.path
            for column in (schema.column(place) for place in range(len(schema.names)))
            if column.physical_type == "BYTE_ARRAY" and column.path.partition(".")[0] in nested
        ]
        texts = [name for name in _texts(self.dataset) if name in self.places]
        return _open(self._content, [*texts, *inner], self.metadata)

    def _conform(self, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        if not _fits(column.type, field.type):
            kind = _WORDS.get(str(field.type), str(field.type))
            raise UnsoundError(f"column {field.name!r} holds {column.type}, expected {kind}")
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise UnsoundError(f"column {field.name!r}: {error}") from error
        if pa.types.is_string(field.type):
            return self._conform_text(column, field.name)
        if column.null_count and field.name in IDENTITY[self.dataset]:
            raise UnsoundError(f"column {field.name!r} has no value in {column.null_count} of {len(column)} rows")
        column = column.cast(field.type)
        if pa.types.is_list(field.type):
            for chunk in column.chunks:
                _check_inside(field.name, chunk.flatten())
        return column

    def _conform_text(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        if not pa.types.is_dictionary(column.type):
            column = column.cast(pa.string()).dictionary_encode()
        column = column.cast(_TEXT)
        values = [value for chunk in column.chunks for value in chunk.dictionary.to_pylist()]
        if name in IDENTITY[self.dataset] and (column.null_count or "" in values):
            raise UnsoundError(f"column {name!r} has no value in some of {len(column)} rows")
        for value in values:
            _check_text(name, value)
        if column.null_count and name in _required(self.dataset):
            column = column.cast(pa.string()).fill_null("").dictionary_encode()
        return column


def read_content(place: StoreLocation, path: str) -> pa.Buffer:
    """Return what a file holds, all of one moment: parts of a run are replaced while it goes on.

    Raises:
        FileNotFoundError: it is not there, or no more.
        OSError, pa.ArrowException: it cannot be read.
        StoreFailedError: the store is elsewhere, and does not give it.
    """
    try:
        with place.filesystem.open_input_file(path) as stream:
            return stream.read_buffer()
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        if place.is_local:
            raise
        raise StoreFailedError(f"store {place.name!r}: {path} cannot be read: {error}") from error


def _open(content: pa.Buffer, texts: Sequence[str], metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    def opened(names: Sequence[str]) -> pq.ParquetFile:
        return pq.ParquetFile(
            pa.BufferReader(content), metadata=metadata, read_dictionary=names, page_checksum_verification=True
        )

    try:
        # Texts repeat; left as they lie in the file, they take half the time to read.
        return opened(texts)
    except KeyError:  # a file without one of them: older, or none of ours
        there = set(opened(()).metadata.schema.names)
        return opened([name for name in texts if name in there])


@functools.cache
def _wanted(dataset: str) -> dict[str, pa.Field]:
    return {field.name: field for field in schema_of(ROW_TYPES[dataset])}


@functools.cache
def _texts(dataset: str) -> tuple[str, ...]:
    return tuple(texts_of(schema_of(ROW_TYPES[dataset])))


@functools.cache
def _required(dataset: str) -> frozenset[str]:
    """Return the columns of text that all rows have: where a file has none, it is empty."""
    hints = typing.get_type_hints(ROW_TYPES[dataset])
    return frozenset(name for name, hint in hints.items() if hint is str)


def _is_flat(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind)


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether values of one type are values of the other, and no text is taken for a number."""
    kinds = pa.types
    if kinds.is_dictionary(found):
        found = found.value_type
    if kinds.is_null(found):
        return True
    if kinds.is_list(wanted):
        lists = kinds.is_list(found) or kinds.is_large_list(found)
        return lists and _fits(found.value_type, wanted.value_type)
    if kinds.is_struct(wanted):
        inside = [found.field(place) for place in range(found.num_fields)] if kinds.is_struct(found) else []
        there = {field.name: field.type for field in inside}
        return all(field.name in there and _fits(there[field.name], field.type) for field in wanted)
    return any(is_kind(found) for is_kind in _KINDS[str(wanted)])


_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "string": (pa.types.is_string, pa.types.is_large_string),
    "bool": (pa.types.is_boolean,),
    "int64": (pa.types.is_integer,),
    "double": (pa.types.is_floating, pa.types.is_integer),
}
"""The kinds of types whose values a column of each type takes."""


def _check_text(name: str, text: str) -> None:
    # Commands take a run by its id, where a path or a URL would be another store.
    if name == "run_id" and not is_run_id(text):
        raise UnsoundError(f"column 'run_id' holds {text!r:.60}, expected letters, digits and _ . + -")
    if name not in _OBJECTS or not text:
        return
    try:
        content = json.loads(text)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise UnsoundError(f"column {name!r} holds no JSON: {error}") from error
    if not isinstance(content, dict):
        raise UnsoundError(f"column {name!r} holds {text!r:.40}, expected a JSON object")


def _check_inside(name: str, values: pa.Array) -> None:
    several = [values] if not pa.types.is_struct(values.type) else [values, *values.flatten()]
    if any(one.null_count for one in several):
        raise UnsoundError(f"column {name!r} has lists with nothing in a place, expected a value in each")


def _check_beside(columns: dict[str, pa.ChunkedArray]) -> None:
    """Refuse samples of which some are without a block, a time or a label."""
    lengths = {name: pc.list_value_length(column) for name, column in columns.items()}
    (first, length), *others = lengths.items() if lengths else [("", None)]
    for name, other in others:
        if pc.any(pc.not_equal(length, other)).as_py():
            raise UnsoundError(f"columns {first!r} and {name!r} have lists of different lengths, expected one length")
