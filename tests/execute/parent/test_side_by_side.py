import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from pairbench.errors import InterruptedRunError
from pairbench.execute.parent import session
from pairbench.execute.parent.case_state import CaseState, unprofiled
from pairbench.execute.parent.pool import Workers
from pairbench.execute.parent.session import DeviceSession, count_workers
from pairbench.model.outcome import Launches, Profile, Status, Verification
from pairbench.model.plan import Plan
from tests.execute.made import CPU, GPU, planned

Step = Callable[[CaseState, Any], None]


class Counting(Workers):
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


def verified(state: CaseState, reason: str | None = None) -> None:
    for entry in state.unverified():
        state.verified[entry] = Verification(entry=entry, status=Status.VERIFIED, reason=reason)


def session_of(patch: pytest.MonkeyPatch, cases: int, *workers: Counting) -> DeviceSession:
    """Return a session of some cases, with these workers side by side."""
    patch.setattr(session, "Workers", MagicMock(side_effect=workers))
    patch.setattr(session, "judge_of", lambda *_, **__: None)
    patch.setattr(session, "count_workers", lambda *_: len(workers))
    plan = Plan(cases=tuple(planned(rows=index) for index in range(cases)))
    return DeviceSession(MagicMock(), CPU, plan, MagicMock())


def verified_by(made: DeviceSession) -> list[CaseState]:
    """Verify the cases of a session, and return those that were reported."""
    done = list[CaseState]()
    made.verify(verified=lambda state, _: done.append(state))
    return done


def verify(step: Step, cases: int, several: int) -> tuple[list[CaseState], list[CaseState]]:
    """Verify some cases by a step of ours; returns them, and those that were reported."""

    def verify_case(state: CaseState, workers: Any, enough: Any, *, impostors: bool) -> None:
        step(state, workers)
        assert enough is None or bool(enough(state)) == session._ran_short(state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "verify_case", verify_case)
        made = session_of(patch, cases, *(Counting() for _ in range(several)))
        return made.states, verified_by(made)


def test_each_case_is_verified_once_by_workers_at_the_same_time() -> None:
    together = threading.Barrier(3)
    used = set()

    def step(state: CaseState, workers: Any) -> None:
        together.wait(timeout=10)  # nobody gets past it alone
        used.add(workers)
        verified(state)

    states, reported = verify(step, 6, 3)
    assert len(used) == 3 and len(reported) == 6 and set(reported) == set(states)


HARNESS_OUT_OF_MEMORY = "the harness ran out of memory as it verified this, not the call"
SHORT = {
    "out of memory": (Status.OOM, "out of memory: held 3 GiB"),
    "out of time": (Status.TIMEOUT, "still running"),
    "a library's own words": (Status.FAILED, "RuntimeError: CUBLAS_STATUS_ALLOC_FAILED"),
    "wrong by the baseline alone": (Status.MISMATCHED, "output differs (no oracle: CUDA out of memory)"),
    "the harness out of memory": (Status.SKIPPED, f"{HARNESS_OUT_OF_MEMORY}: out of memory"),
}


@pytest.mark.parametrize(("status", "reason"), SHORT.values(), ids=SHORT)
def test_what_ran_short_beside_others_is_verified_again_alone(status: Status, reason: str) -> None:
    tries: dict[CaseState, list[int]] = {}
    at_work: list[CaseState] = []

    def step(state: CaseState, workers: Any) -> None:
        at_work.append(state)
        tries.setdefault(state, []).append(workers.closed)
        if len(tries[state]) == 1:
            state.end(state.planned.entries[1], status, reason)
        else:
            assert at_work == [state]
        verified(state)
        at_work.remove(state)

    states, reported = verify(step, 4, 2)
    # The second time when the workers of the first time, and what they held, were gone.
    assert set(reported) == set(states) and all(closed == [0, 1] for closed in tries.values())
    assert not any(state.ended for state in states)


def test_what_runs_short_again_and_again_is_done_beside_fewer_and_at_last_alone() -> None:
    beside: dict[CaseState, list[int]] = {}
    at_work: list[CaseState] = []
    together = threading.Barrier(8)

    def step(state: CaseState, workers: Any) -> None:
        at_work.append(state)
        seen = beside.setdefault(state, [])
        if not seen:
            together.wait(timeout=10)
        seen.append(workers.closed)
        state.end(state.planned.entries[1], Status.OOM, "out of memory")
        at_work.remove(state)

    states, reported = verify(step, 8, 8)
    assert len(reported) == 8 and set(reported) == set(states)
    assert all(closed == [0, 1, 2] for closed in beside.values())
    assert all(state.ended[state.planned.entries[1]][0] == Status.OOM for state in states)  # alone, it is believed


def test_an_interruption_leaves_what_was_to_be_done_again_undecided() -> None:
    """It is out of memory only beside others: nobody knows whether it would be alone."""
    both, seen = threading.Barrier(2), list[CaseState]()

    def step(state: CaseState, workers: Any) -> None:
        seen.append(state)
        if workers.closed:
            raise InterruptedRunError
        both.wait(timeout=10)
        state.end(state.planned.entries[1], Status.OOM, "out of memory")

    with pytest.raises(InterruptedRunError):
        verify(step, 2, 2)
    assert len(seen) == 3 and not any(state.ended for state in seen)


@pytest.mark.parametrize(
    ("end", "uncapturable", "several", "tries"),
    [
        # What has nothing to do with others is believed.
        (Status.MISMATCHED, None, 2, 1),
        (Status.FAILED, None, 2, 1),
        (Status.OOM, None, 1, 1),
        (Status.TIMEOUT, None, 1, 1),
        # Only what wants memory is captured again, by the words of libraries.
        (None, "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", 2, 2),
        (None, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", 2, 2),
        (None, "RuntimeError: [enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory", 2, 2),
        (None, "MemoryError: Unable to allocate 4.00 GiB for an array", 2, 2),
        (None, "RuntimeError: CUDA error: cudaErrorMemoryAllocation", 2, 2),
        (None, "Cannot copy between CPU and CUDA unless pinned. Use tensor.pin_memory() or allocate", 2, 1),
        (None, "AcceleratorError: CUDA error: operation not permitted when stream is capturing", 2, 1),
    ],
)
def test_only_what_wants_memory_beside_others_is_done_again(
    end: Status | None, uncapturable: str | None, several: int, tries: int
) -> None:
    tried = list[CaseState]()

    def step(state: CaseState, workers: Any) -> None:
        tried.append(state)
        if end:
            state.end(state.planned.entries[1], end, "wrong")
        verified(state)
        for entry, found in state.verified.items():
            state.verified[entry] = replace(found, uncapturable=uncapturable)

    states, _ = verify(step, 4, several)
    assert Counter(map(id, tried)) == {id(state): tries for state in states}


def test_what_runs_short_beside_others_is_left_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of it would take the others' memory, and has to be done again."""
    beside = threading.Barrier(2)

    class Short(Counting):
        """Finds no memory for an oracle, and is at work on the second entry when it is closed; alone it finds all."""

        at_work = 0

        def get(self) -> Any:
            log = SimpleNamespace(line=lambda _: None)
            return SimpleNamespace(request=self.request, close=self.close, log=log, used=False)

        def request(self, job: Any) -> Iterator[Verification]:
            alone = self.closed > 1
            if not alone:
                beside.wait(timeout=10)
            for entry in job.entries:
                Short.at_work += 1
                reason = None if alone else "no oracle: out of memory: CUDA out of memory"
                yield Verification(entry=entry, status=Status.VERIFIED, reason=reason)

    made = session_of(monkeypatch, 2, Short(), Short())
    done = verified_by(made)
    entries = len(made.states[0].planned.entries)
    assert entries > 1 and Short.at_work == 2 + 2 * entries and set(done) == set(made.states)
    assert not any(found.reason for state in made.states for found in state.verified.values())


def test_an_interruption_ends_all() -> None:
    tries: list[CaseState] = []

    def step(state: CaseState, workers: Any) -> None:
        tries.append(state)
        raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        verify(step, 20, 2)
    assert len(tries) <= 2


@pytest.mark.parametrize(
    ("why", "times"),
    [
        ("out of memory", 2),
        ("still running after the 300 s that one implementation has in a stage; ended", 2),
        ("the profiler records no device activity", 1),
    ],
)
def test_what_company_keeps_from_being_profiled_is_profiled_again_alone(
    monkeypatch: pytest.MonkeyPatch, why: str, times: int
) -> None:
    made = session_of(monkeypatch, 4, Counting(), Counting())
    tries: dict[CaseState, int] = {}
    at_work: list[CaseState] = []
    together = threading.Barrier(2)

    def profile_case(state: CaseState, workers: Any) -> None:
        at_work.append(state)
        tries[state] = tries.get(state, 0) + 1
        if tries[state] == 1:
            together.wait(timeout=10)
        else:
            assert at_work == [state] and workers.closed == 1 and not state.profiles
        for entry in state.timed():
            failed = tries[state] == 1 and state is made.states[2]
            counted = Profile(entry=entry, launches=Launches(status="not_applicable"))
            state.profiles[entry] = unprofiled(entry, why) if failed else counted
        at_work.remove(state)

    monkeypatch.setattr(session, "profile_case", profile_case)
    for state in made.states:
        verified(state)
    made.profile()
    assert [tries[state] for state in made.states] == [1, 1, times, 1]
    assert all(state.reported == {*state.planned.entries} for state in made.states)
    assert any(profile.reason for profile in made.states[2].profiles.values()) == (times == 1)


def test_how_many_there_are() -> None:
    assert [count_workers(CPU, 100, cores=cores) for cores in (1, 2, 64)] == [1, 2, 4]
    assert [count_workers(CPU, cases, cores=64) for cases in (0, 4, 8, 100)] == [1, 1, 2, 4]
    assert [count_workers(GPU, 100, cores=cores) for cores in (1, 2, 4, 16, 128)] == [1, 1, 2, 4, 4]
    assert count_workers(GPU, 3, cores=128) == 3
    assert count_workers(GPU, 0, cores=128) == 1
