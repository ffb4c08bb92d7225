"""Reads little of many runs, fast: one series over all of them, and what each one is."""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

from pairbench.model.latency import RESULT_COLUMNS
from pairbench.model.record import Record
from pairbench.store.location import RunFile, StoreLocation
from pairbench.store.narrow import ForeignFileError, NarrowFile
from pairbench.store.parts import doubled
from pairbench.store.reader import NOT_SOUND, Reading, dataset_files, foreign, problem_of
from pairbench.store.schema import from_rows, schema_of

TREND_COLUMNS = (
    *("run_id", "confirms", "started_at", "commit", "commit_at", "branch", "dirty"),
    *("suite", "operator", "definition_hash", "implementation_hash", "case", "tier", "implementation", "role", "mode"),
    *("device_kind", "device_name", "device_uuid", "driver", "cuda", "cudnn", "torch", "triton", "python"),
    *("hostname", "cpu", "environment_hash", "status", "reason"),
    *RESULT_COLUMNS,
)
"""What a history of one series needs; each column that varies within a run adds some 0.1 s for a thousand runs."""

Rows = list[dict[str, Any]]

_KNOWN = frozenset(schema_of(Record).names)
_THREADS, _THREADS_REMOTE = 2, 32
"""An object store lets one wait for many files at the same time."""
_ATTEMPTS = 5


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
        columns: What to read; all others are None in the records. The fewer, the faster.
        run_ids: Files of other runs are not opened.

    Raises:
        StoreError: there is no such store, or it is empty.
    """
    wanted = {name: (value,) if isinstance(value, str) else tuple(_each(value)) for name, value in where.items()}
    if unknown := sorted({*columns, *wanted} - _KNOWN):
        raise ValueError(f"records have no column {unknown[0]!r}, expected one of {', '.join(sorted(_KNOWN))}")
    names = [item.name for item in fields(Record) if item.name in columns or item.name in wanted]
    place = StoreLocation.of(store)
    files = [file for file in dataset_files(place, "records") if run_ids is None or file.run_id in run_ids]
    by_file, problems = of_each(place, files, lambda file: file.rows(names, wanted))
    return Reading(from_rows([row for rows in by_file.values() for row in rows], Record), problems)


def read_file(place: StoreLocation, file: RunFile) -> Reading[tuple[Record, ...]]:
    """Return everything in one file."""
    names = [item.name for item in fields(Record)]
    by_file, problems = of_each(place, [file], lambda opened: opened.rows(names, {}))
    return Reading(from_rows([row for rows in by_file.values() for row in rows], Record), problems)


def read_distinct(
    store: str | Path | StoreLocation, columns: Sequence[str], files: Iterable[RunFile]
) -> Reading[dict[RunFile, Rows]]:
    """Return for each file the combinations of values that some columns have in it."""
    return of_each(StoreLocation.of(store), list(files), lambda file: file.distinct(columns))


def of_each(
    place: StoreLocation, files: list[RunFile], read: Callable[[NarrowFile], Rows]
) -> Reading[dict[RunFile, Rows]]:
    """Read something of each file, and say of each that cannot be read why not."""
    run_ids = {file.run_id for file in files}
    for attempt in range(_ATTEMPTS):
        try:
            with ThreadPoolExecutor(_THREADS if place.is_local else _THREADS_REMOTE) as pool:
                results = list(pool.map(functools.partial(_attempt, place, read), files))
            break
        except FileNotFoundError:
            # A run closed between the listing and the reading, and its parts became one file.
            if attempt == _ATTEMPTS - 1:
                raise
            files = [file for file in dataset_files(place, "records") if file.run_id in run_ids]
    by_file = {file: rows for file, rows in zip(files, results, strict=True) if not isinstance(rows, str)}
    # A part beside its sound whole is the same rows again.
    for whole, parts in doubled(files).items():
        if any(file.path == whole for file in by_file):
            by_file = {file: rows for file, rows in by_file.items() if file.path not in parts}
    return Reading(by_file, tuple(rows for rows in results if isinstance(rows, str)))


def _attempt(place: StoreLocation, read: Callable[[NarrowFile], Rows], file: RunFile) -> Rows | str:
    try:
        return read(NarrowFile(place, file))
    except FileNotFoundError:
        raise
    except ForeignFileError:
        return foreign(file.path)
    except NOT_SOUND as error:
        return problem_of(file.path, error)


def _each(values: object) -> Iterable[object]:
    if not isinstance(values, Collection):
        raise TypeError(f"where has {values!r}, expected a text or a collection of texts")
    return values
