"""Ctrl-C and kills in the middle of a run, and two runs at once: what was finished is kept, and nobody is left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbench.execute.parent.launch import open_launchers
from pairbench.store.reader import read_run, runs
from tests.cli.conftest import eventually, gone, processes_of
from tests.commands import environment_of

SUITE = """
import os, pathlib, subprocess, time
from pairbench import Operator, grid

FOLDER = pathlib.Path({marks!r})
pathlib.Path({pids!r}, str(os.getpid())).write_text(str(os.getppid()))

def leave(name, **more):
    FOLDER.joinpath(name).write_text(str(subprocess.Popen(["sleep", "300"], **more).pid))

def daemon(name):
    if not os.fork():
        os.setsid()
        if not (pid := os.fork()):
            time.sleep(300)
        FOLDER.joinpath(name).write_text(str(pid))
        os._exit(0)
    os.wait()

def leave_all():
    if not FOLDER.joinpath("has_left").exists():
        leave("same_group")
        leave("own_session", start_new_session=True)
        daemon("daemon")
        FOLDER.joinpath("has_left").touch()

def has_records():
    return any(pathlib.Path({results!r}).rglob("records/**/*.parquet"))

def slow(x):
    if {leaves}:
        leave_all()
    FOLDER.joinpath("called").touch()
    time.sleep(0.002)
    return x + x

op = Operator("op", baseline=slow, variants={{"same": slow}},
    inputs=lambda make, rows: {{"x": make.normal(rows)}}, cases=grid(rows=[4, 5, 6]))
"""
LEFT = ("same_group", "own_session", "daemon")
AT_ONCE, IN_THE_SECOND_CASE = "True", "len(x) == 5 and has_records()"
"""When the suite starts processes that it leaves behind."""


class Running:
    """A run in the background whose workers leave their process ids behind, and those of their parents."""

    def __init__(
        self,
        folder: Path,
        suite: str = SUITE,
        *,
        leaves: str = "False",
        words: tuple[str, ...] = ("run",),
        workers: str = "",
        rounds: int = 2,
        seconds: float = 0.5,
    ) -> None:
        self.folder, self.words, self.kind = folder, words, workers
        self.pids, self.marks = folder / "pids", folder / "marks"
        for made in (self.pids, self.marks, folder / "tmp"):
            made.mkdir()
        places = {"pids": str(self.pids), "marks": str(self.marks), "results": str(folder / "results")}
        (folder / "ops.py").write_text(suite.format(leaves=leaves, **places))
        (folder / "pyproject.toml").write_text(
            f"[tool.pairbench]\ncase_seconds = {seconds}\nmin_samples = 100000\nmax_samples = 100000\nrounds = {rounds}\n"
        )
        self.process = self.start()

    def start(self) -> subprocess.Popen[str]:
        environment = environment_of(self.folder / "tmp", PAIRBENCH_WORKERS=self.kind)
        command = [sys.executable, "-m", "pairbench", *self.words, "ops.py", "--device", "cpu", "--format", "json"]
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_for(self, what: Callable[[], bool]) -> None:
        until = time.monotonic() + 200
        while not what():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < until, "it did not come to that"
            time.sleep(0.01)

    def end_by(self, number: signal.Signals) -> tuple[str, str]:
        """Send the run a signal, and return what it has written when it has ended by it, as is right for that signal."""
        self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=120)
        assert self.process.returncode == (-number if number is signal.SIGKILL else 130), stderr
        assert "Traceback" not in stderr, stderr
        return stdout, stderr

    def workers(self) -> list[int]:
        return [int(path.name) for path in self.pids.iterdir()]

    def servers(self) -> list[int]:
        """Return what forked the workers."""
        return [pid for path in self.pids.iterdir() if (pid := int(path.read_text() or 0)) not in (0, self.process.pid)]

    def left(self) -> list[int]:
        """Return what the run has started and is still there."""
        return [pid for pid in processes_of(self.folder) if pid != self.process.pid]

    def left_by_suite(self) -> list[int]:
        """Return the processes that the suite has left behind."""
        return [int((self.marks / name).read_text()) for name in LEFT]

    def has_left(self) -> bool:
        return (self.marks / "has_left").exists()

    def has_called(self) -> bool:
        return (self.marks / "called").exists()

    def stored(self) -> list[Path]:
        return list((self.folder / "results").rglob("*.parquet"))

    def has_records(self) -> bool:
        return any("records" in path.parts for path in self.stored())


def has_lock_open(pid: int) -> bool:
    """Return whether a process holds a device's lock, or waits for one."""
    found = []
    for number in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):  # closed since
            found.append(number.readlink().name)
    return any(name.endswith(".lock") for name in found)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    begun: list[Running] = []

    def begin(*arguments: Any, **options: Any) -> Running:
        begun.append(Running(tmp_path, *arguments, **options))
        return begun[-1]

    yield begin
    for run in begun:
        run.process.kill()
        run.process.communicate()


def test_ctrl_c_keeps_what_is_finished_accounts_for_the_rest_and_ends_what_the_suite_has_started(
    running: Callable[..., Running],
) -> None:
    run = running(rounds=1, workers="fork", leaves=IN_THE_SECOND_CASE)
    # The last round's outcomes are stored case by case.
    run.wait_for(run.has_left)
    workers, left = run.workers(), run.left_by_suite()
    assert not any(map(gone, left))
    stdout, _ = run.end_by(signal.SIGINT)
    assert all(gone(pid) for pid in workers)
    assert eventually(lambda: not run.left() and all(map(gone, left)))
    reading = read_run(run.folder / "results")
    assert not reading.problems and len(reading.value) == 6
    statuses = {record.case: record.status for record in reading.value}
    assert sorted(statuses.values()) in (["measured", "skipped", "skipped"], ["measured", "measured", "skipped"])
    assert statuses["op[rows=5]"] == "skipped"
    skipped = {record.reason for record in reading.value if record.status == "skipped"}
    assert skipped == {"the run was interrupted before this was measured"}
    document = json.loads(stdout)
    assert document["summary"]["interrupted"] is True and len(document["records"]) == 6


STOPS = """
import pathlib, time
from pairbench import Operator, grid

def slow(x):
    if len(x) == 6:
        pathlib.Path({marks!r}, "last").touch()
        time.sleep(60)
    return x + x

op = Operator("op", baseline=slow, variants={{"same": slow}}, impostors={{"three": lambda x: x * 3}},
    inputs=lambda make, rows: {{"x": make.normal(rows)}}, cases=grid(rows=[4, 5, 6]))
"""


def test_ctrl_c_leaves_what_was_verified_and_which_impostors_were_rejected(running: Callable[..., Running]) -> None:
    run = running(STOPS, words=("verify", "--impostors"))
    run.wait_for((run.marks / "last").exists)
    document = json.loads(run.end_by(signal.SIGINT)[0])
    assert [row["status"] for row in document["verifications"]] == ["verified"] * 4 + ["skipped"] * 2
    assert {row["case"] for row in document["impostors"] if row["impostor"] == "three"} == {"op[rows=4]", "op[rows=5]"}
    assert all(row["rejected"] for row in document["impostors"])


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["", "fresh"])
def test_ctrl_c_while_suites_are_loaded(running: Callable[..., Running], workers: str) -> None:
    run = running(workers=workers)
    run.wait_for(lambda: len(run.workers()) == 1)
    run.end_by(signal.SIGINT)
    assert all(gone(pid) for pid in (*run.workers(), *run.servers())) and not run.left()


@pytest.mark.parametrize("workers", ["", pytest.param("fresh", marks=pytest.mark.slow)])
def test_a_kill_while_a_baseline_is_verified(running: Callable[..., Running], workers: str) -> None:
    run = running(rounds=1, workers=workers)
    run.wait_for(run.has_called)
    assert bool(run.servers()) == (workers != "fresh")
    run.end_by(signal.SIGKILL)
    assert eventually(lambda: not run.left() and all(gone(pid) for pid in (*run.workers(), *run.servers())))
    assert not run.stored()


@pytest.mark.slow
def test_a_killed_run_leaves_no_worker_no_lock_and_no_broken_store(running: Callable[..., Running]) -> None:
    """A second run waits for the first and says so; when the first is killed, it goes on, until SIGTERM ends it too."""
    first = running(seconds=3.0)
    first.wait_for(first.has_called)
    second = first.start()
    first.wait_for(lambda: has_lock_open(second.pid))
    first.wait_for(first.has_records)
    workers = first.workers()
    second.send_signal(signal.SIGSTOP)  # it would call at once, and its mark is to be told from the first one's
    first.end_by(signal.SIGKILL)
    assert eventually(lambda: all(gone(pid) for pid in workers))
    (first.marks / "called").unlink()
    second.send_signal(signal.SIGCONT)
    reading = read_run(first.folder / "results")
    assert not reading.problems
    assert {record.status for record in reading.value} == {"measured"} and len(reading.value) in (2, 4, 6)
    assert {record.n_rounds for record in reading.value} <= {1, 2}, "what a round finished need not wait for the last"
    assert eventually(first.has_called, 120), "the lock of a killed run is free"
    second.send_signal(signal.SIGTERM)
    _, stderr = second.communicate(timeout=120)
    assert second.returncode == 130
    assert (
        f"is held by process {first.process.pid} (`pairbench run ops.py" in stderr
        and f"in {first.folder}, since" in stderr
    )
    found = runs(first.folder / "results")
    assert not found.problems
    assert [run.statuses for run in found.value if run.run_id != reading.value[0].run_id] == [{"skipped": 6}]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM], ids=lambda one: one.name)
def test_what_a_suite_has_started_ends_with_the_run(running: Callable[..., Running], number: signal.Signals) -> None:
    run = running(leaves=AT_ONCE, rounds=1, seconds=30)
    run.wait_for(run.has_called)
    left = run.left_by_suite()
    assert not any(map(gone, left))
    run.end_by(number)
    assert eventually(lambda: not run.left() and all(map(gone, left)))


@pytest.mark.slow
def test_what_outlives_a_run_and_all_its_servers_is_found_by_the_next(running: Callable[..., Running]) -> None:
    run = running(leaves=AT_ONCE, seconds=30, workers="fork")
    run.wait_for(run.has_called)
    left = run.left_by_suite()
    for pid in (*run.servers(), run.process.pid):
        os.kill(pid, signal.SIGKILL)
    run.process.communicate(timeout=60)
    with open_launchers():
        assert eventually(lambda: all(map(gone, left)), 5)


@pytest.mark.slow
def test_what_a_user_told_to_ignore_stays_ignored(running: Callable[..., Running]) -> None:
    """As `nohup` does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = running(rounds=1, seconds=0.2)
    finally:
        signal.signal(signal.SIGHUP, before)
    run.wait_for(run.has_called)
    run.process.send_signal(signal.SIGHUP)
    _, stderr = run.process.communicate(timeout=120)
    assert run.process.returncode == 0, stderr


def handles(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return bool(int(mask, 16) & 1 << (number - 1))


@pytest.mark.parametrize("after_s", [0.0, 0.3])
def test_ctrl_c_at_the_very_start_is_no_traceback(running: Callable[..., Running], after_s: float) -> None:
    """From the first line of ours on; before that Python itself speaks."""
    run = running()
    for expected in (True, False):  # Python's own handler is there first, and our first line takes it away
        run.wait_for(lambda expected=expected: handles(run.process.pid, signal.SIGINT) is expected)  # type: ignore[misc]
    time.sleep(after_s)
    run.process.send_signal(signal.SIGINT)
    _, stderr = run.process.communicate(timeout=60)
    assert run.process.returncode in (-signal.SIGINT, 130), stderr
    assert "Traceback" not in stderr
    assert eventually(lambda: not run.left())
