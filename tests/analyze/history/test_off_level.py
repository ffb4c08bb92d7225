"""The verdict on the newest runs, before there can be a changepoint."""

import math
from typing import Any

import numpy as np
import pytest

from pairbench.analyze.history.changepoint import detect
from pairbench.analyze.history.latest import NewestRuns, judge_newest
from pairbench.model.comparison import Verdict
from pairbench.stats import Floats

FASTER, SLOWER, SAME, UNDECIDED = Verdict.FASTER, Verdict.SLOWER, Verdict.SAME, Verdict.UNDECIDED


def series(cv: float, *steps: tuple[int, float], before: int = 40, seed: int = 0) -> Floats:
    """Return log latencies: so many runs at 1000 ns, then (runs, times 1000 ns) pieces."""
    shape = [np.zeros(before), *(np.full(runs, math.log(times)) for runs, times in steps)]
    values = np.concatenate(shape) + math.log(1000)
    noisy: Floats = values + cv * np.random.default_rng(seed).standard_normal(len(values))
    return noisy


def judged(levels: Floats, **options: Any) -> NewestRuns:
    return judge_newest(levels, detect(levels, **options), **options)


@pytest.mark.parametrize("runs", [1, 2, 3])
@pytest.mark.parametrize(("times", "verdict"), [(1.06, SLOWER), (0.94, FASTER)])
def test_a_few_runs_off_the_level_say_so(runs: int, times: float, verdict: Verdict) -> None:
    levels = series(0.005, (runs, times))
    found = judged(levels)
    assert found.verdict is verdict
    assert found.effect == pytest.approx(times, abs=0.01)
    assert found.level == pytest.approx(math.log(1000), abs=0.003)


def test_for_a_speedup_a_rise_is_faster() -> None:
    levels = series(0.005, (2, 1.06))
    assert judge_newest(levels, (), rise=FASTER).verdict is FASTER
    assert judge_newest(-levels, (), rise=FASTER).verdict is SLOWER


def test_same_is_proven_by_a_quiet_series() -> None:
    found = judged(series(0.003))
    assert found.verdict is SAME
    assert found.effect == pytest.approx(1, abs=0.01)


def test_a_noisy_series_proves_nothing() -> None:
    found = [judged(series(0.03, seed=seed)) for seed in range(20)]
    assert {each.verdict for each in found} == {UNDECIDED}
    assert {each.reason for each in found} == {
        "too noisy a series to tell from so few runs",
        "off its level, but noise may explain it",
    }


def test_one_more_spike_is_not_news_but_two_in_a_row_are() -> None:
    levels = series(0.005, (1, 1.3))
    levels[[5, 17, 30]] += math.log(1.2)
    assert judged(levels).verdict is UNDECIDED
    again = np.append(levels, math.log(1300))
    assert judged(again).verdict is SLOWER


def test_the_other_of_two_modes_is_not_news() -> None:
    levels = np.tile([0.0, 0.0, 0.05, 0.05, 0.0], 10) + series(0.004, before=50)
    assert judged(levels[:-1]).verdict is UNDECIDED


def test_a_run_off_its_level_is_not_same_even_among_three() -> None:
    levels = series(0.004)
    levels[[3, 11, 19]] += 0.05
    levels[-1] += 0.05
    assert judged(levels).verdict is UNDECIDED


def test_a_new_level_speaks_until_it_has_a_history() -> None:
    levels = series(0.005, (5, 1.05))
    (point,) = detect(levels)
    found = judge_newest(levels, [point])
    assert (found.verdict, found.runs, found.effect) == (SLOWER, len(levels) - point.index, point.effect)
    assert found.level == point.before
    assert judge_newest(levels, [point], rise=FASTER).verdict is FASTER


def test_a_run_that_is_back_on_the_old_level_is_undecided() -> None:
    levels = series(0.005, (5, 1.05))
    (point,) = detect(levels)
    back = np.append(levels, math.log(1000))
    found = judge_newest(back, [point])
    assert found.verdict is UNDECIDED
    assert found.reason.endswith("nearer to the old one")


def test_an_old_changepoint_leaves_its_new_level_as_the_current_one() -> None:
    found = judged(series(0.003, (20, 1.1)))
    assert found.verdict is SAME
    assert found.level == pytest.approx(math.log(1100), abs=0.003)


def test_a_change_under_the_minimum_effect_is_never_slower() -> None:
    levels = series(0.001, (3, 1.015))
    assert judged(levels).verdict is SAME
    assert judged(levels, minimum_effect=0.01).verdict is SLOWER


def test_a_floor_says_that_runs_differ_more_than_these_show() -> None:
    levels = series(0.003, (1, 1.05), before=12)
    assert judged(levels).verdict is SLOWER
    assert judged(levels, floor=0.08).verdict is UNDECIDED


@pytest.mark.parametrize("levels", [[], [0.0], [0.0] * 5, [0.0, 0.1] * 2])
def test_too_short_a_series_is_undecided(levels: list[float]) -> None:
    found = judge_newest(levels, ())
    assert (found.verdict, found.runs, found.level, found.effect, found.p_value) == (UNDECIDED, 0, None, None, None)


def test_a_newest_run_without_a_value_is_undecided() -> None:
    found = judge_newest([0.0] * 20 + [math.nan], ())
    assert (found.verdict, found.reason) == (UNDECIDED, "the newest run has no value")


def test_runs_without_a_value_in_between_change_nothing() -> None:
    levels = series(0.005, (1, 1.06))
    gaps = np.insert(levels, [3, 20, 40], np.nan)
    assert judge_newest(gaps, detect(gaps)) == judge_newest(levels, detect(levels))


def test_nothing_new_is_seldom_called_slower_or_faster() -> None:
    wrong = [judged(series(0.02, seed=seed)).verdict in {SLOWER, FASTER} for seed in range(300)]
    assert np.mean(wrong) <= 0.02
