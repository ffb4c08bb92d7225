"""Reads a store: a frame of many runs for comparing, the rows of one run for showing, the list of runs.

A file that cannot be read, or is not ours, costs only itself: it is named in `problems` beside what could be read.
"""

import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pairbench.errors import StoreError
from pairbench.model.record import Record, Samples
from pairbench.store.derived import DERIVED, SINCE, columns_needed, derived_values, filled
from pairbench.store.location import RunFile, StoreLocation
from pairbench.store.moved import renamed_table, with_old_names
from pairbench.store.parts import doubled, tidy
from pairbench.store.schema import PARTITIONS, ROW_TYPES, from_table, schema_of, version_of

NOT_SOUND = (OSError, pa.ArrowException)
"""What pyarrow raises for a file that is damaged, or none of parquet's."""
_ATTEMPTS = 5

Value = TypeVar("Value")


class Reading(NamedTuple, Generic[Value]):
    """What was read, and a sentence for each file that could not be."""

    value: Value
    problems: tuple[str, ...]


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
    return Reading(table.to_pandas(split_blocks=True), problems)


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
    for row in table.group_by(columns).aggregate([([], "count_all")]).to_pylist():
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
    newest_first = sorted({file.run_id for file in dataset_files(place, "records")}, reverse=True)
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


def dataset_files(place: StoreLocation, dataset: str) -> list[RunFile]:
    """Return a dataset's files, oldest run first.

    Raises:
        StoreError: there is no such store, or it is empty.
    """
    files = place.files(dataset)
    if not files:
        raise StoreError(
            f"store {place.name!r} has no {dataset}: there is no parquet file below {place.root}/{dataset}; "
            "make some with `pairbench run`, or name another store with --store"
        )
    return files


def _read(
    place: StoreLocation,
    dataset: str,
    *,
    columns: Sequence[str] | None = None,
    where: Mapping[str, object] | None = None,
    run_ids: Collection[str] | None = None,
) -> tuple[pa.Table, tuple[str, ...]]:
    schema = pa.unify_schemas([schema_of(ROW_TYPES[dataset]), PARTITIONS])
    if unknown := sorted({*(columns or ()), *(where or ())} - set(schema.names)):
        raise ValueError(f"{dataset} has no column {unknown[0]!r}, expected one of {', '.join(schema.names)}")
    for attempt in range(_ATTEMPTS):
        files = [file for file in dataset_files(place, dataset) if run_ids is None or file.run_id in run_ids]
        if doubled(files):
            tidy(place, files)
        try:
            table, problems = _scan(
                place,
                files,
                schema,
                dataset,
                columns=columns,
                condition=_condition(with_old_names(where or {}, place.moved)),
            )
        except FileNotFoundError:
            # A run closed between the listing and the reading, and its parts became one file.
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        parts = {file.path for file in files if file.is_part}
        if attempt == _ATTEMPTS - 1 or not any(problem.partition(": ")[0] in parts for problem in problems):
            return renamed_table(
                table, place.moved
            ), problems  # else a part may have been swapped between two looks at it
    raise AssertionError


def _scan(
    place: StoreLocation,
    files: list[RunFile],
    schema: pa.Schema,
    dataset_name: str,
    *,
    columns: Sequence[str] | None,
    condition: pc.Expression,
) -> tuple[pa.Table, tuple[str, ...]]:
    with ThreadPoolExecutor(8) as pool:  # a footer is a wait for the disk or the network, seldom work
        opened = dict(zip(files, pool.map(functools.partial(_open, place), files), strict=True))
    problems = [fragment for fragment in opened.values() if isinstance(fragment, str)]
    sound = {file.path: fragment for file, fragment in opened.items() if not isinstance(fragment, str)}
    # A part beside its sound whole is the same rows again.
    fragments = [
        sound[file.path] for file in files if file.path in sound and not (file.is_part and file.whole in sound)
    ]

    names = list(columns) if columns is not None else schema.names

    def read(some: list[Any], taken: list[str], chosen: pc.Expression | None) -> pa.Table:
        dataset = ds.FileSystemDataset(some, schema, ds.ParquetFileFormat(), place.filesystem)
        return dataset.to_table(columns=taken, filter=chosen)

    def table_of(some: list[Any]) -> pa.Table:
        old = [fragment for fragment in some if (version_of(fragment.metadata.metadata) or 0) < SINCE]
        if dataset_name != "records" or not old or DERIVED.isdisjoint(names):
            return read(some, names, condition)
        more = columns_needed(names)
        tables = [read([], names, condition)]
        for fragment in some:
            table = read([fragment], [*names, *more], condition)
            if fragment in old:
                whole = read([fragment], list(columns_needed(DERIVED)), None)
                table = filled(table, derived_values(whole, place, fragment.path, names))
            tables.append(table.select(names))
        return pa.concat_tables(tables)

    try:
        return table_of(fragments), tuple(problems)
    except FileNotFoundError:
        raise
    except NOT_SOUND:
        tables = [table_of([])]
        for fragment in fragments:
            try:
                tables.append(table_of([fragment]))
            except NOT_SOUND as error:
                problems.append(problem_of(fragment.path, error))
        return pa.concat_tables(tables), tuple(problems)


def _open(place: StoreLocation, file: RunFile) -> Any:
    """Return a file as a fragment with its footer read, or a sentence that says why not."""
    folders = ds.partitioning(PARTITIONS, flavor="hive").parse(file.path[len(place.root) + 1 :])
    fragment = ds.ParquetFileFormat().make_fragment(file.path, place.filesystem, folders)
    try:
        fragment.ensure_complete_metadata()
    except FileNotFoundError:
        raise
    except NOT_SOUND as error:
        return problem_of(file.path, error)
    if version_of(fragment.metadata.metadata) is None:
        return foreign(file.path)
    return fragment


def foreign(path: str) -> str:
    """Return the sentence for a parquet file that is not ours."""
    return f"{path}: not written by pairbench, left out; move it out of the store"


def problem_of(path: str, error: Exception) -> str:
    """Return the sentence for a file that cannot be read."""
    (first, *_) = str(error).splitlines() or [type(error).__name__]
    return f"{path}: cannot be read, left out: {first}"


def _condition(where: Mapping[str, object]) -> pc.Expression | None:
    condition = None
    for column, wanted in where.items():
        values = list(wanted) if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
        this = pc.field(column).isin(values)
        condition = this if condition is None else condition & this
    return condition
