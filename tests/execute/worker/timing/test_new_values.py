import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pairbench import Variant
from pairbench.execute.protocol import Heartbeat, TimeCase
from pairbench.execute.worker import trusted
from pairbench.execute.worker.judge.elsewhere import Again
from pairbench.execute.worker.timing import new_values
from pairbench.execute.worker.timing.measure import EntryEndedError
from pairbench.execute.worker.timing.new_values import (
    UNLIKE,
    NewInputs,
    has_become_quick,
    is_quicker_on_old_values,
    is_quicker_than_before,
    is_suspicious,
    judge_pairs,
    limit_ns,
    remembers,
    renew,
)
from pairbench.execute.worker.timing.ready import Ready, make_ready
from pairbench.execute.worker.trees import copy_tree, tensors
from tests.execute.made import CONFIG, declare, job_of

Pairs = list[tuple[float, float]]


def test_values_that_no_call_has_seen_are_of_seeds_that_nobody_could_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever knew them, as constants of the source, could compute what is right in his first call."""
    monkeypatch.setattr(new_values, "build_inputs", lambda *arguments, like: {"seed": arguments[-1]})
    ready: Any = SimpleNamespace(operator=None, job=SimpleNamespace(case=None), device=None, inputs={})
    found = [new_values.new_values(ready) for _ in range(100)]
    assert all(made["seed"] == made.seed for made in found) and len({made.seed for made in found}) == 100
    assert min(made.seed for made in found) > 2**40  # but once in ten thousand times


def scaled(x: torch.Tensor, weight: torch.Tensor, total: torch.Tensor, doubled: Any = None) -> torch.Tensor:
    total += 1
    return x * (2 * weight if doubled is None else doubled)


@pytest.fixture
def ready(heartbeat: Heartbeat) -> Ready:
    """Return a case whose operator has constants, values prepared from them, and a state."""
    operator = declare(
        Variant(scaled, prepare=lambda weight: {"doubled": 2 * weight}),
        baseline=scaled,
        inputs=lambda make, n: {name: make.normal(n) for name in ("x", "weight", "total")},
        constants=["weight"],
        state=["total"],
    )
    job = job_of(TimeCase, operator, round=0, capturable=())
    making = make_ready(job, operator, CONFIG, heartbeat)
    with pytest.raises(StopIteration) as made:
        next(making)
    found: Ready = made.value.value
    return found


def test_new_values_are_put_in_place_for_all_calls_and_are_expected_from_then_on(ready: Ready) -> None:
    before, addresses = copy_tree(ready.inputs), [tensor.data_ptr() for tensor in tensors(ready.inputs)]
    second = ready.values.sets[1]["x"].clone()
    assert renew(ready)
    assert not any(torch.equal(ready.inputs[name], before[name]) for name in ("x", "weight", "total"))
    assert [tensor.data_ptr() for tensor in tensors(ready.inputs)] == addresses
    assert ready.values.current == 0 and ready.watch.changed() is None
    assert torch.equal(ready.values.sets[0]["x"], ready.inputs["x"])
    with ready.watch.turn(0):
        ready.values.put(1)
    assert torch.equal(ready.inputs["x"], second) and ready.watch.changed() is None, "other sets stay as they are"
    ready.values.put(0)
    assert torch.equal(ready.inputs["x"], ready.values.sets[0]["x"])
    for call in ready.calls.values():
        found = call.observe()
        assert torch.equal(found["output"], 2 * ready.inputs["x"] * ready.inputs["weight"])
        assert torch.equal(found["state"]["total"], ready.inputs["total"] + 1)
    assert ready.values.spent_s > 0.0


@pytest.mark.parametrize("never", ["change", "have room"])
def test_where_values_never_change_or_memory_is_short_they_stay(
    ready: Ready, monkeypatch: pytest.MonkeyPatch, never: str
) -> None:
    if never == "change":
        ready.values.sets = ready.values.sets[:1]
    else:
        monkeypatch.setattr(new_values, "has_room", lambda _: False)
    before = copy_tree(ready.inputs)
    assert not renew(ready)
    assert all(torch.equal(ready.inputs[name], before[name]) for name in before)


def test_each_round_begins_on_other_values(ready: Ready) -> None:
    first = []
    for round_index in (0, 1):
        ready = replace(ready, job=replace(ready.job, round=round_index))
        assert renew(ready)
        first.append(ready.inputs["x"].clone())
    assert not torch.equal(*first)


def test_who_cannot_prepare_new_values_is_named(ready: Ready) -> None:
    def fails(weight: torch.Tensor) -> dict[str, Any]:
        raise ValueError(f"{len(weight)} are too many")

    ahead = ready.job.entries[1]
    ready.calls[ahead] = replace(ready.calls[ahead], variant=Variant(scaled, prepare=fails))
    with pytest.raises(EntryEndedError) as raised:
        renew(ready)
    assert raised.value.index == 1 and str(raised.value.__cause__) == "8 are too many"


def _timed(*call_us: float) -> Any:
    return SimpleNamespace(call_ns=[us * 1e3 for us in call_us], index=0)


@pytest.mark.parametrize(
    ("lead_in", "timed_ms", "quick"), [(0, 24.0, False), (0, 12.6, False), (0, 12.4, True), (7, 0.1, False)]
)
def test_who_is_twice_as_quick_as_while_it_warmed_up_may_remember(lead_in: int, timed_ms: float, quick: bool) -> None:
    timed = _timed(25e3, timed_ms * 1e3)
    timed.lead_in, timed.warm_up_ns = lead_in, 25e6
    assert has_become_quick(timed) is quick


@pytest.mark.parametrize(
    ("device", "timed_us", "known_us", "new_us", "found"),
    [
        ("cpu", [10], [14, 15, 19], 17.0, True),  # a quarter of 10 us, and 0.3 us, above the quickest
        ("cpu", [10], [14, 15, 19], 16.7, False),
        ("cpu", [1.5], [3.5], 4.3, True),
        ("cpu", [1.5], [3.5], 4.1, False),
        ("cpu", [299], [299], 375, True),
        ("cpu", [301], [], 608, True),  # from here on no calls on known values go before
        ("cpu", [301], [], 606, False),
        ("cuda", [10], [14, 15, 19], 17.1, True),  # a tenth of 10 us, and 2 us
        ("cuda", [10], [14, 15, 19], 16.9, False),
        ("cuda", [999], [1000], 1103, True),
        ("cuda", [1001], [], 2006, False),
        ("cuda", [1001], [], 2008, True),
        # A long call is compared with the quick ones of those that were timed.
        ("cpu", [25e3, 26e3], [], 25e3, False),
        ("cpu", [25e3, 26e3], [], 400e3, True),
        ("cpu", [400e3] * 3, [], 400e3, False),
        ("cpu", [400e3, 400e3, 25e3], [], 400e3, True),
    ],
)
def test_a_call_that_takes_longer_on_new_values_makes_a_suspicion(
    device: str, timed_us: list[float], known_us: list[float], new_us: float, found: bool
) -> None:
    again = Again([], new_us * 1e3, tuple(us * 1e3 for us in known_us))
    assert is_suspicious(_timed(*timed_us * (20 if len(timed_us) == 1 else 1)), again, device) is found


@pytest.mark.parametrize(("call_us", "at_once"), [(10, 3), (25_000, 1)])
@pytest.mark.parametrize("lies", [True, False])
def test_pairs_of_calls_decide_and_of_long_calls_one_at_once(
    monkeypatch: pytest.MonkeyPatch, lies: bool, call_us: float, at_once: int
) -> None:
    made = list[int]()

    def call_in_pairs(_: Any, __: Any, news: list[Any], ___: Any) -> Pairs:
        made.append(len(news))
        return [(call_us * 1e3, call_us * (1e5 if lies else 1e3))] * len(news)

    monkeypatch.setattr(new_values, "call_in_pairs", call_in_pairs)
    monkeypatch.setattr(new_values, "new_values", lambda _: {})
    ready: Any = SimpleNamespace(device=torch.device("cpu"), inputs={})
    assert (remembers(ready, _timed(call_us), Again([], 0.0), NewInputs({}, ready)) is not None) is lies
    assert made == [1] + ([at_once] * (12 // at_once - (at_once == 1)) if lies else [])


def _judge(more: Callable[[int], Pairs], quick_us: float, known_us: tuple[float, ...] = ()) -> str | None:
    limit = limit_ns(_timed(quick_us), "cpu")
    found = judge_pairs(more, known_ns=[us * 1e3 for us in known_us], quick_ns=quick_us * 1e3, limit=limit)
    return None if found and found.startswith(UNLIKE.partition("{")[0]) else found


SLOW, MISLED, QUICK, LESS = (12, 20), (21, 20), (12, 12.7), (12, 14.7)


@pytest.mark.parametrize(
    ("pairs_us", "attempts", "found"),
    [
        ([SLOW] * 12, 4, True),
        ([SLOW, SLOW, MISLED] * 8, 8, True),  # calls on known values may be slowed by something else
        ([QUICK, SLOW, SLOW] * 8, 1, False),  # nobody is quick by chance
        ([SLOW] * 11 + [QUICK], 4, False),
        ([SLOW] * 11 + [LESS], 4, False),  # by less than a quarter of what it takes
        ([MISLED] * 24, 2, False),  # the machine is slower than it was
        ([MISLED] * 3 + [SLOW] * 5 + [MISLED] * 16, 7, False),  # five that are quicker may be chance
    ],
)
def test_one_quick_call_on_new_values_acquits(pairs_us: Pairs, attempts: int, found: bool) -> None:
    made: list[int] = []

    def more(attempt: int) -> Pairs:
        made.append(attempt)
        return [(known * 1e3, new * 1e3) for known, new in pairs_us[3 * attempt - 3 : 3 * attempt]]

    sentence = _judge(more, 10)
    assert (sentence is not None) is found
    assert made == list(range(1, attempts + 1))
    if sentence:
        assert "20.0 us on values that it has not seen" in sentence and "remembers results" in sentence


def test_calls_on_known_values_that_were_made_already_count_and_long_calls_convict_with_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # With three of them one batch is enough to tell that the machine is slower than it was.
    assert _judge(lambda attempt: [(21e3, 20e3)] * 3 if attempt == 1 else [], 10, (21, 22, 23)) is None
    now, made = 0.0, 0
    monkeypatch.setattr(trusted, "perf_counter", lambda: now)

    def more(attempt: int) -> Pairs:
        nonlocal now, made
        now, made = now + 2, attempt
        return [(10e3, 500e3)] * 3

    assert _judge(more, 10)
    assert made == 4


def _drawn(known_ms: list[float], new_ms: list[float]) -> Callable[[random.Random], tuple[float, float]]:
    """Return a function that simulates a pair of calls, each of which other processes may slow down."""
    return lambda rng: (1e6 * rng.choice(known_ms), 1e6 * rng.choice(new_ms))


def _scattered(spread: float) -> Callable[[random.Random], tuple[float, float]]:
    return lambda rng: (3e6 * rng.lognormvariate(0, spread), 3e6 * rng.lognormvariate(0, spread))


def _sliced(slowed: int) -> Callable[[random.Random], tuple[float, float]]:
    """Each slice of another process costs a call 8 ms: what is found in 0.04 ms then looks as slow as half of what it takes to compute."""
    slices = [0] * 4 + [1] * slowed
    return lambda rng: (40e3 + 8e6 * rng.choice(slices), 12e6 + 8e6 * rng.choice(slices))


@pytest.mark.parametrize(
    ("pair", "quick_us", "tries", "convicted"),
    [
        # Every other call took 370 us instead of 150 where two processes of two threads shared two cores.
        (_drawn([0.15, 0.37], [0.15, 0.37]), 150, 3_000, 0),
        # One honest call in ten is left in peace, and is then ten times as quick.
        (_drawn([1.0, *[10.0] * 9], [1.0, *[10.0] * 9]), 400, 1_000, 0),
        # Timed calls of 1 us, and calls on known and on new values of about 3 ms that differ by noise alone.
        *((_scattered(spread), 1, 2_000, 0) for spread in (0.05, 0.2, 0.5, 1.0)),
        # What looks up a remembered result takes 0.2 ms, and every fourth time the processor serves others for 4 meanwhile.
        (_drawn([0.2, 0.2, 0.2, 4.2], [5.0, 9.0]), 200, 1_000, 999),
        (_sliced(3), 400, 500, 500),
        (_sliced(10), 400, 200, 170),
    ],
)
def test_a_busy_machine_convicts_nobody_and_hides_nobody_who_remembers(
    pair: Callable[[random.Random], tuple[float, float]], quick_us: float, tries: int, convicted: int
) -> None:
    rng = random.Random(0)
    found = sum(_judge(lambda _: [pair(rng) for _ in range(3)], quick_us) is not None for _ in range(tries))
    assert found >= convicted and (convicted or not found)


@pytest.mark.parametrize(
    ("slower_us", "timed_us", "found"),
    [(None, [10], False), (24, [10], False), (26, [10], True), (26, [10, 30, 30], True)],
)
def test_who_is_slower_on_other_values_than_before_or_was_in_earlier_rounds_may_remember(
    slower_us: float | None, timed_us: list[float], found: bool
) -> None:
    timed, slower_ns = _timed(*timed_us), (slower_us * 1e3,) if slower_us else ()
    timed.fresh_ns = [*slower_ns, 1e9] if slower_ns else []
    assert is_quicker_on_old_values(timed) is found
    ready: Any = SimpleNamespace(job=SimpleNamespace(earlier_ns=slower_ns))
    assert is_quicker_than_before(ready, timed) is found


@pytest.mark.parametrize("keeps", ["the last", "the one before it", "all"])
@pytest.mark.parametrize("long", [True, False])
def test_calls_on_known_values_come_again_for_who_keeps_few(
    ready: Ready, monkeypatch: pytest.MonkeyPatch, keeps: str, long: bool
) -> None:
    """Whatever is kept, the timed call on known values finds it, and that on new ones does not."""
    seen, found = list[float](), list[bool]()

    def call() -> None:
        value = float(ready.inputs["x"][0])
        kept = {"the last": seen[-1:], "the one before it": seen[-2:-1], "all": seen}[keeps]
        found.append(value in kept)
        seen.append(value)

    def sample(run: Callable[[], Any], keep: Any) -> Any:
        call()
        return SimpleNamespace(call_ns=1.0 if found[-1] else 2.0)

    timed = ready.timed[0]
    timed.call_ns, timed.lead_in = [2e6 if long else 2e5], 0 if long else 1
    monkeypatch.setitem(ready.calls, timed.entry, replace(ready.calls[timed.entry], run=call))
    monkeypatch.setattr(ready.timer, "sample", sample)
    news: list[Any] = [new_values.new_values(ready) for _ in range(10)]
    for known_ns, new_ns in new_values.call_in_pairs(ready, timed, news, NewInputs(copy_tree(ready.inputs), ready)):
        assert (known_ns, new_ns) == (1.0, 2.0)
