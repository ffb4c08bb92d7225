"""Writes runs into a store, so that finished batches stay there whatever happens to the process or to the store.

Results that a store did not take wait in the spool, a folder of this user's that is laid out as a store, until `pairbench store push`.
Publishing completes each run in its store; done again, or by two at once, it doubles no row.
"""

import contextlib
import datetime as dt
import json
import os
import re
import secrets
import shutil
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pairbench.errors import StoreError, StoreFailedError
from pairbench.model.environment import device_slug
from pairbench.model.plain import Value
from pairbench.model.record import Record, Samples
from pairbench.own_folders import check_own, locked, make_own, state_folder, temporary_folder
from pairbench.store.compacted import ROW, choose, open_file, publish_runs, tidy
from pairbench.store.files import Reading, sweep_temporary, write_whole
from pairbench.store.location import Publish, RunFile, Store, StoreLocation, is_run_id, run_files
from pairbench.store.opened import BROKEN, OpenedFile, problem_of, read_content, sealed
from pairbench.store.reading import SINCE
from pairbench.store.schema import ROW_TYPES, texts_of, to_table

Rows = Sequence[Record] | Sequence[Samples]
_DATASETS = ("samples", "records")
"""Datasets in the order in which they are closed, so that no record is ever seen without its samples."""


class RunWriter:
    """A run's files of one device model, open for as long as the run lasts."""

    # Batches are in the store when a method returns; each raises StoreFailedError where there is no space or permission. Append
    # samples before the records that were made of them, so that no record is ever seen without its samples.

    def __init__(
        self, store: Store, *, run_id: str, device_slug: str, month: str, publish: Publish | None = None
    ) -> None:
        """Name the run's files, whose `month` is YYYY-MM; nothing is written before the `with`."""
        # `publish` writes a batch under its path; the store itself where it is not given.
        self._location = StoreLocation.of(store)
        self._run_id = run_id
        self._partition = _partition(run_id, device_slug, month)
        self._publish_file = publish or self._location.publish
        self._number = 0
        self._parts_of_cases: dict[Hashable, int] = {}
        self._closed = False

    def __enter__(self) -> Self:
        """Make the folders and write a file to them, so that a store that takes none fails before anything is measured."""
        self._location.sweep()
        for dataset in _DATASETS:
            folder = f"{self._location.root}/{dataset}/{self._partition}"
            self._location.make_folder(folder)
            self._location.probe(folder)
            if taken := self._files(dataset):
                raise StoreError(f"run {self._run_id} is in the store already: {taken[0].path}; a run is written once")
            tidy(self._location, self._location.files(dataset))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the run, also when an error or an interrupt ended it, which is raised further."""
        try:
            self.close()
        except StoreFailedError as failed:
            if error is None:
                raise
            error.add_note(str(failed))

    def expect(self, cases: Iterable[Hashable]) -> None:
        """Set the order of cases in the run's file, whichever `write_case` writes first."""
        for number, case in enumerate(cases, start=self._number + 1):
            self._parts_of_cases[case] = self._number = number

    def append_records(self, records: Sequence[Record]) -> None:
        self._publish("records", self._number + 1, records)

    def write_case(self, case: Hashable, records: Sequence[Record]) -> None:
        """Write all known records of one case, in place of its earlier ones."""
        # Each case has a part of its own, so that another round costs no more than its own rows. The swap is atomic, so a
        # row is never there twice and never missing.
        if records:
            self._publish("records", self._parts_of_cases.setdefault(case, self._number + 1), records)

    def append_samples(self, samples: Sequence[Samples]) -> None:
        self._publish("samples", self._number + 1, samples)

    def close(self) -> None:
        # Where that fails the parts stay, and are as good; closing twice is fine.
        self._closed = True
        for dataset in _DATASETS:
            # The files in the store count, not our memory of them: an interrupt may have come between the two.
            files = self._files(dataset)
            if files and all(file.is_part for file in files):
                parts = []
                for file in files:
                    try:
                        parts.append(OpenedFile(self._location, file.path, dataset).raw())
                    except BROKEN as error:
                        problem = f"{file.path} cannot be read back: {error}"
                        raise StoreFailedError(f"store {self._location.name!r}: {problem}") from error
                self._location.publish(files[0].whole, content_of(dataset, pa.concat_tables(parts)))
            tidy(self._location, self._files(dataset))

    def _files(self, dataset: str) -> list[RunFile]:
        return _files(self._location, f"{dataset}/{self._partition}", self._run_id)

    def _publish(self, dataset: str, number: int, rows: Rows) -> None:
        if not rows:
            return
        if self._closed:
            raise ValueError(f"run {self._run_id} is closed, expected no more {dataset}")
        self._number = max(self._number, number)
        path = f"{self._location.root}/{dataset}/{self._partition}/{self._run_id}.part-{number:06d}.parquet"
        self._publish_file(path, content_of(dataset, to_table(rows, ROW_TYPES[dataset])))


def write_runs(store: Store, records: Sequence[Record], samples: Sequence[Samples]) -> None:
    """Write rows of whole runs, those of each run and device model into files of their own."""
    for run_id, name in dict.fromkeys((record.run_id, record.device_name) for record in records):
        own = [record for record in records if (record.run_id, record.device_name) == (run_id, name)]
        raw = [row for row in samples if (row.run_id, row.device_name) == (run_id, name)]
        slug, month = device_slug(name, own[0].device_kind), own[0].started_at[:7]
        write_run(store, run_id=run_id, device_slug=slug, month=month, records=own, samples=raw)


def write_run(
    store: Store, *, run_id: str, device_slug: str, month: str, records: Sequence[Record], samples: Sequence[Samples]
) -> None:
    # Interrupted between the two it leaves samples without records. Done again it replaces these, so that the
    # same rows can be written as often as it takes.
    location = StoreLocation.of(store)
    partition = _partition(run_id, device_slug, month)
    for dataset in _DATASETS:
        location.make_folder(f"{location.root}/{dataset}/{partition}")
    if samples:
        path = f"{location.root}/samples/{partition}/{run_id}.parquet"
        location.publish(path, content_of("samples", to_table(samples, Samples)))
    stored = _files(location, f"samples/{partition}", run_id)
    location.delete(file.path for file in stored if file.is_part or not samples)
    if records:
        path = f"{location.root}/records/{partition}/{run_id}.parquet"
        location.publish(path, content_of("records", to_table(records, Record)))


def _partition(run_id: str, device_slug: str, month: str) -> str:
    if not is_run_id(run_id):
        raise ValueError(f"run_id {run_id!r}: expected letters, digits and _ . + -, as it is a file name")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", device_slug) or not re.fullmatch(r"\d{4}-\d{2}", month):
        raise ValueError(f"device {device_slug!r}, month {month!r}: expected a word and YYYY-MM, as they are folders")
    return f"device={device_slug}/month={month}"


def _files(location: StoreLocation, folder: str, run_id: str) -> list[RunFile]:
    return [file for file in location.files(folder) if file.run_id == run_id]


def content_of(dataset: str, table: pa.Table) -> pa.Buffer:
    """Return the content of a dataset's file; records are compressed for speed, for a history opens a thousand files of them."""
    options: dict[str, Any] = {"compression": "zstd"}
    if dataset == "records":
        options = {"compression": "lz4", "use_dictionary": texts_of(table.schema)}
    sink = pa.BufferOutputStream()  # made in memory, so that it reaches the store in one piece
    pq.write_table(table, sink, write_page_checksum=True, **options)
    return sealed(sink.getvalue())


_FOLDER, _NOTE, _OWNER = "spool", "spool.json", ".owner"


class Waiting(Value):
    """A folder of the spool, whose run has ended."""

    folder: Path
    store: str  # the store that it was meant for, without credentials
    why: str

    @property
    def files(self) -> list[Path]:
        paths = [path.relative_to(self.folder) for path in self.folder.glob("*/**/[!.]*") if path.is_file()]
        return sorted(paths, key=lambda path: (path.parts[0] == "records", path))


class Spool:
    """Publishes files into a store, and once that has failed into a folder of this user's, which is made when it is needed."""

    # The folder's name begins with `name`; `notify` gets a sentence then. Files that cannot be written to it either, for the disk is full,
    # stay in memory and are tried again.

    def __init__(self, location: StoreLocation, name: str, notify: Callable[[str], None]) -> None:
        self.location = location
        self.why: str | None = None  # the first error of the store; None as long as it has not failed
        self.folder: Path | None = None
        """The folder with the files that the store did not take; None if there are none, or if no folder could keep them."""
        self._name = name
        self._notify: Callable[[str], None] | None = notify
        self._held = contextlib.ExitStack()
        self._unkept: dict[str, pa.Buffer] = {}

    def publish(self, path: str, content: pa.Buffer) -> None:
        if self.why is None:
            try:
                self.location.publish(path, content)
                return
            except StoreFailedError as error:
                self.why = str(error)
        self._unkept[path[len(self.location.root) + 1 :]] = content
        self._keep()
        notify, self._notify = self._notify, None  # once
        if notify is not None:
            where = f"in {self.folder}" if self.folder else "in memory, for no other place takes them"
            notify(f"pairbench: {self.why}; what is measured from here on is kept {where}")

    def publish_alone(self, path: str, content: pa.Buffer) -> None:
        if self.why is None:
            try:
                self.location.make_folder(path.rpartition("/")[0])
            except (StoreError, StoreFailedError) as error:
                self.why = str(error)
        self.publish(path, content)

    def _keep(self) -> None:
        """Write the files in memory to the folder, as far as there is room."""
        self.folder = self.folder or self._make()
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            for path in list(self._unkept):
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                write_whole(self.folder / path, self._unkept[path])
                del self._unkept[path]

    def _make(self) -> Path | None:
        for base in spool_places():
            try:
                folder = make_own(base, _FOLDER, f"{self._name}-{secrets.token_hex(3)}")
                self._held.enter_context(_owned(folder))
                at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
                note = {"pairbench": "spool 1", "store": self.location.address, "why": self.why, "at": at}
                write_whole(folder / _NOTE, json.dumps(note, indent=2).encode())
            except OSError:
                continue
            return folder
        return None

    def close(self) -> tuple[str, ...]:
        """Release the folder to `push`, and return the files, below the root, that neither the store nor the folder has taken."""
        if self._unkept:
            self._keep()
        self._held.close()
        with contextlib.suppress(StoreFailedError):
            for path in list(self._unkept):
                self.location.publish(f"{self.location.root}/{path}", self._unkept[path])
                del self._unkept[path]
        return tuple(self._unkept)


def spool_places() -> list[Path]:
    return [place for place in (state_folder(), temporary_folder()) if place is not None]


def waiting() -> Iterator[Waiting]:
    for base in spool_places():
        folders: list[Path] = []
        with contextlib.suppress(OSError):
            check_own(base)  # files of another user are not published
            folders = sorted((base / _FOLDER).iterdir())
        for folder in folders:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                if (waiting_folder := _waiting(folder)) is not None:
                    yield waiting_folder


def _waiting(folder: Path) -> Waiting | None:
    """Return a folder that no process holds; where its process was killed before anything was in it, remove it."""
    if not (folder / _NOTE).exists():
        check_own(folder)
        with _owned(folder):
            sweep_temporary([folder])
            if {file.name for file in folder.iterdir()} == {_OWNER}:
                (folder / _OWNER).unlink()
                folder.rmdir()
        return None
    note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
    with _owned(folder):
        return Waiting(folder=folder, store=str(note["store"]), why=str(note["why"]))


def _owned(folder: Path) -> contextlib.AbstractContextManager[int]:
    """Lock a folder until the process ends, however it ends; raise BlockingIOError where another process holds it."""
    return locked(folder / _OWNER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)


_KEYS = {
    "records": ("device_name", "device_uuid", "suite", "case", "implementation", "mode", "reason"),
    "samples": ("device_name", "device_uuid", "suite", "case", "implementation", "mode", "round"),
}
"""Columns that tell the rows of a run apart; `reason` tells apart those of suites that could not be loaded, which have no case."""


def push(one: Waiting, location: StoreLocation) -> Reading[int]:
    """Publish a folder of the spool, and return the number of files; what cannot be read stays."""
    # Raises BlockingIOError where another process does the same, and StoreFailedError where the store does not take a file: the rest waits.
    with _owned(one.folder):
        runs: defaultdict[tuple[str, str | None], list[Path]] = defaultdict(list)
        for path in one.files:
            is_of_run = path.suffix == ".parquet" and path.parts[0] in _KEYS
            run_id = run_files([path.as_posix()])[0].run_id if is_of_run else None
            runs[path.parent.as_posix(), run_id].append(path)
        published, problems = 0, []
        for (folder, run_id), paths in runs.items():
            location.make_folder(f"{location.root}/{folder}")
            try:
                if run_id is None:
                    _copy(one, location, paths)
                else:
                    _complete(one, location, folder, run_id, paths)
            except BROKEN as error:
                problems.append(problem_of(str(one.folder / paths[0]), error))
                continue
            published += len(paths)
            for path in paths:
                (one.folder / path).unlink(missing_ok=True)
        if not problems:
            shutil.rmtree(one.folder, ignore_errors=True)
    return Reading(published, tuple(problems))


def _copy(one: Waiting, location: StoreLocation, paths: Iterable[Path]) -> None:
    for path in paths:
        content = read_content(StoreLocation.of(one.folder), str(one.folder / path))
        location.publish(f"{location.root}/{path.as_posix()}", content)


def _complete(one: Waiting, location: StoreLocation, folder: str, run_id: str, paths: Sequence[Path]) -> None:
    # A part in the spool replaces the store's part of the same name: that is an earlier state of it, or arrived
    # although the store said otherwise. Where the run has its one file already, or was compacted, only rows that the store lacks
    # are added: to records in a new file, so that a process that compacts meanwhile deletes none of them.
    dataset = PurePosixPath(folder).parts[0]
    spool = StoreLocation.of(one.folder)
    waiting = {path.name: OpenedFile(spool, str(one.folder / path), dataset).raw() for path in paths}
    chosen = choose(location, location.files(folder))
    stored = [file for listed in chosen.files if (file := listed.only({run_id})) is not None]
    parts = [file for file in (*chosen.files, *chosen.left) if file.is_part and file.run_id == run_id]
    try:
        opened = {file: open_file(location, file, dataset) for file in stored}
        tables = {PurePosixPath(file.path).name: in_store.raw() for file, in_store in opened.items()}
    except BROKEN:
        _copy(one, location, paths)  # the store's damaged file stays beside the sound rows, and readers name it
        return
    wholes = [file for file in stored if not file.is_part]
    if not wholes:
        joined = pa.concat_tables([table for _, table in sorted({**tables, **waiting}.items())])
        location.publish(f"{location.root}/{folder}/{run_id}.parquet", content_of(dataset, joined))
    else:
        (file,) = wholes
        whole = tables[PurePosixPath(file.path).name]
        whole = whole.drop_columns([ROW]) if ROW in whole.column_names else whole
        known = set(_keys(whole, dataset))
        lacks = ([key not in known for key in _keys(table, dataset)] for table in waiting.values())
        missing = [table.filter(pa.array(of, pa.bool_())) for table, of in zip(waiting.values(), lacks, strict=True)]
        if any(len(table) for table in missing):
            joined = pa.concat_tables([whole, *missing])
            if dataset == "records" and opened[file].version >= SINCE:
                publish_runs(location, f"{location.root}/{folder}", [joined])
                location.delete([] if file.is_compacted else [file.path])
            else:
                location.publish(file.path, content_of(dataset, joined))
    location.delete(file.path for file in parts)


def _keys(table: pa.Table, dataset: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in _KEYS[dataset]), strict=True)
