"""Writes one run into a store, so that what was finished stays there whatever happens to the process."""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pairbench.errors import StoreError, StoreFailedError
from pairbench.model.record import Record, Samples
from pairbench.store.files.conform import UnsoundError
from pairbench.store.files.opened import BROKEN, ForeignFileError, OpenedFile, sealed, tidy
from pairbench.store.location import RunFile, StoreLocation, is_run_id
from pairbench.store.schema import texts_of, to_table

_DATASETS = ("samples", "records")
"""Datasets in the order in which they are closed, so that no record is ever seen without its samples."""

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class RunWriter:
    """A run's files of one device model, open for as long as the run lasts.

    Batches are in the store when `append_*` returns. Append the samples before the records that were made of them, so
    that no record is ever seen without its samples.
    """

    def __init__(
        self,
        store: str | Path | StoreLocation,
        *,
        run_id: str,
        device_slug: str,
        month: str,
        publish: Callable[[str, pa.Buffer], None] | None = None,
    ) -> None:
        """Name the run's files; nothing is touched before the `with`.

        Args:
            store: a folder or a URL.
            run_id: unique for all time and sorted by it; part of the files' names.
            device_slug: the device model as part of a path.
            month: YYYY-MM of the run's start.
            publish: what makes a batch appear under its path in the store; the store itself where not given.
        """
        self._location = StoreLocation.of(store)
        self._run_id = run_id
        self._names = _Names(self._location.root, run_id, device_slug, month)
        self._publish_file = publish or self._location.publish
        self._number = 0
        self._parts_of_cases: dict[Hashable, int] = {}
        self._closed = False

    def __enter__(self) -> Self:
        """Make the folders and write a file to them, so that a store that takes none is known before anything is measured.

        Raises:
            StoreError: it cannot be written, or holds this run already.
            StoreFailedError: it is elsewhere, and takes nothing.
        """
        self._location.sweep()
        for dataset in _DATASETS:
            self._location.make_folder(self._names.folder(dataset))
            self._location.probe(self._names.folder(dataset))
            if taken := self._own_files(dataset):
                raise StoreError(f"run {self._run_id} is in the store already: {taken[0].path}; a run is written once")
            tidy(self._location, self._location.files(dataset))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the run, also when it is interrupted: what was appended is finished. An error that ended it is not hidden."""
        try:
            self.close()
        except StoreFailedError as failed:
            if error is None:
                raise
            error.add_note(str(failed))

    def expect(self, cases: Iterable[Hashable]) -> None:
        """Have the rows of cases in this order in the run's file, whichever is written first; see `write_case`."""
        for number, case in enumerate(cases, start=self._number + 1):
            self._parts_of_cases[case] = self._number = number

    def append_records(self, records: Sequence[Record]) -> None:
        """Put a batch of records in the store.

        Raises:
            StoreFailedError: there is no space or permission; what was appended before is there.
        """
        if records:
            self._append("records", to_table(records, Record))

    def write_case(self, case: Hashable, records: Sequence[Record]) -> None:
        """Put the records of one case in the store, in place of those that were written for it before.

        Each case has a part of its own, so that another round costs no more than its own rows. The swap is atomic, so a
        row is never there twice and never missing.

        Args:
            case: The same for the same case on the same device.
            records: All rows of the case that are known.

        Raises:
            StoreFailedError: there is no space or permission; what was written for the case before is there.
        """
        if records:
            self._publish("records", self._parts_of_cases.setdefault(case, self._number + 1), to_table(records, Record))

    def append_samples(self, samples: Sequence[Samples]) -> None:
        """Put a batch of samples in the store.

        Raises:
            StoreFailedError: there is no space or permission; what was appended before is there.
        """
        if samples:
            self._append("samples", to_table(samples, Samples))

    def close(self) -> None:
        """Make one file of the parts. Closing twice is fine.

        Raises:
            StoreFailedError: there is no space or permission; the parts stay, and are as good.
        """
        self._closed = True
        for dataset in _DATASETS:
            # What lies there counts, not what we remember: an interrupt may have come between the two.
            files = self._own_files(dataset)
            if files and all(file.is_part for file in files):
                whole = pa.concat_tables(self._read(file) for file in files)
                self._location.publish(files[0].whole, content_of(dataset, whole))
            tidy(self._location, self._own_files(dataset))

    def _append(self, dataset: str, table: pa.Table) -> None:
        self._publish(dataset, self._number + 1, table)

    def _publish(self, dataset: str, number: int, table: pa.Table) -> None:
        if self._closed:
            raise ValueError(f"run {self._run_id} is closed, expected no more {dataset}")
        self._number = max(self._number, number)
        self._publish_file(self._names.part(dataset, number), content_of(dataset, table))

    def _own_files(self, dataset: str) -> list[RunFile]:
        return self._names.files(self._location, dataset)

    def _read(self, file: RunFile) -> pa.Table:
        dataset = file.path[len(self._location.root) + 1 :].partition("/")[0]
        try:
            return OpenedFile(self._location, file.path, dataset).raw()
        except (ForeignFileError, UnsoundError, *BROKEN) as error:
            raise StoreFailedError(
                f"store {self._location.name!r}: {file.path} cannot be read back: {error}"
            ) from error


def write_run(
    store: str | Path | StoreLocation,
    *,
    run_id: str,
    device_slug: str,
    month: str,
    records: Sequence[Record],
    samples: Sequence[Samples],
) -> None:
    """Put all of a run's rows of one device model into the store at once, the samples first.

    Interrupted between the two it has left samples that no record belongs to. Done again it replaces these, so that the
    same rows can be written as often as it takes.

    Args:
        store: A folder or a URL.
        run_id: As for `RunWriter`.
        device_slug: As for `RunWriter`.
        month: As for `RunWriter`.
        records: The records; the store must have none of this run and device model.
        samples: The samples that they were made of.

    Raises:
        StoreError: its folders cannot be made.
        StoreFailedError: there is no space or permission.
    """
    location = StoreLocation.of(store)
    names = _Names(location.root, run_id, device_slug, month)
    for dataset in _DATASETS:
        location.make_folder(names.folder(dataset))
    if samples:
        location.publish(names.whole("samples"), content_of("samples", to_table(samples, Samples)))
    left = [file.path for file in names.files(location, "samples") if file.is_part or not samples]
    location.delete(left)
    if records:
        location.publish(names.whole("records"), content_of("records", to_table(records, Record)))


class _Names:
    """The names of a run's files of one device model."""

    def __init__(self, root: str, run_id: str, device_slug: str, month: str) -> None:
        if not is_run_id(run_id):
            raise ValueError(f"run_id {run_id!r}: expected letters, digits and _ . + -, as it is a file name")
        if not _SLUG.fullmatch(device_slug) or not re.fullmatch(r"\d{4}-\d{2}", month):
            raise ValueError(
                f"device {device_slug!r}, month {month!r}: expected a word and YYYY-MM, as they are folders"
            )
        self._root = root
        self._run_id = run_id
        self._partition = f"device={device_slug}/month={month}"

    def folder(self, dataset: str) -> str:
        return f"{self._root}/{dataset}/{self._partition}"

    def whole(self, dataset: str) -> str:
        return f"{self.folder(dataset)}/{self._run_id}.parquet"

    def part(self, dataset: str, number: int) -> str:
        return f"{self.folder(dataset)}/{self._run_id}.part-{number:06d}.parquet"

    def files(self, location: StoreLocation, dataset: str) -> list[RunFile]:
        """Return which of them there are."""
        found = location.files(f"{dataset}/{self._partition}")
        return [file for file in found if file.run_id == self._run_id]


def content_of(dataset: str, table: pa.Table) -> pa.Buffer:
    """Return the content of a dataset's file.

    Records are as fast to read as they are small, for a history opens a thousand files of them.
    """
    texts = texts_of(table.schema)
    options: dict[str, Any] = (
        {"compression": "lz4", "use_dictionary": texts} if dataset == "records" else {"compression": "zstd"}
    )
    # Made in memory, so that it reaches the store in one piece.
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True, **options)
    return sealed(sink.getvalue())
