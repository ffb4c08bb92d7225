"""What became of an implementation between two runs, in the words of a gate."""

from dataclasses import replace

import pytest

from pairbench.analyze.compare.exact import judge_status
from pairbench.model.comparison import GateOutcome
from pairbench.model.record import Record
from tests.builders import ended, make_run, run_id_of

GOOD = (make_run(0)[0], make_run(1)[0])


def of(record: Record, status: str, mode: str = "eager") -> Record:
    found = record if status == "measured" else ended(record, status, f"{status} for a reason")
    return replace(found, mode=mode)


@pytest.mark.parametrize(
    ("before", "now", "expected", "words"),
    [
        ("measured", "measured", GateOutcome.UNCHANGED, "as before"),
        ("measured", "failed", GateOutcome.FAILED, "failed: failed for a reason"),
        ("measured", "mismatched", GateOutcome.FAILED, "mismatched for a reason"),
        ("measured", "timeout", GateOutcome.FAILED, "timeout for a reason"),
        ("measured", "oom", GateOutcome.FAILED, "oom for a reason"),
        ("measured", "exploded", GateOutcome.FAILED, "exploded for a reason"),
        ("failed", "failed", GateOutcome.FAILED, "it was failed before as well"),
        ("skipped", "failed", GateOutcome.FAILED, "failed for a reason"),
        ("measured", "skipped", GateOutcome.MISSING, "no longer measured: skipped"),
        ("failed", "skipped", GateOutcome.MISSING, "it was failed before"),
        ("failed", "measured", GateOutcome.IMPROVEMENT, "works again"),
        ("skipped", "measured", GateOutcome.NEW, "measured for the first time"),
        ("skipped", "skipped", GateOutcome.UNCHANGED, "skipped, as before"),
    ],
)
def test_every_way_from_one_end_to_another(before: str, now: str, expected: GateOutcome, words: str) -> None:
    found = judge_status([of(GOOD[0], before)], [of(GOOD[1], now)])
    assert (found.outcome, found.reference, found.current) == (expected, before, now)
    assert words in found.reason


def test_graphability_is_exact() -> None:
    lost = judge_status([of(GOOD[0], "measured", "graph")], [of(GOOD[1], "skipped", "graph")])
    assert lost.outcome is GateOutcome.REGRESSION and "no longer works as a CUDA graph" in lost.reason
    won = judge_status([of(GOOD[0], "skipped", "graph")], [of(GOOD[1], "measured", "graph")])
    assert won.outcome is GateOutcome.IMPROVEMENT


def test_one_failure_among_several_runs_is_not_lost() -> None:
    found = judge_status([GOOD[0]], [ended(GOOD[1], "failed", "crashed"), make_run(2)[0]])
    assert found.outcome is GateOutcome.FAILED and "failed in 1 of 2 current runs: crashed" in found.reason


def test_what_fails_once_and_then_works_is_undecided() -> None:
    failed = ended(GOOD[1], "failed", "crashed")
    again = replace(make_run(2)[0], confirms=run_id_of(1))
    found = judge_status([GOOD[0]], [failed, again])
    assert found.outcome is GateOutcome.UNDECIDED and "it worked when it was measured again" in found.reason
    twice = judge_status([GOOD[0]], [failed, replace(ended(again, "failed", "again"), confirms=run_id_of(1))])
    assert twice.outcome is GateOutcome.FAILED
    (later,) = [judge_status([GOOD[0]], [GOOD[1], ended(again, "failed", "again")])]
    assert later.outcome is GateOutcome.FAILED


def test_a_reason_is_always_given() -> None:
    nameless = replace(of(GOOD[1], "failed"), reason=None)
    assert "no reason was stored" in judge_status([GOOD[0]], [nameless]).reason
