"""How long the statistics of a series take."""

import math
import time

import numpy as np
import pytest

from pairbench import stats


@pytest.mark.timing
def test_intervals_are_fast() -> None:
    rounds = list(np.random.default_rng(0).normal(100, 1, (5, 1000)))
    best = math.inf
    for _ in range(3):
        start = time.process_time()
        stats.speedup_interval(rounds, rounds[::-1])
        best = min(best, time.process_time() - start)
    assert best < 0.5
