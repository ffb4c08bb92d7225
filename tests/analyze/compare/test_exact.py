"""Counts, margins and statuses: any increase is a regression, any decrease an improvement, and what is not counted says so."""

import math
from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.compare.exact import COUNTS, LAUNCHES, METRICS, judge_exact, judge_margin, judge_status
from pairbench.model.comparison import GateOutcome, Judgement
from pairbench.model.record import Record
from tests.builders import ended, make_run, run_id_of

RECORD = replace(make_run(0)[0], peak_bytes=1 << 30)


def one(metric: str, before: Any, now: Any, **more: Any) -> list[Judgement]:
    found = judge_exact(replace(RECORD, **{metric: before}), replace(RECORD, **{metric: now, **more}))
    return [item for item in found if item.metric == metric]


def test_all_counts_are_judged() -> None:
    found = judge_exact(RECORD, RECORD)
    assert {item.metric for item in found} == set(METRICS)
    assert {item.outcome for item in found} == {GateOutcome.UNCHANGED}


@pytest.mark.parametrize("metric", [*LAUNCHES, *COUNTS])
def test_one_more_is_a_regression_and_one_less_an_improvement(metric: str) -> None:
    (worse,) = one(metric, 3, 4)
    assert worse.outcome is GateOutcome.REGRESSION and "1 more" in worse.reason and "3 -> 4" in worse.reason
    (better,) = one(metric, 3, 2)
    assert better.outcome is GateOutcome.IMPROVEMENT and "1 fewer" in better.reason


@pytest.mark.parametrize("metric", [*COUNTS, "peak_bytes"])
@pytest.mark.parametrize("gone", [None, math.nan])
def test_a_count_that_is_gone_is_undecided(metric: str, gone: float | None) -> None:
    (lost,) = one(metric, 3, gone)
    assert lost.outcome is GateOutcome.UNDECIDED and "known now" in lost.reason
    assert one(metric, None, 3) == []


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("exact", "unreliable", GateOutcome.UNDECIDED),
        ("exact", None, GateOutcome.UNDECIDED),
        ("unreliable", "unreliable", GateOutcome.UNDECIDED),
        ("not_applicable", "not_applicable", None),
        ("unavailable", "exact", None),
    ],
)
def test_launches_need_to_be_exact_on_both_sides(before: str, now: str | None, expected: GateOutcome | None) -> None:
    found = judge_exact(replace(RECORD, launch_status=before), replace(RECORD, launch_status=now, launches_per_call=99))
    assert not [item for item in found if item.metric in LAUNCHES]
    assert [item.outcome for item in found if item.metric == "launch_status"] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (1 << 30, (1 << 30) + (10 << 20), GateOutcome.UNCHANGED),
        (1 << 30, (1 << 30) + (11 << 20), GateOutcome.REGRESSION),
        (1 << 30, (1 << 30) - (11 << 20), GateOutcome.IMPROVEMENT),
        (1024, 1024 + (1 << 20), GateOutcome.UNCHANGED),
        (1024, 1025 + (1 << 20), GateOutcome.REGRESSION),
    ],
)
def test_memory_may_move_by_one_percent_or_one_mebibyte(before: int, now: int, expected: GateOutcome) -> None:
    (found,) = one("peak_bytes", before, now)
    assert found.outcome is expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (0.9, 0.9, GateOutcome.UNCHANGED),
        (0.9, 0.6, GateOutcome.UNCHANGED),
        (1.0, 0.5, GateOutcome.UNCHANGED),
        (0.9, 0.3, GateOutcome.UNDECIDED),
        (0.2, 0.09, GateOutcome.UNDECIDED),
        (0.2, 0.18, GateOutcome.UNCHANGED),
        (0.2, 0.9, GateOutcome.UNCHANGED),
        (0.5, None, GateOutcome.UNDECIDED),
        (0.5, math.nan, GateOutcome.UNDECIDED),
    ],
)
def test_half_of_it_lost_and_less_than_half_left(before: float, now: float | None, expected: GateOutcome) -> None:
    (found,) = judge_margin(replace(RECORD, margin=before), replace(RECORD, margin=now))
    assert (found.metric, found.outcome) == ("margin", expected)
    assert (found.reference, found.current) == (before, now)


def test_the_oracle_rule_has_a_margin_too() -> None:
    before, now = (replace(RECORD, margin=None, oracle_ratio=ratio) for ratio in (0.5, 1.6))
    (found,) = judge_margin(before, now)
    assert (found.metric, found.outcome) == ("oracle_ratio", GateOutcome.UNDECIDED)
    assert "only 20 % of the oracle rule is left, before 75 %" in found.reason
    (fine,) = judge_margin(now, now)
    assert fine.outcome is GateOutcome.UNCHANGED
    assert judge_margin(replace(RECORD, margin=None), RECORD) == []


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
        ("failed", "failed", GateOutcome.FAILED, "failing since run "),
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
