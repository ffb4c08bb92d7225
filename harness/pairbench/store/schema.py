"""The parquet schemas, derived from the row types, and the way from rows to tables and back."""

# History of SCHEMA_VERSION. A file of any version stays readable: columns that it lacks come as null, columns that this
# release does not know are ignored. Raise the version whenever a column is added, dropped or changes its meaning, and
# commit a file written by the release before to tests/store/data/.
#
#   1  first release
#   2  round_p95_ns, so that tails are judged by rounds; confirms, which joins a run to one that measured its suspects again
#   3  warm_first_call_ns, compilations, recompilations, graph_breaks, compile_notes; graph_capturable, graph_capture_reason
#   4  the device's and the host's latencies by round and with intervals, bound, device_speedup, host_speedup,
#      call_round_p50_ns and call_round_p95_ns for round_p50_ns and round_p95_ns, which stay; of earlier files they are
#      derived, see `store.derived`. host_p50_ns is taken with an empty queue; before, behind what a flush had queued
#   5  autotuned
#   6  commit_subject, commit_author, commit_number, pull_request: whose a change is
#   7  saved_bytes
#   8  host_round_lower_mean_ns
#   9  stream_*: the latency of the call's own launches; stream_speedup; stream_ns of samples; float32_precision; reuses_output; consumes

import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar

import pyarrow as pa

from pairbench.model.plain import whole_text
from pairbench.model.record import Record, Samples

SCHEMA_VERSION = 9

VERSION_KEY = b"pairbench.schema_version"
"""Key of the schema version in each file's metadata; a parquet file without it is not ours."""

PARTITIONS = pa.schema([("device", pa.string()), ("month", pa.string())])
"""What the folders say; these columns are in no file."""

ROW_TYPES: dict[str, Any] = {"records": Record, "samples": Samples}
"""Row type of each dataset, by the name of its folder."""
_HINTS: dict[Any, dict[str, Any]] = {row_type: typing.get_type_hints(row_type) for row_type in ROW_TYPES.values()}
"""The types of the columns; finding them takes longer than reading a small file."""

Row = TypeVar("Row", Record, Samples)

_SCALARS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def schema_of(row_type: type[Record] | type[Samples]) -> pa.Schema:
    """Return the schema of the files that hold these rows."""
    hints = _HINTS[row_type]
    columns = [pa.field(item.name, _arrow_type(hints[item.name])) for item in fields(row_type)]
    return pa.schema(columns, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})


def version_of(metadata: Mapping[bytes, bytes] | None) -> int | None:
    """Return the schema version of a file by its metadata; None where it is not ours, 0 where the version is no number."""
    text = (metadata or {}).get(VERSION_KEY)
    if text is None:
        return None
    return int(text) if text.isdigit() else 0


def to_table(rows: Sequence[Record] | Sequence[Samples], row_type: type[Record] | type[Samples]) -> pa.Table:
    """Return rows as a table.

    Raises:
        TypeError: a value does not fit its column, which it names.
    """
    schema = schema_of(row_type)
    columns = []
    for column in schema:
        values = [_plain(getattr(row, column.name)) for row in rows]
        try:
            columns.append(_array(values, column.type))
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise TypeError(f"{row_type.__name__}.{column.name}: {error}, expected {column.type}") from error
    return pa.Table.from_arrays(columns, schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # a file name or a message holds what is no character
        return pa.array([_whole(value) for value in values], kind)


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]
    return {name: _whole(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def texts_of(schema: pa.Schema) -> list[str]:
    """Return the columns of text: few values, many times."""
    return [field.name for field in schema if pa.types.is_string(field.type)]


def from_table(table: pa.Table, row_type: type[Row]) -> tuple[Row, ...]:
    """Return a table, of this version or another, as rows."""
    return from_columns({name: plain_values(table.column(name)) for name in table.column_names}, row_type)


def plain_values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column as Python's values; texts that repeat, one for all, and numbers without gaps several times as fast as pyarrow does."""
    return [value for chunk in column.chunks for value in _plain_values(chunk)]


def _plain_values(column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        values = [*column.dictionary.to_pylist(), None]
        return [values[place] for place in column.indices.fill_null(len(values) - 1).to_numpy().tolist()]
    if column.null_count == len(column):
        return [None] * len(column)
    if column.null_count or pa.types.is_nested(column.type) or pa.types.is_boolean(column.type):
        return list(column.to_pylist())
    return list(column.to_numpy().tolist())


def from_rows(rows: Sequence[Mapping[str, Any]], row_type: type[Row]) -> tuple[Row, ...]:
    """Return rows as pyarrow gives them, all with the same columns."""
    return from_columns({name: [row[name] for row in rows] for name in rows[0]} if rows else {}, row_type)


def from_columns(columns: Mapping[str, Sequence[Any]], row_type: type[Row]) -> tuple[Row, ...]:
    """Return columns of plain values as rows; a column that is not there has its default."""
    hints = _HINTS[row_type]
    names = [name for name in columns if name in hints]
    values = [_values(hints[name], columns[name]) for name in names]
    lacking = {item.name: item.default for item in fields(row_type) if item.name not in names}
    found = []
    for row in zip(*values, strict=True):
        # A frozen dataclass sets field by field, which for the 10,000 records of a comparison takes half a second.
        one = object.__new__(row_type)
        content = lacking.copy()
        content.update(zip(names, row, strict=True))
        object.__setattr__(one, "__dict__", content)
        found.append(one)
    return tuple(found)


def _arrow_type(hint: Any) -> pa.DataType:
    hint = _present(hint)
    if hint in _SCALARS:
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


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value] if value and is_dataclass(value[0]) else value
    return {item.name: getattr(value, item.name) for item in fields(value)} if is_dataclass(value) else value


def _values(hint: Any, values: Iterable[Any]) -> Iterable[Any]:
    hint = _present(hint)
    if typing.get_origin(hint) is not tuple:
        return values
    item = typing.get_args(hint)[0]
    if is_dataclass(item):
        make: Any = item
        return [None if value is None else tuple(make(**inner) for inner in value) for value in values]
    return [None if value is None else tuple(value) for value in values]
