"""Reads something of many files, of each once, also while runs close; what cannot be read is named and costs only itself.

Suites that lie elsewhere now than when runs were made: what is stored under an old name is read under the new one.

A series goes by its suite's name, so without this a file that moves would break every history of what it declares.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pairbench.errors import EmptyStoreError
from pairbench.model.record import Series
from pairbench.store.files.compacted import choose, open_file
from pairbench.store.files.conform import UnsoundError
from pairbench.store.files.opened import BROKEN, ForeignFileError, OpenedFile, doubled
from pairbench.store.location import RunFile, StoreLocation, run_files
from pairbench.store.schema import SCHEMA_VERSION

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


_THREADS, _THREADS_REMOTE = 4, 32
"""An object store lets one wait for many files at the same time."""
_TIMES_REMOTE = 4
"""How often a part in an object store is read that seems damaged: another round replaces it, and its size may be that of the earlier one."""
_LISTINGS = 10
"""How often a run is looked for again whose files were gone as they were read; it closes once, so one time is enough."""

Value = TypeVar("Value")


class Reading(NamedTuple, Generic[Value]):
    """What was read, and a sentence for each file that could not be."""

    value: Value
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Files:
    """A dataset's files, and what has the name of one and is none."""

    files: tuple[RunFile, ...]
    """The files, oldest run first."""
    problems: tuple[str, ...] = ()
    """A sentence for each name that is no file."""

    def of_runs(self, run_ids: Collection[str]) -> "Files":
        """Return the files of some runs."""
        wanted = run_ids if isinstance(run_ids, AbstractSet) else set(run_ids)
        kept = (file.only(wanted) for file in self.files)
        return Files(files=tuple(file for file in kept if file is not None), problems=self.problems)

    @property
    def run_ids(self) -> list[str]:
        """The runs, oldest first."""
        return sorted({run_id for file in self.files for run_id in file.run_ids})


def stored_files(place: StoreLocation, dataset: str) -> Files:
    """Return a dataset's files, each with the runs that are to be read from it; none where there is no such store.

    Raises:
        StoreFailedError: it cannot be listed, or does not give a file.
    """
    listing = place.listing(dataset, ".parquet")
    chosen = choose(place, run_files(listing.paths))
    return Files(files=chosen.files, problems=(*listing.problems, *chosen.problems))


def dataset_files(place: StoreLocation, dataset: str) -> Files:
    """Return a dataset's files.

    Raises:
        EmptyStoreError: there is no such store, or it is empty.
        StoreFailedError: it cannot be listed.
    """
    files = stored_files(place, dataset)
    if not files.files:
        told = "".join(f"; {problem}" for problem in files.problems)
        raise EmptyStoreError(
            f"store {place.name!r} has no {dataset}: there is no parquet file below {place.root}/{dataset}; "
            f"make some with `pairbench run`, or name another store with --store{told}"
        )
    return files


def read_each(
    place: StoreLocation,
    dataset: str,
    files: Files | Sequence[RunFile],
    read: Callable[[OpenedFile], Value],
    *,
    threads: int = _THREADS,
) -> Reading[dict[RunFile, Value]]:
    """Read something of each file, and say of each that cannot be read why not.

    A run may close meanwhile, and then its parts are gone: it is listed again, and read from the one file that they became. A part
    beside its sound one file is the same rows again, and left out.

    Args:
        place: The store.
        dataset: What the files are of.
        files: The files, as they were listed.
        read: What to read of a file. It may raise what `OpenedFile` does.
        threads: How many files of a local store are read at the same time.

    Raises:
        StoreFailedError: the store cannot be listed again, or is elsewhere and does not give a file.
    """
    problems = list(files.problems) if isinstance(files, Files) else []
    pending = _joined(files.files if isinstance(files, Files) else files)
    found: dict[RunFile, Value | str] = {}
    newer: set[int] = set()
    for attempt in range(_LISTINGS + 1):
        with ThreadPoolExecutor(threads if place.is_local else _THREADS_REMOTE) as pool:
            results = dict(
                zip(pending, pool.map(lambda file: _attempt(place, dataset, file, read, newer), pending), strict=True)
            )
        gone = {run_id for file, result in results.items() if result is None for run_id in file.run_ids}
        if attempt == _LISTINGS:
            problems += [
                f"{file.path}: was gone as it was read, left out" for file, result in results.items() if result is None
            ]
            gone = set()
        found |= {file: result for file, result in results.items() if result is not None}
        if not gone:
            break
        # A run's own files are read again, all of them: parts may have become one file. What has been read of a compacted one has been read.
        found = {file: result for file, result in found.items() if file.is_compacted or file.run_id not in gone}
        read_already = {(file.folder, run_id) for file in found if file.is_compacted for run_id in file.run_ids}
        again = stored_files(place, dataset).of_runs(gone).files
        pending = [left for file in again if (left := _without(file, read_already)) is not None]
    problems += [result for result in found.values() if isinstance(result, str)]
    problems += [_newer(place, version) for version in sorted(newer)]
    values = {file: result for file, result in found.items() if not isinstance(result, str)}
    sound = {file.path for file in values}
    superfluous = {part for whole, parts in doubled(values).items() if whole in sound for part in parts}
    # Of compacted files the rows are ordered by who reads them; of one run's they come by device model, as ever.
    compacted = any(file.is_compacted for file in values)
    ordered = sorted(values, key=lambda file: ("" if compacted else file.run_id, file.path))
    return Reading({file: values[file] for file in ordered if file.path not in superfluous}, tuple(problems))


def _joined(files: Iterable[RunFile]) -> list[RunFile]:
    """Return files of which none is there twice: of a compacted one, all runs that are wanted at once."""
    by_path: dict[str, RunFile] = {}
    for file in files:
        before = by_path.get(file.path)
        if before is None or not file.is_compacted:
            by_path[file.path] = file
        else:
            among = tuple(sorted({*before.among, *file.among}))
            by_path[file.path] = replace(file, run_id=among[-1], among=among)
    return list(by_path.values())


def _without(file: RunFile, done: Container[tuple[str, str]]) -> RunFile | None:
    """Return a file without those of its runs that have been read."""
    return file.only({run_id for run_id in file.run_ids if (file.folder, run_id) not in done})


def _attempt(
    place: StoreLocation, dataset: str, file: RunFile, read: Callable[[OpenedFile], Value], newer: set[int]
) -> Value | str | None:
    """Return what was read; a sentence where the file cannot be, and None where it is gone. Versions that are not known are added."""
    problem = ""
    for _ in range(_TIMES_REMOTE if file.is_part and not place.is_local else 1):
        try:
            opened = open_file(place, file, dataset)
            if opened.version > SCHEMA_VERSION:
                newer.add(opened.version)
            return read(opened)
        except FileNotFoundError:
            return None
        except ForeignFileError:
            return foreign(file.path)
        except (UnsoundError, *BROKEN) as error:
            problem = problem_of(file.path, error)
    return problem


def _newer(place: StoreLocation, version: int) -> str:
    return (
        f"store {place.name!r}: some files are of schema version {version}, which a newer pairbench wrote; this one knows "
        f"{SCHEMA_VERSION}, and leaves out what is new; update it"
    )


def foreign(path: str) -> str:
    """Return the sentence for a parquet file that is not ours."""
    return f"{path}: not written by pairbench, left out; move it out of the store"


def problem_of(path: str, error: BaseException) -> str:
    """Return the sentence for a file that cannot be read."""
    (first, *_) = str(error).splitlines() or [type(error).__name__]
    return f"{path}: cannot be read, left out: {first}"
