"""Changes with their uncertainty, what series lend one another, and what is decided from that: on arrays whose truth is known."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pairbench.analyze.compare.effect import (
    Effects,
    _adjusted,
    decide,
    estimate,
    excess,
    minimum_effect,
    prior,
)
from pairbench.analyze.compare.rounds import Floats, Runs
from pairbench.model.comparison import Floor, Policy

LATENCY = math.log(1e6)
PLAIN = Policy(least_spread=1e-12, tick_ns=0)


def runs(*sides: list[list[list[float]]]) -> Runs:
    """Return runs from, for each series, lists of rounds of the reference and of the current runs: log units."""
    rows = [
        (series, bool(current), np.array(rounds) + LATENCY)
        for series, both in enumerate(zip(*sides, strict=True))
        for current, side in enumerate(both)
        for rounds in side
    ]
    return Runs(
        series=np.array([series for series, _, _ in rows]),
        current=np.array([current for _, current, _ in rows]),
        count=np.array([float(len(rounds)) for _, _, rounds in rows]),
        mean=np.array([rounds.mean() for _, _, rounds in rows]),
        square=np.array([((rounds - rounds.mean()) ** 2).sum() for _, _, rounds in rows]),
    )


def of(found: Runs, floor: float = math.nan, series: int = 1, policy: Policy = PLAIN, **more: Any) -> Effects:
    plain = {
        "groups": np.zeros(series, dtype=np.int64),
        "null": np.zeros(series, dtype=np.bool_),
        "floor": np.full(series, floor),
        "floor_runs": np.full(series, 10.0),
    }
    return estimate(found, **{**plain, **more}, policy=policy)


def test_one_series_with_a_floor_below_its_spread_is_students_test() -> None:
    before, now = [0.0, 0.01, 0.02], [0.03, 0.05, 0.04]
    found = of(runs([[before]], [[now]]), floor=0.0)
    expected = stats.ttest_ind(now, before)
    assert found.change[0] == pytest.approx(0.03)
    assert found.p_value[0] == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval()
    assert (found.low[0], found.high[0]) == pytest.approx((interval.low, interval.high))


def test_nothing_known_of_runs_widens() -> None:
    """Where neither a floor nor controls tell, half of the variance is taken to be between runs."""
    sides = runs([[[0.0, 0.01, 0.02]]], [[[0.03, 0.05, 0.04]]])
    assert of(sides).error[0] == pytest.approx(of(sides, floor=0.0).error[0] * math.sqrt(2))


def test_a_floor_widens_and_never_narrows() -> None:
    sides = runs([[[0.0, 0.001, 0.002]]], [[[0.0, 0.001, 0.002]]])
    # A change between two runs has the floor as its 95 %.
    assert of(sides, floor=0.1).error[0] == pytest.approx(0.1 / 1.96, rel=1e-4)
    assert of(sides, floor=1e-9).error[0] == pytest.approx(of(sides, floor=0.0).error[0])


def test_one_round_a_side_is_judged_by_the_floor_alone_or_not_at_all_as_is_a_side_without_runs() -> None:
    sides = runs([[[0.0]]], [[[0.3]]])
    lonely = of(sides)
    assert lonely.change[0] == pytest.approx(0.3)
    assert math.isnan(lonely.error[0]) and math.isnan(lonely.p_value[0]) and math.isnan(lonely.low[0])
    assert of(sides, floor=0.02).p_value[0] < 1e-5
    found = of(runs([[[0.0, 0.1]], []], [[[0.0, 0.1]], [[0.0]]]), series=2)
    assert math.isfinite(found.error[0]) and math.isnan(found.change[1]) and math.isnan(found.p_value[1])


def test_more_reference_runs_narrow_and_runs_that_differ_widen_more_than_rounds_that_do() -> None:
    alike, now = [[0.0, 0.01, 0.02]], [[[0.0, 0.01, 0.02]]]
    apart = [[x, x + 0.01, x + 0.02] for x in (-0.1, -0.03, 0.03, 0.1)]
    once, often, widely = (of(runs([before], now)).error[0] for before in (alike, alike * 4, apart))
    assert often < once and widely > 2 * often


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("apart", [0.0, 1e-12])
def test_rounds_and_runs_of_one_round_that_agree_by_chance_are_not_certain(apart: float) -> None:
    found = of(runs([[[0.0], [apart]]], [[[0.001]]]), policy=Policy())
    assert found.error[0] > Policy().least_spread and 0.01 < found.p_value[0] < 1
    found = of(runs([[[0.0, apart, 0.0]]], [[[0.001] * 3]]), policy=Policy())
    assert 0 < found.error[0] < 0.001 and found.p_value[0] > 0, "they agree to the tick"


@settings(max_examples=25)
@given(st.lists(st.floats(-0.1, 0.1), min_size=6, max_size=6), st.floats(-1, 1), st.floats(-1, 1))
def test_the_answer_does_not_depend_on_the_unit_nor_on_the_sides_names(
    rounds: list[float], shift: float, unit: float
) -> None:
    before, now = rounds[:3], [value + shift for value in rounds[3:]]
    plain = of(runs([[before]], [[now]]), policy=Policy(tick_ns=0))
    scaled = of(runs([[[v + unit for v in before]]], [[[v + unit for v in now]]]), policy=Policy(tick_ns=0))
    mirrored = of(runs([[now]], [[before]]), policy=Policy(tick_ns=0))
    assert scaled.change[0] == pytest.approx(plain.change[0], abs=1e-9)
    assert scaled.error[0] == pytest.approx(plain.error[0], abs=1e-9)
    assert mirrored.low[0] == pytest.approx(-plain.high[0], abs=1e-9)


def effects(change: list[float], error: list[float]) -> Effects:
    middle, spread = np.array(change), np.array(error)
    return Effects(
        change=middle,
        error=spread,
        p_value=2 * stats.t.sf(np.abs(middle) / spread, 30),
        low=middle - 2 * spread,
        high=middle + 2 * spread,
    )


NO_FLOOR: Floats = np.full(4, np.nan)


def test_verdicts() -> None:
    (said,) = decide([effects([0.02, -0.02, 0.001, 0.012], [0.001, 0.001, 0.001, 0.008])], [NO_FLOOR])
    assert said.slower.tolist() == [True, False, False, False]
    assert said.faster.tolist() == [False, True, False, False]
    assert said.same.tolist() == [False, False, True, False]
    assert np.expm1(said.minimum) == pytest.approx(0.02)


def test_a_certain_change_below_what_counts_is_the_same_and_twice_the_floor_counts() -> None:
    (said,) = decide([effects([0.01], [0.0001])], [NO_FLOOR[:1]])
    assert said.adjusted[0] < 1e-9 and said.same[0] and not said.slower[0]
    (said,) = decide([effects([0.05], [0.001])], [np.array([math.log(1.04)])])
    assert np.expm1(said.minimum[0]) == pytest.approx(0.08) and not said.slower[0] and said.same[0]


def test_all_latencies_are_adjusted_together_and_what_is_not_known_counts_for_nothing() -> None:
    one, many = effects([0.03], [0.008]), effects([0.0] * 99, [0.008] * 99)
    (alone,) = decide([one], [NO_FLOOR[:1]])
    among, _ = decide([one, many], [NO_FLOOR[:1], np.full(99, np.nan)])
    assert alone.slower[0] and not among.slower[0]
    assert among.adjusted[0] == pytest.approx(100 * alone.adjusted[0])
    (said,) = decide([effects([0.03, math.nan], [0.008, math.nan])], [NO_FLOOR[:2]])
    assert not (said.slower[1] or said.faster[1] or said.same[1]) and math.isnan(said.adjusted[1])
    assert said.adjusted[0] == pytest.approx(float(one.p_value[0]))
    (none,) = decide([effects([math.nan], [math.nan])], [NO_FLOOR[:1]])
    assert not none.same[0]


@pytest.mark.parametrize(("floor", "expected"), [(None, 0.02), (0.005, 0.02), (math.log1p(0.04), 0.08)])
def test_the_minimum_effect_is_the_policy_s_and_at_least_twice_the_floor(floor: float | None, expected: float) -> None:
    known = None if floor is None else Floor(p50=floor, p95=0.5, runs=5, source="history")
    assert minimum_effect(known) == pytest.approx(expected)


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_adjusted_p_values_are_scipys(p_values: list[float]) -> None:
    np.testing.assert_allclose(_adjusted(np.array(p_values)), stats.false_discovery_control(p_values), rtol=1e-12)


MOST = 20.0


def variances(spread: Floats, freedom: int) -> Floats:
    drawn: Floats = spread**2 * np.random.default_rng(0).chisquare(freedom, len(spread)) / freedom
    return drawn


def test_the_prior_follows_the_latency() -> None:
    x = np.linspace(0, 4, 400)
    spread = 0.03 * np.exp(-x)
    usual, _ = prior(x, variances(spread, 4), np.full(400, 4.0), MOST)
    assert np.sqrt(usual) / spread == pytest.approx(1, rel=0.3)


def test_unlike_series_lend_little() -> None:
    x = np.linspace(0, 7, 400)
    uneven = 0.01 * np.exp(np.random.default_rng(1).normal(0, 1.0, 400))
    _, lent = prior(x, variances(uneven, 4), np.full(400, 4.0), MOST)
    assert lent.max() < 3


def test_a_few_wild_series_cost_the_others_little() -> None:
    x = np.linspace(0, 7, 400)
    found = variances(np.full(400, 0.01), 4)
    found[::20] *= 1000
    usual, lent = prior(x, found, np.full(400, 4.0), MOST)
    assert np.median(np.sqrt(usual)) == pytest.approx(0.01, rel=0.2)
    assert np.median(lent) > 8


def test_few_series_lend_nothing_and_some_lend_less_than_many() -> None:
    assert prior(np.arange(7.0), np.ones(7), np.full(7, 4.0), MOST)[1].tolist() == [0] * 7
    _, lent = prior(np.linspace(0, 7, 15), variances(np.full(15, 0.01), 4), np.full(15, 4.0), MOST)
    assert 0 < lent.max() < 15


def test_series_without_freedom_of_their_own_borrow() -> None:
    x, freedom = np.linspace(0, 7, 100), np.full(100, 4.0)
    found = variances(np.full(100, 0.01), 4)
    freedom[50], found[50] = 0, 99
    usual, lent = prior(x, found, freedom, MOST)
    assert np.sqrt(usual[50]) == pytest.approx(0.01, rel=0.4) and lent[50] > 5


def test_runs_that_differ_more_than_their_rounds_show_in_the_controls_where_these_are_not_few() -> None:
    rng = np.random.default_rng(2)
    null = np.arange(400) % 2 == 0
    x, freedom, guess = np.linspace(0, 7, 400), np.full(400, 24.0), np.full(400, 2.0)
    quiet = excess(rng.standard_t(24, 400), freedom, x, null, guess)
    assert 1 <= np.median(quiet) < 1.4
    loud = excess(3 * rng.standard_t(24, 400), freedom, x, null, guess)
    assert np.median(loud) == pytest.approx(9, rel=0.4)
    few = excess(np.zeros(400), freedom, x, np.arange(400) < 15, x)
    assert few.tolist() == x.tolist(), "then it is the guess"


def test_changes_of_variants_are_no_noise_nor_is_a_slower_machine() -> None:
    rng = np.random.default_rng(3)
    null = np.arange(400) % 2 == 0
    z = rng.standard_t(24, 400) + np.where(null, 0.0, rng.normal(0, 30, 400)) + 12
    found = excess(z, np.full(400, 24.0), np.linspace(0, 7, 400), null, np.full(400, 2.0))
    assert np.median(found) < 1.4
