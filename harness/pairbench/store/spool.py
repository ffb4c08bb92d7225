"""Where results wait that a store did not take: a folder of this user's, laid out as a store, which `pairbench store push` publishes.

Publishes what waits in the spool: each run is completed in its store, and done again or by two at once nothing is doubled.
"""

import contextlib
import datetime as dt
import fcntl
import json
import os
import secrets
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from pairbench.errors import StoreError, StoreFailedError
from pairbench.own_folders import check_own, make_own, state_folder, temporary_folder
from pairbench.store.derived import SINCE
from pairbench.store.files.compacted import ROW, choose, open_file
from pairbench.store.files.conform import UnsoundError
from pairbench.store.files.opened import BROKEN, ForeignFileError, OpenedFile, read_content
from pairbench.store.files.written import sweep_temporary, write_whole
from pairbench.store.location import RunFile, StoreLocation, run_files
from pairbench.store.reading import problem_of
from pairbench.store.upkeep.compact import publish_runs
from pairbench.store.writer import content_of

_FOLDER = "spool"
_NOTE = "spool.json"
_OWNER = ".owner"
_KIND = "spool 1"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A folder of the spool, whose run has ended."""

    folder: Path
    store: str
    """The store that it was meant for, without what would open it."""
    why: str
    """What the store said."""

    @property
    def files(self) -> list[Path]:
        """The files that are to be published, in an order in which no record comes before its samples."""
        found = [path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
        kept = [path.relative_to(self.folder) for path in found if path.parent != self.folder]
        return sorted(kept, key=lambda path: (path.parts[0] == "records", path))


class Spool:
    """Publishes files into a store, and from the moment that it fails into a folder of this user's.

    Nothing is made before it is needed. What cannot be kept there either, for the disk is full, stays in memory and is tried again.
    """

    def __init__(self, location: StoreLocation, name: str, notify: Callable[[str], None]) -> None:
        """Take a name for the folder, and what is told of it.

        Args:
            location: The store.
            name: What the folder's name begins with, such as the run's id.
            notify: Is told once that the store has failed, and where the results are.
        """
        self.location = location
        self.why: str | None = None
        """What the store said when it failed first; None as long as it has not."""
        self.folder: Path | None = None
        """Where the files are that it did not take; None where there are none, or they could not be kept."""
        self._name = name
        self._notify = notify
        self._told = False
        self._held = contextlib.ExitStack()
        self._unkept: dict[str, pa.Buffer] = {}

    def publish(self, path: str, content: pa.Buffer) -> None:
        """Make a file appear, whole, in the store, or once that has failed in the folder; what neither takes is kept in memory."""
        if self.why is None:
            try:
                self.location.publish(path, content)
            except StoreFailedError as error:
                self.why = str(error)
            else:
                return
        self._unkept[path[len(self.location.root) + 1 :]] = content
        self._keep()
        if not self._told:
            self._told = True
            where = f"in {self.folder}" if self.folder else "in memory, for no other place takes them"
            self._notify(f"pairbench: {self.why}; what is measured from here on is kept {where}")

    def publish_alone(self, path: str, content: pa.Buffer) -> None:
        """Make a file appear as `publish` does, where nobody has made its folder yet."""
        if self.why is None:
            try:
                self.location.make_folder(path.rpartition("/")[0])
            except (StoreError, StoreFailedError) as error:
                self.why = str(error)
        self.publish(path, content)

    def _keep(self) -> None:
        """Write down what is kept in memory, as far as there is room."""
        if self.folder is None:
            self.folder = self._make()
        if self.folder is None:
            return
        for path in list(self._unkept):
            try:
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                write_whole(self.folder / path, self._unkept[path])
            except OSError:
                return
            del self._unkept[path]

    def _make(self) -> Path | None:
        for base in spool_places():
            try:
                folder = make_own(base, _FOLDER, f"{self._name}-{secrets.token_hex(3)}")
                self._held.enter_context(_owned(folder))
                note = {
                    "pairbench": _KIND,
                    "store": self.location.address,
                    "why": self.why,
                    "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
                }
                write_whole(folder / _NOTE, json.dumps(note, indent=2).encode())
            except OSError:
                continue
            return folder
        return None

    def close(self) -> tuple[str, ...]:
        """Let others publish what is in the folder.

        Returns:
            The files, below the store's root, that neither the store nor a folder has taken.
        """
        if self._unkept:
            self._keep()
        self._held.close()
        for path in list(self._unkept):
            try:
                self.location.publish(f"{self.location.root}/{path}", self._unkept[path])
            except StoreFailedError:
                break
            del self._unkept[path]
        return tuple(self._unkept)


def spool_places() -> list[Path]:
    """Return the user's folders in which results may wait, the first one first."""
    return [place for place in (state_folder(), temporary_folder()) if place is not None]


def waiting() -> Iterator[Waiting]:
    """Yield what waits, the oldest first; what a run that is under way still writes to is left alone."""
    for base in spool_places():
        with contextlib.suppress(OSError):
            check_own(base)  # what somebody else put there is not published
            for folder in sorted((base / _FOLDER).iterdir()):
                found = _waiting(folder)
                if found is not None:
                    yield found


def _waiting(folder: Path) -> Waiting | None:
    try:
        if not (folder / _NOTE).exists():
            _remove_empty(folder)
            return None
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        with _owned(folder):
            return Waiting(folder=folder, store=str(note["store"]), why=str(note["why"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _remove_empty(folder: Path) -> None:
    """Remove a folder whose maker was killed before anything was in it.

    Raises:
        OSError: something is in it, or somebody holds it.
    """
    check_own(folder)
    with _owned(folder):
        sweep_temporary([folder])
        if {file.name for file in folder.iterdir()} == {_OWNER}:
            (folder / _OWNER).unlink()
            folder.rmdir()


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Hold a folder: the kernel gives it back when the process ends, however it ends.

    Raises:
        BlockingIOError: another process holds it.
        OSError: it cannot be held.
    """
    descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def held(one: Waiting) -> contextlib.AbstractContextManager[None]:
    """Hold a folder while it is published, so that nobody else does the same.

    Raises:
        BlockingIOError: another process does.
    """
    return _owned(one.folder)


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
