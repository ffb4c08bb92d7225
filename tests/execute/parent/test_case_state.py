"""What becomes of an entry: its first end, and exactly one outcome."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pairbench.execute.parent.case_state import CaseState, unprofiled
from pairbench.execute.protocol import Ended, TimeCase, VerifyCase, without_baseline
from pairbench.model.outcome import ImpostorResult, Status, Verification
from pairbench.model.plan import Entry, PlannedCase
from tests.execute.made import timed_round

Planned = Callable[..., PlannedCase]
BASELINE, A, B = (Entry(implementation=name, mode="eager") for name in ("baseline", "a", "b"))


def verified(entry: Entry, **more: Any) -> Verification:
    return Verification(entry=entry, status=Status.VERIFIED, **more)


def job(state: CaseState) -> Any:
    return VerifyCase(
        path=None,  # type: ignore[arg-type]
        operator="op",
        case=state.planned.case,
        entries=state.unverified(),
        automatic_impostors=True,
        declared_impostors=(),
    )


def nothing(marker: str) -> str | None:
    return None


def test_an_entry_goes_from_unverified_to_timed_to_measured(planned: Planned) -> None:
    state = CaseState(planned=planned())
    assert state.unverified() == (BASELINE, A, B) and state.timed() == ()
    for entry in (BASELINE, A, B):
        state.take(verified(entry), job(state), nothing)
    assert state.unverified() == () and state.timed() == (BASELINE, A, B)
    assert state.outcome(A).status is Status.VERIFIED
    state.take(timed_round(BASELINE, A, B), job(state), nothing)
    found = state.outcome(A)
    assert (found.status, found.reason, len(found.rounds)) == (Status.MEASURED, None, 1)


def test_a_refuted_entry_keeps_what_was_found(planned: Planned) -> None:
    state = CaseState(planned=planned())
    state.take(Verification(entry=A, status=Status.MISMATCHED, reason="wrong"), job(state), nothing)
    found = state.outcome(A)
    assert (found.status, found.reason) == (Status.MISMATCHED, "wrong") and found.verification is not None
    assert A not in state.unverified() and A not in state.timed()


def test_the_first_end_stays(planned: Planned) -> None:
    state = CaseState(planned=planned())
    state.end(A, Status.OOM, "first")
    state.end(A, Status.FAILED, "second")
    assert state.ended[A] == (Status.OOM, "first")


def test_what_was_verified_and_ends_later_has_both(planned: Planned) -> None:
    state = CaseState(planned=planned())
    state.take(verified(A), job(state), nothing)
    state.take(timed_round(A), job(state), nothing)
    state.take(Ended(entry=A, status=Status.MISMATCHED, reason="later"), job(state), nothing)
    found = state.outcome(A)
    assert found.status is Status.MISMATCHED and found.verification is not None and found.rounds == ()


def test_an_end_of_the_case_ends_every_entry_of_the_job(planned: Planned) -> None:
    state = CaseState(planned=planned())
    state.take(verified(A), job(state), nothing)
    timing = TimeCase(
        path=None,  # type: ignore[arg-type]
        operator="op",
        case=state.planned.case,
        entries=(A, B),
        round=0,
        capturable=(),
    )
    state.take(Ended(entry=None, status=Status.FAILED, reason="inputs() failed"), timing, nothing)
    assert state.ended == {A: (Status.FAILED, "inputs() failed"), B: (Status.FAILED, "inputs() failed")}


def test_a_device_side_assertion_is_told_in_the_devices_words(planned: Planned) -> None:
    state = CaseState(planned=planned())
    end = Ended(entry=A, status=Status.FAILED, reason="RuntimeError: CUDA error: device-side assert triggered")
    state.take(end, job(state), lambda marker: "index.cu:93: Assertion `index out of bounds` failed.")
    assert state.ended[A][1].endswith("triggered [index.cu:93: Assertion `index out of bounds` failed.]")


def test_skipped_and_untimed_entries_come_with_the_plan(planned: Planned) -> None:
    state = CaseState(planned=planned(skipped={A: "needs a GPU"}, untimed={B: "interpreted"}))
    assert state.unverified() == (BASELINE, B)
    for entry in state.unverified():
        state.take(verified(entry), job(state), nothing)
    state.leave_out_untimed()
    assert state.timed() == (BASELINE,)
    assert [(found.status, found.reason) for found in map(state.outcome, (A, B))] == [
        (Status.SKIPPED, "needs a GPU"),
        (Status.SKIPPED, "interpreted"),
    ]


@pytest.mark.parametrize(
    ("ends", "timed"),
    [
        pytest.param({A: Status.MISMATCHED, B: Status.FAILED}, (), id="all wrong"),
        pytest.param({A: Status.MISMATCHED, B: Status.SKIPPED}, (), id="wrong or skipped"),
        pytest.param({A: Status.MISMATCHED}, (BASELINE, B), id="one right"),
        pytest.param({A: Status.SKIPPED, B: Status.SKIPPED}, (BASELINE,), id="all skipped"),
    ],
)
def test_a_baseline_is_not_timed_where_no_variant_is_right(
    planned: Planned, ends: dict[Entry, Status], timed: tuple[Entry, ...]
) -> None:
    state = CaseState(planned=planned())
    for entry in state.unverified():
        if entry in ends:
            state.end(entry, ends[entry], "why")
        else:
            state.take(verified(entry), job(state), nothing)
    state.leave_out_baselines()
    assert state.timed() == timed
    if not timed:
        assert state.outcome(BASELINE).status is Status.SKIPPED and "none of its variants" in str(
            state.outcome(BASELINE).reason
        )


def test_a_mismatch_of_an_untimed_entry_is_not_hidden(planned: Planned) -> None:
    state = CaseState(planned=planned(untimed={B: "interpreted"}))
    state.take(Verification(entry=B, status=Status.MISMATCHED, reason="wrong"), job(state), nothing)
    state.leave_out_untimed()
    assert state.outcome(B).status is Status.MISMATCHED


@pytest.mark.parametrize(
    ("rounds_done", "status", "words"),
    [
        (0, Status.SKIPPED, "the run was interrupted before this was measured"),
        (1, Status.MEASURED, "the run was interrupted after 1 of 3 rounds"),
        (3, Status.MEASURED, "the run was interrupted before this was profiled"),
    ],
)
def test_an_interrupted_case(planned: Planned, rounds_done: int, status: Status, words: str | None) -> None:
    state = CaseState(planned=planned())
    for entry in (BASELINE, A):
        state.take(verified(entry), job(state), nothing)
    for index in range(rounds_done):
        state.take(timed_round(BASELINE, A, index=index), job(state), nothing)
    state.interrupt(3)
    assert (state.outcome(A).status, state.outcome(A).reason) == (status, words)
    assert state.outcome(B).status is Status.SKIPPED


def test_where_nothing_was_to_be_timed_an_interruption_leaves_what_was_verified(planned: Planned) -> None:
    state = CaseState(planned=planned())
    state.take(verified(A), job(state), nothing)
    state.interrupt(0)
    assert state.outcome(A).status is Status.VERIFIED
    assert state.outcome(B).status is Status.SKIPPED


def test_a_note_of_verification_survives_an_interruption(planned: Planned) -> None:
    state = CaseState(planned=planned())
    state.take(verified(A, reason="no oracle: too large"), job(state), nothing)
    state.take(timed_round(A), job(state), nothing)
    state.interrupt(2)
    assert state.outcome(A).reason == "no oracle: too large; the run was interrupted after 1 of 2 rounds"


def test_impostors_are_kept(planned: Planned) -> None:
    state = CaseState(planned=planned())
    result = ImpostorResult(impostor="zeros", declared=False, rejected=True, reason="")
    state.take(result, job(state), nothing)
    assert state.impostors == [result]


def test_without_a_baseline_the_variants_are_skipped() -> None:
    ends = without_baseline((BASELINE, A), Status.OOM, "out of memory")
    assert [(end.entry, end.status) for end in ends] == [(BASELINE, Status.OOM), (A, Status.SKIPPED)]
    assert ends[1].reason == "nothing to verify against: the baseline oom (out of memory)"


def test_a_failed_profile_is_unavailable_and_no_failure() -> None:
    found = unprofiled(A, "crashed")
    assert (found.launches.status, found.reason) == ("unavailable", "not profiled: crashed")


def test_a_case_that_fails_with_impostors_left_closes_them(planned: Planned) -> None:
    state = CaseState(planned=planned())
    for entry in (BASELINE, A, B):
        state.take(verified(entry), job(state), nothing)
    left = replace(job(state), entries=(), declared_impostors=("one", "two"))
    state.take(Ended(entry=None, status=Status.FAILED, reason="the baseline failed"), left, nothing)
    assert {found.impostor: found.rejected for found in state.impostors} == {"one": False, "two": False}
    assert not state.ended


@pytest.mark.parametrize("index", [-2, 3, 1 << 40])
def test_a_heartbeat_that_names_nobody_blames_the_case(planned: Planned, index: int) -> None:
    state = CaseState(planned=planned())
    assert state.blame(index, Status.FAILED, "crashed", job(state)) == (BASELINE, A, B)
