"""Writes runs into a store, so that finished batches stay there whatever happens to the process."""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pairbench.errors import StoreError, StoreFailedError
from pairbench.model.record import Record, Samples
from pairbench.store.location import RunFile, Store, StoreLocation, is_run_id
from pairbench.store.opened import BROKEN, OpenedFile, sealed, tidy
from pairbench.store.schema import texts_of, to_table

_DATASETS = ("samples", "records")
"""Datasets in the order in which they are closed, so that no record is ever seen without its samples."""


class RunWriter:
    """A run's files of one device model, open for as long as the run lasts.

    Batches are in the store when a method returns; each raises StoreFailedError where there is no space or permission. Append
    samples before the records that were made of them, so that no record is ever seen without its samples.
    """

    def __init__(
        self,
        store: Store,
        *,
        run_id: str,
        device_slug: str,
        month: str,
        publish: Callable[[str, pa.Buffer], None] | None = None,
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        if records:
            self._publish("records", self._number + 1, to_table(records, Record))

    def write_case(self, case: Hashable, records: Sequence[Record]) -> None:
        """Write all known records of one case, in place of its earlier ones."""
        # Each case has a part of its own, so that another round costs no more than its own rows. The swap is atomic, so a
        # row is never there twice and never missing.
        if records:
            self._publish("records", self._parts_of_cases.setdefault(case, self._number + 1), to_table(records, Record))

    def append_samples(self, samples: Sequence[Samples]) -> None:
        if samples:
            self._publish("samples", self._number + 1, to_table(samples, Samples))

    def close(self) -> None:
        """Make one file of the parts. Where that fails the parts stay, and are as good; closing twice is fine."""
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

    def _publish(self, dataset: str, number: int, table: pa.Table) -> None:
        if self._closed:
            raise ValueError(f"run {self._run_id} is closed, expected no more {dataset}")
        self._number = max(self._number, number)
        path = f"{self._location.root}/{dataset}/{self._partition}/{self._run_id}.part-{number:06d}.parquet"
        self._publish_file(path, content_of(dataset, table))


def write_run(
    store: Store,
    *,
    run_id: str,
    device_slug: str,
    month: str,
    records: Sequence[Record],
    samples: Sequence[Samples],
) -> None:
    """Write all of a run's rows of one device model at once, the samples first; the store must have no records of it."""
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
    """Return the folder of a run's files of one device model in that of a dataset."""
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
    # Made in memory, so that it reaches the store in one piece.
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True, **options)
    return sealed(sink.getvalue())
