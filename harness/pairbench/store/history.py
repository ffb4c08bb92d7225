"""Reads little of many runs, fast: one series over all of them, and what each one is."""

import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pairbench.model.latency import RESULT_COLUMNS
from pairbench.model.record import Record
from pairbench.store.files.narrow import NarrowFile
from pairbench.store.files.opened import OpenedFile
from pairbench.store.location import RunFile, StoreLocation
from pairbench.store.reading import Files, Reading, dataset_files, read_each
from pairbench.store.schema import from_columns, schema_of

TREND_COLUMNS = (
    *("run_id", "confirms", "started_at", "commit", "commit_at", "branch", "dirty"),
    *("suite", "operator", "definition_hash", "implementation_hash", "case", "tier", "implementation", "role", "mode"),
    *("device_kind", "device_name", "device_uuid", "driver", "cuda", "cudnn", "torch", "triton", "python"),
    *("hostname", "cpu", "environment_hash", "status", "reason"),
    *RESULT_COLUMNS,
)
"""What a history of one series needs; each column that varies within a run adds some 0.1 s for a thousand runs."""

Rows = list[dict[str, Any]]
Columns = dict[str, list[Any]]

_KNOWN = frozenset(schema_of(Record).names)
_RUN = "run_id"
_THREADS = 2


def read_series(
    store: str | Path | StoreLocation,
    *,
    where: Mapping[str, object],
    columns: Collection[str] = TREND_COLUMNS,
    run_ids: Collection[str] | None = None,
) -> Reading[tuple[Record, ...]]:
    """Return what a store has of one series, or of a few, oldest run first.

    Args:
        store: A folder or a URL.
        where: For each column of text the value, or the collection of values, that rows must have.
        columns: What to read, besides the run's id; all others are None in the records. The fewer, the faster.
        run_ids: Files of other runs are not opened.

    Raises:
        StoreError: there is no such store, or it is empty.
    """
    wanted = {name: (value,) if isinstance(value, str) else tuple(_each(value)) for name, value in where.items()}
    if unknown := sorted({*columns, *wanted} - _KNOWN):
        raise ValueError(f"records have no column {unknown[0]!r}, expected one of {', '.join(sorted(_KNOWN))}")
    names = [item.name for item in fields(Record) if item.name in columns or item.name in wanted or item.name == _RUN]
    place = StoreLocation.of(store)
    files = dataset_files(place, "records")
    files = files if run_ids is None else files.of_runs(run_ids)
    return _records(place, files, lambda file: NarrowFile(file).columns(names, wanted, place.moved))


def read_file(place: StoreLocation, file: RunFile) -> Reading[tuple[Record, ...]]:
    """Return everything in one file."""
    names = [item.name for item in fields(Record)]
    return _records(place, [file], lambda opened: NarrowFile(opened).columns(names, {}, place.moved))


def read_distinct(
    store: str | Path | StoreLocation, columns: Sequence[str], files: Iterable[RunFile]
) -> Reading[dict[RunFile, Rows]]:
    """Return for each file the combinations of values that some columns have in it."""
    place = StoreLocation.of(store)
    return read_each(
        place, "records", list(files), lambda file: NarrowFile(file).distinct(columns, place.moved), threads=_THREADS
    )


def _records(
    place: StoreLocation, files: Files | list[RunFile], read: Callable[[OpenedFile], Columns]
) -> Reading[tuple[Record, ...]]:
    by_file, problems = read_each(place, "records", files, read, threads=_THREADS)
    several = [columns for columns in by_file.values() if columns[_RUN]]
    if not several:
        return Reading((), problems)
    whole = {name: list(itertools.chain.from_iterable(one[name] for one in several)) for name in several[0]}
    run_ids = whole[_RUN]
    if any(file.is_compacted for file in by_file) and any(map(operator.gt, run_ids, run_ids[1:])):
        # What is compacted lies by device model and month, and runs of other device models fall in between.
        order = sorted(range(len(run_ids)), key=run_ids.__getitem__)
        whole = {name: [values[row] for row in order] for name, values in whole.items()}
    return Reading(from_columns(whole, Record), problems)


def _each(values: object) -> Iterable[object]:
    if not isinstance(values, Collection):
        raise TypeError(f"where has {values!r}, expected a text or a collection of texts")
    return values
