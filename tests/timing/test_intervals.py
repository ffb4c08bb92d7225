"""How the interval of a speedup grows with the number of samples."""

import time

import numpy as np
import pytest

from pairbench import stats


def seconds(samples: int) -> float:
    """Return the least processor time of three intervals of five rounds."""
    rounds = list(np.random.default_rng(0).normal(100, 1, (5, samples)))
    taken = []
    for _ in range(3):
        began = time.process_time()
        stats.speedup_interval(rounds, rounds[::-1])
        taken.append(time.process_time() - began)
    return min(taken)


@pytest.mark.timing
def test_an_interval_of_twenty_times_the_samples_takes_less_than_forty_times_as_long() -> None:
    assert seconds(2000) < 40 * seconds(100)
