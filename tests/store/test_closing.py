"""Runs that close while others list and read them: every reader has every run, whole, and nobody is told of it."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pairbench.store.location import StoreLocation
from pairbench.store.opened import OpenedFile
from pairbench.store.reader import read_frame, read_records, read_series
from pairbench.store.run_index import RunIndex
from pairbench.store.writer import RunWriter
from tests.builders import CASES, make_run, run_id_of

RUNS = 15


def by_frame(store: Path) -> tuple[set[str], tuple[str, ...]]:
    frame, problems = read_frame(store, columns=["run_id"])
    assert frame["run_id"].value_counts().eq(4).all()
    return set(frame["run_id"]), problems


def by_series(store: Path) -> tuple[set[str], tuple[str, ...]]:
    found = read_series(store, where={"case": CASES}, columns=["run_id"])
    assert len(found.value) == 4 * RUNS
    return {record.run_id for record in found.value}, found.problems


def by_index(store: Path) -> tuple[set[str], tuple[str, ...]]:
    index = RunIndex.of_store(store)
    heads = list(index)
    records, problems = index.records(heads)
    assert len(records) == 4 * RUNS
    return {head.run_id for head in heads}, (*index.problems, *problems)


@pytest.fixture
def open_runs(tmp_path: Path) -> list[RunWriter]:
    """Return the writers of runs that are under way, each with its records in several parts."""
    writers = []
    for number in range(RUNS):
        records = make_run(number)
        writer = RunWriter(tmp_path, run_id=records[0].run_id, device_slug="nvidia-h200", month="2024-01").__enter__()
        for record in records:
            writer.append_records([record])
        writers.append(writer)
    return writers


@pytest.mark.parametrize("read", [by_frame, by_series, by_index])
def test_each_run_closes_just_before_it_is_opened(
    tmp_path: Path,
    open_runs: list[RunWriter],
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Path], tuple[set[str], tuple[str, ...]]],
) -> None:
    """As fast as anybody can read: more closes a second than there are listings."""
    closing = {run_id_of(number): writer for number, writer in enumerate(open_runs)}
    lock = threading.RLock()
    real = OpenedFile.__init__

    def late(self: OpenedFile, place: StoreLocation, path: str, dataset: str) -> None:
        with lock:
            writer = closing.pop(Path(path).name.partition(".")[0], None)
            if writer is not None:
                writer.close()
        real(self, place, path, dataset)

    monkeypatch.setattr(OpenedFile, "__init__", late)
    found, problems = read(tmp_path)
    assert found == {run_id_of(number) for number in range(RUNS)} and problems == ()
    assert not closing


def test_an_index_that_was_opened_before_runs_closed(tmp_path: Path, open_runs: list[RunWriter]) -> None:
    index = RunIndex.of_store(tmp_path)
    heads = list(index)
    for writer in open_runs:
        writer.close()
    rows = index.keys(heads, ("case", "implementation"))
    assert {run_id: len(of_run) for run_id, of_run in rows.items()} == {head.run_id: 4 for head in heads}
    assert len(index.columns(heads, ["case"])["case"]) == 4 * RUNS
    assert len(index.records(heads).value) == 4 * RUNS and index.problems == []


def test_a_run_that_closes_while_its_folder_is_listed(
    tmp_path: Path, open_runs: list[RunWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large folder is read in pieces; the one file is made where the reading has been, and the parts vanish before it."""
    real = os.scandir
    waiting = [open_runs[7]]

    @contextmanager
    def in_pieces(folder: str = ".") -> Iterator[Iterator[os.DirEntry[str]]]:
        with real(folder) as entries:
            # The order of the names, as a sorted folder has them: the one file comes before its parts.
            there = sorted(entries, key=lambda entry: entry.name)
        if not any("part-" in entry.name for entry in there):
            yield iter(there)
            return

        def each() -> Iterator[os.DirEntry[str]]:
            for entry in there:
                if waiting and entry.name.startswith(f"{run_id_of(7)}.part-"):
                    waiting.pop().close()
                if Path(entry.path).exists():
                    yield entry

        yield each()

    monkeypatch.setattr(os, "scandir", in_pieces)
    found = StoreLocation.of(tmp_path).files("records")
    assert {file.run_id for file in found} == {run_id_of(number) for number in range(RUNS)}
    assert not waiting


def test_a_run_that_was_deleted_meanwhile_is_gone(
    tmp_path: Path, open_runs: list[RunWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = OpenedFile.__init__

    def late(self: OpenedFile, place: StoreLocation, path: str, dataset: str) -> None:
        for part in tmp_path.rglob(f"{run_id_of(3)}.*"):
            part.unlink(missing_ok=True)
        real(self, place, path, dataset)

    monkeypatch.setattr(OpenedFile, "__init__", late)
    found = read_records(tmp_path, [run_id_of(2), run_id_of(3)])
    assert {record.run_id for record in found.value} == {run_id_of(2)} and found.problems == ()


def test_what_vanishes_again_and_again_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: OpenedFile, place: StoreLocation, path: str, dataset: str) -> None:
        raise FileNotFoundError(path)

    with RunWriter(tmp_path, run_id="run-1", device_slug="cpu", month="2026-01") as writer:
        writer.append_records(make_run(0))
    monkeypatch.setattr(OpenedFile, "__init__", gone)
    value, (problem,) = read_series(tmp_path, where={"case": CASES})
    assert value == () and problem.endswith("run-1.parquet: was gone as it was read, left out")
