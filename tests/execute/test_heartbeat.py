import contextlib
import mmap
import os
import time

import pytest

from pairbench.execute.protocol import NOBODY, SIZE, Heartbeat, read_heartbeat


@pytest.fixture
def memory() -> mmap.mmap:
    return mmap.mmap(-1, SIZE)


def test_a_job_begins_with_the_cases_own_code_and_tells_who_runs_then_and_for_how_long(memory: mmap.mmap) -> None:
    heartbeat = Heartbeat(memory)
    heartbeat.rest()
    assert read_heartbeat(memory) == (NOBODY, float("inf"))
    before = time.monotonic()
    heartbeat.begin_job(10)
    index, deadline = read_heartbeat(memory)
    assert index == NOBODY and before + 10 <= deadline <= time.monotonic() + 10
    with heartbeat.entry(3):
        index, deadline = read_heartbeat(memory)
        assert index == 3 and before + 10 <= deadline <= time.monotonic() + 10
    assert read_heartbeat(memory)[0] == NOBODY


def test_an_entrys_time_adds_up_over_the_steps_of_a_job_and_is_its_own(memory: mmap.mmap) -> None:
    heartbeat = Heartbeat(memory)
    heartbeat.begin_job(0.05)
    for _ in range(3):
        with contextlib.suppress(ValueError), heartbeat.entry(1):
            time.sleep(0.02)
            raise ValueError("what raises is counted too")
    assert read_heartbeat(memory)[0] == NOBODY
    assert heartbeat.exhausted(1) and not heartbeat.exhausted(0)
    with heartbeat.entry(1):
        assert read_heartbeat(memory)[1] < time.monotonic()
    with heartbeat.entry(0):
        assert read_heartbeat(memory)[1] > time.monotonic() + 0.03
    heartbeat.begin_job(0.05)
    assert not heartbeat.exhausted(1), "a new job gives a new allowance"


def test_another_process_never_sees_half_a_mark(memory: mmap.mmap) -> None:
    """A parent that reads a deadline which was never written ends a healthy worker for running over time."""
    heartbeat = Heartbeat(memory)
    heartbeat.begin_job(60)
    writer = os.fork()
    while not writer:
        with heartbeat.entry(3):
            pass
        heartbeat.rest()
    try:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            index, deadline = read_heartbeat(memory)
            assert index in (NOBODY, 3) and deadline > until
    finally:
        os.kill(writer, 9)
        os.waitpid(writer, 0)
