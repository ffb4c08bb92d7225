"""Replaced values are looked for once behind the steps of several entries, and no innocent entry is charged with them."""

import json
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pairbench.execute.protocol import SIZE, Ended, Heartbeat, TimeCase
from pairbench.execute.worker import trusted
from pairbench.execute.worker.guard import UnnamedError, explain, guarded, look_once
from tests.execute.made import declare, job_of


@pytest.fixture(autouse=True)
def _untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(trusted, "_tampered", [])
    equal = torch.equal
    yield
    torch.equal = equal
    torch.set_num_threads(_THREADS)


_THREADS = torch.get_num_threads()


def replaces() -> str:
    torch.equal = min
    return "done"


def raises() -> str:
    raise ValueError("no")


def changes_a_flag() -> str:
    torch.set_num_threads(_THREADS + 1)
    return "done"


def time_job(entries: int, *, outside: bool = True) -> TimeCase:
    names = ("baseline", "v", "w", "x")[:entries]
    job: TimeCase = job_of(TimeCase, declare(), *names, round=0, earlier_ns=(), capturable=(), outside=outside)
    return job


MANY, FEW = time_job(4), time_job(2)


def guard(step: Callable[[], Any], job: TimeCase = MANY) -> Any:
    return guarded(job, 1, Heartbeat(mmap.mmap(-1, SIZE)), step)


def test_a_look_behind_several_steps_finds_what_one_of_them_has_replaced_and_restores_it() -> None:
    assert guard(replaces) == "done"
    with pytest.raises(UnnamedError, match=r"one of the implementations replaces torch\.equal"):
        look_once(MANY)
    assert torch.equal is not min
    look_once(MANY)


@pytest.mark.parametrize("step", [raises, changes_a_flag])
def test_an_entry_that_fails_is_not_charged_if_another_may_be_why(step: Callable[[], Any]) -> None:
    assert isinstance(guard(step), Ended)  # nothing is replaced
    guard(replaces)
    with pytest.raises(UnnamedError, match=r"replaces torch\.equal"):
        guard(step)


def test_a_line_of_the_standard_library_is_not_the_suite_s() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    assert explain(caught.value)[1].startswith("test_guard.py, line ")


@pytest.mark.parametrize("job", [FEW, time_job(4, outside=False)])
def test_of_few_entries_and_where_the_worker_judges_each_step_is_looked_at_and_the_entry_named(job: TimeCase) -> None:
    ended = guard(replaces, job)
    assert isinstance(ended, Ended) and ended.reason.startswith("replaces torch.equal")
