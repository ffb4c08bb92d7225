"""Suites that lie elsewhere now than when runs were made: what is stored under an old name is read under the new one.

A series goes by its suite's name, so without this a file that moves would break every history of what it declares.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pairbench.model.series import Series

SUITE = "suite"
"""The column that holds a suite's name."""


def with_old_names(where: Mapping[str, object], moved: Mapping[str, str]) -> dict[str, Any]:
    """Return a filter that takes the rows of its suites under whatever name they were stored, whichever name it has.

    Args:
        where: For each column the value, or the collection of values, that rows must have.
        moved: The new name of each old one.
    """
    if SUITE not in where or not moved:
        return dict(where)
    wanted = where[SUITE]
    names = {moved.get(name, name) for name in ([wanted] if isinstance(wanted, str) else _each(wanted))}
    return {**where, SUITE: sorted(names | {old for old, new in moved.items() if new in names})}


def current_name(text: str, moved: Mapping[str, str]) -> str:
    """Return what a user calls a suite, or something in it such as `file::operator`, with the suite's new name."""
    suite, separator, rest = text.partition("::")
    return f"{moved.get(suite, suite)}{separator}{rest}"


def renamed_table(table: pa.Table, moved: Mapping[str, str]) -> pa.Table:
    """Return a table with the new names of suites in the column `suite`, if it has that."""
    if SUITE not in table.column_names or not moved:
        return table
    place = table.column_names.index(SUITE)
    column = table.column(SUITE)
    plain = column.cast(pa.string())
    known = pc.index_in(plain, pa.array(list(moved), pa.string()))
    if known.null_count == len(known):
        return table
    names = pc.coalesce(pc.take(pa.array(list(moved.values()), pa.string()), known), plain)
    return table.set_column(place, table.schema.field(SUITE), names.cast(column.type))


def renamed_rows(rows: list[dict[str, Any]], moved: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return rows with the new names of suites."""
    if not moved or not rows or SUITE not in rows[0]:
        return rows
    return [{**row, SUITE: moved.get(row[SUITE], row[SUITE])} for row in rows]


def renamed_series(series: Series, moved: Mapping[str, str]) -> Series:
    """Return a series under the new name of its suite."""
    return replace(series, suite=moved[series.suite]) if series.suite in moved else series


def _each(values: object) -> Collection[Any]:
    assert isinstance(values, Collection), f"{values!r} filters suites, expected a name or a collection of names"
    return values
