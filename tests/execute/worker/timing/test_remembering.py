"""Calls on values that they have never seen: what is remembered from others shows in their time."""

import random

import pytest

from pairbench.execute.worker import trusted
from pairbench.execute.worker.timing.remembering import remembers, suspicious


@pytest.mark.parametrize(
    ("known_us", "new_us", "found"),
    [
        (10, 400, True),
        (1000, 2100, True),
        (1000, 1900, False),
        (10, 65, False),  # less than the clock of a busy CPU is off by
    ],
)
def test_a_call_that_takes_twice_as_long_on_new_values_makes_a_suspicion(
    known_us: float, new_us: float, found: bool
) -> None:
    assert suspicious(known_us * 1e3, new_us * 1e3, device_type="cpu") is found


SLOW, LUCKY, FAST = (10, 500), (10, 15), (10, 65)


@pytest.mark.parametrize(
    ("pairs_us", "attempts", "found"),
    [
        ([SLOW, SLOW, SLOW, LUCKY] * 6, 8, True),
        ([SLOW, SLOW, SLOW, (900, 500)] * 6, 8, True),
        ([SLOW, SLOW, SLOW, LUCKY] * 5 + [SLOW, SLOW, LUCKY, LUCKY], 8, False),
        ([FAST] * 24, 1, False),  # few acquit; less than the clock of a busy CPU is off by
        ([SLOW, LUCKY, LUCKY] * 8, 1, False),
        ([SLOW, SLOW, LUCKY, SLOW, LUCKY, LUCKY] * 4, 2, False),
    ],
)
def test_a_quarter_of_the_pairs_may_tell_otherwise(
    pairs_us: list[tuple[float, float]], attempts: int, found: bool
) -> None:
    made: list[int] = []

    def more(attempt: int) -> list[tuple[float, float]]:
        made.append(attempt)
        return [(known * 1e3, new * 1e3) for known, new in pairs_us[3 * attempt - 3 : 3 * attempt]]

    sentence = remembers(more, device_type="cpu")
    assert (sentence is not None) is found
    assert made == list(range(1, attempts + 1))
    if sentence:
        assert "500.0 us on values that it has not seen, and 10.0 us" in sentence and "remembers results" in sentence


def test_calls_that_a_busy_machine_slows_at_random_convict_nobody() -> None:
    """Every other call took 3.7 ms instead of 1.5 where two processes of two threads shared two cores."""
    rng = random.Random(0)

    def more(attempt: int) -> list[tuple[float, float]]:
        return list(zip(rng.choices([1.5e6, 3.7e6], k=3), rng.choices([1.5e6, 3.7e6], k=3), strict=True))

    assert not any(remembers(more, device_type="cpu") for _ in range(20_000))


def test_long_calls_convict_with_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = 0.0, 0
    monkeypatch.setattr(trusted, "perf_counter", lambda: now)

    def more(attempt: int) -> list[tuple[float, float]]:
        nonlocal now, made
        now, made = now + 2, attempt
        return [(10e3, 500e3)] * 3

    assert remembers(more, device_type="cpu")
    assert made == 3
