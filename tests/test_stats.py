"""The statistics against NumPy, SciPy, a slow reference and simulated truth."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from pairbench import stats

latencies = st.floats(1.0, 1e9)
rounds_of_latencies = st.lists(st.lists(latencies, min_size=1, max_size=12), min_size=1, max_size=5)
enough_latencies = rounds_of_latencies.filter(lambda rounds: len(rounds) > 1 or len(rounds[0]) >= 6)
cheap = settings(max_examples=40, deadline=None)


def latency_interval(rounds: Sequence[ArrayLike], q: float, **options: int) -> stats.Interval:
    return stats.latency_intervals(rounds, (q,), **options)[0]


@pytest.mark.parametrize(("values", "mean"), [([7.0], 7.0), ([9.0, 3.0], 3.0), ([5.0, 1.0, 90.0, 3.0, 80.0], 3.0)])
def test_the_lower_mean_is_that_of_the_lower_half(values: list[float], mean: float) -> None:
    assert stats.lower_mean(values) == mean


@cheap
@given(rounds_of_latencies, st.sampled_from([0.0, 5.0, 50.0, 95.0, 100.0]))
def test_resampled_percentiles_equal_the_plain_definition(rounds: list[list[float]], q: float) -> None:
    pool = stats._Pool([np.array(values) for values in rounds])
    pooled = np.concatenate(rounds)
    for draw in stats._draws(pool.lengths, 20):
        plain = [stats.percentile(pooled[draw.picks[draw.rows == row]], q) for row in range(len(draw.sizes))]
        assert pool.percentiles(draw, (q,))[0] == pytest.approx(plain, rel=1e-12)


def test_draws_take_whole_rounds_and_then_blocks() -> None:
    lengths = np.array([3, 5])
    draws = list(stats._draws(lengths, 8000))
    assert {size for draw in draws for size in draw.sizes} == {6, 8, 10}
    picks = np.concatenate([draw.picks for draw in draws])
    assert set(picks) == set(range(8))
    assert np.bincount(picks)[:3].sum() / len(picks) == pytest.approx(3 / 8, abs=0.03)


@cheap
@given(enough_latencies, st.sampled_from([50.0, 95.0]))
def test_estimate_is_the_pooled_percentile_and_lies_inside(rounds: list[list[float]], q: float) -> None:
    interval = latency_interval(rounds, q, resamples=50)
    assert interval.estimate == pytest.approx(np.percentile(np.concatenate(rounds), q))
    assert interval.low <= interval.estimate <= interval.high


def test_one_round_of_too_few_samples_has_no_interval() -> None:
    for values in ([7.0], [7.0, 8.0, 9.0, 10.0, 11.0]):
        latency, speedup = latency_interval([values], 50), stats.speedup_interval([values], [values])
        assert (latency.estimate, speedup.estimate) == (np.median(values), 1.0)
        assert all(math.isnan(end) for end in (*latency[1:], *speedup[1:]))
    assert latency_interval([[7.0, 8.0, 9.0, 10.0, 11.0, 12.0]], 50).high <= 12
    assert latency_interval([[7.0], [8.0]], 50).high > 8, "two rounds tell how far rounds spread"


def test_speedup_interval_swaps_with_its_sides() -> None:
    rounds, others = np.random.default_rng(1).normal(100, 2, (2, 3, 80))
    there = stats.speedup_interval(list(rounds), list(others))
    back = stats.speedup_interval(list(others), list(rounds))
    assert back == pytest.approx([1 / there.estimate, 1 / there.high, 1 / there.low], rel=1e-3)


def test_one_round_agrees_with_scipys_bootstrap_and_with_itself() -> None:
    values = np.random.default_rng(0).normal(100, 3, 200)
    ours = latency_interval([values], 50, resamples=4000)
    assert ours == latency_interval([values], 50, resamples=4000)
    theirs = scipy.stats.bootstrap(
        (values,), np.median, method="percentile", n_resamples=4000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=0.05)


def test_a_spread_between_rounds_gives_at_least_students_interval() -> None:
    rounds = [[100.0] * 20, [102.0] * 20, [104.0] * 20]
    student = scipy.stats.t.interval(0.95, 2, loc=math.log(102), scale=np.std(np.log([100, 102, 104]), ddof=1) / 3**0.5)
    interval = latency_interval(rounds, 50)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.exp(student)), rel=1e-3)


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("between", [0.0, 0.02])
def test_intervals_hold_the_truth(count: int, between: float) -> None:
    generator = np.random.default_rng(7)
    hits = {"latency": 0, "speedup": 0}
    trials = 100
    for _ in range(trials):
        common, own = generator.normal(0, between, (2, count, 1))
        baseline = 200 * np.exp(common + generator.normal(0, 0.01, (count, 40)))
        variant = 100 * np.exp(common + own + generator.normal(0, 0.01, (count, 40)))
        _, low, high = latency_interval(list(baseline), 50, resamples=200)
        hits["latency"] += low <= 200 <= high
        _, low, high = stats.speedup_interval(list(baseline), list(variant), resamples=200)
        hits["speedup"] += low <= 2 <= high
    assert all(hit / trials >= 0.92 for hit in hits.values()), hits


def test_what_slows_a_whole_round_cancels_in_the_speedup() -> None:
    generator = np.random.default_rng(3)
    rounds = generator.normal(100, 0.1, (3, 60)) * np.array([[1.0], [1.3], [0.8]])
    variant = rounds / 2 * generator.normal(1, 0.001, rounds.shape)
    speedup = stats.speedup_interval(list(rounds), list(variant))
    assert speedup.high - speedup.low < 0.01
    latency = latency_interval(list(rounds), 50)
    assert latency.high / latency.low > 1.3


@pytest.mark.parametrize("size", [8, 9, 20, 101, 1000])
def test_paired_halfwidth_is_the_sign_tests_interval(size: int) -> None:
    values = np.random.default_rng(size).normal(0, 0.01, size)
    below = max(rank for rank in range(size) if scipy.stats.binom.cdf(rank, size, 0.5) <= 0.025)
    # `below` values may lie under the lower end, so the end is the next one.
    ordered = np.sort(values)
    expected = max(np.median(values) - ordered[below], ordered[-1 - below] - np.median(values))
    assert stats.paired_halfwidth(values) == pytest.approx(expected)
    assert stats.paired_halfwidth(values[:7]) == math.inf, "of fewer than eight values"


def test_outliers_are_labelled_beyond_three_interquartile_ranges() -> None:
    values = [*range(1, 101), 1000.0, -1000.0]
    assert np.flatnonzero(stats.outliers(values)).tolist() == [100, 101]
    assert stats.outliers([]).tolist() == []
    assert not stats.outliers([5.0] * 4).any()


@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (latency_interval, ([], 50), "no rounds"),
        (latency_interval, ([[]], 50), "at least one number"),
        (latency_interval, ([[1.0, 0.0]], 50), "expected positive"),
        (latency_interval, ([[math.nan]], 50), "not finite"),
        (stats.speedup_interval, ([[1.0, 2.0]], [[1.0]]), r"\[2\] for the baseline, \[1\]"),
        (stats.upper_bound, (-1, 3), "seen -1 times in 3 tries, expected 0 to 3"),
        (stats.upper_bound, (4, 3), "seen 4 times in 3 tries, expected 0 to 3"),
    ],
)
def test_what_is_no_latency_and_no_count_is_refused(
    function: Callable[..., object], given: tuple[object, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        function(*given)


def test_the_rank_of_the_medians_interval_is_scipys() -> None:
    sizes = [*range(8, 400), 1667, 5000]
    assert [stats._median_rank(size) for size in sizes] == [
        int(scipy.special.bdtrik(0.025, size, 0.5)) for size in sizes
    ]


def test_nothing_seen_is_the_rule_of_three_and_a_rate_always_seen_has_no_bound() -> None:
    assert stats.upper_bound(0, 3000) == pytest.approx(3 / 3000, rel=0.01)
    assert [stats.upper_bound(tries, tries) for tries in (0, 1, 7)] == [1, 1, 1]


@given(st.integers(1, 5000).flatmap(lambda tries: st.tuples(st.integers(0, tries - 1), st.just(tries))))
def test_the_bound_is_where_so_few_are_just_improbable(counts: tuple[int, int]) -> None:
    seen, tries = counts
    bound = stats.upper_bound(seen, tries)
    assert seen / tries < bound < 1
    assert scipy.stats.binom.cdf(seen, tries, bound) == pytest.approx(0.05, rel=1e-6)
