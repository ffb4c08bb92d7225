"""`pairbench run` on a store that fails: known before measuring, or else nothing is lost, the table is shown, and `store push` ends it."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pairbench.errors import StoreFailedError
from pairbench.execute.parent.session import DeviceSession
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_run, read_samples
from pairbench.workflow.comparer import Comparer
from pairbench.workflow.progress import PlainProgress
from tests.commands import forked_workers
from tests.in_process import Said, call_main

FULL = "[Errno 28] No space left on device"


class FailingStore:
    """The store in `results`, which takes some files and then fails."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.takes = 10**9
        self.takes_probes = True
        real = StoreLocation.publish

        def publish(location: StoreLocation, path: str, content: pa.Buffer) -> None:
            probe = ".probe-" in path
            if location.root == str(folder / "results") and not (probe and self.takes_probes):
                self.takes -= 1
                if self.takes < 0:
                    told = FULL if self.takes == -1 else "another error"
                    raise StoreFailedError(f"store {location.name!r}: {path} cannot be written: {told}")
            real(location, path, content)

        monkeypatch.setattr(StoreLocation, "publish", publish)


@pytest.fixture
def folder(tmp_path: Path, suites: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder with a suite and settings, in which a run takes a second or two."""
    shutil.copy(suites / "slow.py", tmp_path / "ops.py")
    (tmp_path / "pyproject.toml").write_text("[tool.pairbench]\nrounds = 1\ncase_seconds = 0.02\nmin_samples = 10\n")
    for name, value in {
        "PAIRBENCH_WORKERS": "fork",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_RUNTIME_DIR": str(tmp_path / "runtime"),
    }.items():
        monkeypatch.setenv(name, value)
    with forked_workers():
        yield tmp_path


@pytest.fixture
def failing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FailingStore:
    return FailingStore(folder, monkeypatch)


def run(folder: Path, *words: str) -> Said:
    return call_main(folder, "run", "ops.py", "--device", "cpu", *words)


def failing_with(sentence: str) -> Callable[..., None]:
    """Return a function that raises the error of a store."""

    def fails(*_: object, **__: object) -> None:
        raise StoreFailedError(sentence)

    return fails


def test_a_store_that_fails_in_the_middle(folder: Path, failing: FailingStore) -> None:
    failing.takes = 2
    said = run(folder, "--rounds", "2")
    assert said.code == 4 and "Traceback" not in said.err, said.err
    assert "twice" in said.out and "same" in said.out, "the table is there"
    assert FULL in said.out and "another error" not in said.out + said.err, "the first error is the one that is said"
    (waits,) = (folder / "state" / "pairbench" / "spool").iterdir()
    assert f"What it did not take is in {waits}; `pairbench store push` publishes it" in said.out
    assert str(waits) in said.err, "also as soon as it happens"
    run_id = said.out.partition("Run ")[2].partition(",")[0]
    failing.takes = 10**9
    reminded = run(folder)
    assert reminded.code == 0 and "results of 1 earlier run wait for store" in reminded.err
    pushed = call_main(folder, "store", "push")
    assert pushed.code == 0 and "published" in pushed.out, pushed.err
    assert call_main(folder, "store", "push").out == "Nothing waits to be published\n"
    records, samples = read_run(folder / "results", run_id), read_samples(folder / "results", run_id)
    assert len(records.value) == 3 and {row.n_rounds for row in records.value} == {2} and not records.problems
    assert len(samples.value) == 6 and not samples.problems
    assert not waits.exists()


def test_the_document_of_a_run_says_so_too(folder: Path, failing: FailingStore) -> None:
    failing.takes = 0
    said = run(folder, "--format", "json")
    document = json.loads(said.out)
    assert said.code == 4 and len(document["records"]) == 3
    kept = document["summary"]["not_in_store"]
    assert FULL in kept["why"] and Path(kept["folder"]).is_dir() and kept["lost"] == []


def test_a_store_that_comes_back_before_the_end_has_everything(
    folder: Path, failing: FailingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    notify = PlainProgress.notify

    def notified(progress: PlainProgress, text: str) -> None:
        notify(progress, text)
        if "is kept in" in text:
            failing.takes = 10**9

    failing.takes = 1
    monkeypatch.setattr(PlainProgress, "notify", notified)
    said = run(folder)
    assert said.code == 0 and "takes results again" in said.err, said.err
    assert len(read_run(folder / "results").value) == 3
    assert not list((folder / "state" / "pairbench" / "spool").iterdir())


@pytest.mark.slow
def test_nothing_is_judged_of_a_run_that_is_not_in_the_store(folder: Path, failing: FailingStore) -> None:
    failing.takes = 1
    said = run(folder, "--confirm")
    assert said.code == 4 and "nothing was judged" in said.err and "twice" in said.out


@pytest.mark.slow
def test_a_store_that_fails_as_it_is_judged_hides_no_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Comparer, "open", failing_with("store 's3://b' cannot be listed: it is down"))
    said = run(folder, "--confirm")
    assert said.code == 4 and "it is down" in said.err and "twice" in said.out


def test_what_ends_a_run_otherwise_hides_no_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceSession, "finish", failing_with("a worker could not be started"))
    said = run(folder)
    assert said.code == 4 and "a worker could not be started" in said.err and "twice" in said.out
    assert len(read_run(folder / "results").value) == 3


def test_a_store_that_takes_nothing_is_known_before_anything_is_measured(folder: Path, failing: FailingStore) -> None:
    """As in a folder that may be read and not written, or on a disk that is full."""
    failing.takes, failing.takes_probes = 0, False
    said = run(folder)
    assert said.code == 2 and FULL in said.err and "name another with --store" in said.err
    assert "verify" not in said.err and not said.out
