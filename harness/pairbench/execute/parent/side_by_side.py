"""Several workers that take cases of one device side by side, so that kernels compile, or are interpreted, on all of the host's cores.

Only timing needs a device for itself. What ends for want of memory or of time while others were at work is done again beside fewer, and
at last with nobody beside it; only that counts.
"""

import functools
import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.pool import Workers, close_all
from pairbench.execute.parent.steps import Enough, profile_case, verify_case
from pairbench.model.environment import Device
from pairbench.model.outcome import Status

_MOST = {"cuda": 8, "cpu": 4}
"""Workers at once, by device kind: each takes half a gigabyte of a GPU before it has done anything; on a CPU each has its own copy of the
inputs, and all use the same cores."""
_CASES = 4
"""Cases for each worker on a CPU: fewer are done before another worker is there."""
_FEWER = 4
"""Cases that ran short are done again by the number of workers divided by this."""
_SCARCE = re.compile(
    r"out of ?memory|MemoryError|MemoryAllocation|alloc\w*[ _]fail|fail\w* to alloc|(can't|cannot|could not|unable to) alloc|(not enough|insufficient) memory",
    re.IGNORECASE,
)
"""What libraries say when memory is short. The word alone will not do: what cannot be captured as a graph asks for pinned memory."""
_SLOW = "still running after"
"""What is said of a worker that ran over its time."""

Take = Callable[[], CaseState | None]
"""Gives the next case, or None when there is no more."""
Begins = Callable[[CaseState], None]
Done = Callable[[CaseState, float], None]


def count_workers(device: Device, cases: int, cores: int | None = None) -> int:
    """Return how many workers take some cases side by side, on a host with so many cores."""
    cores = cores or os.cpu_count() or 1
    useful = min(cores, cases // _CASES) if device.kind == "cpu" else min(cases, cores // 2)
    return max(1, min(_MOST[device.kind], useful))


class SideBySide(AbstractContextManager["SideBySide"]):
    """Does one thing with many cases, one after the other in each of several workers. A context manager: the workers end with it."""

    def __init__(self, several: Sequence[Workers]) -> None:
        """Start nothing yet: each worker starts with its first case."""
        self._several = several
        self._turn = threading.Lock()

    def __exit__(self, *_: object) -> None:
        close_all(self._several)

    def verify(self, take: Take, begins: Begins, done: Done, *, impostors: bool) -> None:
        """Verify cases until there are no more. Of the three functions one runs at a time; `done` gets the seconds of a case."""

        def step(state: CaseState, workers: Workers, enough: Enough | None) -> None:
            verify_case(state, workers, impostors=impostors, enough=enough)

        self._each(step, _ran_short, CaseState.start_over, take, begins, done)

    def profile(self, take: Take, begins: Begins, done: Done) -> None:
        """Count launches, operators and memory of cases until there are no more; see `verify`."""

        def step(state: CaseState, workers: Workers, _: Enough | None) -> None:
            profile_case(state, workers)

        self._each(step, _unprofiled, lambda state: state.profiles.clear(), take, begins, done)

    def _each(
        self,
        step: Callable[[CaseState, Workers, Enough | None], None],
        ran_short: Callable[[CaseState], bool],
        start_over: Callable[[CaseState], None],
        take: Take,
        begins: Begins,
        done: Done,
    ) -> None:
        """Take a step with each case; cases that ran short beside others start over beside fewer workers."""
        spent_s = defaultdict[CaseState, float](float)
        width, again = len(self._several), list[CaseState]()
        stopped = threading.Event()

        def following() -> CaseState | None:
            with self._turn:
                if (state := take()) is not None:
                    begins(state)
                return state

        def work(workers: Workers) -> None:
            try:
                while not stopped.is_set() and (state := following()) is not None:
                    began = time.monotonic()
                    step(state, workers, ran_short if width > 1 else None)
                    with self._turn:
                        spent_s[state] += time.monotonic() - began
                        if width > 1 and ran_short(state):
                            start_over(state)
                            again.append(state)
                        else:
                            done(state, spent_s[state])
            except BaseException:
                stopped.set()  # the others end with the case that they are at
                raise

        while True:
            with ThreadPoolExecutor(width) as threads:
                for finished in [threads.submit(work, workers) for workers in self._several[:width]]:
                    finished.result()
            if not again:
                return
            close_all(self._several)
            width = max(1, width // _FEWER)
            take, again = functools.partial(next, iter(again), None), []


def _ran_short(state: CaseState) -> bool:
    """Return whether anything of a case ended, or was judged without an oracle, for want of memory or of time."""
    ends = list(state.ended.values())
    scarce = any(_SCARCE.search(reason) for _, reason in ends)
    missed = any(
        why and _SCARCE.search(why) for found in state.verified.values() for why in (found.reason, found.uncapturable)
    )
    return scarce or missed or any(status in (Status.OOM, Status.TIMEOUT) for status, _ in ends)


def _unprofiled(state: CaseState) -> bool:
    """Return whether profiling lacked memory or time: a driver that forbids it is no such case."""
    whys = [found.launches.reason or "" for found in state.profiles.values() if found.launches.status == "unavailable"]
    return any(_SCARCE.search(why) or _SLOW in why for why in whys)
