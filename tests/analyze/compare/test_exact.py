"""Counts: any increase is a regression, any decrease an improvement, and what is not counted says so."""

import math
from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.compare.exact import COUNTS, LAUNCHES, METRICS, judge_exact, worsened
from pairbench.model.comparison import GateOutcome, Judgement
from tests.builders import make_run

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
    assert worsened([worse, better]) == [worse]


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
