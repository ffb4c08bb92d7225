"""A slope beside steps: found soon, told from a staircase and from noise, with the steps beside it."""

import numpy as np
import pytest

from pairbench.analyze.history.changepoint import explain
from pairbench.stats import Floats
from tests.lab.detectors import noises


def sloped(seed: int, runs: int, rate: float = 0.0015, cv: float = 0.005, before: int = 30) -> Floats:
    level = noises.null("development", "iid", cv, seed, 100)
    sloped: Floats = (level + rate * np.clip(np.arange(100) - before + 1, 0, None))[: before + runs]
    return sloped


def test_a_slow_drift_is_told_before_it_is_large_and_no_step_with_it() -> None:
    needed = []
    for seed in range(15):
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
    assert sum(explain(noises.null("development", noise, 0.01, seed))[1] is not None for seed in range(40)) <= 1


def test_a_drift_of_many_runs_is_looked_for_in_the_newest() -> None:
    series = noises.null("development", "iid", 0.005, 1, 3000)
    series[2900:] += 0.001 * np.arange(1, 101)
    steps, drift = explain(series)
    assert steps == () and drift is not None and drift.index == pytest.approx(2900, abs=20)
