"""Reads a store: a frame or the rows of many runs, one run, one series over all runs, the list of runs, and whole stores as columns.

A file that cannot be read, or that pairbench did not write, costs only itself: `problems` names it beside the rows of the others.
"""

import datetime as dt
import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pairbench.errors import StoreError
from pairbench.model.outcome import OUT_OF_BUDGET
from pairbench.model.plain import Value, grouped, redacted
from pairbench.model.record import CALL, COLUMNS, DEVICE, STREAM, Record, Samples, Series
from pairbench.store.compacted import Files, ranks, tidy
from pairbench.store.files import Reading
from pairbench.store.location import RunFile, Store, StoreLocation
from pairbench.store.opened import OpenedFile
from pairbench.store.reading import SINCE, dataset_files, read_each, stored_files, with_derived, without_throttled
from pairbench.store.schema import PARTITIONS, SUITE, TEXT, fields_of, from_table, python_values, type_of

if TYPE_CHECKING:
    import pandas as pd

OPERATOR = ("device_name", "suite", "operator")
RUN = ("run_id", "device_name")

_THREADS, _WHOLE_THREADS, _NARROW_THREADS = 8, 4, 2

Records = tuple[Record, ...]
Where = Mapping[str, object] | None
Names = Collection[str] | None
Listed = Files | None
Row = dict[str, Any]


def read_frame(
    store: Store, dataset: str = "records", *, columns: Names = None, where: Where = None, run_ids: Names = None
) -> "Reading[pd.DataFrame]":
    """Return rows of records or samples as a frame, oldest run first."""
    # `where` has for each column the value, or the list of values, that rows must have. Without `columns` the frame has all, with
    # `device` and `month` of the folders.
    table, problems = _read(store, dataset, columns=columns, where=where, run_ids=run_ids)
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


def read_records(store: Store, run_ids: Names = None, *, files: Listed = None, where: Where = None) -> Reading[Records]:
    """Return the records of some runs, or of files that were listed before."""
    table, problems = _read(store, "records", files=files, run_ids=run_ids, where=where)
    return Reading(from_table(table, Record), problems)


def read_samples(store: Store, run_id: str) -> Reading[tuple[Samples, ...]]:
    table, problems = _read(store, "samples", run_ids=[run_id])
    return Reading(from_table(table, Samples), problems)


LatencySamples = Mapping[str, NDArray[np.float64]]
"""Samples in ns by the name of the latency, `device`, `stream` or `call`; without those that could not be taken."""


def latency_samples(store: Store, run_id: str) -> Reading[Mapping[Series, LatencySamples]]:
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
    found = {series: {name: np.concatenate(taken) for name, taken in of.items()} for series, of in by_series.items()}
    return Reading(found, problems)


class RunSummary(Value):
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
    table, problems = _read(store, "records", columns=columns)
    counted = _with_strings(table).group_by(columns).aggregate([([], "count_all")]).to_pylist()
    summaries = []
    for _, rows in sorted(grouped((row["run_id"], row) for row in counted).items(), reverse=True):
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
        more = ", ..." if len(begun) > 3 else ""
        problem = f"begins {len(begun)} runs ({', '.join(begun[:3])}{more})" if begun else "is no run there"
        expected = f"expected 'latest' or one run, such as {', '.join(newest_first[:3])}"
        raise StoreError(f"store {place.name!r}: {wanted!r} {problem}; {expected}")
    return begun


def _read(
    store: Store, dataset: str, files: Listed = None, columns: Names = None, where: Where = None, run_ids: Names = None
) -> Reading[pa.Table]:
    place = StoreLocation.of(store)
    _check_columns(dataset, {*(columns or ()), *(where or ())}, *PARTITIONS.names)
    if files is None:
        files = stored_files(place, dataset) if dataset == "samples" else dataset_files(place, dataset)
    files = files if run_ids is None else files.of_runs(run_ids)
    tidy(place, files.files)
    asked = list(columns) if columns is not None else [*fields_of(dataset), *PARTITIONS.names]
    table, problems = _scan(place, dataset, files, list(dict.fromkeys([*asked, "run_id"])), where or {})
    return Reading(table.select(asked), problems)


def _scan(
    place: StoreLocation,
    dataset: str,
    files: Files,
    names: list[str],
    where: Mapping[str, object],
    *,
    derived: bool = True,
    samples: bool = True,
    threads: int = _THREADS,
) -> Reading[pa.Table]:
    """Return some columns of the rows that have some values, oldest run first; the run's id is among them."""
    wanted = _values_of(where, place)
    stored = [name for name in dict.fromkeys([*names, *wanted]) if name not in PARTITIONS.names]
    kinds = {name: type_of(dataset, name) for name in stored} | dict.fromkeys(PARTITIONS.names, TEXT)
    empty = pa.schema([(name, kinds[name]) for name in names]).empty_table()

    @functools.cache  # most values are those of other files, too
    def repeated(name: str, value: object, count: int) -> pa.Array:
        return pa.nulls(count, kinds[name]) if value is None else pa.repeat(pa.scalar(value, kinds[name]), count)

    def rows(file: OpenedFile) -> pa.Table:
        derives = derived and dataset == "records" and file.version < SINCE
        # The footer of a file without a checksum is believed for histories alone, which would take too long without.
        believes = not derives and (file.sealed or not derived)
        constants = file.constants(stored) if believes else {}
        for name in PARTITIONS.names:
            folders = [part for part in file.path.split("/")[:-1] if part.startswith(f"{name}=")]
            constants[name] = folders[-1].partition("=")[2] if folders else None
        if any(constants[name] not in values for name, values in wanted.items() if name in constants):
            return empty
        varying = [name for name in stored if name not in constants] or ["run_id"]
        table = file.read(varying, wanted.get("case"))
        table = with_derived(table, place, file, samples=samples) if derives else table
        for name in wanted.keys() - constants.keys():
            kind = table.schema.field(name).type
            sought = pa.array(wanted[name], kind.value_type if pa.types.is_dictionary(kind) else kind)
            table = table.filter(pc.is_in(table.column(name), sought))
        count = len(table)
        columns = [repeated(name, constants[name], count) if name in constants else table[name] for name in names]
        return pa.Table.from_arrays(columns, schema=empty.schema)

    key = (*names, None, *((name, *values) for name, values in wanted.items()), None, samples, derived)
    tables, problems = read_each(place, dataset, files, rows, threads=threads, key=key)
    table = pa.concat_tables([empty, *tables.values()])
    if any(file.is_compacted for file in tables):
        # Compacted rows lie by device model and month, and runs of other device models fall in between.
        table = table.take(pa.array(np.argsort(ranks(table.column("run_id")), kind="stable")))
    return Reading(table, problems)


def _values_of(where: Mapping[str, object], place: StoreLocation) -> dict[str, list[Any]]:
    """Return for each column the values that rows may have, of one value or a collection; suites under their new names."""
    wanted = {
        name: list(values) if isinstance(values, Collection) and not isinstance(values, str) else [values]
        for name, values in where.items()
    }
    if SUITE in wanted:
        wanted[SUITE] = [place.moved.get(str(name), name) for name in wanted[SUITE]]
    return wanted


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
        """Read columns of all runs, or of the newest `last` runs. With `samples`, columns that old files lack are computed from all raw samples."""
        place = replace(StoreLocation.of(store), tables=None)  # read once, so there is nothing to keep
        _check_columns("records", columns)
        self._names = [name for name in fields_of("records") if name in {*columns, *OPERATOR, *RUN}]
        files = dataset_files(place, "records")
        if last is not None:
            files = files.of_runs(files.run_ids[-last:])
        # The paths of each run's files.
        self.paths = grouped((run_id, file.path) for file in files.files for run_id in file.run_ids)
        whole, self.problems = _scan(place, "records", files, self._names, {}, samples=samples, threads=_WHOLE_THREADS)
        self._table = whole.unify_dictionaries().combine_chunks()

    def by_operator(self, columns: Collection[str]) -> Iterator[tuple[tuple[str, str, str], tuple[Record, ...]]]:
        """Yield device model, suite and operator with their records, in the order of the names; the fewer columns, the faster."""
        for key, table in self.tables(OPERATOR, columns):
            # What a run had no time for is known by the column `reason`, if that was read.
            if kept := tuple(record for record in from_table(table, Record) if record.reason != OUT_OF_BUDGET):
                yield key, kept

    def tables(self, names: tuple[str, ...], columns: Collection[str]) -> Iterator[tuple[Any, pa.Table]]:
        """Yield the combinations of values of some columns of text, each with its rows; rows where one is null are left out."""
        frame = self._table.select(names).to_pandas()
        table = self._table.select([name for name in self._names if name in columns or name in names])
        for key, rows in sorted(frame.groupby(list(names), observed=True, sort=False).indices.items()):
            together = rows[-1] - rows[0] + 1 == len(rows)  # as those of a run are, which need no copy
            yield key, table.slice(rows[0], len(rows)) if together else table.take(pa.array(rows))


def read_series(
    store: Store, *, where: Mapping[str, object], columns: Names = None, run_ids: Names = None
) -> Reading[tuple[Record, ...]]:
    """Return the records of one series, or of a few, oldest run first, without derived columns."""
    # Columns that are not read are None in the records; each that varies within a run adds some 0.1 s for a thousand runs.
    _check_columns("records", {*(columns or ()), *where})
    place = StoreLocation.of(store)
    names = [name for name in fields_of("records") if columns is None or name in {*columns, *where, "run_id"}]
    files = dataset_files(place, "records")
    files = files if run_ids is None else files.of_runs(run_ids)
    table, problems = _scan(place, "records", files, names, where, derived=False, threads=_NARROW_THREADS)
    return Reading(from_table(table.unify_dictionaries().combine_chunks(), Record), problems)


def read_distinct(store: Store, columns: Sequence[str], files: Iterable[RunFile]) -> Reading[dict[RunFile, list[Row]]]:
    """Return for each file the combinations of values that some columns have in it."""
    place, listed, key = StoreLocation.of(store), Files(files=tuple(files)), ("distinct", *columns)
    return read_each(place, "records", listed, lambda file: _distinct(file, columns), threads=_NARROW_THREADS, key=key)


def _distinct(file: OpenedFile, names: Sequence[str]) -> list[Row]:
    if not file.num_rows:
        return []
    constants = file.constants(names)
    varying = [name for name in names if name not in constants]
    rows = file.read(varying).group_by(varying).aggregate([]).to_pylist() if varying else [{}]
    return [{name: constants[name] if name in constants else row[name] for name in names} for row in rows]


_COLUMNS = ("run_id", "confirms", "started_at", "commit", "branch", "dirty", "device_name", "mode")
_AT_ONCE = 8


class IndexedRun(Value):
    """One run, without its measurements."""

    run_id: str
    names: frozenset[str] = field(repr=False)  # runs that its files are named after: a renamed file still holds its run
    started_at: str
    commit: str | None
    branch: str | None
    dirty: bool
    confirms: str | None
    devices: frozenset[str]
    has_series: bool = True  # whether it has a row of any series; False where no suite could be loaded

    @property
    def started(self) -> dt.datetime | None:
        try:
            moment = dt.datetime.fromisoformat(self.started_at)
        except ValueError:
            return None
        return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)

    @property
    def named(self) -> dt.datetime | None:
        return named_moment(self.run_id)


class RunIndex:
    """The runs of a store, or of one file, newest first by their ids; heads are read as they are asked for."""

    def __init__(self, place: StoreLocation, name: str, files: Files) -> None:
        self.place = place
        self.name = name
        self.problems: list[str] = []  # a sentence for each file that was opened and cannot be read
        self._tell(files.problems)
        self._files = files
        self._heads: dict[str, IndexedRun] = {}
        by_run = grouped((run_id, file) for file in files.files for run_id in file.run_ids)
        self._unread = {run_id: by_run[run_id] for run_id in sorted(by_run)}

    @classmethod
    def of_store(cls, store: Store) -> "RunIndex":
        place = StoreLocation.of(store)
        return cls(place, place.name, dataset_files(place, "records"))

    @classmethod
    def of_file(cls, path: str, *, moved: Mapping[str, str] | None = None) -> "RunIndex":
        """Return the runs in one parquet file; raise StoreError where there is none, or it cannot be read."""
        folder, _, name = path.rpartition("/")
        place = StoreLocation.of(folder or ".", moved=moved)
        path = redacted(path)
        file = RunFile(path=f"{place.root}/{name}", run_id=name.removesuffix(".parquet"), is_part=False)
        if not place.filesystem.get_file_info(file.path).is_file:
            raise StoreError(f"{path}: there is no such file, expected a parquet file of `pairbench run`")
        index = cls(place, path, Files(files=(file,)))
        if not list(index):
            raise StoreError("; ".join(index.problems) or f"{path}: holds no rows, expected some of `pairbench run`")
        return index

    @property
    def is_file(self) -> bool:
        return self.name.endswith(".parquet")

    def __iter__(self) -> Iterator[IndexedRun]:
        """Yield the heads, newest first, reading as they are asked for."""
        seen: set[str] = set()
        while True:
            newest_unread = next(reversed(self._unread), "")  # a head that was read out of turn waits for its turn
            for run_id in sorted(self._heads.keys() - seen, reverse=True):
                if run_id > newest_unread:
                    seen.add(run_id)
                    yield self._heads[run_id]
            if not self._unread:
                return
            self._read_heads(list(self._unread)[-_AT_ONCE:])

    def beginning(self, text: str) -> tuple[IndexedRun, ...]:
        self._read_heads([run_id for run_id in self._unread if run_id.startswith(text)])
        return tuple(self._heads[run_id] for run_id in sorted(self._heads, reverse=True) if run_id.startswith(text))

    def first(self, count: int, wanted: Callable[[IndexedRun], bool] = lambda _: True) -> tuple[IndexedRun, ...]:
        return tuple(itertools.islice(filter(wanted, self), count))

    def records(self, heads: Iterable[IndexedRun], *, cases: Names = None) -> Reading[tuple[Record, ...]]:
        where = None if cases is None else {"case": sorted(cases)}
        return read_records(self.place, files=self._files_of(heads), where=where)

    def keys(self, heads: Iterable[IndexedRun], columns: Sequence[str]) -> dict[str, list[Row]]:
        heads = list(heads)
        rows = grouped(self._distinct(columns, self._files_of(heads).files))
        return {head.run_id: [row for name in sorted(head.names) for row in rows[name]] for head in heads}

    def columns(self, heads: Iterable[IndexedRun], columns: Sequence[str]) -> dict[str, list[Any]]:
        run_ids = {name for head in heads for name in head.names}  # a frame would have an object for each row's text
        table, problems = _read(self.place, "records", columns=columns, run_ids=run_ids)
        self._tell(problems)
        return {name: python_values(table.column(name)) for name in table.column_names}

    def _files_of(self, heads: Iterable[IndexedRun]) -> Files:
        return self._files.of_runs({name for head in heads for name in head.names})

    def _distinct(self, columns: Sequence[str], files: Iterable[RunFile]) -> Iterator[tuple[str, Row]]:
        """Yield the distinct rows of some columns in record files, each with the id of its run."""
        reading = read_distinct(self.place, list(dict.fromkeys([*columns, "run_id"])), files)
        self._tell(reading.problems)
        for file, rows in reading.value.items():
            for row in rows:
                yield row["run_id"] if file.is_compacted else file.run_id, row

    def _read_heads(self, run_ids: Iterable[str]) -> None:
        """Read the heads of some unread runs, and of all that were compacted into the same files, which cost nothing more."""
        pending = list(run_ids)
        files: dict[str, RunFile] = {}
        while pending:
            for file in self._unread.pop(pending.pop(), ()):
                if file.path not in files:
                    files[file.path] = file
                    pending += file.run_ids
        by_run = grouped((row["run_id"], (name, row)) for name, row in self._distinct(_COLUMNS, files.values()))
        for run_id, of_run in by_run.items():
            before = self._heads[run_id].names if run_id in self._heads else frozenset[str]()
            first = of_run[0][1]
            self._heads[run_id] = IndexedRun(
                run_id=run_id,
                names=before.union(name for name, _ in of_run),
                started_at=first["started_at"] or "",
                **{name: first[name] for name in ("commit", "branch", "confirms")},
                dirty=any(row["dirty"] for _, row in of_run),
                devices=frozenset(row["device_name"] for _, row in of_run),
                has_series=any(row["mode"] is not None for _, row in of_run),
            )

    def _tell(self, problems: Iterable[str]) -> None:
        self.problems += [problem for problem in problems if problem not in self.problems]


def named_moment(run_id: str) -> dt.datetime | None:
    try:
        return dt.datetime.strptime(run_id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=dt.UTC)
    except ValueError:
        return None
