"""Publishes what waits in the spool: each run is completed in its store, and done again or by two at once nothing is doubled."""

import contextlib
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from pairbench.store.derived import SINCE
from pairbench.store.files.chosen import choose
from pairbench.store.files.compacted import ROW, open_file
from pairbench.store.files.conform import UnsoundError
from pairbench.store.files.opened import BROKEN, ForeignFileError, OpenedFile, read_content
from pairbench.store.location import RunFile, StoreLocation, run_files
from pairbench.store.reading import problem_of
from pairbench.store.spool.folder import Waiting, held
from pairbench.store.upkeep.compact import publish_runs
from pairbench.store.writer import content_of

_KEYS = {
    "records": ("device_name", "device_uuid", "suite", "case", "implementation", "mode", "reason"),
    "samples": ("device_name", "device_uuid", "suite", "case", "implementation", "mode", "round"),
}
"""Columns that tell the rows of a run apart; the reason does for suites that could not be loaded."""


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """What became of a folder of the spool."""

    files: int
    """How many of its files are in the store now."""
    problems: tuple[str, ...]
    """A sentence for each file that stays, for it cannot be read."""


def push(one: Waiting, location: StoreLocation) -> Pushed:
    """Publish what a folder of the spool holds, and remove it.

    Raises:
        BlockingIOError: another process does the same.
        StoreFailedError: the store does not take it; what it took until then is there, and the rest still waits.
    """
    with held(one):
        runs: defaultdict[tuple[str, str], list[Path]] = defaultdict(list)
        others: list[Path] = []
        for path in one.files:
            if path.suffix == ".parquet" and path.parts[0] in _KEYS:
                (file,) = run_files([path.as_posix()])
                runs[path.parent.as_posix(), file.run_id].append(path)
            else:
                others.append(path)
        published, problems = 0, []
        for (folder, run_id), paths in runs.items():
            try:
                _complete(one, location, folder, run_id, paths)
            except (ForeignFileError, UnsoundError, *BROKEN) as error:
                problems.append(problem_of(str(one.folder / paths[0]), error))
                continue
            published += _forget(one, paths)
        for path in others:
            target = f"{location.root}/{path.as_posix()}"
            location.make_folder(target.rpartition("/")[0])
            location.publish(target, read_content(StoreLocation.of(one.folder), str(one.folder / path)))
            published += _forget(one, [path])
        if not problems:
            shutil.rmtree(one.folder, ignore_errors=True)
    return Pushed(files=published, problems=tuple(problems))


def _complete(one: Waiting, location: StoreLocation, folder: str, run_id: str, paths: Sequence[Path]) -> None:
    """Make one file of what the store has of a run and what waits for it.

    A part in the spool takes the place of the store's part of the same name: that is an earlier state of it, or came
    through although the store said otherwise. Where the run has its one file already, or was compacted, only rows that the store has
    not are added: to records in a new file, so that whoever compacts meanwhile deletes none of them.
    """
    dataset = PurePosixPath(folder).parts[0]
    spool = StoreLocation.of(one.folder)
    waiting = {path.name: OpenedFile(spool, str(one.folder / path), dataset).raw() for path in paths}
    chosen = choose(location, location.files(folder))
    there = [file for found in chosen.files if (file := found.only({run_id})) is not None]
    parts = [file for file in (*chosen.files, *chosen.left) if file.is_part and file.run_id == run_id]
    location.make_folder(f"{location.root}/{folder}")
    try:
        opened = {file: open_file(location, file, dataset) for file in there}
        tables = {_name(file): one.raw() for file, one in opened.items()}
    except (ForeignFileError, UnsoundError, *BROKEN):
        # What the store has of it is damaged and stays beside the sound rows, to be named by whoever reads it.
        for path in paths:
            location.publish(f"{location.root}/{path.as_posix()}", read_content(spool, str(one.folder / path)))
        return
    wholes = [file for file in there if not file.is_part]
    if not wholes:
        joined = pa.concat_tables([table for _, table in sorted({**tables, **waiting}.items())])
        location.publish(f"{location.root}/{folder}/{run_id}.parquet", content_of(dataset, joined))
    else:
        (file,) = wholes
        whole = _plain(tables[_name(file)])
        missing = [_missing(whole, table, dataset) for table in waiting.values()]
        if any(len(table) for table in missing):
            joined = pa.concat_tables([whole, *missing])
            if dataset == "records" and opened[file].version >= SINCE:
                publish_runs(location, f"{location.root}/{folder}", [joined])
                location.delete([] if file.is_compacted else [file.path])
            else:
                location.publish(file.path, content_of(dataset, joined))
    location.delete(file.path for file in parts)


def _plain(table: pa.Table) -> pa.Table:
    """Return a run as its own file has it."""
    return table.drop_columns([ROW]) if ROW in table.column_names else table


def _missing(whole: pa.Table, table: pa.Table, dataset: str) -> pa.Table:
    """Return the rows of a table that another one has not."""
    known = set(_keys(whole, dataset))
    return table.filter(pa.array([key not in known for key in _keys(table, dataset)], pa.bool_()))


def _keys(table: pa.Table, dataset: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in _KEYS[dataset]), strict=True)


def _forget(one: Waiting, paths: Sequence[Path]) -> int:
    for path in paths:
        (one.folder / path).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            (one.folder / path).parent.rmdir()
    return len(paths)


def _name(file: RunFile) -> str:
    return file.path.rpartition("/")[2]
