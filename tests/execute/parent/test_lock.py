import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.errors import InterruptedRunError, UsageError
from pairbench.execute.parent.lock import _ADVICE as ADVICE
from pairbench.execute.parent.lock import device_lock
from pairbench.model.environment import Device
from tests.execute.made import CPU, GPU

HOLD = """
import sys, time
from pairbench.execute.parent.lock import device_lock
from pairbench.model.environment import Device
device = Device(selector=sys.argv[1], kind=sys.argv[1].split(":")[0], name="x", uuid=sys.argv[2] or None)
with device_lock(device, print, lambda: False):
    print("held", flush=True)
    time.sleep(60)
"""


FIRST, SECOND = replace(GPU, uuid="GPU-b"), replace(GPU, selector="cuda:1", uuid="GPU-a")


@contextlib.contextmanager
def held(device: Device = CPU, **how: bool) -> Iterator[None]:
    """Hold a device that is free, without a word."""
    with device_lock(device, pytest.fail, lambda: True, **how):
        yield


def assert_free(device: Device = CPU) -> None:
    with held(device):
        pass


def assert_held(device: Device = CPU, **how: bool) -> None:
    with pytest.raises(InterruptedRunError), device_lock(device, lambda _: None, lambda: True, **how):
        pass


def said_while_waiting(device: Device = CPU, seconds: float = 0.4) -> list[str]:
    """Return what is said to whoever waits for a device that stays held."""
    said: list[str] = []
    until = time.monotonic() + seconds
    with pytest.raises(InterruptedRunError), device_lock(device, said.append, lambda: time.monotonic() > until):
        pass
    return said


def assert_named(said: list[str], holder: subprocess.Popen[str]) -> None:
    (sentence,) = said
    assert sentence.startswith(f"cpu (a CPU) is held by process {holder.pid} (`")
    assert f"in {Path.cwd()}, since " in sentence
    assert re.search(r", 0 min \d s ago\); waiting for it \(Ctrl-C gives up", sentence)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Locks of this test's own, so that it neither waits for a run on this machine nor holds one up."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("PAIRBENCH_LOCKS", raising=False)
    return tmp_path


@pytest.fixture
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, "cpu", ""]
    with subprocess.Popen(command, env={**os.environ, "XDG_STATE_HOME": str(folder)}, stdout=-1, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_those_that_only_verify_share_a_device_and_nobody_times_beside_them(folder: Path) -> None:
    with held(shared=True), held(shared=True):
        assert_held()
    with contextlib.suppress(ValueError), held():
        assert_held(shared=True)
        raise ValueError("an error gives it back too")
    with held(replace(FIRST, beside=(SECOND,))):
        assert_held(FIRST)
        assert_held(SECOND)
    with held(), held(FIRST), held(SECOND):
        pass


def test_who_has_just_taken_it_is_named_a_moment_later(folder: Path, holder: subprocess.Popen[str]) -> None:
    (lock,) = folder.rglob("*.lock")
    lock.write_text("")
    said: list[str] = []
    looks = iter(range(3))

    def interrupted() -> bool:
        look = next(looks)
        if look == 1:
            lock.write_text(f"process {holder.pid}\n")
        return look == 2

    with pytest.raises(InterruptedRunError), device_lock(CPU, said.append, interrupted):
        pass
    assert_named(said, holder)


def test_who_waits_is_told_for_whom_and_other_devices_are_free_and_so_is_the_lock_of_a_killed_process(
    holder: subprocess.Popen[str],
) -> None:
    assert_named(said_while_waiting(), holder)
    assert_free(GPU)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert_free()


def test_who_waits_for_a_device_beside_its_own_says_so_and_gives_up_what_it_has(folder: Path) -> None:
    wanted, said = replace(SECOND, beside=(FIRST,)), list[str]()
    with held(FIRST):
        with pytest.raises(InterruptedRunError), device_lock(wanted, said.append, lambda: True):
            pass
        assert not said, "an interrupted wait has nothing to say"
        assert_free(SECOND)
        said = said_while_waiting(wanted)
    ours = "another device's turn of this run"
    assert said == [f"cuda:0 (a GPU), which cuda:1 needs too, is held by {ours}; waiting for it{ADVICE}"]


def test_two_that_want_the_same_two_devices_the_other_way_round_take_turns(folder: Path) -> None:
    turns: list[str] = []

    def work(device: Device) -> None:
        for _ in range(5):
            with device_lock(device, lambda _: None, lambda: False):
                turns.append(device.selector)
                time.sleep(0.02)
                assert turns[-1] == device.selector, "nobody else is at work meanwhile"

    wanted = (replace(FIRST, beside=(SECOND,)), replace(SECOND, beside=(FIRST,)))
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(work, device) for device in wanted]:
            done.result(timeout=60)
    assert sorted(turns) == ["cuda:0"] * 5 + ["cuda:1"] * 5


def locks_of(folder: Path) -> Path:
    (made,) = (folder / "pairbench" / "locks").iterdir()
    return made


def test_a_folder_that_is_the_users_alone(folder: Path) -> None:
    assert_free()
    for path in (folder / "pairbench", folder / "pairbench" / "locks", locks_of(folder)):
        assert path.stat().st_mode & 0o077 == 0
    assert (locks_of(folder) / "cpu.lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_leads_nowhere(folder: Path, tmp_path_factory: pytest.TempPathFactory, what: str) -> None:
    """A link in place of the lock, or of its folder, is refused, and the file or folder that it leads to stays as it was."""
    assert_free()
    victim = tmp_path_factory.mktemp("victim")
    (victim / "cpu.lock").write_text("years of work")
    (victim / "cpu.lock").chmod(0o600)
    victim.chmod(0o755)
    locks = locks_of(folder)
    (locks / "cpu.lock").unlink()
    if what == "file":
        (locks / "cpu.lock").symlink_to(victim / "cpu.lock")
    else:
        locks.rmdir()
        locks.symlink_to(victim)
    # Another folder of the user's is taken, or it is said that there is none.
    assert_free()
    assert (victim / "cpu.lock").read_text() == "years of work"
    assert (victim / "cpu.lock").stat().st_mode & 0o777 == 0o600 and victim.stat().st_mode & 0o777 == 0o755


def test_another_name_of_somebodys_file_is_no_lock(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "precious").write_text("years of work")
    os.link(tmp_path / "precious", shared / "cpu.lock")
    monkeypatch.setenv("PAIRBENCH_LOCKS", str(shared))
    with pytest.raises(UsageError, match=r"cpu\.lock is another's file"), held():
        pass
    assert (tmp_path / "precious").read_text() == "years of work"


@pytest.mark.parametrize("places", ["files", "open to all"])
def test_without_a_folder_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: str) -> None:
    for variable in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.delenv("PAIRBENCH_LOCKS", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for path in (
        tmp_path / "XDG_STATE_HOME" / "pairbench",
        tmp_path / "XDG_RUNTIME_DIR" / "pairbench",
        tmp_path / f"pairbench-{os.getuid()}",
    ):
        path.parent.mkdir(exist_ok=True)
        if places == "files":
            path.write_text("in the way")
        else:
            path.mkdir()
            path.chmod(0o777)
    with pytest.raises(UsageError, match="no folder for the locks"), held():
        pass


def test_one_folder_for_all_users(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    monkeypatch.setenv("PAIRBENCH_LOCKS", str(shared))
    with pytest.raises(UsageError, match="PAIRBENCH_LOCKS"), held():
        pass
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(UsageError, match="anybody may remove"), held():
        pass
    shared.chmod(0o1777)
    with held():
        assert_held()
    assert (shared / "cpu.lock").stat().st_mode & 0o777 == 0o666
    (shared / "cpu.lock").chmod(0o644)
    assert_free()
    assert (shared / "cpu.lock").stat().st_mode & 0o777 == 0o644, "what was there is left as it is"


def test_what_a_lock_says_of_its_holder_is_not_believed(folder: Path) -> None:
    with held():
        (locks_of(folder) / "cpu.lock").write_text("\x1b]0;x\x07\n::error::x")
        said = said_while_waiting()
    assert said == [f"cpu (a CPU) is held by another process; waiting for it{ADVICE}"]
