import gc
import itertools
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

from pairbench.execute.protocol import Heartbeat
from pairbench.execute.worker import trusted
from pairbench.execute.worker.timing import measure, timers
from pairbench.execute.worker.timing.measure import EntryEndedError, Timed
from pairbench.execute.worker.timing.values import Values
from pairbench.model.outcome import PRECISE, SAMPLE_CAP, TIME_CAP
from tests.execute.made import entry
from tests.execute.worker.timing.conftest import NO_VALUES, FakeClock, FakeTimer, setup, take, timed, values_of


def noisy(scale: float, seed: int) -> Callable[[], float]:
    generator = np.random.default_rng(seed)
    return lambda: scale * float(generator.lognormal(0, 0.3))


def test_every_block_has_each_entry_once_in_random_order() -> None:
    order: list[str] = []

    def call(name: str) -> Callable[[], float]:
        return lambda: order.append(name) or float(np.random.default_rng(len(order)).random() + 1)  # type: ignore[func-returns-value]

    found = take(timed(baseline=call("baseline"), a=call("a"), b=call("b")))
    assert found.round == 3 and found.timer == "fake"
    positions = [samples.position for samples in found.entries]
    blocks = list(zip(*positions, strict=True))
    assert all(sorted(block) == [0, 1, 2] for block in blocks)
    seen = {block: blocks.count(block) for block in set(blocks)}
    assert set(seen) == set(itertools.permutations(range(3)))
    # The position is the place in which the call really was made, each behind the lead-in of its own.
    calls = order[-6 * len(blocks) :]
    assert calls[::2] == calls[1::2]
    for index, block in enumerate(blocks):
        made = calls[6 * index : 6 * index + 6 : 2]
        assert [made[place] for place in block] == ["baseline", "a", "b"]
    assert min(seen.values()) > 0.4 * len(blocks) / 6


def test_blocks_in_which_short_calls_settle_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Here the first calls are slow: after a warm-up of three calls, the first two blocks with their lead-ins are.
    def slow_at_first() -> Callable[[], float]:
        calls = itertools.count()
        return lambda: 1000.0 if next(calls) < 3 + 2 * 2 else 100.0

    monkeypatch.setattr(FakeTimer, "settling", 2)
    found = take(timed(baseline=slow_at_first(), a=slow_at_first()))
    count = len(found.throttled)
    assert all(samples.call_ns == (100.0,) * count for samples in found.entries)
    assert all(len(samples.at_ns) == len(samples.position) == count for samples in found.entries)
    monkeypatch.setattr(FakeTimer, "settling", 25)
    calls = list[float]()
    found = take(timed(baseline=lambda: calls.append(6e6) or 6e6))  # type: ignore[func-returns-value]
    assert len(calls) == 3 + 2 * len(found.throttled)


def test_it_stops_when_precise_or_at_the_most_samples_or_seconds() -> None:
    found = take(timed(baseline=lambda: 100, a=lambda: 50))
    assert found.stop_reason == PRECISE and 20 <= len(found.throttled) < 40
    assert take(timed(baseline=noisy(10, 0))).stop_reason == PRECISE, "a baseline alone is timed too"
    found = take(timed(baseline=noisy(100, 0), a=noisy(100, 1)), target=1e-6, most=50)
    assert found.stop_reason == SAMPLE_CAP and 50 <= len(found.throttled) <= 60
    for samples in found.entries:
        assert len(samples.call_ns) == len(found.throttled) and list(samples.at_ns) == sorted(samples.at_ns)
        assert samples.host_ns == (1.0,) * len(samples.call_ns)
        assert samples.device_ns is None and samples.device_timer is None

    def slow() -> float:
        time.sleep(0.001)
        return float(np.random.default_rng().random() + 1)

    began = time.monotonic()
    found = take(timed(baseline=slow, a=slow), target=1e-9, most=10**6, seconds=0.05)
    assert found.stop_reason == TIME_CAP
    assert found.throttled and time.monotonic() - began < 60, "a million calls would take half an hour"


@pytest.mark.parametrize(("clocks", "reason"), [(2, PRECISE), (1, SAMPLE_CAP)])
def test_the_device_s_ratio_stops_it_where_both_have_one_and_not_what_the_host_adds_to_the_call(
    clocks: int, reason: str
) -> None:
    entries = timed(baseline=noisy(100, 0), a=noisy(100, 1))
    for one in entries[:clocks]:
        one.device_clock = FakeClock(lambda: 50.0)  # type: ignore[assignment]
    assert take(entries, target=1e-6, most=50).stop_reason == reason


def test_a_throttled_block_is_measured_again_and_all_since_the_last_reading_are_labelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timers, "_READING_S", 0.0)
    # The first reading is before the first block; of the blocks, the 3rd and 4th throttle.
    throttles = itertools.chain([False, False, False, True, True], itertools.repeat(False))
    found = take(timed(baseline=lambda: 100, a=lambda: 50), throttles)
    assert [index for index, label in enumerate(found.throttled) if label] == [2, 3]
    assert found.remeasured == 2
    assert len(found.throttled) - 2 >= 20, "the blocks that count are as many as without throttling"
    monkeypatch.setattr(timers, "_READING_S", 0.01)
    clock = {"now_ns": 0}
    monkeypatch.setattr(trusted, "perf_counter_ns", lambda: clock["now_ns"])

    def slow() -> float:
        clock["now_ns"] += 2_000_000
        return 1.0

    throttles = itertools.chain([False, True], itertools.repeat(False))
    found = take(timed(baseline=slow), throttles, least=40)
    # A block is one call before the clock and one under it, so that 10 ms are over with the third.
    assert [index for index, label in enumerate(found.throttled) if label] == [0, 1, 2]


@pytest.mark.parametrize("call_s", [0.001, 0.01])
def test_a_device_that_throttles_throughout_is_measured_once(monkeypatch: pytest.MonkeyPatch, call_s: float) -> None:
    """To leave everything out would leave nothing; long calls have more than one sample, too."""
    monkeypatch.setattr(timers, "_READING_S", 0.0)

    def slow() -> float:
        time.sleep(call_s)
        return 1.0

    found = take(timed(baseline=slow, a=slow), itertools.repeat(True), seconds=0.05)
    assert all(found.throttled) and found.remeasured == 0 and found.stop_reason == TIME_CAP
    assert len(found.throttled) > 1


def test_an_entry_over_its_time_ends_the_round(heartbeat: Heartbeat) -> None:
    heartbeat.begin_job(0.05)
    entries = timed(baseline=lambda: 1.0, a=lambda: time.sleep(0.01) or 1.0)  # type: ignore[func-returns-value]
    with pytest.raises(EntryEndedError) as caught:
        take(entries, target=1e-9, least=100, most=10**6, heartbeat=heartbeat)
    assert caught.value.index == 1


def test_garbage_is_not_collected_while_timing_and_an_error_is_of_its_entry() -> None:
    states: list[bool] = []
    take(timed(baseline=lambda: states.append(gc.isenabled()) or 1.0))  # type: ignore[func-returns-value]
    assert not any(states[-20:]) and gc.isenabled()

    def fails() -> float:
        raise ValueError("boom")

    with pytest.raises(EntryEndedError) as raised:
        take(timed(baseline=lambda: 1.0, a=fails))
    assert raised.value.index == 1 and isinstance(raised.value.__cause__, ValueError)
    assert gc.isenabled()


def test_each_mode_is_paired_with_its_own_baseline() -> None:
    """A variant that is steady beside its own baseline, and not beside the other mode's."""
    entries = timed(baseline=lambda: 100.0, a=lambda: 50.0)
    entries.append(Timed(index=2, entry=entry("baseline", "compile"), run=noisy(1, 0)))
    assert take(entries).stop_reason == PRECISE


@pytest.mark.parametrize(("seconds", "calls"), [(0.01, 3), (0.15, 2), (0.5, 1)])
def test_a_long_call_is_warm_after_one(
    seconds: float, calls: int, heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, made = 0.0, 0

    def call() -> float:
        nonlocal now, made
        now, made = now + seconds, made + 1
        return seconds * 1e9

    monkeypatch.setattr(trusted, "perf_counter", lambda: now)
    measure._warm_up(setup(timed(slow=call), Values(**NO_VALUES), heartbeat=heartbeat))
    assert made == calls


def with_streams(one: Timed, stream_ns: float | None = 70.0) -> list[int]:
    """Give an entry clocks of its replay and of its own launches, and return the number of calls behind which the latter was read, as they come."""
    read = list[int]()
    one.device_clock = FakeClock(lambda: 50.0)  # type: ignore[assignment]
    one.stream_clock = FakeClock(lambda: read.append(len(one.call_ns)) or stream_ns)  # type: ignore[assignment, func-returns-value]
    return read


def test_of_a_stream_few_samples_are_taken_and_of_a_long_call_one_that_is_made_for_it() -> None:
    entries = timed(baseline=noisy(100, 0), a=noisy(100, 1))
    with_streams(entries[0])
    found = take(entries, target=1e-9, least=30, most=30)
    first, other = found.entries
    assert first.device_ns is not None and first.stream_ns is not None and len(first.stream_ns) == len(first.call_ns)
    taken = [number for number, value in enumerate(first.stream_ns) if value is not None]
    assert taken[:6] == [2, 3, 4, 10, 18, 26] and {first.stream_ns[number] for number in taken} == {70.0}
    assert other.stream_ns is None and other.device_ns is None
    entries = timed(baseline=noisy(1e9, 0))
    read = with_streams(entries[0])
    assert len(take(entries, target=1e-9, least=30, most=30).throttled) >= 30
    assert read == [3]


def test_a_stream_is_not_timed_again_where_the_device_s_clock_has_done_so_nor_where_the_host_cannot_be_hidden() -> None:
    entries = timed(baseline=noisy(100, 0))
    clock = FakeClock(lambda: 50.0)
    clock.name, entries[0].device_clock = "spin", clock  # type: ignore[assignment]
    (found,) = take(entries).entries
    assert found.stream_ns == found.device_ns == (50.0,) * len(found.call_ns)
    entries = timed(baseline=noisy(100, 0))
    with_streams(entries[0], None)
    (found,) = take(entries).entries
    assert found.stream_ns is None and found.device_ns is not None


@pytest.mark.parametrize("could", [True, False])
def test_long_calls_begin_on_values_that_no_call_has_seen(could: bool) -> None:
    """The baseline comes last then, so that no other finds its outputs, and a second block on the same values shows who remembers."""
    values, made = values_of(0, 1), list[tuple[str, float]]()

    def call(name: str) -> Callable[[], float]:
        return lambda: made.append((name, values.shared["x"].item())) or 1e8  # type: ignore[func-returns-value]

    def renew() -> bool:
        made.clear()
        if could:
            values.replace_first({"x": torch.full((1,), 7.0)})
        return could

    names = ("baseline", "a", "b", "c", "d")
    entries = timed(**{name: call(name) for name in names})
    for one in entries:
        one.observed = lambda outputs, name=str(one.entry): (name, float(outputs))  # type: ignore[misc]
    found = take(entries, values=values, renew=renew)
    blocks = [made[start : start + len(names)] for start in range(0, len(made), len(names))]
    assert len(blocks) == len(found.throttled) >= 20
    seen = [{value for _, value in block} for block in blocks]
    if could:
        assert seen[:2] == [{7.0}, {7.0}] and all(two == {1.0, 7.0} for two in seen[2:])
        assert blocks[0][-1][0] == "baseline" and {block[-1][0] for block in blocks[1:]} == set(names)
        assert [one.first_observed for one in entries] == [[str(one.entry), 1e8] for one in entries]
    else:
        assert all(two == {0.0, 1.0} for two in seen)
        assert [one.first_observed for one in entries] == [None] * len(names)
    position = {str(samples.entry): samples.position[0] for samples in found.entries}
    assert [position[f"{name} (eager)"] for name, _ in blocks[0]] == list(range(len(names)))


def test_calls_with_a_lead_in_do_not_nor_do_those_of_which_one_block_alone_may_fit() -> None:
    # Those before it would have seen the values; beside a long call each is as it is.
    entries = timed(baseline=lambda: 100.0, a=lambda: 100.0)
    take(entries, renew=lambda: pytest.fail("no call is long"))
    entries = timed(baseline=lambda: 100.0, a=lambda: 1e8)
    take(entries, renew=lambda: True)
    assert [one.first_observed is None for one in entries] == [True, False]
    # There would be no sample on the same values to compare the first one with; when all is over, a call on new ones is compared with it instead.

    def begun(seconds: float) -> list[bool]:
        entries = timed(baseline=lambda: 1e8, a=lambda: 1e8)
        take(entries, seconds=seconds, renew=lambda: True)
        return [one.first_observed is not None for one in entries]

    # On a GPU a block makes each call twice, which takes 0.4 s; another is begun until five times `seconds`.
    assert begun(0.079) == [False, False] and begun(0.081) == [True, True]


@pytest.mark.parametrize(("renewed", "judged", "samples"), [(True, True, 3), (True, False, 2), (False, True, 1)])
def test_who_begins_on_new_values_takes_a_second_block_and_of_each_call_with_a_lead_in_an_output_is_kept(
    monkeypatch: pytest.MonkeyPatch, renewed: bool, judged: bool, samples: int
) -> None:
    """A variant that returns the result of its lead-in is found by its lead-in, also where time is short and values take long to put in place."""
    monkeypatch.setattr(measure, "_BOTH_CLOCKS", 0.0)  # blocks take longer than it looked
    values = values_of(0, 1, 2, place_s=60.0, judged=judged)
    entries = timed(baseline=lambda: 1e8, a=lambda: 1.0, b=lambda: 2.0)
    found = take(entries, values=values, seconds=1e-8, renew=lambda: renewed)
    assert [len(one.kept) for one in entries[1:]] == [int(judged)] * 2
    assert len(found.throttled) == samples and values.written.get("x", 0) <= len(entries)


def test_values_change_between_the_lead_in_and_the_sample() -> None:
    """A result that is remembered by address and version, or by some values, then never fits the timed call."""
    values, seen = values_of(0, 1, 2, size=3), list[float]()

    def call() -> float:
        seen.append(float(values.shared["x"][0]))
        return 1.0

    entries = timed(baseline=call, a=lambda: 1.0)
    take(entries, values=values)
    warm_up = len(seen) % 2  # then come a lead-in and its sample, time and again
    pairs = list(zip(seen[warm_up::2], seen[warm_up + 1 :: 2], strict=True))[measure._WARM_UP_BLOCKS :]
    assert len(pairs) >= 20 and all(lead_in != sample for lead_in, sample in pairs)
    assert {number for number, _ in entries[0].kept} <= {0, 1, 2} and 1 <= len(entries[0].kept) < len(pairs)


def test_outputs_are_kept_of_calls_whose_values_have_changed_since_the_lead_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the others what was remembered is right: a call that gives back what it computed last would pass."""
    values = values_of(0, 1, 2)
    change, turns = values.change, itertools.count()
    monkeypatch.setattr(values, "change", lambda spent_s, due: next(turns) % 5 == 0 and change(spent_s, due=due))
    seen: list[float] = []

    def call() -> float:
        seen.append(float(values.shared["x"][0]))
        return float(len(seen) - 1)

    entries = timed(baseline=call, a=lambda: 1.0)
    take(entries, values=values)
    places = [int(output) for _, output in entries[0].kept]
    assert places and all(seen[place - 1] != seen[place] for place in places)
    assert all(number == seen[int(output)] for number, output in entries[0].kept)


def test_a_busy_host_does_not_make_placing_look_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it looks slow, values change before few samples, and what was remembered of the call before is right in all others."""
    now, slices_s = 0.0, iter([0.016, 0.008])
    values = values_of(1, 2)
    put = values.put

    def puts(index: int) -> None:
        nonlocal now
        now += 0.001 + next(slices_s, 0.0)
        put(index)

    monkeypatch.setattr(values, "put", puts)
    monkeypatch.setattr(trusted, "perf_counter", lambda: now)
    assert values._time_placing(torch.device("cpu")) == pytest.approx(0.001)
    assert values.current == 0
