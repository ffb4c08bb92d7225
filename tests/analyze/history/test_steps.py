"""Steps of what is counted: found at the first run, kept for good, ended where they are undone."""

import math
from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.history.points import SeriesPoint
from pairbench.analyze.history.steps import Step, steps_of
from pairbench.model.comparison import Attribution, GateOutcome
from pairbench.model.record import Record
from tests.builders import ended, make_run


def record(number: int, **changes: Any) -> Record:
    return replace(make_run(number)[1], **changes)


def steps(*records: Record, parts: tuple[int, ...] = ()) -> tuple[Step, ...]:
    told = parts or (0,) * len(records)
    return steps_of([SeriesPoint(record=one, control=None, part=part) for one, part in zip(records, told, strict=True)])


def column(metric: str, *values: float | None) -> tuple[Step, ...]:
    return steps(*(record(number, **{metric: value}) for number, value in enumerate(values)))


def test_another_launch_is_a_step_however_many_runs_follow() -> None:
    for after in (1, 2, 20):
        (step,) = column("launches_per_call", 1, 1, *(3,) * after)
        assert (step.before, step.index, step.outcome, step.ended) == (1, 2, GateOutcome.REGRESSION, None)
        assert (step.reference, step.current, step.attribution) == (1, 3, Attribution.CODE)
        assert step.reason == "2 more launches a call, 1 -> 3"


def test_a_return_ends_the_step_and_is_none_itself() -> None:
    (step,) = column("ops_per_call", 1, 4, 4, 1, 1)
    assert (step.index, step.ended, step.superseded) == (1, 3, False)
    first, second = column("ops_per_call", 4, 6, 6, 2)
    assert (first.outcome, first.ended) == (GateOutcome.REGRESSION, 3)
    assert (second.outcome, second.reference, second.current) == (GateOutcome.IMPROVEMENT, 4, 2)
    half, whole = column("ops_per_call", 1, 4, 6, 4)
    assert (half.ended, whole.ended) == (None, 3)


def test_a_gain_that_is_lost_is_superseded() -> None:
    gain, loss = column("kernels_per_call", 6, 2, 2, 6)
    assert (gain.outcome, gain.ended, gain.superseded) == (GateOutcome.IMPROVEMENT, 3, True)
    assert (loss.outcome, loss.ended) == (GateOutcome.REGRESSION, None)


@pytest.mark.parametrize("gap", [None, math.nan])
def test_a_run_that_did_not_count_is_passed_over(gap: float | None) -> None:
    assert column("ops_per_call", 1, gap, 1) == ()
    (step,) = column("ops_per_call", 1, gap, 3)
    assert (step.before, step.index) == (0, 2)
    unsure = record(1, launches_per_call=7, launch_status="unreliable")
    assert steps(record(0), unsure, record(2)) == ()


def test_memory_that_grows_slowly_is_a_step_where_it_leaves_the_slack() -> None:
    (step,) = column("peak_bytes", *(2**30 + part * 6 * 2**20 for part in range(4)))
    assert (step.index, step.before, step.reference) == (2, 1, 2**30)


def test_a_margin_that_shrinks_may_be_worse_and_may_come_back() -> None:
    (step,) = column("margin", 0.8, 0.2, 0.2)
    assert (step.outcome, step.worse, step.ended) == (GateOutcome.UNDECIDED, True, None)
    (step,) = column("margin", 0.8, 0.2, 0.8)
    assert step.ended == 2


def test_a_failure_lasts_until_it_works_again() -> None:
    good, bad = record(0), ended(record(1), "failed", "died of SIGSEGV")
    (step,) = steps(good, bad, record(2))
    assert (step.metric, step.outcome, step.index, step.ended) == ("status", GateOutcome.FAILED, 1, 2)
    assert step.reason == "failed: died of SIGSEGV"
    (step,) = steps(bad, replace(bad, reason="once more"))
    assert (step.before, step.index, step.ended) == (None, 0, None)
    (step,) = steps(good, bad, ended(record(2), "skipped"))
    assert (step.ended, step.superseded) == (2, True)


def test_another_definition_has_other_counts() -> None:
    worse = [record(number, launches_per_call=3) for number in (1, 2)]
    (step,) = steps(record(0), *worse, parts=(0, 0, 1))
    assert (step.index, step.ended, step.superseded) == (1, 2, True)
    assert steps(record(0), *worse, parts=(0, 1, 1)) == ()


def test_what_another_driver_does_is_put_down_to_it() -> None:
    (step,) = steps(record(0), record(1, ops_per_call=2, driver="581"))
    assert step.attribution is Attribution.ENVIRONMENT and step.why == "environment changed: driver 580.1 -> 581"


def test_a_rule_that_was_broken_before_has_nothing_left_to_lose() -> None:
    """The oracle rule is one of two ways to be right: another one may hold where it is broken by far."""
    assert column("oracle_ratio", 4942.0, 4942.0, 4950.0, 4942.0) == ()
    (step,) = column("oracle_ratio", 0.4, 1.9)
    assert step.metric == "oracle_ratio" and step.worse
