"""Calls on values that they have never seen: what is remembered from others shows in their time."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pairbench.execute.worker import trusted
from pairbench.execute.worker.timing import recheck
from pairbench.execute.worker.timing.recheck import remembers, suspicious


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
def test_it_takes_all_of_several_calls(known_us: list[float], new_us: list[float], found: bool) -> None:
    assert suspicious([value * 1e3 for value in known_us], [value * 1e3 for value in new_us], beyond_ns=50e3) is found


@pytest.mark.parametrize(
    ("known_us", "new_us", "found"),
    [
        ([10] * 7 + [900] * 2, [15] * 2 + [500] * 7, True),  # something else slowed two, and two more came by luck
        ([10] * 6 + [900] * 3, [500] * 9, False),
        ([10] * 9, [15] * 3 + [500] * 6, False),
        ([10] * 9, [65] * 9, False),
    ],
)
def test_a_quarter_of_them_may_be_slowed_by_something_else(
    known_us: list[float], new_us: list[float], found: bool
) -> None:
    sentence = remembers([value * 1e3 for value in known_us], [value * 1e3 for value in new_us], beyond_ns=50e3)
    assert (sentence is not None) is found
    if sentence:
        assert "500.0 us on values that it has not seen, and 10.0 us" in sentence and "remembers results" in sentence


@pytest.mark.parametrize(("slow_tries", "blamed"), [(1, False), (2, False), (3, True)])
def test_what_seems_to_remember_is_called_on_other_new_values_again(
    monkeypatch: pytest.MonkeyPatch, slow_tries: int, blamed: bool
) -> None:
    """Something else may have slowed all calls on new values of one try; what does remember is slow on all."""
    tries = [recheck._Again([], [100e3] * 3, [900e3 if index < slow_tries else 100e3] * 3) for index in range(3)]
    seeds: list[int] = []
    monkeypatch.setattr(recheck, "_call_again", lambda *_: tries[len(seeds)])
    monkeypatch.setattr(recheck, "_new_values", lambda _, count, attempt: seeds.append(attempt))
    ready: Any = SimpleNamespace(device=torch.device("cpu"))
    timed: Any = SimpleNamespace(call_ns=[100e3])
    rights: Any = recheck._Rights(ready, [])
    sentence = recheck._judge_again(ready, timed, tries[0], rights, {})
    assert (sentence is not None) is blamed
    assert seeds == [1, 2]


def test_each_try_has_values_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recheck, "build_inputs", lambda *arguments: arguments[-1])
    ready: Any = SimpleNamespace(operator=None, job=SimpleNamespace(case=None, round=4), device=None)
    several: Any = [recheck._new_values(ready, 3, attempt) for attempt in range(3)]
    seeds = [seed for of_try in several for seed in of_try]
    assert len(set(seeds)) == 9 and not {0, 1} & set(seeds)


@pytest.mark.parametrize(("new_ms", "blamed"), [(25, False), (400, True)])
def test_a_long_call_is_made_once_on_new_values_and_again_only_where_that_took_longer(
    monkeypatch: pytest.MonkeyPatch, new_ms: float, blamed: bool
) -> None:
    made: list[int] = []

    def call_again(ready: Any, timed: Any, news: list[Any], known: Any) -> recheck._Again:
        made.append(len(news))
        return recheck._Again([], [] if known is None else [25e6] * 3, [new_ms * 1e6] * len(news))

    monkeypatch.setattr(recheck, "_call_again", call_again)
    monkeypatch.setattr(recheck, "_new_values", lambda _, count, attempt: [{}] * count)
    ready: Any = SimpleNamespace(device=torch.device("cpu"))
    timed: Any = SimpleNamespace(call_ns=[25e6, 26e6])
    once = call_again(ready, timed, [{}], {})
    rights: Any = recheck._Rights(ready, [])
    sentence = recheck._judge_again(ready, timed, once, rights, {})
    assert (sentence is not None) is blamed
    assert made == ([1, 3, 3] if blamed else [1])


@pytest.mark.parametrize(("seconds", "judged"), [(0.0, 5), (0.003, 2), (1.0, 1)])
def test_outputs_are_judged_in_an_order_that_nobody_knows_as_long_as_it_takes_no_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, judged: int
) -> None:
    now, seen = 0.0, list[tuple[int, str]]()

    class Right:
        def __init__(self, ready: Any, inputs: int, *, alone: bool) -> None:
            self.inputs = inputs

        def contradicts(self, outputs: str) -> str | None:
            nonlocal now
            now += seconds
            seen.append((self.inputs, outputs))
            return "wrong" if outputs == "bad" else None

    monkeypatch.setattr(recheck, "_Right", Right)
    monkeypatch.setattr(trusted, "perf_counter", lambda: now)
    ready: Any = None
    sets: Any = [10, 20, 30]
    rights = recheck._Rights(ready, sets)
    assert rights.contradict([]) is None
    outputs = [(number % 3, str(number)) for number in range(5)]
    orders = set()
    for _ in range(40):
        seen.clear()
        assert rights.contradict(outputs) is None
        assert len(seen) == judged and all(inputs == 10 * (int(name) % 3 + 1) for inputs, name in seen)
        orders.add(tuple(seen))
    assert len(orders) > 3
    assert rights.contradict([(0, "bad")]) == "wrong"
