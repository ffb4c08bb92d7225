"""Changepoints on series whose truth is known, in noise with one mode and with two; a slope beside steps, told from a staircase and from noise."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbench.analyze.history import changepoint
from pairbench.analyze.history.changepoint import MIN_RUNS, Changepoint, Flags, clean, place_of_step, searched
from pairbench.stats import Floats
from tests.builders import detect, explain
from tests.lab.detectors import noises

cheap = settings(max_examples=15, deadline=None)


def noise(size: int, cv: float, seed: int = 0) -> Floats:
    values: Floats = cv * np.random.default_rng(seed).standard_normal(size)
    return values


def levels(*pieces: tuple[int, float]) -> Floats:
    """Return natural logs of (runs, latency in ns) pieces."""
    return np.concatenate([np.full(runs, math.log(latency)) for runs, latency in pieces])


def places(found: tuple[Changepoint, ...]) -> list[int]:
    return [point.index for point in found]


def test_a_step_is_found_with_its_levels() -> None:
    (point,) = detect(levels((40, 1000), (30, 1050)) + noise(70, 0.01))
    assert point.index == pytest.approx(40, abs=2)
    assert (point.before, point.after) == pytest.approx((math.log(1000), math.log(1050)), abs=0.005)
    assert point.effect == pytest.approx(1.05, abs=0.01)
    assert point.strength > 7 + math.log(70)
    (exact,) = detect(levels((10, 500), (10, 530)))
    assert exact.index == 10 and exact.effect == pytest.approx(1.06), "without noise it is found exactly"


@pytest.mark.parametrize("place", [5, 50, 98, 99])
def test_a_spike_is_no_level(place: int) -> None:
    assert detect(noise(100, 0.01) + math.log(1.5) * (np.arange(100) == place)) == ()


def test_two_modes_that_keep_swapping_are_noise_and_one_that_stays_is_not() -> None:
    modes = np.tile([0.0, 0.0, 0.0, 0.04, 0.04, 0.0, 0.0, 0.04, 0.04, 0.04], 10)
    assert detect(modes + noise(100, 0.005)) == ()
    (point,) = detect(np.concatenate([modes, modes + 0.1]) + noise(200, 0.005))
    assert point.index == pytest.approx(100, abs=2)


@pytest.mark.parametrize(
    ("series", "options"),
    [
        (levels((50, 1000), (50, 1030)) + noise(100, 0.003), {"minimum_effect": 0.05}),
        (levels((6, 1000), (6, 1030)) + noise(12, 0.002), {"floor": 0.06}),
    ],
)
def test_a_minimum_effect_and_a_floor_hide_what_the_series_alone_would_show(
    series: Floats, options: dict[str, float]
) -> None:
    assert len(detect(series)) == 1
    assert detect(series, **options) == ()


def test_runs_without_a_value_keep_their_place() -> None:
    series = levels((40, 1000), (40, 1100)) + noise(80, 0.005)
    series[[0, 3, 17, 40, 79]] = np.nan
    assert places(detect(series)) == [41]


@pytest.mark.parametrize("size", [0, 1, MIN_RUNS, 2 * MIN_RUNS - 1])
def test_too_few_runs_have_no_changepoint(size: int) -> None:
    assert detect(levels((size // 2, 1000), (size - size // 2, 2000))) == ()
    assert detect(np.full(50, np.nan)) == ()


def test_a_changepoint_is_put_on_a_break_that_explains_it_as_well() -> None:
    series = levels((50, 1000), (50, 1050)) + noise(100, 0.01)
    series[50] = math.log(1025)
    assert {places(detect(series, breaks=[place]))[0] for place in (50, 51)} == {50, 51}
    alone = places(detect(series))
    assert places(detect(series, breaks=[20, 60])) == alone
    assert detect(noise(100, 0.01), breaks=[0, 50, 99, 100]) == ()


@pytest.mark.parametrize(
    ("series", "options", "words"),
    [
        ([[1.0, 2.0]], {}, "expected one natural log a run"),
        ([1.0, math.inf], {}, "expected one natural log a run"),
        (3.0, {}, "expected one natural log a run"),
        ([0.0] * 20, {"minimum_effect": -0.01}, "expected numbers from 0 up"),
        ([0.0] * 20, {"floor": math.nan}, "expected numbers from 0 up"),
    ],
)
def test_anything_but_a_series_and_settings_from_0_up_is_refused(series: Any, options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        detect(series, **options)


def test_drift_of_both_sides_cancels_in_the_log_speedup() -> None:
    """The machine gets 6 % slower at run 30, for both; at run 60 the variant alone gets 4 % slower."""
    machine = levels((30, 1000), (70, 1060)) + noise(100, 0.02, 1)
    baseline = machine + math.log(3) + noise(100, 0.004, 2)
    variant = machine + np.where(np.arange(100) >= 60, math.log(1.04), 0.0) + noise(100, 0.004, 3)
    (point,) = detect(baseline - variant)
    assert point.index == pytest.approx(60, abs=1)
    assert point.effect == pytest.approx(1 / 1.04, abs=0.005)
    alone = places(detect(baseline))
    assert any(abs(index - 30) <= 3 for index in alone) and all(abs(index - 60) > 3 for index in alone)


@cheap
@given(st.integers(0, 1000), st.integers(8, 60), st.floats(-20, 20))
def test_only_ratios_matter(seed: int, size: int, shift: float) -> None:
    series = noise(size, 0.02, seed) + np.where(np.arange(size) >= size // 2, 0.08, 0.0)
    there, moved, turned = detect(series), detect(series + shift), detect(-series)
    assert places(there) == places(moved) == places(turned)
    assert [point.effect for point in there] == pytest.approx([point.effect for point in moved])
    assert [point.effect for point in there] == pytest.approx([1 / point.effect for point in turned])


@cheap
@given(st.lists(st.floats(0, 2), min_size=8, max_size=60))
def test_whatever_comes_in_levels_are_ordered_long_and_apart(values: list[float]) -> None:
    found = detect(values)
    ends = [0, *places(found), len(values)]
    assert all(new - old >= MIN_RUNS for old, new in itertools.pairwise(ends))
    assert all(max(point.effect, 1 / point.effect) >= 1.02 - 1e-9 for point in found)
    assert [point.after for point in found[:-1]] == [point.before for point in found[1:]]


def test_clean_keeps_steps_and_pulls_in_spikes() -> None:
    series = levels((20, 1000), (20, 1200)) + noise(40, 0.005)
    spiked = series.copy()
    spiked[[7, 30]] += 0.4
    cleaned = clean(spiked)
    assert np.abs(cleaned - series).max() < 0.03
    assert (cleaned == spiked).sum() >= 36


LONG = {
    "nothing": (),
    "one in the middle": ((1501, 1.03),),
    "short ones": ((700, 1.1), (711, 1.0), (2200, 1.06), (2209, 1.0)),
    "among the newest": ((2991, 1.05),),
    "a staircase": ((333, 1.03), (1207, 1.07), (1999, 1.02), (2500, 1.07)),
}


@pytest.mark.parametrize("cv", [0.002, 0.01])
@pytest.mark.parametrize("steps", LONG.values(), ids=LONG)
def test_a_long_series_has_the_changes_that_are_found_where_every_place_is_tried(
    steps: tuple[tuple[int, float], ...], cv: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = [*(place for place, _ in steps), 3000]
    latencies = [1000 * factor for _, factor in ((0, 1.0), *steps)]
    series = levels(*zip(np.diff([0, *bounds]).tolist(), latencies, strict=True)) + noise(3000, cv)
    found = detect(series)
    monkeypatch.setattr(changepoint, "_EXACT", 3000)
    assert places(found) == places(detect(series))
    if cv < 0.01:
        assert places(found) == pytest.approx([place for place, _ in steps], abs=1)


STEP = 50


def in_modes(seed: int, size: int = 100) -> Floats:
    """Two modes, 2 % apart, five runs long on average, and a step of 3 % at run 50."""
    random = np.random.default_rng(seed)
    modes = (np.cumsum(random.random(size) < 0.2) + seed) % 2
    values: Floats = 0.02 * modes + 0.004 * random.standard_normal(size) + 0.03 * (np.arange(size) >= STEP)
    return values


def placed(values: Floats, cut: int, least: float = 1e-8) -> int:
    """Place a cut, against noise of one mode without memory."""
    variance = (values[:cut].var() * cut + values[cut:].var() * (len(values) - cut)) / len(values)
    plain = -0.5 * len(values) * math.log(max(variance, least))
    return place_of_step(values, cut, plain=plain, least=least, shortest=4)


def test_a_step_among_modes_is_put_where_it_is() -> None:
    found = np.array([placed(in_modes(seed), STEP + 6) for seed in range(40)])
    assert (np.abs(found - STEP) <= 3).mean() >= 0.9


def test_the_detector_puts_it_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def far() -> int:
        found = [[point.index for point in detect(in_modes(seed))] for seed in range(30)]
        return sum(min((abs(index - STEP) for index in indices), default=STEP) > 3 for indices in found)

    with_modes = far()
    monkeypatch.setattr(changepoint, "place_of_step", lambda stretch, cut, **_: cut)
    assert with_modes <= far() / 2


def test_noise_of_one_mode_and_below_the_floor_moves_nothing() -> None:
    random = np.random.default_rng(3)
    sizes = np.arange(4, 97)
    for _ in range(40):
        values = 0.01 * random.standard_normal(100) + 0.03 * (np.arange(100) >= STEP)
        total = np.cumsum(values - values.mean())[sizes - 1]
        cut = int(sizes[np.argmax(total**2 / (sizes * (100 - sizes)))])
        assert placed(values, cut) == cut
    moved = [seed for seed in range(20) if placed(in_modes(seed), STEP + 6) != STEP + 6]
    assert len(moved) > 10
    assert {placed(in_modes(seed), STEP + 6, least=0.02**2) for seed in moved} == {STEP + 6}
    assert placed(np.zeros(20), 10) == placed(np.repeat([0.0, 0.03], 10), 10) == 10
    assert [placed(in_modes(seed), 60) for seed in range(10)] == [placed(-in_modes(seed), 60) for seed in range(10)]


def test_seven_runs_are_too_few() -> None:
    values = np.array([0.0, 0.02, 0.0, 0.05, 0.03, 0.05, 0.03, 0.05])
    assert place_of_step(values, 5, plain=0.0, least=1e-8, shortest=2) == 3
    assert place_of_step(values[:-1], 5, plain=0.0, least=1e-8, shortest=2) == 5


def test_the_best_cut_is_that_of_fits_one_by_one() -> None:
    for seed in range(10):
        values = in_modes(seed, 30)
        values -= values.mean()
        before, after = values > -0.01, values > 0.01
        likelihoods = {cut: by_hand(values, cut, before, after) for cut in range(4, 27)}
        fit = changepoint._fitted(values, before, after, 1e-8, 4)
        assert fit is not None
        assert fit[0] == max(likelihoods, key=lambda cut: likelihoods[cut])
        assert fit[1] == pytest.approx(likelihoods[fit[0]])


def by_hand(values: Floats, cut: int, before: Flags, after: Flags) -> float:
    """Return the log-likelihood of values and modes, by least squares and by counting."""
    late = np.arange(len(values)) >= cut
    modes = np.where(late, after, before)
    table = np.stack([~late, late, modes], axis=1).astype(float)
    solved = np.linalg.lstsq(table, values, rcond=None)[0]
    if solved[2] <= 0:
        return -math.inf
    variance = float(np.mean((values - table @ solved) ** 2))
    chance = math.log(0.5)
    for mode in (False, True):
        following = modes[1:][modes[:-1] == mode]
        for share in (following.mean(), 1 - following.mean()) if len(following) else ():
            chance += len(following) * share * math.log(share) if share else 0.0
    return -0.5 * len(values) * math.log(max(variance, 1e-8)) + chance


def sloped(seed: int, runs: int, rate: float = 0.0015) -> Floats:
    """Return a series that rises from run 30 on."""
    level = noises.null("development", "iid", 0.005, seed, 100)
    sloped: Floats = (level + rate * np.clip(np.arange(100) - 29, 0, None))[: 30 + runs]
    return sloped


def test_a_slow_drift_is_told_before_it_is_large_and_no_step_with_it() -> None:
    needed = []
    for seed in range(7):
        told = (runs for runs in range(8, 40) if explain(sloped(seed, runs))[1] is not None)
        needed.append(next(told, 40))
    assert np.median(needed) <= 16
    steps, drift = explain(sloped(1, 40))
    assert steps == () and drift is not None
    assert drift.index == pytest.approx(30, abs=6) and drift.last == 69
    assert drift.rate == pytest.approx(0.0015, rel=0.15)


@pytest.mark.parametrize("rate", [0.0, 0.002])
def test_a_step_stays_a_step_beside_a_slope_and_without(rate: float) -> None:
    series = sloped(3, 60, rate)
    series[70:] += np.log(1.1)
    (step,), drift = explain(series)
    assert step.index == 70 and step.effect == pytest.approx(1.1, rel=0.02)
    assert (drift is not None) == bool(rate)


def test_a_drift_that_ended_says_when_and_gaps_count_as_places() -> None:
    series = np.insert(np.concatenate([sloped(2, 20, 0.004), sloped(5, 20, 0.0) + 0.08]), 40, np.nan)
    steps, drift = explain(series)
    assert steps == () and drift is not None
    assert drift.index == pytest.approx(30, abs=3) and drift.last == pytest.approx(50, abs=4)


@pytest.mark.parametrize("noise", noises.NOISES)
def test_noise_is_no_drift(noise: str) -> None:
    assert sum(explain(noises.null("development", noise, 0.01, seed))[1] is not None for seed in range(20)) <= 1


def test_a_drift_of_many_runs_is_looked_for_in_the_newest() -> None:
    series = noises.null("development", "iid", 0.005, 1, 3000)
    series[2900:] += 0.001 * np.arange(1, 101)
    steps, drift = explain(series)
    assert steps == () and drift is not None and drift.index == pytest.approx(2900, abs=20)


def test_series_searched_together_have_what_each_has_alone() -> None:
    gaps, long = in_modes(2, 201), levels((700, 1000), (1900, 1050)) + noise(2600, 0.004)
    gaps[[0, 5, 6, 100, 200]] = np.nan
    spikes = noise(150, 0.003) + 0.2 * (np.arange(150) % 40 == 7)
    several = [[], gaps, sloped(1, 40), long, [math.nan] * 30, noise(7, 0.1), spikes, levels((20, 1000), (12, 900))]
    several += [noise(size, 0.03, size) for size in range(8, 200, 7)]
    found = [one.explained(None, ()) for one in searched(several)]
    assert found == [explain(one) for one in several]
    assert [len(steps) for steps, _ in found[:8]] == [0, 1, 0, 1, 0, 0, 0, 1]
    assert [number for number, (_, drift) in enumerate(found) if drift is not None] == [2]
    assert searched([]) == []
