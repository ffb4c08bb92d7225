"""Calls on values that they have never seen: what is remembered from others shows in their time."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pairbench.execute.worker import trusted
from pairbench.execute.worker.timing import new_values
from pairbench.execute.worker.timing.new_values import Again, is_suspicious, judge_pairs, remembers


def test_each_try_has_values_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_values, "build_inputs", lambda *arguments, like: arguments[-1])
    ready: Any = SimpleNamespace(operator=None, job=SimpleNamespace(case=None, round=4), device=None, inputs={})
    several: Any = [new_values.new_values(ready, 3, attempt) for attempt in range(3)]
    seeds = [seed for of_try in several for seed in of_try]
    assert len(set(seeds)) == 9 and not {0, 1} & set(seeds)


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
    timed: Any = SimpleNamespace(call_ns=[known_us * 1e3] * 20)
    assert is_suspicious(timed, Again([], new_us * 1e3), "cpu") is found


@pytest.mark.parametrize(
    ("new_ms", "timed_ms", "asked"),
    [(25, [25, 26], False), (400, [25, 26], True), (400, [400, 400, 400], False), (400, [400, 400, 25], True)],
    ids=["honest", "remembers all", "remembers what was never timed twice", "remembers what was timed twice"],
)
def test_a_call_on_new_values_is_compared_with_the_quick_ones_of_those_that_were_timed(
    new_ms: float, timed_ms: list[float], asked: bool
) -> None:
    timed: Any = SimpleNamespace(call_ns=[1e6 * ms for ms in timed_ms])
    assert is_suspicious(timed, Again([], new_ms * 1e6), "cpu") is asked


@pytest.mark.parametrize(("call_us", "at_once"), [(10, 3), (25_000, 1)])
@pytest.mark.parametrize("lies", [True, False])
def test_pairs_of_calls_decide_and_of_long_calls_one_at_once(
    monkeypatch: pytest.MonkeyPatch, lies: bool, call_us: float, at_once: int
) -> None:
    made = list[int]()

    def call_in_pairs(_: Any, __: Any, news: list[Any], ___: Any) -> list[tuple[float, float]]:
        made.append(len(news))
        return [(call_us * 1e3, call_us * (1e5 if lies else 1e3))] * len(news)

    monkeypatch.setattr(new_values, "_call_in_pairs", call_in_pairs)
    monkeypatch.setattr(new_values, "new_values", lambda _, count, attempt: [{}] * count)
    ready: Any = SimpleNamespace(device=torch.device("cpu"))
    timed: Any = SimpleNamespace(call_ns=[call_us * 1e3])
    assert (remembers(ready, timed, {}) is not None) is lies
    assert made == [at_once] * (24 // at_once if lies else 1)


SLOW, MISLED, QUICK, BELOW = (10, 500), (900, 500), (10, 15), (10, 65)


@pytest.mark.parametrize(
    ("pairs_us", "attempts", "found"),
    [
        ([SLOW] * 24, 8, True),
        ([MISLED] * 8 + [SLOW] + [MISLED] * 15, 8, True),  # calls on known values may be slowed by something else
        ([QUICK, SLOW, SLOW] * 8, 1, False),  # nobody is quick by chance
        ([SLOW] * 23 + [QUICK], 8, False),
        ([SLOW] * 23 + [BELOW], 8, False),  # less than the clock of a busy CPU is off by
        ([MISLED] * 24, 3, False),  # the machine is slower than it was
    ],
)
def test_one_quick_call_on_new_values_acquits(pairs_us: list[tuple[float, float]], attempts: int, found: bool) -> None:
    made: list[int] = []

    def more(attempt: int) -> list[tuple[float, float]]:
        made.append(attempt)
        return [(known * 1e3, new * 1e3) for known, new in pairs_us[3 * attempt - 3 : 3 * attempt]]

    sentence = judge_pairs(more, quick_ns=10e3, device_type="cpu")
    assert (sentence is not None) is found
    assert made == list(range(1, attempts + 1))
    if sentence:
        assert "500.0 us on values that it has not seen" in sentence and "remembers results" in sentence


def _pairs(
    rng: random.Random, known_ms: list[float], new_ms: list[float]
) -> Callable[[int], list[tuple[float, float]]]:
    """Return what takes three pairs of calls, each slowed or not by chance."""
    return lambda _: [(1e6 * rng.choice(known_ms), 1e6 * rng.choice(new_ms)) for _ in range(3)]


def test_calls_that_a_busy_machine_slows_at_random_convict_nobody() -> None:
    """Every other call took 3.7 ms instead of 1.5 where two processes of two threads shared two cores."""
    rng = random.Random(0)
    more = _pairs(rng, [1.5, 3.7], [1.5, 3.7])
    assert not any(judge_pairs(more, quick_ns=1.5e6, device_type="cpu") for _ in range(20_000))


def test_a_busy_machine_hides_nobody_who_remembers() -> None:
    """What looks up a remembered result takes 0.2 ms, and every other time here the processor serves others for 4 meanwhile."""
    rng = random.Random(0)
    more = _pairs(rng, [0.2, 4.2], [5.0, 9.0])
    found = sum(judge_pairs(more, quick_ns=0.2e6, device_type="cpu") is not None for _ in range(5_000))
    assert found == pytest.approx(5_000 * (1 - 0.5**9), abs=15)


def test_long_calls_convict_with_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = 0.0, 0
    monkeypatch.setattr(trusted, "perf_counter", lambda: now)

    def more(attempt: int) -> list[tuple[float, float]]:
        nonlocal now, made
        now, made = now + 2, attempt
        return [(10e3, 500e3)] * 3

    assert judge_pairs(more, quick_ns=10e3, device_type="cpu")
    assert made == 3
