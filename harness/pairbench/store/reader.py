"""Reads a store: a frame of many runs for comparing, the rows of one run for showing, the list of runs.

A file that cannot be read, or is not ours, costs only itself: it is named in `problems` beside what could be read.

All runs of a store at once, held as columns and handed out an operator or a run at a time.

A few hundred runs of a few thousand series fit into memory as columns, and would not as rows.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pairbench.errors import StoreError
from pairbench.model.outcome import OUT_OF_BUDGET
from pairbench.model.record import Record, Samples
from pairbench.store.derived import DERIVED, SINCE, columns_needed, derived_values, filled
from pairbench.store.files.compacted import ranks
from pairbench.store.files.conform import TEXT
from pairbench.store.files.opened import OpenedFile, doubled, tidy
from pairbench.store.location import StoreLocation
from pairbench.store.reading import Reading, dataset_files, read_each, renamed_table, with_old_names
from pairbench.store.schema import PARTITIONS, ROW_TYPES, from_columns, from_table, plain_values, schema_of, texts_of

OPERATOR = ("device_name", "suite", "operator")
RUN = ("run_id", "device_name")
_WHOLE_THREADS = 4


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
            place,
            "records",
            files,
            lambda file: _read_whole(place, file, self._schema, samples=samples),
            threads=_WHOLE_THREADS,
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


def _read_whole(place: StoreLocation, file: OpenedFile, schema: pa.Schema, *, samples: bool) -> pa.Table:
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


_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run in a list of runs."""

    run_id: str
    started_at: str
    commit: str | None
    branch: str | None
    dirty: bool | None
    devices: tuple[str, ...]
    hostname: str
    n_records: int
    statuses: Mapping[str, int]
    """How many records ended in each status."""


def read_frame(
    store: str | Path | StoreLocation,
    dataset: str = "records",
    *,
    columns: Sequence[str] | None = None,
    where: Mapping[str, object] | None = None,
    run_ids: Collection[str] | None = None,
) -> Reading[pd.DataFrame]:
    """Return rows of many runs as a frame, oldest run first.

    Args:
        store: a folder or a URL.
        dataset: records or samples.
        columns: which; None for all, with `device` and `month` from the folders.
        where: for each column the value, or the list of values, that rows must have.
        run_ids: files of other runs are not opened.

    Raises:
        StoreError: there is no such store, or it is empty.
    """
    table, problems = _read(StoreLocation.of(store), dataset, columns=columns, where=where, run_ids=run_ids)
    return Reading(_with_texts(table).to_pandas(split_blocks=True), problems)


def read_run(store: str | Path | StoreLocation, run_id: str = "latest") -> Reading[tuple[Record, ...]]:
    """Return the records of a run; `latest`, its id, or the beginning of its id where that is unique.

    Raises:
        StoreError: there is no such store or run, or nothing of it can be read.
    """
    place = StoreLocation.of(store)
    problems: tuple[str, ...] = ()
    for found in _find(place, run_id):
        table, missed = _read(place, "records", run_ids=[found])
        problems += missed
        if table.num_rows:
            return Reading(from_table(table, Record), problems)
    raise StoreError(f"store {place.name!r}: nothing of run {run_id!r} can be read: {'; '.join(problems) or 'no rows'}")


def read_records(
    store: str | Path | StoreLocation, run_ids: Collection[str], *, where: Mapping[str, object] | None = None
) -> Reading[tuple[Record, ...]]:
    """Return the records of some runs, by their whole ids, oldest run first; only those with some values, if given.

    Raises:
        StoreError: there is no such store, or it is empty.
    """
    table, problems = _read(StoreLocation.of(store), "records", run_ids=run_ids, where=where)
    return Reading(from_table(table, Record), problems)


def read_samples(store: str | Path | StoreLocation, run_id: str) -> Reading[tuple[Samples, ...]]:
    """Return the raw samples of a run, by its whole id; none where they have been pruned."""
    place = StoreLocation.of(store)
    if not any(file.run_id == run_id for file in place.files("samples")):
        return Reading((), ())
    table, problems = _read(place, "samples", run_ids=[run_id])
    return Reading(from_table(table, Samples), problems)


def runs(store: str | Path | StoreLocation) -> Reading[tuple[RunSummary, ...]]:
    """Return what runs there are, the newest first.

    Raises:
        StoreError: there is no such store, or it is empty.
    """
    columns = ["run_id", "started_at", "commit", "branch", "dirty", "device_name", "hostname", "status"]
    table, problems = _read(StoreLocation.of(store), "records", columns=columns)
    by_run: dict[str, list[dict[str, Any]]] = {}
    for row in _with_texts(table).group_by(columns).aggregate([([], "count_all")]).to_pylist():
        by_run.setdefault(row["run_id"], []).append(row)
    return Reading(tuple(_summary(by_run[run_id]) for run_id in sorted(by_run, reverse=True)), problems)


def _summary(rows: list[dict[str, Any]]) -> RunSummary:
    shared = {name: rows[0][name] for name in ("run_id", "started_at", "commit", "branch", "dirty", "hostname")}
    statuses: Counter[str] = Counter()
    for row in rows:
        statuses[row["status"]] += row["count_all"]
    devices = tuple(sorted({row["device_name"] for row in rows}))
    return RunSummary(**shared, devices=devices, n_records=statuses.total(), statuses=statuses)


def _find(place: StoreLocation, wanted: str) -> list[str]:
    """Return the run ids to try."""
    newest_first = dataset_files(place, "records").run_ids[::-1]
    if wanted == "latest":
        return newest_first
    if wanted in newest_first:
        return [wanted]
    found = [run_id for run_id in newest_first if wanted and run_id.startswith(wanted)]
    if len(found) != 1:
        what = f"begins {len(found)} runs ({', '.join(found[:3])}, ...)" if found else "is no run there"
        raise StoreError(
            f"store {place.name!r}: {wanted!r} {what}; expected 'latest' or one run, such as {', '.join(newest_first[:3])}"
        )
    return found


def _read(
    place: StoreLocation,
    dataset: str,
    *,
    columns: Sequence[str] | None = None,
    where: Mapping[str, object] | None = None,
    run_ids: Collection[str] | None = None,
) -> tuple[pa.Table, tuple[str, ...]]:
    """Return rows as a table with the columns that are asked for, texts as dictionaries."""
    schema = pa.unify_schemas([schema_of(ROW_TYPES[dataset]), PARTITIONS])
    if unknown := sorted({*(columns or ()), *(where or ())} - set(schema.names)):
        raise ValueError(f"{dataset} has no column {unknown[0]!r}, expected one of {', '.join(schema.names)}")
    files = dataset_files(place, dataset)
    files = files if run_ids is None else files.of_runs(run_ids)
    if doubled(files.files):
        tidy(place, files.files)
    asked = list(columns) if columns is not None else schema.names
    compacted = any(file.is_compacted for file in files.files)
    names = list(dict.fromkeys([*asked, "run_id"])) if compacted else asked
    wanted = _values(with_old_names(where or {}, place.moved))
    tables, problems = read_each(
        place, dataset, files, lambda file: _rows(place, file, names, wanted), threads=_THREADS
    )
    kinds = pa.schema(
        [(name, TEXT if pa.types.is_string(schema.field(name).type) else schema.field(name).type) for name in names]
    )
    found = [kinds.empty_table(), *(table.cast(kinds) for table in tables.values())]
    table = pa.concat_tables(found)
    if compacted:
        # What is compacted lies by device model and month, and runs of other device models fall in between.
        table = table.take(pa.array(np.argsort(ranks(table.column("run_id")), kind="stable"))).select(asked)
    return renamed_table(table, place.moved), problems


def _rows(place: StoreLocation, file: OpenedFile, names: list[str], wanted: Mapping[str, list[object]]) -> pa.Table:
    """Return the rows of a file that have some values, texts as dictionaries."""
    columns = [name for name in dict.fromkeys([*names, *wanted]) if name not in PARTITIONS.names]
    old = file.dataset == "records" and file.version < SINCE and not DERIVED.isdisjoint(columns)
    table = file.read([*columns, *columns_needed(columns)] if old else columns, wanted.get("case"))
    for name in PARTITIONS.names:
        if name in names or name in wanted:
            table = table.append_column(name, pa.repeat(_folder(file.path, name), len(table)))
    for name, values in wanted.items():
        kind = table.schema.field(name).type
        sought = pa.array(values, kind.value_type if pa.types.is_dictionary(kind) else kind)
        table = table.filter(pc.is_in(table.column(name), sought))
    if old and len(table):
        whole = file.read(columns_needed(DERIVED))
        table = filled(table, derived_values(whole, place, file.path, names))
    return table.select(names)


def _folder(path: str, name: str) -> pa.Scalar:
    """Return what the folders say of a partition, as in `month=2026-01`."""
    values = [part.partition("=")[2] for part in path.split("/")[:-1] if part.startswith(f"{name}=")]
    return pa.scalar(values[-1] if values else None, pa.string())


def _with_texts(table: pa.Table) -> pa.Table:
    """Return a table with each text for itself."""
    kinds = [pa.string() if pa.types.is_dictionary(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def _values(where: Mapping[str, object]) -> dict[str, list[object]]:
    return {
        name: list(wanted) if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
        for name, wanted in where.items()
    }
