"""Reads a store: a frame or the rows of many runs, one run, one series over all runs, the list of runs, and whole stores as columns.

A file that cannot be read, or that pairbench did not write, costs only itself: `problems` names it beside the rows of the others.
"""

import functools
import itertools
import operator
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pairbench.errors import StoreError
from pairbench.model.latency import CALL, DEVICE, RESULT_COLUMNS, STREAM
from pairbench.model.outcome import OUT_OF_BUDGET
from pairbench.model.record import COLUMNS, Record, Samples, Series
from pairbench.store.compacted import Files, ranks
from pairbench.store.location import RunFile, Store, StoreLocation
from pairbench.store.opened import OpenedFile, doubled, tidy
from pairbench.store.reading import (
    SUITE,
    Reading,
    columns_needed,
    dataset_files,
    read_each,
    renamed_table,
    stored_files,
    with_derived,
    with_old_names,
    without_throttled,
)
from pairbench.store.schema import (
    PARTITIONS,
    TEXT,
    checked_constant,
    fields_of,
    from_columns,
    from_table,
    python_values,
    type_of,
)

TREND_COLUMNS = (
    *("run_id", "confirms", "started_at", "commit", "commit_at", "branch", "dirty"),
    *("suite", "operator", "definition_hash", "implementation_hash", "case", "tier", "implementation", "role", "mode"),
    *("device_kind", "device_name", "device_uuid", "driver", "cuda", "cudnn", "torch", "triton", "python"),
    *("hostname", "cpu", "environment_hash", "status", "reason"),
    *RESULT_COLUMNS,
)
"""The columns of a series' history; each that varies within a run adds some 0.1 s for a thousand runs."""
OPERATOR = ("device_name", "suite", "operator")
RUN = ("run_id", "device_name")

_THREADS, _WHOLE_THREADS, _NARROW_THREADS = 8, 4, 2

Where = Mapping[str, object] | None
Names = Collection[str] | None


def read_frame(
    store: Store, dataset: str = "records", *, columns: Names = None, where: Where = None, run_ids: Names = None
) -> Reading[pd.DataFrame]:
    """Return rows of records or samples as a frame, oldest run first."""
    # `where` has for each column the value, or the list of values, that rows must have. Without `columns` the frame has all, with
    # `device` and `month` of the folders.
    table, problems = _read(StoreLocation.of(store), dataset, columns=columns, where=where, run_ids=run_ids)
    return Reading(_with_strings(table).to_pandas(split_blocks=True), problems)


def read_run(store: Store, run_id: str = "latest") -> Reading[tuple[Record, ...]]:
    """Return the records of a run; `latest`, its id, or the beginning of its id where that is unique."""
    place = StoreLocation.of(store)
    problems: tuple[str, ...] = ()
    for candidate in _find(place, run_id):
        table, missed = _read(place, "records", run_ids=[candidate])
        problems += missed
        if table.num_rows:
            return Reading(from_table(table, Record), problems)
    raise StoreError(f"store {place.name!r}: nothing of run {run_id!r} can be read: {'; '.join(problems) or 'no rows'}")


def read_records(
    store: Store, run_ids: Names = None, *, files: Files | None = None, where: Where = None
) -> Reading[tuple[Record, ...]]:
    """Return the records of some runs, or of files that were listed before."""
    table, problems = _read(StoreLocation.of(store), "records", files=files, run_ids=run_ids, where=where)
    return Reading(from_table(table, Record), problems)


def read_samples(store: Store, run_id: str) -> Reading[tuple[Samples, ...]]:
    table, problems = _read(StoreLocation.of(store), "samples", run_ids=[run_id])
    return Reading(from_table(table, Samples), problems)


LatencySamples = Mapping[str, NDArray[np.float64]]
"""Samples in ns by the name of the latency, `device`, `stream` or `call`; without those that could not be taken."""


def latency_samples(store: Store, run_id: str) -> Reading[dict[Series, LatencySamples]]:
    """Return the latencies of a run that its statistics rest on; none where its samples have been pruned."""
    # Samples taken while the GPU throttled are left out of a round that was measured again, as in the statistics.
    latencies = {"call_ns": CALL, "device_ns": DEVICE, "stream_ns": STREAM}
    frame, problems = read_frame(store, "samples", columns=[*COLUMNS, "throttled", *latencies], run_ids=[run_id])
    by_series: dict[Series, dict[str, list[NDArray[np.float64]]]] = defaultdict(lambda: defaultdict(list))
    for row in frame.itertuples(index=False, name=None):
        rounds = by_series[Series(**dict(zip(COLUMNS, row, strict=False)))]
        throttled, *samples = row[len(COLUMNS) :]
        for latency, values in zip(latencies.values(), samples, strict=True):
            # Null where the latency could not be taken in this round, and of a stream in most blocks.
            if isinstance(values, np.ndarray | list | tuple):
                kept = without_throttled(values, throttled)
                rounds[latency.name].append(kept[~np.isnan(kept)])
    joined: dict[Series, LatencySamples] = {
        series: {name: np.concatenate(taken) for name, taken in of.items()} for series, of in by_series.items()
    }
    return Reading(joined, problems)


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run in a list of runs; `statuses` has the number of its records by status."""

    run_id: str
    started_at: str
    commit: str | None
    branch: str | None
    dirty: bool | None
    devices: tuple[str, ...]
    hostname: str
    n_records: int
    statuses: Mapping[str, int]


def runs(store: Store) -> Reading[tuple[RunSummary, ...]]:
    shared = ["run_id", "started_at", "commit", "branch", "dirty", "hostname"]
    columns = [*shared, "device_name", "status"]
    table, problems = _read(StoreLocation.of(store), "records", columns=columns)
    by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in _with_strings(table).group_by(columns).aggregate([([], "count_all")]).to_pylist():
        by_run[row["run_id"]].append(row)
    summaries = []
    for _, rows in sorted(by_run.items(), reverse=True):
        statuses = sum((Counter({row["status"]: row["count_all"]}) for row in rows), Counter[str]())
        devices = tuple(sorted({row["device_name"] for row in rows}))
        first = {name: rows[0][name] for name in shared}
        summaries.append(RunSummary(**first, devices=devices, n_records=statuses.total(), statuses=statuses))
    return Reading(tuple(summaries), problems)


def _find(place: StoreLocation, wanted: str) -> list[str]:
    newest_first = dataset_files(place, "records").run_ids[::-1]
    if wanted == "latest":
        return newest_first
    if wanted in newest_first:
        return [wanted]
    begun = [run_id for run_id in newest_first if wanted and run_id.startswith(wanted)]
    if len(begun) != 1:
        problem = f"begins {len(begun)} runs ({', '.join(begun[:3])}, ...)" if begun else "is no run there"
        raise StoreError(
            f"store {place.name!r}: {wanted!r} {problem}; expected 'latest' or one run, such as {', '.join(newest_first[:3])}"
        )
    return begun


def _read(
    place: StoreLocation,
    dataset: str,
    *,
    files: Files | None = None,
    columns: Names = None,
    where: Where = None,
    run_ids: Names = None,
) -> tuple[pa.Table, tuple[str, ...]]:
    _check_columns(dataset, {*(columns or ()), *(where or ())}, *PARTITIONS.names)
    if files is None:
        files = stored_files(place, dataset) if dataset == "samples" else dataset_files(place, dataset)
    files = files if run_ids is None else files.of_runs(run_ids)
    if doubled(files.files):
        tidy(place, files.files)
    asked = list(columns) if columns is not None else [*fields_of(dataset), *PARTITIONS.names]
    compacted = any(file.is_compacted for file in files.files)
    names = list(dict.fromkeys([*asked, "run_id"])) if compacted else asked
    tables, problems = _scan(place, dataset, files, names, where or {})
    table = pa.concat_tables([_schema(dataset, names).empty_table(), *tables.values()])
    if compacted:
        # Compacted rows lie by device model and month, and runs of other device models fall in between.
        table = table.take(pa.array(np.argsort(ranks(table.column("run_id")), kind="stable"))).select(asked)
    return table, problems


def _scan(
    place: StoreLocation,
    dataset: str,
    files: Files,
    names: list[str],
    where: Mapping[str, object],
    *,
    samples: bool = True,
    threads: int = _THREADS,
) -> Reading[dict[RunFile, pa.Table]]:
    """Return some columns of each file, of the rows that have some values, in the types of `_schema`."""
    wanted = {
        name: list(values) if isinstance(values, list | tuple | set | frozenset) else [values]
        for name, values in with_old_names(where, place.moved).items()
    }
    stored = [name for name in dict.fromkeys([*names, *wanted]) if name not in PARTITIONS.names]

    def rows(file: OpenedFile) -> pa.Table:
        table = file.read([*stored, *columns_needed(file, stored)], wanted.get("case"))
        for name in PARTITIONS.names:
            if name in names or name in wanted:
                folders = [part for part in file.path.split("/")[:-1] if part.startswith(f"{name}=")]
                value = pa.scalar(folders[-1].partition("=")[2] if folders else None, pa.string())
                table = table.append_column(name, pa.repeat(value, len(table)).dictionary_encode())
        for name, values in wanted.items():
            kind = table.schema.field(name).type
            sought = pa.array(values, kind.value_type if pa.types.is_dictionary(kind) else kind)
            table = table.filter(pc.is_in(table.column(name), sought))
        table = with_derived(table, place, file, names, samples=samples)
        return renamed_table(table.select(names), place.moved)

    key = (*names, None, *((name, *values) for name, values in wanted.items()), None, samples)
    return read_each(place, dataset, files, rows, threads=threads, key=key)


def _schema(dataset: str, names: Iterable[str]) -> pa.Schema:
    return pa.schema([(name, TEXT if name in PARTITIONS.names else type_of(dataset, name)) for name in names])


def _check_columns(dataset: str, names: Iterable[str], *more: str) -> None:
    known = [*fields_of(dataset), *more]
    if unknown := sorted(set(names) - set(known)):
        raise ValueError(f"{dataset} have no column {unknown[0]!r}, expected one of {', '.join(known)}")


def _with_strings(table: pa.Table) -> pa.Table:
    kinds = [pa.string() if pa.types.is_dictionary(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


class WholeStore:
    """All runs of a store, or its newest, as columns, handed out an operator or a run at a time; columns that were not read have defaults."""

    # A few hundred runs of a few thousand series fit into memory as columns, and would not as rows.

    def __init__(
        self, store: Store, columns: Collection[str], *, last: int | None = None, samples: bool = False
    ) -> None:
        """Read some columns of all runs, or of the `last` newest; `samples` derives the columns that old files lack from all raw samples."""
        place = replace(StoreLocation.of(store), tables=None)  # read once, so there is nothing to keep
        _check_columns("records", columns)
        self._names = [name for name in fields_of("records") if name in {*columns, *OPERATOR, *RUN}]
        files = dataset_files(place, "records")
        if last is not None:
            files = files.of_runs(files.run_ids[-last:])
        tables, self.problems = _scan(place, "records", files, self._names, {}, samples=samples, threads=_WHOLE_THREADS)
        whole = pa.concat_tables([_schema("records", self._names).empty_table(), *tables.values()])
        self._table = whole.unify_dictionaries().combine_chunks()
        self._age = ranks(self._table.column("run_id")) if any(file.is_compacted for file in tables) else None
        """The rank of each row's run, where rows are not in that order: runs of other device models fall between compacted ones."""

    def by_operator(self, columns: Collection[str]) -> Iterator[tuple[tuple[str, str, str], tuple[Record, ...]]]:
        """Yield device model, suite and operator with their records, in the order of the names; the fewer columns, the faster."""
        # Records that a run had no time for are left out; they are known by the column `reason`, if that is among the columns.
        for key, records in self._groups(OPERATOR, columns):
            kept = tuple(record for record in records if record.reason != OUT_OF_BUDGET)
            if kept:
                yield key, kept

    def by_run(self, columns: Collection[str]) -> Iterator[tuple[tuple[str, str], tuple[Record, ...]]]:
        yield from self._groups(RUN, columns)

    def _groups(self, names: tuple[str, ...], columns: Collection[str]) -> Iterator[tuple[Any, tuple[Record, ...]]]:
        """Yield the combinations of values of some columns of text, each with its records; rows where one is null are left out."""
        frame = self._table.select(names).to_pandas()
        taken = [name for name in self._names if name in columns or name in names]
        for key, rows in sorted(frame.groupby(list(names), observed=True, sort=False).indices.items()):
            in_order = rows if self._age is None else rows[np.argsort(self._age[rows], kind="stable")]
            yield key, from_table(self._table.select(taken).take(pa.array(in_order)), Record)


Columns = dict[str, list[Any]]


def read_series(
    store: Store, *, where: Mapping[str, object], columns: Collection[str] = TREND_COLUMNS, run_ids: Names = None
) -> Reading[tuple[Record, ...]]:
    """Return the records of one series, or of a few, oldest run first."""
    # `where` has for each column of text the value, or the collection of values, that rows must have. Columns that are not read are
    # None in the records; the fewer, the faster.
    for values in where.values():
        if not isinstance(values, Collection):
            raise TypeError(f"where has {values!r}, expected a text or a collection of texts")
    _check_columns("records", {*columns, *where})
    place = StoreLocation.of(store)
    wanted = {name: (values,) if isinstance(values, str) else tuple(values) for name, values in where.items()}  # type: ignore[arg-type]
    wanted = with_old_names(wanted, place.moved)
    names = [name for name in fields_of("records") if name in columns or name in wanted or name == "run_id"]
    files = dataset_files(place, "records")
    files = files if run_ids is None else files.of_runs(run_ids)

    def read(file: OpenedFile) -> Columns:
        return NarrowFile(file).columns(names, wanted, place.moved)

    by_file, problems = read_each(place, "records", files, read, threads=_NARROW_THREADS)
    several = [columns for columns in by_file.values() if columns["run_id"]]
    if not several:
        return Reading((), problems)
    whole = {name: list(itertools.chain.from_iterable(one[name] for one in several)) for name in several[0]}
    run_ids = whole["run_id"]
    if any(file.is_compacted for file in by_file) and any(map(operator.gt, run_ids, run_ids[1:])):
        # Compacted rows lie by device model and month, and runs of other device models fall in between.
        order = sorted(range(len(run_ids)), key=run_ids.__getitem__)
        whole = {name: [values[row] for row in order] for name, values in whole.items()}
    return Reading(from_columns(whole, Record), problems)


def read_distinct(
    store: Store, columns: Sequence[str], files: Iterable[RunFile]
) -> Reading[dict[RunFile, list[dict[str, Any]]]]:
    """Return for each file the combinations of values that some columns have in it."""
    place = StoreLocation.of(store)

    def read(file: OpenedFile) -> list[dict[str, Any]]:
        return NarrowFile(file).distinct(columns, place.moved)

    listed = Files(files=tuple(files))
    return read_each(place, "records", listed, read, threads=_NARROW_THREADS, key=("distinct", *columns))


_MANY = 64  # the rows from which on it pays to take a column's values all at once; a run has few of one case
_PHYSICAL = {"string": "BYTE_ARRAY", "int64": "INT64", "bool": "BOOLEAN"}
"""Parquet's type for each type of column whose statistics can be believed."""


class NarrowFile:
    """A few rows or columns of one run's file, without decoding the rest of it."""

    # A run's file has some 80 columns, and most have the same value in all rows: these values come out of the footer's statistics.

    def __init__(self, opened: OpenedFile) -> None:
        self._opened = opened
        # A file with several row groups, or unwanted rows, has several runs; its statistics are not used.
        alone = opened.metadata.num_row_groups == 1 and opened.metadata.num_rows == opened.num_rows
        self._group = opened.metadata.row_group(0) if alone else None

    def columns(
        self, names: Sequence[str], wanted: Mapping[str, Collection[object]], moved: Mapping[str, str]
    ) -> Columns:
        """Return some columns, one at least, of the rows that have the wanted texts; a column that the file lacks is None."""
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
        values_of = python_values if count >= _MANY else pa.ChunkedArray.to_pylist
        columns = {
            name: [constants[name]] * count if name in constants or table is None else values_of(table.column(name))
            for name in names
        }
        if SUITE in columns:
            columns[SUITE] = [moved.get(name, name) for name in columns[SUITE]]
        return columns

    def distinct(self, names: Sequence[str], moved: Mapping[str, str]) -> list[dict[str, Any]]:
        if not self._opened.num_rows:
            return []
        constants, varying = self._split(names)
        rows = self._opened.read(varying).group_by(varying).aggregate([]).to_pylist() if varying else [{}]
        rows = [{name: constants[name] if name in constants else row[name] for name in names} for row in rows]
        return [{**row, SUITE: moved.get(row[SUITE], row[SUITE])} for row in rows] if SUITE in names else rows

    def _split(self, names: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Return the values of columns that have one, and the other columns."""
        constants: dict[str, Any] = {}
        varying: list[str] = []
        for name in names:
            if name not in self._opened.places:
                constants[name] = checked_constant(None, "records", name)
            elif (constant := self._constant(name)) is not None:
                (constants[name],) = constant
            else:
                varying.append(name)
        return constants, varying

    def _constant(self, name: str) -> tuple[Any] | None:
        """Return the one value of a column where the statistics show that it has no other."""
        if self._group is None:
            return None
        column = self._group.column(self._opened.places[name])
        # NaN is in no minimum, so floats that differ from it would pass for constant; a list has a minimum of its own kind.
        field, statistics = fields_of("records").get(name), column.statistics
        physical = _PHYSICAL.get(str(field.type)) if field is not None else None
        if column.physical_type != physical or column.path_in_schema != name:
            return None
        if statistics is None or not statistics.has_null_count:
            return None
        if statistics.null_count == self._group.num_rows:
            return (checked_constant(None, "records", name),)
        if statistics.null_count or not statistics.has_min_max:
            return None
        with suppress(ValueError):  # no UTF-8, which is said where it is decoded
            if statistics.min == statistics.max:
                return (checked_constant(statistics.min, "records", name),)
        return None
