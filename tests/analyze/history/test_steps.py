"""Steps of what is counted: found at the first run, kept for good, ended where they are undone."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairbench.analyze.history.moves import Step, steps_of
from pairbench.analyze.history.points import Points
from pairbench.model.comparison import Attribution, GateOutcome
from pairbench.model.record import CALL, LazyRecords, Record
from tests.builders import ended, make_run


def record(number: int, **changes: Any) -> Record:
    return replace(make_run(number)[1], **changes)


def steps(*records: Record, parts: tuple[int, ...] = ()) -> tuple[Step, ...]:
    told = parts or (0,) * len(records)
    own, none = np.arange(len(records)), np.full(len(records), -1)
    return steps_of(Points(LazyRecords.of(records), own, none, parts=np.array(told), latency=CALL, gpus=none))


def column(metric: str, *values: float | None) -> tuple[Step, ...]:
    return steps(*(record(number, **{metric: value}) for number, value in enumerate(values)))


@pytest.mark.parametrize("after", [1, 20])
def test_another_launch_is_a_step_however_many_runs_follow(after: int) -> None:
    (step,) = column("launches_per_call", 1, 1, *(3,) * after)
    assert (step.before, step.index, step.outcome, step.ended) == (1, 2, GateOutcome.REGRESSION, None)
    assert (step.reference, step.current, step.attribution) == (1, 3, Attribution.CODE)
    assert step.reason == "2 more launches a call, 1 -> 3"


WORSE, BETTER, UNDECIDED = GateOutcome.REGRESSION, GateOutcome.IMPROVEMENT, GateOutcome.UNDECIDED
MIB = 2**20


@pytest.mark.parametrize(
    ("metric", "values", "found"),
    [
        # A return ends the step and is none itself; half of one ends nothing.
        ("ops_per_call", (1, 4, 4, 1, 1), [(1, WORSE, 3, False)]),
        ("ops_per_call", (4, 6, 6, 2), [(1, WORSE, 3, False), (3, BETTER, None, False)]),
        ("ops_per_call", (1, 4, 6, 4), [(1, WORSE, None, False), (2, WORSE, 3, False)]),
        # A gain that is lost is superseded.
        ("kernels_per_call", (6, 2, 2, 6), [(1, BETTER, 3, True), (3, WORSE, None, False)]),
        # A run that did not count is passed over.
        *(("ops_per_call", (1, gap, 1), []) for gap in (None, math.nan)),
        *(("ops_per_call", (1, gap, 3), [(2, WORSE, None, False)]) for gap in (None, math.nan)),
        # Memory that grows slowly is a step where it leaves the slack.
        ("peak_bytes", tuple(1024 * MIB + part * 6 * MIB for part in range(4)), [(2, WORSE, None, False)]),
        # A margin that shrinks may be worse and may come back.
        ("margin", (0.8, 0.2, 0.2), [(1, UNDECIDED, None, False)]),
        ("margin", (0.8, 0.2, 0.8), [(1, UNDECIDED, 2, False)]),
        # A rule that was broken before has nothing left to lose: another of the ways to be right may hold.
        ("oracle_ratio", (4942.0, 4942.0, 4950.0, 4942.0), []),
        ("oracle_ratio", (0.4, 1.9), [(1, UNDECIDED, None, False)]),
    ],
)
def test_where_a_metric_steps_and_what_ends_it(
    metric: str, values: tuple[float | None, ...], found: list[tuple[int, GateOutcome, int | None, bool]]
) -> None:
    steps = column(metric, *values)
    assert [(step.index, step.outcome, step.ended, step.superseded) for step in steps] == found
    assert all(step.worse is (step.outcome is not BETTER) and step.metric == metric for step in steps)


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


def test_what_another_driver_does_is_put_down_to_it_and_launches_that_are_not_exact_are_passed_over() -> None:
    (step,) = steps(record(0), record(1, ops_per_call=2, driver="581"))
    assert step.attribution is Attribution.ENVIRONMENT and step.why == "environment changed: driver 580.1 -> 581"
    assert steps(record(0), record(1, launches_per_call=7, launch_status="unreliable"), record(2)) == ()
