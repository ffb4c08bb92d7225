"""Processes and native threads are found where they run, or are stopped, and left alone where they sleep, as pools do."""

import ctypes
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from pairbench.execute.worker.left_at_work import native_threads
from pairbench.execute.worker.trusted import left_running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


def _start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE)


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    yield
    until = time.monotonic() + 10
    while left_running() and time.monotonic() < until:
        time.sleep(0.01)


def test_a_process_that_runs_is_named_and_killed() -> None:
    with _start("while True: pass") as process:
        time.sleep(0.2)
        assert "leaves a process running (pid " in (left_running() or "")
        assert process.wait(10) == -signal.SIGKILL


def test_a_process_below_another_one_is_found() -> None:
    code = "import os\nif os.fork():\n input()\nelse:\n while os.getppid() != 1: pass"
    with _start(code) as process:
        time.sleep(0.3)
        assert "leaves a process running (pid " in (left_running() or "")
        process.kill()


def test_a_process_that_was_stopped_is_named() -> None:
    with _start("input()") as process:
        time.sleep(0.2)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        assert "leaves a process stopped (pid " in (left_running() or "")


def test_a_process_that_sleeps_is_left_alone() -> None:
    with _start("input()") as process:
        time.sleep(0.5)
        assert left_running() is None and process.poll() is None
        process.kill()


@pytest.mark.parametrize("spins", [pytest.param(True, marks=pytest.mark.timing), False])
def test_a_native_thread_is_found_where_it_spins(spins: bool) -> None:
    native_threads.begin()
    libc, ends = ctypes.CDLL(None), threading.Event()
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    seconds = 1.0

    def body(_: object) -> None:
        until = time.monotonic() + seconds
        while spins and time.monotonic() < until:
            pass
        ends.wait(0 if spins else seconds)

    kept, identity = kind(body), ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(identity), None, kept, None)
    try:
        time.sleep(0.05)
        found = left_running() or ""
        assert ("leaves a thread running" in found) == spins
    finally:
        ends.set()
        libc.pthread_join(identity, None)
