"""From records to levels: rounds where there are any, one number where there is none, and a sentence for damage."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairbench.analyze.compare.rounds import collect, damage, log_rounds, mean_log, round_values
from pairbench.model.latency import CALL
from tests.builders import make_run

RECORD = replace(make_run(0)[0], round_p50_ns=(100.0, 200.0, 400.0), round_p95_ns=(150.0, 150.0, 150.0))


def test_a_level_is_the_mean_of_the_rounds_logarithms() -> None:
    found = log_rounds(RECORD, CALL.p50)
    assert found is not None and found.rounds == 3
    assert math.exp(found.mean) == pytest.approx(200)
    assert found.square == pytest.approx(2 * math.log(2) ** 2)


def test_a_file_without_rounds_has_one_number() -> None:
    old = replace(RECORD, round_p95_ns=None, call_p95_ns=160.0)
    found = log_rounds(old, CALL.p95)
    assert found is not None and (found.rounds, found.square) == (1, 0.0)
    assert math.exp(found.mean) == pytest.approx(160)
    assert log_rounds(replace(old, call_p95_ns=None), CALL.p95) is None


def test_the_mean_of_runs_gives_each_the_same_weight() -> None:
    other = replace(RECORD, round_p50_ns=(800.0,))
    assert math.exp(mean_log(CALL.p50, [RECORD, other])) == pytest.approx(400)
    assert math.isnan(mean_log(CALL.p50, []))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0.0, -1.0, None])
@pytest.mark.parametrize("column", ["round_p50_ns", "round_p95_ns"])
def test_a_latency_that_cannot_be_is_damage(wrong: float | None, column: str) -> None:
    values: Any = (100.0, wrong, 100.0)
    said = damage(replace(RECORD, **{column: values}))
    assert said is not None and RECORD.run_id in said and "expected a positive number" in said


def test_no_latency_is_damage() -> None:
    said = damage(replace(RECORD, round_p50_ns=(), call_p50_ns=None))
    assert said is not None and "holds no latency" in said
    assert damage(RECORD) is None
    assert damage(replace(RECORD, round_p95_ns=None, call_p95_ns=None)) is None


def test_runs_are_collected_by_series_and_side() -> None:
    other = replace(RECORD, round_p50_ns=(50.0,))
    found = collect([((RECORD, other), (RECORD,)), ((), (other,))], CALL.p50)
    assert found.series.tolist() == [0, 0, 0, 1]
    assert found.current.tolist() == [False, False, True, True]
    assert found.count.tolist() == [3, 1, 3, 1]
    assert np.exp(found.mean).tolist() == pytest.approx([200, 50, 200, 50])


def test_round_values_are_those_stored() -> None:
    assert round_values(RECORD, CALL.p50) == (100.0, 200.0, 400.0)
    assert round_values(replace(RECORD, round_p50_ns=None, call_p50_ns=None), CALL.p50) == ()
