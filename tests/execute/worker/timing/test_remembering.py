"""Calls on values that they have never seen: what is remembered from others shows in their time."""

import random

import pytest

from pairbench.execute.worker import trusted
from pairbench.execute.worker.timing.remembering import remembers, suspicious


def _ns(values_us: list[float]) -> list[float]:
    return [value * 1e3 for value in values_us]


@pytest.mark.parametrize(
    ("known_us", "new_us", "found"),
    [
        ([10, 11, 12], [500, 400, 700], True),
        ([10, 300, 12], [500, 400, 700], True),  # something else slowed one of the known ones
        ([10, 11, 12], [500, 15, 700], False),  # one is as fast: something else slowed the others
        ([10, 300, 400], [500, 400, 700], False),  # the machine is busy, and known values suffer as well
        ([1000, 1010, 1020], [2500, 2600, 2200], True),
        ([1000, 1010, 1020], [1900, 2000, 1800], False),
        ([10, 11, 12], [60, 70, 65], False),  # less than the clock of a busy CPU is off by
        ([10, 11, 12], [500, 400], False),
        ([], [500, 400, 700], False),
    ],
)
def test_all_of_several_calls_make_a_suspicion(known_us: list[float], new_us: list[float], found: bool) -> None:
    assert suspicious(_ns(known_us), _ns(new_us), device_type="cpu", least=3) is found


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
