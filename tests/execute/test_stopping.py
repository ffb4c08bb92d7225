"""When to stop: pure decisions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.execute.stopping import Stopping
from pairbench.model.outcome import PRECISE, SAMPLE_CAP, TIME_CAP
from pairbench.model.settings import Settings

STOPPING = Stopping(target=0.01, least=20, most=100, seconds=1.0)
SURE = [np.zeros(200)]
UNSURE = [np.linspace(-1, 1, 200)]


@pytest.mark.parametrize(
    ("blocks", "elapsed", "ratios", "reason"),
    [
        (20, 0.1, SURE, PRECISE),
        (19, 0.1, SURE, None),
        (20, 0.1, UNSURE, None),
        (20, 0.1, [*SURE, *UNSURE], None),
        (99, 0.9, UNSURE, None),
        (100, 0.1, UNSURE, SAMPLE_CAP),
        (99, 1.0, UNSURE, TIME_CAP),
        (100, 1.0, UNSURE, TIME_CAP),
        (10, 1.0, UNSURE, TIME_CAP),
        (9, 1.0, UNSURE, None),
        (9, 9.9, UNSURE, None),
        (1, 10.0, UNSURE, TIME_CAP),
        (20, 0.0, [], PRECISE),
        (0, 0.0, [], None),
    ],
)
def test_reasons(blocks: int, elapsed: float, ratios: list[np.ndarray], reason: str | None) -> None:
    assert STOPPING.reason(blocks, elapsed, ratios) == reason


@given(
    rounds=st.integers(1, 20),
    least=st.integers(1, 2000),
    most=st.integers(1, 20000),
    seconds=st.floats(0.01, 100),
)
def test_samples_are_shared_over_the_rounds(rounds: int, least: int, most: int, seconds: float) -> None:
    found = Stopping.of(Settings(rounds=rounds, min_samples=least, max_samples=most, case_seconds=seconds))
    assert found.least * rounds >= least and found.least >= 10
    assert found.most * rounds >= most and found.seconds == seconds


@given(blocks=st.integers(10, 500), elapsed=st.floats(0, 1000))
def test_it_always_ends(blocks: int, elapsed: float) -> None:
    reason = STOPPING.reason(blocks, elapsed, UNSURE)
    assert (reason is not None) == (blocks >= STOPPING.most or elapsed >= STOPPING.seconds)


def test_few_values_are_never_precise() -> None:
    assert STOPPING.reason(50, 0.0, [np.zeros(7)]) is None
