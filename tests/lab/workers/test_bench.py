"""The measurement of workers finds what a server hands down to its workers, and nothing where there is nothing."""

import numpy as np
import pandas as pd
import pytest

from tests.lab.workers.bench import independence, level

SERIES, RUNS, ROUNDS = 60, 6, 3


def rounds(*, of_run: float = 0.0, by: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Return rounds that differ by 1 %, whose runs differ by so much more, all of them moved by something, in log units."""
    rng = np.random.default_rng(seed)
    runs = rng.normal(0, of_run, (SERIES, RUNS, 1)) + rng.normal(by, 0.01, (SERIES, RUNS, ROUNDS))
    rows = [(f"s{s}", f"r{r}", runs[s, r, n]) for s in range(SERIES) for r in range(RUNS) for n in range(ROUNDS)]
    return pd.DataFrame(rows, columns=["series", "run", "log_p50"])


@pytest.mark.parametrize(("of_run", "differ"), [(0.0, (0, 15)), (0.03, (80, 100))])
def test_a_part_that_all_rounds_of_a_run_share_is_found(of_run: float, differ: tuple[int, int]) -> None:
    found = independence(rounds(of_run=of_run))
    assert found["rounds of a run, SD in %, median"] == pytest.approx(0.95, abs=0.1)
    assert found["runs beyond their rounds, SD in %, median"] == pytest.approx(100 * of_run, abs=0.6)
    assert differ[0] <= found["series whose runs differ (F test at 5%), in %"] <= differ[1]


def test_a_level_of_its_own_is_found() -> None:
    assert level({"fresh": rounds(), "fork": rounds(by=0.02, seed=1)}).startswith(
        "Forked against fresh, all series: +1.99 %"
    )
