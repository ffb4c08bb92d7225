"""What a store does not take waits in a folder, and is published once, whatever happens on the way."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from pairbench.errors import StoreFailedError
from pairbench.store import files
from pairbench.store import writer as spool_module
from pairbench.store.documents import read_calibrations, write_document
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_run, read_samples
from pairbench.store.writer import Spool, Waiting, push, waiting
from tests.builders import at_once
from tests.faults.damaged import CALIBRATION
from tests.faults.kill_at import killed_at, lines_of
from tests.store.rows import open_run, record, samples

CASES = ("a", "b", "c")


class Store:
    """A store that refuses every file while `fails` is set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.location = StoreLocation.of(folder)
        self.fails = False
        self.said: list[str] = []
        real = StoreLocation.publish

        def publish(location: StoreLocation, path: str, content: pa.Buffer) -> None:
            if self.fails and location.root == self.location.root:
                raise StoreFailedError("the first" if not self.said else "a later one")
            real(location, path, content)

        monkeypatch.setattr(StoreLocation, "publish", publish)

    def spool(self) -> Spool:
        return Spool(self.location, "run-1", self.said.append)

    def ended(self, spool: Spool) -> Waiting:
        """End a run, after which the store works again, and return what waits of it."""
        assert spool.close() == ()
        self.fails = False
        (one,) = waiting()
        return one

    def has_all(self) -> bool:
        """Return whether the run is there, each row once."""
        records, samples = read_run(self.location, "run-1"), read_samples(self.location, "run-1")
        assert records.problems == samples.problems == ()
        both = [(row.case, row.round) for row in samples.value]
        rounds = [(row.case, row.n_rounds) for row in records.value]
        return sorted(rounds) == [(case, 2) for case in CASES] and sorted(both) == [*itertools.product(CASES, (0, 1))]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Store(tmp_path / "store", monkeypatch)


def write(store: Store, *, fails_at: int) -> Spool:
    """Write two rounds of three cases; the store fails from one of its six batches of records and samples on."""
    spool = store.spool()
    writer = open_run(store.location, publish=spool.publish).__enter__()
    for batch, (number, case) in enumerate(itertools.product((0, 1), CASES)):
        store.fails = batch >= fails_at
        writer.append_samples([samples("run-1", case=case, round=number)])
        writer.write_case(case, [record("run-1", case=case, n_rounds=number + 1)])
    return spool


@pytest.mark.parametrize("fails_at", [0, 2, 5])
def test_from_any_batch_on_it_waits_and_is_published_once(store: Store, fails_at: int) -> None:
    one = store.ended(write(store, fails_at=fails_at))
    assert one.store == store.location.root and one.why == "the first"
    assert store.said == [f"pairbench: the first; what is measured from here on is kept in {one.folder}"]
    copied = shutil.copytree(one.folder, one.folder.with_name("copy"))
    done = push(one, store.location)
    assert done.value == len(list(copied.rglob("*.parquet"))) and done.problems == ()
    assert store.has_all() and not one.folder.exists()
    assert [path.name for path in Path(store.location.root).rglob("*.parquet")] == ["run-1.parquet"] * 2
    (again,) = waiting()
    push(again, store.location)
    assert store.has_all() and list(waiting()) == []
    assert pd.read_parquet(Path(store.location.root) / "records")["case"].is_unique


@pytest.mark.slow
def test_killed_at_any_line_and_done_again(store: Store, tmp_path: Path) -> None:
    one = store.ended(write(store, fails_at=3))
    places = (Path(store.location.root), one.folder)
    kept = [shutil.copytree(place, tmp_path / f"kept-{number}") for number, place in enumerate(places)]

    def work() -> None:
        for found in waiting():
            push(found, store.location)

    def restore() -> None:
        for place, copy in zip(places, kept, strict=True):
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(copy, place)

    lines = lines_of(work, "store/")
    met = 0
    for line in range(1, lines + 1, 1 + lines // 40):
        restore()
        met += killed_at(line, work, "store/")
        work()
        assert store.has_all(), f"killed before line {line} of {lines}"
        assert list(waiting()) == []
    assert met > 20


def test_two_at_once_publish_it_once(store: Store) -> None:
    one = store.ended(write(store, fails_at=0))
    ends: list[str] = []

    def publish() -> None:
        try:
            push(one, store.location)
            ends.append("published")
        except (BlockingIOError, FileNotFoundError):
            ends.append("left to the other")

    at_once(*[publish] * 4)
    assert "published" in ends and store.has_all()


def test_where_the_folder_cannot_be_another_one_is_taken(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("in the way")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool = write(store, fails_at=1)
    assert list(waiting()) == [], "what a run still writes to is left alone"
    one = store.ended(spool)
    assert one.folder.is_relative_to(tmp_path) and "pairbench-" in str(one.folder)
    push(one, store.location)
    assert store.has_all()


def test_where_no_folder_can_be_it_stays_in_memory_until_the_store_takes_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "spool_places", list)
    spool = write(store, fails_at=2)
    assert store.said == [
        "pairbench: the first; what is measured from here on is kept in memory, for no other place takes them"
    ]
    assert len(spool.close()) == 7, "four batches of samples, and three cases' records, of which the newest counts"
    store.fails = False
    assert spool.close() == ()
    assert store.has_all()


def test_a_full_disk_under_the_folder_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where both are on one disk: what does not fit waits in memory, and is written as soon as there is room."""
    room = [5]

    def write_whole(path: Path, content: Any, **options: Any) -> None:
        if not room[0]:
            raise OSError(28, "No space left on device")
        room[0] -= 1
        files.write_whole(path, content, **options)

    monkeypatch.setattr(spool_module, "write_whole", write_whole)
    spool = write(store, fails_at=0)
    assert room == [0]
    room[0] = 100
    push(store.ended(spool), store.location)
    assert store.has_all()


def test_a_damaged_file_stays_and_is_named(store: Store) -> None:
    one = store.ended(write(store, fails_at=0))
    first = next(path for path in one.files if path.parts[0] == "samples")
    (one.folder / first).write_bytes(b"PAR1")
    done = push(one, store.location)
    assert len(done.problems) == 1 and "cannot be read" in done.problems[0]
    assert (one.folder / first).exists() and len(list(waiting())) == 1
    assert [(row.case, row.n_rounds) for row in read_run(store.location).value] == [(case, 2) for case in CASES]


def test_a_store_that_fails_again_keeps_what_waits_and_a_note_that_is_none_is_passed_over(store: Store) -> None:
    one = store.ended(write(store, fails_at=0))
    before = one.files
    store.fails = True
    with pytest.raises(StoreFailedError):
        push(one, store.location)
    assert one.files == before
    assert json.loads((one.folder / "spool.json").read_text())["store"] == store.location.root
    (one.folder.parent / "other").mkdir()
    (one.folder.parent / "other" / "spool.json").write_text("[" * 100_000)
    assert [found.folder for found in waiting()] == [one.folder]
    store.fails = False
    push(one, store.location)
    assert store.has_all()


def test_a_document_waits_as_runs_do(store: Store) -> None:
    store.fails = True
    spool = store.spool()
    write_document(store.location, CALIBRATION, spool.publish_alone)
    assert push(store.ended(spool), store.location).value == 1
    assert read_calibrations(store.location) == ((CALIBRATION,), ())
