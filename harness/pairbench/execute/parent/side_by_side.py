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
from dataclasses import dataclass
from typing import Self

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
    """Return how many workers take cases side by side.

    Args:
        device: Where.
        cases: How many there are to take.
        cores: Of the host; counted if not given.
    """
    cores = cores or os.cpu_count() or 1
    useful = min(cores, cases // _CASES) if device.kind == "cpu" else min(cases, cores // 2)
    return max(1, min(_MOST[device.kind], useful))


class SideBySide:
    """Does one thing with many cases, one after the other in each of several workers. A context manager: the workers end with it."""

    def __init__(self, several: Sequence[Workers]) -> None:
        """Start nothing yet.

        Args:
            several: The workers, at least one; each starts with its first case.
        """
        self._several = several
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        close_all(self._several)

    def verify(self, take: Take, begins: Begins, done: Done, *, impostors: bool) -> None:
        """Verify cases until there are no more. Of the functions, one runs at a time.

        Args:
            take: Gives the cases.
            begins: Is told of a case that is begun.
            done: Is told of a case that is through, and how many seconds that took.
            impostors: Whether to try those that are declared.

        Raises:
            InterruptedRunError: the user interrupted.
        """
        stage = _Stage(
            step=lambda state, workers, enough: verify_case(state, workers, impostors=impostors, enough=enough),
            ran_short=_ran_short,
            start_over=CaseState.start_over,
        )
        self._each(stage, take, begins, done)

    def profile(self, take: Take, begins: Begins, done: Done) -> None:
        """Count launches, operators and memory of cases until there are no more; see `verify`."""
        stage = _Stage(
            step=lambda state, workers, _: profile_case(state, workers),
            ran_short=_unprofiled,
            start_over=lambda state: state.profiles.clear(),
        )
        self._each(stage, take, begins, done)

    def _each(self, stage: "_Stage", take: Take, begins: Begins, done: Done) -> None:
        spent_s = defaultdict[CaseState, float](float)
        width = len(self._several)
        while again := self._pass(stage, self._several[:width], spent_s, take, begins, done):
            close_all(self._several)
            width = max(1, width // _FEWER)
            take = functools.partial(next, iter(again), None)

    def _pass(
        self,
        stage: "_Stage",
        several: Sequence[Workers],
        spent_s: dict[CaseState, float],
        take: Take,
        begins: Begins,
        done: Done,
    ) -> list[CaseState]:
        """Take cases until there are no more; return those that ran short beside others, of which nothing is known then."""
        again, beside = list[CaseState](), len(several) > 1
        stopped = threading.Event()

        def work(workers: Workers) -> None:
            try:
                while not stopped.is_set() and (state := self._next(take, begins)) is not None:
                    began = time.monotonic()
                    stage.step(state, workers, stage.ran_short if beside else None)
                    with self._turn:
                        spent_s[state] += time.monotonic() - began
                        if beside and stage.ran_short(state):
                            stage.start_over(state)
                            again.append(state)
                        else:
                            done(state, spent_s[state])
            except BaseException:
                stopped.set()  # the others end with the case that they are at
                raise

        with ThreadPoolExecutor(len(several)) as threads:
            for finished in [threads.submit(work, workers) for workers in several]:
                finished.result()
        return again

    def _next(self, take: Take, begins: Begins) -> CaseState | None:
        with self._turn:
            state = take()
            if state is not None:
                begins(state)
            return state


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """What is done with each case."""

    step: Callable[[CaseState, Workers, Enough | None], None]
    """Does it, until what is known is enough."""
    ran_short: Callable[[CaseState], bool]
    """Whether a case lacked memory or time, which other workers may have taken."""
    start_over: Callable[[CaseState], None]
    """Makes it as it was before."""


def _ran_short(state: CaseState) -> bool:
    """Return whether anything of a case ended, or was judged without an oracle, for want of memory or of time."""
    ends = list(state.ended.values())
    scarce = any(_SCARCE.search(reason) for status, reason in ends if status in (Status.FAILED, Status.MISMATCHED))
    missed = any(
        why and _SCARCE.search(why) for found in state.verified.values() for why in (found.reason, found.uncapturable)
    )
    return scarce or missed or any(status in (Status.OOM, Status.TIMEOUT) for status, _ in ends)


def _unprofiled(state: CaseState) -> bool:
    """Return whether anything of a case could not be profiled for want of memory or of time, and not since this host's driver forbids it."""
    whys = [found.launches.reason or "" for found in state.profiles.values() if found.launches.status == "unavailable"]
    return any(_SCARCE.search(why) or _SLOW in why for why in whys)
