"""What a column of a store may hold, whoever wrote it: in the types of this version's schema, or refused in a sentence."""

import functools
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pairbench.store.location import is_run_id
from pairbench.store.schema import ROW_TYPES, schema_of, texts_of

IDENTITY = {
    "records": ("run_id", "device_name", "suite", "status"),
    "samples": ("run_id", "device_name", "suite", "case", "implementation", "mode", "round", "call_ns"),
}
"""Columns of each dataset without which a row is nobody's: they are in all files and never null."""

TEXT = pa.dictionary(pa.int32(), pa.string())
"""How texts are handed on: few values, many times."""

_OBJECTS = ("axes", "environment")
"""Columns of text that hold a JSON object."""
_LOOKED_AT = frozenset({"run_id", *_OBJECTS})
"""Columns of text whose values are looked at one by one."""
_BESIDE = ("block", "position", "at_ns", "call_ns", "host_ns", "device_ns", "stream_ns", "throttled", "outlier")
"""Columns of samples that have a value for each sample."""
_WITH_GAPS = frozenset({"stream_ns"})
"""Columns whose lists have nothing for samples of which a latency was not taken."""
_WORDS = {"string": "text", "double": "numbers", "int64": "whole numbers", "bool": "true or false"}


class UnsoundError(Exception):
    """A file whose content cannot be believed; the message says what is wrong with it."""


@functools.cache
def fields_of(dataset: str) -> dict[str, pa.Field]:
    """Return the columns of a dataset by their names."""
    return {field.name: field for field in schema_of(ROW_TYPES[dataset])}


@functools.cache
def texts(dataset: str) -> tuple[str, ...]:
    """Return the columns of a dataset that hold text."""
    return tuple(texts_of(schema_of(ROW_TYPES[dataset])))


def type_of(dataset: str, name: str) -> pa.DataType:
    """Return the type in which a column is handed on."""
    return TEXT if name in texts(dataset) else fields_of(dataset)[name].type


@functools.cache
def _required(dataset: str) -> frozenset[str]:
    """Return the columns of text that all rows have: where a file has none, it is empty."""
    hints = typing.get_type_hints(ROW_TYPES[dataset])
    return frozenset(name for name, hint in hints.items() if hint is str)


def check_table(table: pa.Table, dataset: str) -> None:
    """Refuse rows that nobody would read again.

    Raises:
        UnsoundError: a column does not hold what it ought to.
    """
    check_beside({name: conformed(table.column(name), dataset, name) for name in table.column_names})


def conformed(column: pa.ChunkedArray, dataset: str, name: str) -> pa.ChunkedArray:
    """Return a column in its type.

    Raises:
        UnsoundError: it does not hold what it ought to.
        pa.ArrowException: a value does not fit the type.
    """
    wanted = fields_of(dataset)[name].type
    # What this version wrote has its types, and a thousand files have no time for what they need not be asked.
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
    if pa.types.is_list(wanted):
        for chunk in column.chunks:
            _check_inside(name, chunk.flatten())
    return column


def _conformed_text(column: pa.ChunkedArray, dataset: str, name: str) -> pa.ChunkedArray:
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    if column.type != TEXT:
        column = column.cast(TEXT)
    if name in IDENTITY[dataset] and (column.null_count or _has_empty(column)):
        raise UnsoundError(f"column {name!r} has no value in some of {len(column)} rows")
    if name in _LOOKED_AT:
        for value in (value for chunk in column.chunks for value in chunk.dictionary.to_pylist()):
            _check_text(name, value)
    if column.null_count and name in _required(dataset):
        column = column.cast(pa.string()).fill_null("").dictionary_encode()
    return column


def _has_empty(column: pa.ChunkedArray) -> bool:
    return any(pc.any(pc.equal(chunk.dictionary, "")).as_py() for chunk in column.chunks)


def lacking(dataset: str, name: str, count: int) -> pa.Array:
    """Return what stands for a column that a file does not have."""
    if name in _required(dataset):
        return pa.array([""] * count, pa.string()).dictionary_encode().cast(TEXT)
    return pa.nulls(count, type_of(dataset, name))


def checked(value: Any, dataset: str, name: str) -> Any:
    """Return the one value of a column, which nobody has decoded, as `conformed` would.

    Raises:
        UnsoundError: the column cannot hold that.
    """
    if value in (None, "") and name in IDENTITY[dataset]:
        raise UnsoundError(f"column {name!r} has no value")
    if value is None and name in _required(dataset):
        return ""
    if isinstance(value, str):
        _check_text(name, value)
    return value


def check_beside(columns: Mapping[str, pa.ChunkedArray]) -> None:
    """Check that the columns with one value for each sample of a round have lists of one length.

    Raises:
        UnsoundError: the lengths differ.
    """
    lengths = [(name, pc.list_value_length(column)) for name, column in columns.items() if name in _BESIDE]
    for name, other in lengths[1:]:
        if pc.any(pc.not_equal(lengths[0][1], other)).as_py():
            raise UnsoundError(
                f"columns {lengths[0][0]!r} and {name!r} have lists of different lengths, expected one length"
            )


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
    if name in _WITH_GAPS:
        return
    several = [values] if not pa.types.is_struct(values.type) else [values, *values.flatten()]
    if any(one.null_count for one in several):
        raise UnsoundError(f"column {name!r} has lists with nothing in a place, expected a value in each")
