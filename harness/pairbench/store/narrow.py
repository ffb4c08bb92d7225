"""A few rows or columns of one run's file, without decoding the rest of it.

A run's file has some 80 columns, and most are the same in all its rows: these come out of the footer's statistics.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pairbench.model.record import Record, columns
from pairbench.store.location import RunFile, StoreLocation
from pairbench.store.moved import renamed_rows, with_old_names
from pairbench.store.schema import VERSION_KEY, schema_of, texts_of


class ForeignFileError(Exception):
    """A parquet file that pairbench did not write."""


class NarrowFile:
    """One run's file, of which little is wanted."""

    def __init__(self, place: StoreLocation, file: RunFile) -> None:
        """Read the footer.

        Raises:
            OSError, pa.ArrowException: the file is damaged, or none of parquet's.
            ForeignFileError: not ours.
        """
        self._parquet = _open(place, file)
        self._moved = place.moved
        self._metadata = self._parquet.metadata
        if VERSION_KEY not in (self._metadata.metadata or {}):
            raise ForeignFileError(file.path)
        # Several row groups are not what we write; then nothing is taken from the statistics.
        self._group = self._metadata.row_group(0) if self._metadata.num_row_groups == 1 else None
        schema = self._metadata.schema
        # Of a list or a struct the schema names what is inside; asking for all the paths would double the time.
        self._places = {
            (name if name in _NAMES else schema.column(place).path.partition(".")[0]): place
            for place, name in enumerate(schema.names)
        }

    def rows(self, names: Sequence[str], wanted: Mapping[str, Collection[object]]) -> list[dict[str, Any]]:
        """Return some columns of the rows that have the wanted values; a column that the file lacks is None."""
        wanted = with_old_names(wanted, self._moved)
        keys, sought = self._split(list(wanted))
        if any(value not in wanted[name] for name, value in keys.items()):
            return []
        constants, varying = self._split([name for name in names if name not in wanted])
        constants |= keys
        if not sought and not varying:
            rows: list[dict[str, Any]] = [{}] * self._metadata.num_rows
        else:
            table = self._read([*sought, *varying])
            if sought:
                match = [pc.is_in(table.column(name), pa.array(list(wanted[name]), pa.string())) for name in sought]
                table = table.filter(functools.reduce(pc.and_, match))
            rows = table.to_pylist()
        rows = [{name: constants[name] if name in constants else row[name] for name in names} for row in rows]
        return renamed_rows(rows, self._moved)

    def distinct(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return the combinations of values that some columns have; none where there are no rows."""
        if not self._metadata.num_rows:
            return []
        constants, varying = self._split(names)
        rows = self._read(varying).group_by(varying).aggregate([]).to_pylist() if varying else [{}]
        rows = [{name: constants[name] if name in constants else row[name] for name in names} for row in rows]
        return renamed_rows(rows, self._moved)

    def _split(self, names: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        constants: dict[str, Any] = {}
        varying: list[str] = []
        for name in names:
            if name not in self._places:
                constants[name] = None
            elif (found := self._constant(name)) is not None:
                (constants[name],) = found
            else:
                varying.append(name)
        return constants, varying

    def _constant(self, name: str) -> tuple[Any] | None:
        """Return the one value of a column where the statistics show that it has no other."""
        if self._group is None:
            return None
        column = self._group.column(self._places[name])
        # NaN is in no minimum, so floats that differ from it would pass for constant.
        if column.physical_type in _FLOATS or column.path_in_schema != name:
            return None
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        if statistics.null_count == self._group.num_rows:
            return (None,)
        if statistics.null_count or not statistics.has_min_max:
            return None
        least = statistics.min
        return (least,) if least == statistics.max else None

    def _read(self, names: list[str]) -> Any:
        return self._parquet.read(columns=names, use_threads=False)


def _open(place: StoreLocation, file: RunFile) -> pq.ParquetFile:
    opened = functools.partial(pq.ParquetFile, file.path, filesystem=place.filesystem, pre_buffer=not place.is_local)
    try:
        # Texts repeat; left as they lie in the file, they take half the time to read.
        return opened(read_dictionary=_TEXTS)
    except KeyError:  # a file without one of them: older, or none of ours
        return opened()


_NAMES = frozenset(columns(Record))
_TEXTS = texts_of(schema_of(Record))
_FLOATS = ("FLOAT", "DOUBLE")
