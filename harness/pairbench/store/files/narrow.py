"""A few rows or columns of one run's file, without decoding the rest of it.

A run's file has some 80 columns, and most are the same in all its rows: these come out of the footer's statistics.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pairbench.model.record import Record
from pairbench.store.files.opened import OpenedFile
from pairbench.store.moved import SUITE, renamed_rows, with_old_names
from pairbench.store.schema import plain_values, schema_of


class NarrowFile:
    """One run's file, of which little is wanted."""

    def __init__(self, opened: OpenedFile) -> None:
        """Take a file whose footer has been read."""
        self._opened = opened
        # Several row groups, or a part of the rows, are not one run's file; then nothing is taken from the statistics.
        alone = opened.metadata.num_row_groups == 1 and opened.metadata.num_rows == opened.num_rows
        self._group = opened.metadata.row_group(0) if alone else None

    def columns(
        self, names: Sequence[str], wanted: Mapping[str, Collection[object]], moved: Mapping[str, str]
    ) -> dict[str, list[Any]]:
        """Return some columns of the rows that have the wanted values; a column that the file lacks is None.

        Args:
            names: The columns, of which there is one.
            wanted: For each column of text the values that rows must have.
            moved: The new name of each old one of a suite.
        """
        wanted = with_old_names(wanted, moved)
        keys, sought = self._split(list(wanted))
        if any(value not in wanted[name] for name, value in keys.items()):
            return {name: [] for name in names}
        constants, varying = self._split([name for name in names if name not in wanted])
        constants |= keys
        table = None
        if sought or varying:
            table = self._opened.read([*sought, *varying], wanted.get("case"))
            if sought:
                match = [pc.is_in(table.column(name), pa.array(list(wanted[name]), pa.string())) for name in sought]
                table = table.filter(functools.reduce(pc.and_, match))
        count = self._opened.num_rows if table is None else table.num_rows
        values_of = plain_values if count >= _MANY else pa.ChunkedArray.to_pylist
        found = {
            name: [constants[name]] * count if name in constants or table is None else values_of(table.column(name))
            for name in names
        }
        if SUITE in found:
            found[SUITE] = [moved.get(name, name) for name in found[SUITE]]
        return found

    def distinct(self, names: Sequence[str], moved: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the combinations of values that some columns have; none where there are no rows."""
        if not self._opened.num_rows:
            return []
        constants, varying = self._split(names)
        rows = self._opened.read(varying).group_by(varying).aggregate([]).to_pylist() if varying else [{}]
        rows = [{name: constants[name] if name in constants else row[name] for name in names} for row in rows]
        return renamed_rows(rows, moved)

    def _split(self, names: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        constants: dict[str, Any] = {}
        varying: list[str] = []
        for name in names:
            if name not in self._opened.places:
                constants[name] = self._opened.checked(name, None)
            elif (found := self._constant(name)) is not None:
                (constants[name],) = found
            else:
                varying.append(name)
        return constants, varying

    def _constant(self, name: str) -> tuple[Any] | None:
        """Return the one value of a column where the statistics show that it has no other."""
        if self._group is None:
            return None
        column = self._group.column(self._opened.places[name])
        # NaN is in no minimum, so floats that differ from it would pass for constant; a list has a minimum of its own kind.
        if column.physical_type != _PLAIN.get(name) or column.path_in_schema != name:
            return None
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        if statistics.null_count == self._group.num_rows:
            return (self._opened.checked(name, None),)
        if statistics.null_count or not statistics.has_min_max:
            return None
        try:
            least, most = statistics.min, statistics.max
        except ValueError:  # no UTF-8, which is said where it is decoded
            return None
        return (self._opened.checked(name, least),) if least == most else None


_MANY = 64
"""Rows from which on it pays to take a column's values all at once; a run has few of one case."""
_PHYSICAL = {"string": "BYTE_ARRAY", "int64": "INT64", "bool": "BOOLEAN"}
_PLAIN = {field.name: _PHYSICAL[str(field.type)] for field in schema_of(Record) if str(field.type) in _PHYSICAL}
"""What parquet has for the values of each column whose statistics can be believed."""
