"""How the search for changepoints grows with the length of a series."""

import time

import numpy as np
import pytest

from pairbench.analyze.history.changepoint import detect


def seconds(runs: int) -> float:
    """Return the least processor time of three searches of a series with 20 levels."""
    rng = np.random.default_rng(1)
    series = rng.normal(0, 0.01, runs) + np.repeat(rng.choice([0.0, 0.05, 0.1], 20), runs // 20)
    taken = []
    for _ in range(3):
        began = time.process_time()
        detect(series)
        taken.append(time.process_time() - began)
    return min(taken)


@pytest.mark.timing
def test_ten_times_the_runs_take_less_than_thirty_times_as_long() -> None:
    """A search that is quadratic in the number of runs takes a hundred times as long."""
    assert seconds(10_000) < 30 * seconds(1000)
