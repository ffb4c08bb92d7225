import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from pairbench import own_folders
from pairbench.model.environment import Device
from pairbench.workflow import progress as live
from pairbench.workflow.progress import BarProgress, PlainProgress, PublishedProgress, live_runs
from tests.builders import fork_into

CPU = Device(selector="cpu", kind="cpu", name="a CPU")


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(live, "temporary_folder", lambda: tmp_path / "own")
    return tmp_path / "own"


def test_a_run_says_how_far_it_is_and_what_it_does() -> None:
    with closing(PublishedProgress(PlainProgress(), "20260101T000000-aaaa", "/store")) as progress:
        progress.expect(CPU, 6)
        progress.step(CPU, "verify", "silu[n=1]")
        progress.stepped(CPU)
        progress.step(CPU, "time", "silu[n=2]")
        (run,) = live_runs("/store")
        assert live_runs("/another") == ()
        (now,) = run.devices
        assert (now.device, now.stage, now.case, now.done, now.total) == ("cpu (a CPU)", "time", "silu[n=2]", 1, 6)
        assert run.left_s is not None and run.left_s >= 0
    assert live_runs("/store") == ()


def killed_run() -> None:
    child = fork_into(lambda: closing(PublishedProgress(PlainProgress(), "killed", "/store")))
    assert [run.run_id for run in live_runs("/store")] == ["killed"]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_run_that_was_killed_is_none(own: Path) -> None:
    killed_run()
    assert list((own / "live").iterdir())
    assert live_runs("/store") == () and not list((own / "live").iterdir())


def test_the_next_run_removes_what_a_killed_one_left(own: Path) -> None:
    killed_run()
    first, second = (PublishedProgress(PlainProgress(), name, "/store") for name in ("first", "second"))
    with closing(first), closing(second):
        assert {file.name.partition("-")[0] for file in (own / "live").iterdir()} == {"first", "second"}
        assert [run.run_id for run in live_runs("/store")] == ["first", "second"]


def test_a_file_that_is_none_of_ours_is_left_alone(own: Path) -> None:
    with closing(PublishedProgress(PlainProgress(), "run", "/store")) as progress:
        progress.expect(CPU, 1)
        (file,) = (own / "live").iterdir()
        os.truncate(file, 3)
        assert live_runs("/store") == ()
        progress.stepped(CPU)
        assert len(live_runs("/store")) == 1


def test_without_a_place_of_its_own_the_run_goes_on(own: Path) -> None:
    own.write_text("a file")
    with closing(PublishedProgress(PlainProgress(), "run", "/store")) as progress:
        progress.expect(CPU, 1)
        progress.stepped(CPU)
    assert live_runs("/store") == ()


def test_a_step_is_told_by_one_write_to_a_small_file_that_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, at: written.append(write(file, content, at)))
    with closing(PublishedProgress(PlainProgress(), "run", "/store")) as progress, monkeypatch.context() as patch:
        for name in ("open", "fsync"):
            patch.setattr(os, name, lambda *_: pytest.fail("each step waits for the disk"))
        written.clear()
        for _ in range(200):
            progress.stepped(CPU)
        assert len(written) == 200 and max(written) < 1000
    assert own_folders.temporary_folder()


def test_lines_count_no_further_than_their_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PlainProgress, "every_s", 0.0)
    shown = PlainProgress()
    shown.expect(CPU, 2)
    for number in range(4):
        shown.step(CPU, f"round {number + 1}", "silu[n=8]")
        shown.stepped(CPU)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "[0/2] cpu round 1: silu[n=8]"
    assert lines[1].startswith("[1/2] cpu round 2: silu[n=8] (about ")
    assert lines[2:] == ["[2/2] cpu round 3: silu[n=8]", "[3/3] cpu round 4: silu[n=8]"]


def test_bars_grow_with_what_comes_on_top() -> None:
    shown = BarProgress()
    try:
        shown.expect(CPU, 2)
        for _ in range(4):
            shown.step(CPU, "round", "silu[n=8]")
            shown.stepped(CPU)
        (task,) = shown._progress.tasks
        assert (task.completed, task.total) == (4, 4)
    finally:
        shown.close()
