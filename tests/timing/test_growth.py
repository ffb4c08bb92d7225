"""How the search for changepoints and the interval of a speedup grow with what they are given."""

import numpy as np
import pytest

from pairbench import stats
from tests.builders import detect
from tests.clock import least_seconds

pytestmark = pytest.mark.timing


def test_ten_times_the_runs_take_less_than_thirty_times_as_long() -> None:
    """A search of 20 levels that is quadratic in the number of runs takes a hundred times as long."""
    rng = np.random.default_rng(1)
    short, long = (
        rng.normal(0, 0.01, runs) + np.repeat(rng.choice([0.0, 0.05, 0.1], 20), runs // 20) for runs in (1000, 10_000)
    )
    assert least_seconds(lambda: detect(long)) < 30 * least_seconds(lambda: detect(short))


def test_an_interval_of_twenty_times_the_samples_takes_less_than_forty_times_as_long() -> None:
    few, many = (list(np.random.default_rng(0).normal(100, 1, (5, samples))) for samples in (100, 2000))
    of_few = least_seconds(lambda: stats.speedup_interval(few, few[::-1]))
    assert least_seconds(lambda: stats.speedup_interval(many, many[::-1])) < 40 * of_few
