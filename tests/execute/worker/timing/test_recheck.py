"""Calls on values that they have never seen: what is remembered from others shows in their time."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pairbench.execute.worker import trusted
from pairbench.execute.worker.timing import recheck
from pairbench.model.outcome import Status


def test_each_try_has_values_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recheck, "build_inputs", lambda *arguments, like: arguments[-1])
    ready: Any = SimpleNamespace(operator=None, job=SimpleNamespace(case=None, round=4), device=None, inputs={})
    several: Any = [recheck._new_values(ready, 3, attempt) for attempt in range(3)]
    seeds = [seed for of_try in several for seed in of_try]
    assert len(set(seeds)) == 9 and not {0, 1} & set(seeds)


@pytest.mark.parametrize(
    ("new_ms", "timed_ms", "blamed"),
    [(25, [25, 26], False), (400, [25, 26], True), (400, [400, 400, 400], False), (400, [400, 400, 25], True)],
    ids=["honest", "remembers all", "remembers what was never timed twice", "remembers what was timed twice"],
)
def test_a_long_call_is_made_once_on_new_values_and_again_only_where_that_took_longer_than_the_quickest_timed_one(
    monkeypatch: pytest.MonkeyPatch, new_ms: float, timed_ms: list[float], blamed: bool
) -> None:
    made: list[int] = []

    def call_again(ready: Any, timed: Any, news: list[Any], known: Any, *, alike: bool = False) -> recheck._Again:
        assert alike  # what counts is taken under the same conditions
        made.append(len(news))
        return recheck._Again([], [25e6] * len(news), [new_ms * 1e6] * len(news))

    monkeypatch.setattr(recheck, "_call_again", call_again)
    monkeypatch.setattr(recheck, "_new_values", lambda _, count, attempt: [{}] * count)
    ready: Any = SimpleNamespace(device=torch.device("cpu"))
    timed: Any = SimpleNamespace(call_ns=[1e6 * ms for ms in timed_ms])
    once = recheck._Again([], [], [new_ms * 1e6])
    rights: Any = recheck._Rights(ready, [], more_s=0.0)
    sentence = recheck._judge_again(ready, timed, once, rights, {})
    assert (sentence is not None) is blamed
    assert made == ([1] * 24 if blamed else [])


@pytest.mark.parametrize(("round_index", "share"), [(0, 1.0), (1, 0.25), (2, 0.25)])
def test_calls_are_judged_on_new_values_in_the_first_round_and_by_chance_in_others(
    monkeypatch: pytest.MonkeyPatch, round_index: int, share: float
) -> None:
    rechecked: list[list[str]] = []

    def take(_: Any, __: Any, ___: Any, entries: list[Any]) -> Iterator[Any]:
        rechecked.append(entries)
        return iter(())

    monkeypatch.setattr(recheck, "_recheck", take)
    monkeypatch.setattr(recheck, "replaced", lambda: None)
    monkeypatch.setattr(recheck, "left_running", lambda: None)
    monkeypatch.setattr(recheck, "guarded", lambda job, index, heartbeat, step: step())
    contradicted: list[Any] = []
    monkeypatch.setattr(recheck._Rights, "contradict", lambda _, outputs: contradicted.append(outputs))
    values = SimpleNamespace(sets=({}, {}), spent_s=2.0)
    short, long = (
        SimpleNamespace(entry=name, index=0, call_ns=[ns], kept=[(0, name)])
        for name, ns in (("short", 0.9e6), ("long", 1.1e6))
    )
    watch = SimpleNamespace(changed=lambda: None)
    job = SimpleNamespace(round=round_index)
    ready: Any = SimpleNamespace(watch=watch, job=job, values=values, inputs={}, timed=[short, long])
    heartbeat: Any = None
    for _ in range(400):
        short.kept, long.kept = [(0, "short")], [(0, "long")]
        assert list(recheck.judge_timed(ready, 0.0, heartbeat)) == []
    assert all(entries == [short, long] for entries in rechecked)
    assert len(rechecked) == pytest.approx(400 * share, abs=50 if share < 1 else 0)
    assert contradicted == [[(0, "short")], []] * 400  # of long calls, one on new values is judged instead
    values.sets = ({},)
    long.kept = [(0, "long")]
    list(recheck.judge_timed(ready, 0.0, heartbeat))
    assert contradicted[-1] == [(0, "long")]  # unless none can be compared


@pytest.mark.parametrize(("seconds", "judged"), [(0.0, 5), (0.003, 2), (1.0, 1)])
def test_outputs_are_judged_in_an_order_that_nobody_knows_and_one_at_least(
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
    outputs = [(number % 3, str(number)) for number in range(5)]
    orders = set()
    for _ in range(40):
        rights = recheck._Rights(ready, sets, more_s=0.005)
        assert rights.contradict([]) is None
        seen.clear()
        assert rights.contradict(outputs) is None
        assert len(seen) == judged and all(inputs == 10 * (int(name) % 3 + 1) for inputs, name in seen)
        orders.add(tuple(seen))
    assert len(orders) > 3
    assert rights.contradict([(0, "bad")]) == "wrong"


def test_a_timed_call_that_gave_a_wrong_output_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SimpleNamespace(contradicts=lambda output: "output differs" if output == "wrong" else None)
    monkeypatch.setattr(recheck, "_Right", lambda ready, inputs, *, alone: right)
    monkeypatch.setattr(recheck, "guarded", lambda job, index, heartbeat, step: step())
    honest: Any = object()
    wrong: Any = object()
    timed = [
        SimpleNamespace(entry=entry, index=0, call_ns=[1e4], kept=[(0, given)])
        for entry, given in ((honest, "right"), (wrong, "wrong"))
    ]
    ready: Any = SimpleNamespace(job=None, inputs={}, timed=timed, values=SimpleNamespace(sets=({}, {})))
    heartbeat: Any = None
    (ended,) = recheck._judge_kept(ready, 0.0, heartbeat)
    assert ended.entry is wrong and ended.status == Status.MISMATCHED
    assert ended.reason.startswith("a timed call gave a wrong output: output differs")


def test_behind_the_first_output_come_those_of_any_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a call that remembers what is right of the preferred set would be judged on that alone, where time is short."""
    of = list[int]()
    monkeypatch.setattr(recheck, "_Right", lambda ready, inputs, *, alone: SimpleNamespace(contradicts=of.append))
    ready: Any = None
    sets, seconds = list[Any](range(2)), list[bool]()
    for _ in range(1000):
        of.clear()
        recheck._Rights(ready, sets, more_s=10.0).contradict([(number, number) for number in (0, 0, 0, 1, 1, 1)])
        seconds.append(of[0] == of[1])
    # Two of five where the first drawn is of the preferred set, and none where it is not, for it comes next.
    assert sum(seconds) == pytest.approx(200, abs=75)  # six times the spread


def test_of_all_entries_outputs_of_one_set_are_judged_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is right is computed once for them all; which set that is, is drawn."""
    of = list[int]()
    monkeypatch.setattr(recheck, "_Right", lambda ready, inputs, *, alone: SimpleNamespace(contradicts=of.append))
    sets, asked = list[Any](range(3)), set[int]()
    ready: Any = None
    for _ in range(40):
        rights = recheck._Rights(ready, sets, more_s=0.0)
        for _entry in range(4):
            rights.contradict([(number, number) for number in (0, 1, 2, 0)])
        assert len(set(of)) == 1 and len(of) == 4
        asked.add(of[0])
        of.clear()
    assert asked == {0, 1, 2}
