"""Threads that a suite leaves behind: those that work are found, those that wait are left alone."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pairbench.execute.worker.trusted import left_running
from pairbench.suite.modules import load_module

SUITE = """
import subprocess, sys, threading, time

ended = threading.Event()

def waits(process):
    process.wait()

def polls(process):
    while process.poll() is None and not ended.is_set():
        time.sleep(0.001)

def works(process):
    while process.poll() is None:
        sum(range(100_000))

def works_in_a_library(process):
    while process.poll() is None:
        sorted(range(2_000_000), key=lambda_of_a_library)
"""


@pytest.fixture
def suite(tmp_path: Path) -> ModuleType:
    (tmp_path / "threads.py").write_text(SUITE)
    return load_module(tmp_path / "threads.py")


@pytest.fixture
def start(suite: ModuleType) -> Iterator[Callable[[str], None]]:
    """Start a function of the suite in a thread, which ends when a process does."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        threads: list[threading.Thread] = []

        def begin(name: str) -> None:
            threads.append(threading.Thread(target=getattr(suite, name), args=[process], daemon=True))
            threads[0].start()
            time.sleep(0.05)

        yield begin
        process.kill()
        for thread in threads:
            thread.join(10)


def test_one_that_waits_for_a_process_is_left_alone(start: Callable[[str], None]) -> None:
    """As what watches the processes of a model that is spread over several GPUs."""
    start("waits")
    left_running()
    time.sleep(0.05)
    assert left_running() is None


@pytest.mark.parametrize("name", ["polls", "works"])
def test_one_that_is_in_the_suite_s_own_code_is_found(start: Callable[[str], None], name: str) -> None:
    start(name)
    found = None
    for _ in range(20):  # it may just be in the library that it asks whether the process is there
        found = found or left_running()
        time.sleep(0.005)
    assert "leaves a thread running (threads.py, line " in (found or "")


def test_one_that_works_within_a_library_is_found_by_its_processor_time(
    start: Callable[[str], None], suite: ModuleType
) -> None:
    suite.lambda_of_a_library = abs  # type: ignore[attr-defined]
    start("works_in_a_library")
    time.sleep(0.2)
    assert "leaves a thread running" in (left_running() or "")
