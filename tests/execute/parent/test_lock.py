"""The device lock: one process at a time, told once whom it waits for, free when its holder dies."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.execute.parent.lock import device_lock
from pairbench.model.environment import Device

CPU = Device(selector="cpu", kind="cpu", name="a CPU")
HOLD = """
import sys, time
from pairbench.execute.parent.lock import device_lock
from pairbench.model.environment import Device
device = Device(selector=sys.argv[1], kind=sys.argv[1].split(":")[0], name="x", uuid=sys.argv[2] or None)
with device_lock(device, print, lambda: False) as held:
    print("held", held, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Locks of this test's own, so that it neither waits for a run on this machine nor holds one up."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Hold the CPU in another process."""
    command = [sys.executable, "-c", HOLD, "cpu", ""]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(folder)}, stdout=-1, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held True\n"
        yield process
        process.kill()


def test_the_free_device_is_held_at_once(folder: Path) -> None:
    said: list[str] = []
    with device_lock(CPU, said.append, lambda: True) as held:
        assert held
    assert not said


def test_those_that_only_verify_share_a_device_and_nobody_times_beside_them(folder: Path) -> None:
    def gives_up() -> bool:
        return True

    with device_lock(CPU, print, gives_up, shared=True) as one, device_lock(CPU, print, gives_up, shared=True) as two:
        assert one and two
        with device_lock(CPU, lambda _: None, gives_up) as alone:
            assert not alone
    with device_lock(CPU, print, gives_up) as alone:
        assert alone
        with device_lock(CPU, lambda _: None, gives_up, shared=True) as beside:
            assert not beside


def test_a_second_process_waits_and_says_for_whom(holder: subprocess.Popen[str]) -> None:
    said: list[str] = []
    until = time.monotonic() + 0.5
    with device_lock(CPU, said.append, lambda: time.monotonic() > until) as held:
        assert not held
    assert said == [f"cpu (a CPU) is held by process {holder.pid}; waiting for it"]


def test_the_lock_of_a_killed_process_is_free(holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with device_lock(CPU, pytest.fail, lambda: True) as held:
        assert held


def test_other_devices_are_free(holder: subprocess.Popen[str]) -> None:
    gpu = Device(selector="cuda:0", kind="cuda", name="a GPU", uuid="GPU-0")
    with device_lock(gpu, pytest.fail, lambda: True) as held:
        assert held


def test_an_error_gives_the_lock_back(folder: Path) -> None:
    with pytest.raises(ValueError, match="boom"), device_lock(CPU, pytest.fail, lambda: True):
        raise ValueError("boom")
    with device_lock(CPU, pytest.fail, lambda: True) as held:
        assert held


FIRST = Device(selector="cuda:0", kind="cuda", name="a GPU", uuid="GPU-b")
SECOND = Device(selector="cuda:1", kind="cuda", name="a GPU", uuid="GPU-a")


def test_those_beside_a_device_are_held_with_it_and_given_back(folder: Path) -> None:
    both = replace(FIRST, beside=(SECOND,))
    with device_lock(both, pytest.fail, lambda: True) as held:
        assert held
        for one in (FIRST, SECOND):
            with device_lock(one, lambda _: None, lambda: True) as again:
                assert not again
    for one in (FIRST, SECOND):
        with device_lock(one, pytest.fail, lambda: True) as again:
            assert again


def test_who_waits_for_a_device_beside_its_own_says_so_and_gives_up_what_it_has(folder: Path) -> None:
    said: list[str] = []
    with device_lock(FIRST, pytest.fail, lambda: True):
        with device_lock(replace(SECOND, beside=(FIRST,)), said.append, lambda: True) as held:
            assert not held
        with device_lock(SECOND, pytest.fail, lambda: True) as held:
            assert held
    assert not said, "an interrupted wait has nothing to say"
    until = time.monotonic() + 0.5
    with device_lock(FIRST, pytest.fail, lambda: True):
        wanted = replace(SECOND, beside=(FIRST,))
        with device_lock(wanted, said.append, lambda: time.monotonic() > until) as held:
            assert not held
    ours = "another device's turn of this run"
    assert said == [f"cuda:0 (a GPU), which cuda:1 needs too, is held by {ours}; waiting for it"]


def test_two_that_want_the_same_two_devices_the_other_way_round_take_turns(folder: Path) -> None:
    turns: list[str] = []

    def work(device: Device) -> None:
        for _ in range(5):
            with device_lock(device, lambda _: None, lambda: False) as held:
                assert held
                turns.append(device.selector)
                time.sleep(0.02)
                assert turns[-1] == device.selector, "nobody else is at work meanwhile"

    wanted = (replace(FIRST, beside=(SECOND,)), replace(SECOND, beside=(FIRST,)))
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(work, device) for device in wanted]:
            done.result(timeout=60)
    assert sorted(turns) == ["cuda:0"] * 5 + ["cuda:1"] * 5
