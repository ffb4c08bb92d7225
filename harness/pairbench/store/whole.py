"""All runs of a store at once, held as columns and handed out an operator or a run at a time.

A few hundred runs of a few thousand series fit into memory as columns, and would not as rows.
"""

from collections.abc import Collection, Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa

from pairbench.model.outcome import OUT_OF_BUDGET
from pairbench.model.record import Record
from pairbench.store.derived import DERIVED, SINCE, columns_needed, derived_values, filled
from pairbench.store.files.compacted import ranks
from pairbench.store.files.opened import OpenedFile
from pairbench.store.location import StoreLocation
from pairbench.store.moved import renamed_table
from pairbench.store.reading import dataset_files, read_each
from pairbench.store.schema import from_columns, plain_values, schema_of, texts_of

OPERATOR = ("device_name", "suite", "operator")
RUN = ("run_id", "device_name")
_THREADS = 4


class WholeStore:
    """The records of a store, as far as some columns go; all others have their defaults in what comes out."""

    def __init__(
        self,
        store: str | Path | StoreLocation,
        columns: Collection[str],
        *,
        last: int | None = None,
        samples: bool = False,
    ) -> None:
        """Read everything.

        Args:
            store: a folder or a URL.
            columns: which.
            last: how many of the newest runs to read; all where not given.
            samples: whether columns that old files lack are derived from their raw samples, too; this reads all of these.

        Raises:
            StoreError: there is no such store, or it is empty.
        """
        place = StoreLocation.of(store)
        files = dataset_files(place, "records")
        if last is not None:
            files = files.of_runs(files.run_ids[-last:])
        self._schema = _schema({*columns, *OPERATOR, *RUN})
        tables, self.problems = read_each(
            place, "records", files, lambda file: _read(place, file, self._schema, samples=samples), threads=_THREADS
        )
        whole = pa.concat_tables([self._schema.empty_table(), *tables.values()]).unify_dictionaries()
        self._table = whole.combine_chunks()
        self._age = ranks(self._table.column("run_id")) if any(file.is_compacted for file in tables) else None
        """The place of each row's run in time, where rows do not lie in that order: runs of other device models fall between compacted ones."""

    def by_operator(self, columns: Collection[str]) -> Iterator[tuple[tuple[str, str, str], tuple[Record, ...]]]:
        """Yield device model, suite and operator with their records, in the order of the names; the fewer columns, the faster.

        What a run had no time for is no part of any history; it is known by the column `reason`, if that is among the columns.
        """
        for key, records in self._groups(OPERATOR, columns):
            device_name, suite, operator = key
            kept = tuple(record for record in records if record.reason != OUT_OF_BUDGET)
            if operator is not None and kept:
                yield (str(device_name), str(suite), operator), kept

    def by_run(self, columns: Collection[str]) -> Iterator[tuple[tuple[str, str], tuple[Record, ...]]]:
        """Yield run and device model with their records, the oldest run first."""
        for (run_id, device_name), records in self._groups(RUN, columns):
            yield (str(run_id), str(device_name)), records

    def _groups(
        self, names: tuple[str, ...], columns: Collection[str]
    ) -> Iterator[tuple[tuple[str | None, ...], tuple[Record, ...]]]:
        """Yield the combinations of values that some columns of text have, each with its records."""
        size = self._table.num_rows
        if not size:
            return
        codes = np.zeros(size, dtype=np.int64)
        texts = []
        for name in names:
            column = self._table.column(name).combine_chunks()
            values = column.dictionary.to_pylist()
            # Null is a value of its own, after all others.
            own = column.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
            texts.append([*values, None])
            codes = codes * (len(values) + 1) + own
        places = np.argsort(codes, kind="stable") if self._age is None else np.lexsort((self._age, codes))
        starts = np.flatnonzero(np.diff(codes[places], prepend=-1))
        keyed = []
        for start, stop in zip(starts, [*starts[1:], size], strict=True):
            code, reversed_key = int(codes[places[start]]), list[str | None]()
            for values in reversed(texts):
                code, place = divmod(code, len(values))
                reversed_key.append(values[place])
            keyed.append((tuple(reversed(reversed_key)), places[start:stop]))
        keyed.sort(key=lambda pair: tuple(value or "" for value in pair[0]))
        taken = [name for name in self._schema.names if name in columns or name in names]
        for key, rows in keyed:
            table = self._table.select(taken).take(pa.array(rows))
            yield key, from_columns({name: plain_values(table.column(name)) for name in taken}, Record)


def _schema(columns: Collection[str]) -> pa.Schema:
    known = {item.name for item in fields(Record)}
    if unknown := sorted(set(columns) - known):
        raise ValueError(f"records have no column {unknown[0]!r}, expected one of {', '.join(sorted(known))}")
    whole = schema_of(Record)
    texts = set(texts_of(whole))
    return pa.schema(
        [
            (field.name, pa.dictionary(pa.int32(), pa.string()) if field.name in texts else field.type)
            for field in whole
            if field.name in columns
        ]
    )


def _read(place: StoreLocation, file: OpenedFile, schema: pa.Schema, *, samples: bool) -> pa.Table:
    """Return one file in the shape of the schema."""
    table = file.read(schema.names)
    if file.version < SINCE and not DERIVED.isdisjoint(schema.names):
        whole = file.read(columns_needed(DERIVED))
        values = derived_values(whole, place, file.path, schema.names, samples=samples)
        more = file.read(columns_needed(schema.names))
        for name in more.column_names:
            table = table.append_column(more.schema.field(name), more.column(name))
        table = filled(table, values).select(schema.names)
    return renamed_table(table, place.moved)
