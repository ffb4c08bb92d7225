import os
import threading

import pytest
import torch

from pairbench.execute.worker.timing import ready
from pairbench.execute.worker.timing.ready import on_one_core

GPU = torch.device("cuda")


@pytest.fixture(autouse=True)
def _any_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "_FEWEST_CORES", 1)


@pytest.mark.parametrize(("device", "fewest"), [("cpu", 1), ("cuda", 4096)])
def test_a_cpu_all_of_whose_cores_do_the_work_is_left_alone_and_so_are_few_cores(
    monkeypatch: pytest.MonkeyPatch, device: str, fewest: int
) -> None:
    monkeypatch.setattr(ready, "_FEWEST_CORES", fewest)
    before = os.sched_getaffinity(0)
    with on_one_core(torch.device(device)):
        assert os.sched_getaffinity(0) == before


def test_for_a_gpu_it_is_the_core_where_the_thread_is_for_the_time_and_other_threads_stay_free() -> None:
    found: list[set[int]] = []
    go, done = threading.Event(), threading.Event()

    def look() -> None:
        go.wait(10)
        found.append(os.sched_getaffinity(0))
        done.set()

    thread = threading.Thread(target=look)
    thread.start()
    before = os.sched_getaffinity(0)
    with on_one_core(GPU):
        (core,) = os.sched_getaffinity(0)
        assert core in before
        go.set()
        assert done.wait(10)
    thread.join()
    assert found == [before] == [os.sched_getaffinity(0)]


def test_where_it_is_forbidden_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with on_one_core(GPU):
        pass
