"""Pages made in several processes: as one process makes them, also where one of them is killed."""

import functools
import os
import signal
import threading
from typing import Any

import pytest

from pairbench.site import build


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # those of the test runner hold no lock


def test_results_come_in_order_from_several_processes() -> None:
    found = [*build._in_processes([functools.partial(seen, value) for value in range(40)])]
    assert [value for value, _ in found] == [*range(40)]
    assert os.getpid() not in {process for _, process in found} and len({process for _, process in found}) == 2


def test_one_value_is_not_worth_a_process() -> None:
    assert [*build._in_processes([functools.partial(seen, 7)])] == [(7, os.getpid())]


def test_an_error_in_a_process_is_raised() -> None:
    with pytest.raises(OSError, match="no space"):
        [*build._in_processes([full] * 4)]


def seen(value: int) -> tuple[int, int]:
    return value, os.getpid()


def full() -> None:
    raise OSError(28, "no space")


def test_what_a_killed_process_had_to_do_is_done_here() -> None:
    here = os.getpid()

    def ends(value: Any) -> Any:
        if value == 5 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    assert [*build._in_processes([functools.partial(ends, value) for value in range(12)])] == [*range(12)]
    assert build._begin(lambda: ends(5))() == 5


def test_work_is_begun_in_another_process() -> None:
    wait = build._begin(os.getpid)
    assert wait() != os.getpid()
