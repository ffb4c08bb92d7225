"""The columns of a store's files: parquet schemas derived from the row types, rows to tables and back, and which columns are refused."""

# History of SCHEMA_VERSION. A file of any version stays readable: columns that it lacks come as null, columns that this
# release does not know are ignored. Raise the version whenever a column is added, dropped or changes its meaning, and
# commit a file written by the release before to tests/store/data/.
#
#   1  first release
#   2  round_p95_ns, so that tails are judged by rounds; confirms, which joins a run to one that measured its suspects again
#   3  warm_first_call_ns, compilations, recompilations, graph_breaks, compile_notes; graph_capturable, graph_capture_reason
#   4  the device's and the host's latencies by round and with intervals, bound, device_speedup, host_speedup,
#      call_round_p50_ns and call_round_p95_ns for round_p50_ns and round_p95_ns, which stay; of earlier files they are
#      derived, see `store.reading`. host_p50_ns is taken with an empty queue; before, behind what a flush had queued
#   5  autotuned
#   6  commit_subject, commit_author, commit_number, pull_request: whose a change is
#   7  saved_bytes
#   8  host_round_lower_mean_ns
#   9  stream_*: the latency of the call's own launches; stream_speedup; stream_ns of samples; float32_precision; reuses_output; consumes
#  10  deterministic, repeat_error
#  11  speedup_over_best, best_alternative
#  12  kernel_builds

import contextlib
import functools
import itertools
import json
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pairbench.model.plain import plain
from pairbench.model.record import LazyRecords, Record, Samples
from pairbench.store.location import is_run_id

SCHEMA_VERSION = 12

VERSION_KEY = b"pairbench.schema_version"
"""Key of the schema version in each file's metadata; a parquet file without it is not ours."""

PARTITIONS = pa.schema([("device", pa.string()), ("month", pa.string())])
"""The columns that the folders name; no file has them."""

ROW_TYPES: dict[str, Any] = {"records": Record, "samples": Samples}
_HINTS: dict[Any, dict[str, Any]] = {row_type: typing.get_type_hints(row_type) for row_type in ROW_TYPES.values()}
"""The types of the columns; finding them takes longer than reading a small file."""

Row = TypeVar("Row", Record, Samples)

_SCALARS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def schema_of(row_type: type[Record] | type[Samples]) -> pa.Schema:
    hints = _HINTS[row_type]
    columns = [pa.field(item.name, _arrow_type(hints[item.name])) for item in fields(row_type)]
    return pa.schema(columns, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})


def version_of(metadata: Mapping[bytes, bytes] | None) -> int | None:
    """Return the schema version of a file by its metadata; None where it is not ours, 0 where the version is no number."""
    text = (metadata or {}).get(VERSION_KEY)
    return None if text is None else int(text) if text.isdigit() else 0


def to_table(rows: Sequence[Record] | Sequence[Samples], row_type: type[Record] | type[Samples]) -> pa.Table:
    schema = schema_of(row_type)
    columns = []
    for column in schema:
        values = [_stored(getattr(row, column.name)) for row in rows]
        try:
            with contextlib.suppress(UnicodeEncodeError):
                columns.append(pa.array(values, column.type))
                continue
            columns.append(pa.array(plain(values, canonical=True), column.type))  # a text holds half a character
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise TypeError(f"{row_type.__name__}.{column.name}: {error}, expected {column.type}") from error
    return pa.Table.from_arrays(columns, schema=schema)


def texts_of(schema: Iterable[pa.Field]) -> list[str]:
    return [field.name for field in schema if pa.types.is_string(field.type)]


def from_table(table: pa.Table, row_type: type[Row]) -> tuple[Row, ...]:
    return from_columns({name: python_values(table.column(name)) for name in table.column_names}, row_type)


def records_of(table: pa.Table) -> LazyRecords:
    """Return a table as records that are made when they are asked for; a missing column has its default."""
    lacking, names = {item.name: item.default for item in fields(Record)}, table.column_names
    nested = [name for name in names if pa.types.is_nested(table.schema.field(name).type)]

    @functools.cache
    def column(name: str) -> Any:
        if name not in names:
            return [lacking[name]] * table.num_rows
        chunks = table.column(name).chunks
        return chunks[0] if len(chunks) == 1 else table.column(name).combine_chunks()

    def values(name: str) -> Sequence[Any]:
        return list(_values(_HINTS[Record][name], python_values(table.column(name)))) if name in names else column(name)

    def make(place: int) -> Record:
        row = {name: column(name)[place].as_py() for name in names}
        row |= {name: next(iter(_values(_HINTS[Record][name], [row[name]]))) for name in nested}
        return _row(Record, lacking | row)

    # None of these refers to the records: the collector of garbage is at rest while a site is made.
    return LazyRecords(table.num_rows, values, make, column)


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column as Python's values: repeated texts as one object, and numbers without nulls several times as fast as pyarrow does."""
    return list(itertools.chain.from_iterable(map(_chunk_values, column.chunks)))


def _chunk_values(column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        values = [*column.dictionary.to_pylist(), None]
        indices = column.indices.fill_null(len(values) - 1) if column.null_count else column.indices
        return [values[index] for index in indices.to_numpy().tolist()]
    if column.null_count == len(column):
        return [None] * len(column)
    if column.null_count or pa.types.is_nested(column.type) or pa.types.is_boolean(column.type):
        return list(column.to_pylist())
    return list(column.to_numpy().tolist())


def from_columns(columns: Mapping[str, Sequence[Any]], row_type: type[Row]) -> tuple[Row, ...]:
    """Return columns of Python's values as rows; a missing column has its default."""
    hints = _HINTS[row_type]
    names = [name for name in columns if name in hints]
    values = [_values(hints[name], columns[name]) for name in names]
    lacking = {item.name: item.default for item in fields(row_type) if item.name not in names}
    return tuple(_row(row_type, {**lacking, **dict(zip(names, row, strict=True))}) for row in zip(*values, strict=True))


def _row(row_type: type[Row], content: dict[str, Any]) -> Row:
    # A frozen dataclass sets field by field, which for the 10,000 records of a comparison takes half a second.
    made = object.__new__(row_type)
    object.__setattr__(made, "__dict__", content)
    return made


def _arrow_type(hint: Any) -> pa.DataType:
    if (hint := _present(hint)) in _SCALARS:
        return _SCALARS[hint]
    if is_dataclass(hint):
        return pa.struct([(name, _arrow_type(inner)) for name, inner in typing.get_type_hints(hint).items()])
    item, rest = typing.get_args(hint)
    assert typing.get_origin(hint) is tuple and rest is ..., f"no parquet type for {hint}"
    return pa.list_(_arrow_type(item))


def _present(hint: Any) -> Any:
    """Return `X` for `X | None`: every column may be null in the file, old files lack some."""
    if isinstance(hint, UnionType):
        (hint,) = (inner for inner in typing.get_args(hint) if inner is not NoneType)
    return hint


def _stored(value: Any) -> Any:
    is_of_objects = isinstance(value, tuple) and value and is_dataclass(value[0])
    return [vars(item) for item in value] if is_of_objects else value


def _values(hint: Any, values: Iterable[Any]) -> Iterable[Any]:
    hint = _present(hint)
    if typing.get_origin(hint) is not tuple:
        return values
    item = typing.get_args(hint)[0]
    if is_dataclass(item):
        make: Any = item
        return [None if value is None else tuple(make(**inner) for inner in value) for value in values]
    return [None if value is None else tuple(value) for value in values]


IDENTITY = {
    "records": ("run_id", "device_name", "suite", "status"),
    "samples": ("run_id", "device_name", "suite", "case", "implementation", "mode", "round", "call_ns"),
}
"""Columns of each dataset that identify a row: they are in all files and never null."""

SUITE = "suite"
TEXT = pa.dictionary(pa.int32(), pa.string())  # the type in which readers get texts, for these repeat

_OBJECTS = ("axes", "environment")  # columns of text that hold a JSON object
PER_SAMPLE = ("block", "position", "at_ns", "call_ns", "host_ns", "device_ns", "stream_ns", "throttled", "outlier")
"""Columns of lists with a value for each sample of a round."""
_WORDS = {"string": "text", "double": "numbers", "int64": "whole numbers", "bool": "true or false"}
_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "string": (pa.types.is_string, pa.types.is_large_string),
    "bool": (pa.types.is_boolean,),
    "int64": (pa.types.is_integer,),
    "double": (pa.types.is_floating, pa.types.is_integer),
}
"""The kinds of types whose values a column of each type takes."""


class UnsoundError(Exception):
    """A damaged or impossible file; the message says what is wrong with its content."""


@functools.cache
def fields_of(dataset: str) -> dict[str, pa.Field]:
    return {field.name: field for field in schema_of(ROW_TYPES[dataset])}


def type_of(dataset: str, name: str) -> pa.DataType:
    kind = fields_of(dataset)[name].type
    return TEXT if pa.types.is_string(kind) else kind


@functools.cache
def _required(dataset: str) -> frozenset[str]:
    """Return the columns of text that may not be null: nulls of a file become empty texts."""
    return frozenset(name for name, hint in _HINTS[ROW_TYPES[dataset]].items() if hint is str)


def check_table(table: pa.Table, dataset: str) -> dict[str, pa.ChunkedArray]:
    """Return the columns in their types; raise UnsoundError, or an error of pyarrow, for rows that no reader would accept."""
    columns = {name: _conformed(table.column(name), dataset, name) for name in table.column_names}
    lengths = [(name, pc.list_value_length(column)) for name, column in columns.items() if name in PER_SAMPLE]
    for name, other in lengths[1:]:
        if pc.any(pc.not_equal(lengths[0][1], other)).as_py():
            both = f"columns {lengths[0][0]!r} and {name!r}"
            raise UnsoundError(f"{both} have lists of different lengths, expected one length")
    return columns


def _conformed(column: pa.ChunkedArray, dataset: str, name: str) -> pa.ChunkedArray:
    wanted = fields_of(dataset)[name].type
    # Files of this version have its types, and checking more takes too long for a thousand files.
    if column.type not in (wanted, type_of(dataset, name)) and not _fits(column.type, wanted):
        raise UnsoundError(f"column {name!r} holds {column.type}, expected {_WORDS.get(str(wanted), wanted)}")
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UnsoundError(f"column {name!r}: {error}") from error
    if pa.types.is_string(wanted):
        return _conformed_text(column, dataset, name)
    if column.null_count and name in IDENTITY[dataset]:
        raise UnsoundError(f"column {name!r} has no value in {column.null_count} of {len(column)} rows")
    if column.type != wanted:
        column = column.cast(wanted)
    if pa.types.is_list(wanted) and name != "stream_ns":  # which is not taken of each sample
        for values in (chunk.flatten() for chunk in column.chunks):
            # Of `kernel_builds` some is known in Triton alone.
            whole = pa.types.is_struct(values.type) and name != "kernel_builds"
            arrays = [values, *(values.flatten() if whole else ())]
            if any(array.null_count for array in arrays):
                raise UnsoundError(f"column {name!r} has lists with nothing in a place, expected a value in each")
    return column


def _conformed_text(column: pa.ChunkedArray, dataset: str, name: str) -> pa.ChunkedArray:
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    column = column.cast(TEXT)
    if name in IDENTITY[dataset]:
        has_empty = any(pc.any(pc.equal(chunk.dictionary, "")).as_py() for chunk in column.chunks)
        if column.null_count or has_empty:
            raise UnsoundError(f"column {name!r} has no value in some of {len(column)} rows")
    if name in ("run_id", *_OBJECTS):
        for value in (value for chunk in column.chunks for value in chunk.dictionary.to_pylist()):
            _check_text(name, value)
    if column.null_count and name in _required(dataset):
        column = column.cast(pa.string()).fill_null("").dictionary_encode()
    return column


def conformed(table: pa.Table, dataset: str, names: Sequence[str], moved: Mapping[str, str]) -> pa.Table:
    """Return columns as this version has them, suites under their new names; one that the table lacks is null."""
    here = set(table.column_names)
    columns = check_table(table.select([name for name in names if name in here]), dataset)
    if SUITE in columns and moved:
        suites, old = columns[SUITE].cast(pa.string()), pa.array(list(moved), pa.string())
        new = pa.array(list(moved.values()), pa.string()).take(pc.index_in(suites, old))
        columns[SUITE] = pc.coalesce(new, suites).dictionary_encode().cast(TEXT)
    for name in set(names) - columns.keys():
        required = name in _required(dataset)
        columns[name] = pa.array([""] * len(table), TEXT) if required else pa.nulls(len(table), type_of(dataset, name))
    schema = pa.schema([(name, type_of(dataset, name)) for name in names])
    return pa.Table.from_arrays([columns[name] for name in names], schema=schema)


def checked_constant(value: Any, dataset: str, name: str, moved: Mapping[str, str]) -> Any:
    """Return a constant column's value, from statistics, as `conformed` would; raise UnsoundError where that would."""
    if value in (None, "") and name in IDENTITY[dataset]:
        raise UnsoundError(f"column {name!r} has no value")
    if value is None and name in _required(dataset):
        return ""
    if isinstance(value, str):
        _check_text(name, value)
    return moved.get(value, value) if name == SUITE else value


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column of one type may hold values of another; texts are no numbers."""
    kinds = pa.types
    found = found.value_type if kinds.is_dictionary(found) else found
    if kinds.is_null(found):
        return True
    if kinds.is_list(wanted):
        lists = kinds.is_list(found) or kinds.is_large_list(found)
        return lists and _fits(found.value_type, wanted.value_type)
    if kinds.is_struct(wanted):
        inner = {field.name: field.type for field in found} if kinds.is_struct(found) else {}
        return all(field.name in inner and _fits(inner[field.name], field.type) for field in wanted)
    return any(is_kind(found) for is_kind in _KINDS[str(wanted)])


def _check_text(name: str, text: str) -> None:
    # Commands take the id of a run, where a path or a URL would be another store.
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
