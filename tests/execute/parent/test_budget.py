import contextlib
from collections.abc import Iterator
from typing import Any, Self

import pytest

from pairbench.execute.parent.budget import Budget
from pairbench.execute.parent.case_state import CaseState
from pairbench.model.environment import Settings
from pairbench.model.outcome import OUT_OF_BUDGET, Status, Verification
from tests.execute.made import planned, timed_round


class Session:
    """As much of a session as a budget asks for, and the workers of its rounds, which are there after a second. A case takes its seconds to verify, in each round, and to profile."""

    def __init__(self, states: list[CaseState], seconds: dict[str, float]) -> None:
        self.states = states
        self.seconds = seconds
        self.now = 0.0
        self.done: list[tuple[str, str]] = []
        self.round_s: dict[CaseState, float] = {}

    def _spend(self, stage: str, state: CaseState) -> None:
        self.now += self.seconds[state.planned.case.key]
        self.done.append((stage, state.planned.case.key))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def round_workers(self, rounds: int) -> Self:
        self.waited_s = 0
        return self

    @contextlib.contextmanager
    def round(self) -> Iterator[tuple[None]]:
        self.now += 1
        self.waited_s += 1
        yield (None,)

    def verify(self, take: Any, verified: Any) -> None:
        while (state := take()) is not None:
            self._spend("verify", state)
            for entry in state.planned.entries:
                state.verified[entry] = Verification(entry=entry, status=Status.VERIFIED)
            verified(state, self.seconds[state.planned.case.key])

    def time(self, rounds: int, ahead: Self, among: Any) -> None:
        for index in range(rounds):
            with ahead.round() as (workers,):
                self.time_round(list(among), workers, index, "")

    def time_round(self, states: list[CaseState], workers: None, number: int, name: str) -> None:
        for state in states:
            self._spend("time", state)
            self.round_s[state] = self.seconds[state.planned.case.key]
            state.rounds.append(timed_round(*state.timed(), index=len(state.rounds)))

    def profile(self, among: Any, *, final: bool) -> None:
        for state in self.timed(among):
            self._spend("profile", state)

    def timed(self, among: Any = None) -> list[CaseState]:
        return [state for state in (self.states if among is None else among) if state.timed()]


def spend(
    budget_s: float, seconds: list[float], widths: dict[int, float] | None = None
) -> tuple[Session, list[int], set[int]]:
    """Spend a budget on cases of so many seconds: returns the session, the rounds of each case, and what was left out."""
    states = [CaseState(planned=planned(rows=index)) for index in range(len(seconds))]
    keys = [state.planned.case.key for state in states]
    session = Session(states, dict(zip(keys, seconds, strict=True)))
    by_key = {keys[index]: width for index, width in (widths or {}).items()}
    budget = Budget(
        deadline=budget_s,
        seconds=budget_s,
        settings=Settings(rounds=3, case_seconds=1.0, target=0.005),
        width=lambda state: by_key.get(state.planned.case.key),
        clock=lambda: session.now,
        start_s=3.0,
    )
    budget(session)  # type: ignore[arg-type]
    left = {index for index, state in enumerate(states) if any(end[1] == OUT_OF_BUDGET for end in state.ended.values())}
    return session, [len(state.rounds) for state in states], left


def test_all_fit() -> None:
    session, rounds, left = spend(1000, [1.0] * 5)
    assert rounds == [3] * 5 and not left
    assert session.now < 50, "nothing is imprecise, so nothing is spent on further rounds"


def test_whole_cases_in_their_order_as_far_as_they_fit() -> None:
    session, rounds, left = spend(100, [1.0] * 50)
    done = rounds.count(3)
    assert rounds == [3] * done + [0] * (50 - done) and left == set(range(done, 50))
    assert 12 <= done <= 18  # five seconds each, and the starts of processes
    assert 80 <= session.now <= 100
    assert {stage for stage, _ in session.done} == {"verify", "time", "profile"}


@pytest.mark.parametrize(("budget_s", "case_s"), [(10, 60.0), (0.5, 1.0)])
def test_one_case_is_done_whatever_it_takes(budget_s: float, case_s: float) -> None:
    assert spend(budget_s, [case_s, 1.0])[1:] == ([3, 0], {1})


def test_a_case_that_is_too_much_for_what_is_left_waits() -> None:
    """It was verified, which tells what the rest of it would take; cheaper ones behind it have their turn."""
    session, rounds, left = spend(100, [1.0, 1.0, 40.0, 1.0, 1.0])
    assert rounds[:3] == [3, 3, 0] and 2 in left
    assert session.now <= 100


def test_what_is_left_goes_to_the_widest() -> None:
    session, rounds, left = spend(60, [1.0] * 4, {0: 0.001, 1: 0.02, 2: 0.3, 3: 0.01})
    assert not left and rounds[0] == rounds[1] == rounds[3] == 3 and rounds[2] > 10
    assert 50 <= session.now <= 60
