from dataclasses import replace
from typing import Any

import pytest

from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.protocol import Ended, TimeCase, VerifyCase
from pairbench.model.outcome import NOTHING_RIGHT, ImpostorResult, Status, Verification
from pairbench.model.plan import LIBRARY, Entry, PlannedCase
from tests.execute.made import about, entry, planned, timed_round

BASELINE, A, B = map(entry, ("baseline", "a", "b"))


def verified(entry: Entry, **more: Any) -> Verification:
    return Verification(entry=entry, status=Status.VERIFIED, **more)


def job(state: CaseState, **changes: Any) -> Any:
    fields = about(*state.unverified()) | {"automatic_impostors": True, "declared_impostors": ()}
    return VerifyCase(**(fields | changes))


def state_of(planned: PlannedCase, *entries: Entry, **more: Any) -> CaseState:
    """Return the state of a case of which some entries are verified."""
    state = CaseState(planned=planned)
    for one in entries:
        state.take(verified(one, **more), job(state), nothing)
    return state


def nothing(marker: str) -> str | None:
    return None


def test_a_refuted_entry_keeps_what_was_found_and_its_first_end() -> None:
    state = state_of(planned(untimed={A: "interpreted"}))
    state.take(Verification(entry=A, status=Status.MISMATCHED, reason="wrong"), job(state), nothing)
    state.end(A, Status.FAILED, "second")
    state.leave_out_untimed()
    found = state.outcome(A)
    assert (found.status, found.reason) == (Status.MISMATCHED, "wrong") and found.verification is not None
    assert A not in state.unverified() and A not in state.timed()
    state = state_of(planned(), A)
    state.take(timed_round(A), job(state), nothing)
    state.take(Ended(entry=A, status=Status.MISMATCHED, reason="later"), job(state), nothing)
    found = state.outcome(A)
    assert found.status is Status.MISMATCHED and found.verification is not None and found.rounds == (), "it has both"


def test_an_end_of_the_case_ends_every_entry_of_the_job() -> None:
    state = state_of(planned(), A)
    timing = TimeCase(**about(A, B), round=0, capturable=())
    state.take(Ended(entry=None, status=Status.FAILED, reason="inputs() failed"), timing, nothing)
    assert state.ended == {A: (Status.FAILED, "inputs() failed"), B: (Status.FAILED, "inputs() failed")}


def test_a_device_side_assertion_is_told_in_the_devices_words() -> None:
    state = CaseState(planned=planned())
    end = Ended(entry=A, status=Status.FAILED, reason="RuntimeError: CUDA error: device-side assert triggered")
    state.take(end, job(state), lambda marker: "index.cu:93: Assertion `index out of bounds` failed.")
    assert state.ended[A][1].endswith("triggered [index.cu:93: Assertion `index out of bounds` failed.]")


def test_skipped_and_untimed_entries_come_with_the_plan() -> None:
    case = planned(skipped={A: "needs a GPU"}, untimed={B: "interpreted"})
    assert CaseState(planned=case).unverified() == (BASELINE, B)
    state = state_of(case, BASELINE, B)
    state.leave_out_untimed()
    assert state.timed() == (BASELINE,)
    for one, reason in ((A, "needs a GPU"), (B, "interpreted")):
        assert (state.outcome(one).status, state.outcome(one).reason) == (Status.SKIPPED, reason)


@pytest.mark.parametrize(
    ("ends", "timed"),
    [
        pytest.param({A: Status.MISMATCHED, B: Status.FAILED}, (), id="all wrong"),
        pytest.param({A: Status.MISMATCHED, B: Status.SKIPPED}, (), id="wrong or skipped"),
        pytest.param({A: Status.MISMATCHED}, (BASELINE, B), id="one right"),
        pytest.param({A: Status.SKIPPED, B: Status.SKIPPED}, (BASELINE,), id="all skipped"),
    ],
)
def test_a_baseline_is_not_timed_where_no_variant_is_right(ends: dict[Entry, Status], timed: tuple[Entry, ...]) -> None:
    state = state_of(planned(), *(one for one in (BASELINE, A, B) if one not in ends))
    for one, status in ends.items():
        state.end(one, status, "why")
    state.leave_out_baselines()
    assert state.timed() == timed
    baseline = state.outcome(BASELINE)
    assert timed or (baseline.status is Status.SKIPPED and "none of its variants" in str(baseline.reason))


@pytest.mark.parametrize(
    ("ends", "timed"),
    [
        pytest.param({A: Status.MISMATCHED}, (), id="candidate wrong"),
        pytest.param({A: Status.SKIPPED}, (BASELINE, B), id="candidate skipped"),
        pytest.param({B: Status.MISMATCHED}, (BASELINE, A), id="library wrong"),
    ],
)
def test_library_variants_are_there_for_the_candidates(ends: dict[Entry, Status], timed: tuple[Entry, ...]) -> None:
    case = planned()
    kinds = tuple(replace(one, kind=LIBRARY * (one.name == "b")) for one in case.operator.implementations)
    case = replace(case, operator=replace(case.operator, implementations=kinds))
    state = state_of(case, *(one for one in (BASELINE, A, B) if one not in ends))
    for one, status in ends.items():
        state.end(one, status, "why")
    state.leave_out_baselines(alternatives=True)
    assert state.timed() == timed
    assert all(state.outcome(one).reason == NOTHING_RIGHT for one in (BASELINE, B) if not timed)


@pytest.mark.parametrize(
    ("note", "rounds", "done", "status", "words"),
    [
        (None, 3, 0, Status.SKIPPED, "the run was interrupted before this was measured"),
        (None, 3, 1, Status.MEASURED, "the run was interrupted after 1 of 3 rounds"),
        (None, 3, 3, Status.MEASURED, "the run was interrupted before this was profiled"),
        ("no oracle", 2, 1, Status.MEASURED, "no oracle; the run was interrupted after 1 of 2 rounds"),
        (None, 0, 0, Status.VERIFIED, None),  # nothing was to be timed
    ],
)
def test_an_interrupted_case(note: str | None, rounds: int, done: int, status: Status, words: str | None) -> None:
    state = state_of(planned(), BASELINE, A, reason=note)
    for index in range(done):
        state.take(timed_round(BASELINE, A, index=index), job(state), nothing)
    state.interrupt(rounds)
    assert (state.outcome(A).status, state.outcome(A).reason) == (status, words)
    assert state.outcome(B).status is Status.SKIPPED


def test_a_case_that_fails_with_impostors_left_closes_them() -> None:
    state = state_of(planned(), BASELINE, A, B)
    found = ImpostorResult(impostor="zeros", declared=False, rejected=True, reason="")
    state.take(found, job(state), nothing)
    left = job(state, entries=(), declared_impostors=("one", "two"))
    state.take(Ended(entry=None, status=Status.FAILED, reason="the baseline failed"), left, nothing)
    assert state.impostors[0] == found and not state.ended
    assert [(found.impostor, found.rejected) for found in state.impostors[1:]] == [("one", False), ("two", False)]


@pytest.mark.parametrize("index", [-2, 3, 1 << 40])
def test_a_heartbeat_that_names_nobody_blames_the_case(index: int) -> None:
    state = CaseState(planned=planned())
    assert state.blame(index, Status.FAILED, "crashed", job(state)) == (BASELINE, A, B)
