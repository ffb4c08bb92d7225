"""Where a step is put, in noise with two modes and in noise with one."""

import math

import numpy as np
import pytest

from pairbench.analyze.history import changepoint
from pairbench.analyze.history.changepoint import Flags, detect, place_of_step
from pairbench.stats import Floats

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
        found = [[point.index for point in detect(in_modes(seed))] for seed in range(80)]
        return sum(min((abs(index - STEP) for index in indices), default=STEP) > 3 for indices in found)

    with_modes = far()
    monkeypatch.setattr(changepoint, "place_of_step", lambda stretch, cut, **_: cut)
    assert with_modes <= far() / 2


def test_noise_of_one_mode_moves_nothing() -> None:
    random = np.random.default_rng(3)
    sizes = np.arange(4, 97)
    for _ in range(40):
        values = 0.01 * random.standard_normal(100) + 0.03 * (np.arange(100) >= STEP)
        total = np.cumsum(values - values.mean())[sizes - 1]
        cut = int(sizes[np.argmax(total**2 / (sizes * (100 - sizes)))])
        assert placed(values, cut) == cut


def test_noise_below_the_floor_moves_nothing() -> None:
    moved = [seed for seed in range(20) if placed(in_modes(seed), STEP + 6) != STEP + 6]
    assert len(moved) > 10
    assert {placed(in_modes(seed), STEP + 6, least=0.02**2) for seed in moved} == {STEP + 6}


def test_seven_runs_are_too_few() -> None:
    values = np.array([0.0, 0.02, 0.0, 0.05, 0.03, 0.05, 0.03, 0.05])
    assert place_of_step(values, 5, plain=0.0, least=1e-8, shortest=2) == 3
    assert place_of_step(values[:-1], 5, plain=0.0, least=1e-8, shortest=2) == 5


def test_without_noise_nothing_moves() -> None:
    assert placed(np.zeros(20), 10) == 10
    assert placed(np.repeat([0.0, 0.03], 10), 10) == 10


def test_up_and_down_are_the_same() -> None:
    assert [placed(in_modes(seed), 60) for seed in range(10)] == [placed(-in_modes(seed), 60) for seed in range(10)]


def test_the_best_cut_is_that_of_fits_one_by_one() -> None:
    for seed in range(10):
        values = in_modes(seed, 30)
        values -= values.mean()
        before, after = values > -0.01, values > 0.01
        likelihoods = {cut: by_hand(values, cut, before, after) for cut in range(4, 27)}
        fit = changepoint._fitted(values, before, after, 1e-8, 4)
        assert fit is not None
        assert fit.cut == max(likelihoods, key=lambda cut: likelihoods[cut])
        assert fit.likelihood == pytest.approx(likelihoods[fit.cut])


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
