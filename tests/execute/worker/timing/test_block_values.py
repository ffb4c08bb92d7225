import itertools
from collections.abc import Callable

import pytest
import torch

from pairbench.execute.worker import trusted
from pairbench.execute.worker.timing import measure
from pairbench.model.outcome import TimedRound
from tests.execute.worker.timing.conftest import FakeTimer, timed, values_of


@pytest.mark.parametrize("could", [True, False])
def test_long_calls_begin_on_values_that_no_call_has_seen(
    take: Callable[..., TimedRound], monkeypatch: pytest.MonkeyPatch, could: bool
) -> None:
    """The baseline comes last then, so that no other finds its outputs, and a second block on the same values shows who remembers."""
    monkeypatch.setattr(FakeTimer, "lead_in", lambda *_: 0)
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


def test_calls_with_a_lead_in_do_not_nor_do_those_of_which_one_block_alone_may_fit(
    take: Callable[..., TimedRound], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those before it would have seen the values; beside a long call each is as it is.
    entries = timed(baseline=lambda: 100.0, a=lambda: 100.0)
    take(entries, renew=lambda: pytest.fail("no call is long"))
    monkeypatch.setattr(FakeTimer, "lead_in", lambda _, call_ns: int(call_ns < 1e7))
    entries = timed(baseline=lambda: 100.0, a=lambda: 1e8)
    take(entries, renew=lambda: True)
    assert [one.first_observed is None for one in entries] == [True, False]
    # There would be no sample on the same values to compare the first one with; when all is over, a call on new ones is compared with it instead.
    monkeypatch.setattr(FakeTimer, "lead_in", lambda *_: 0)

    def begun(seconds: float) -> list[bool]:
        entries = timed(baseline=lambda: 1e8, a=lambda: 1e8)
        take(entries, seconds=seconds, renew=lambda: True)
        return [one.first_observed is not None for one in entries]

    # On a GPU a block makes each call twice, which takes 0.4 s; another is begun until five times `seconds`.
    assert begun(0.079) == [False, False] and begun(0.081) == [True, True]


@pytest.mark.parametrize(("renewed", "judged", "samples"), [(True, True, 3), (True, False, 2), (False, True, 1)])
def test_who_begins_on_new_values_takes_a_second_block_and_of_each_call_with_a_lead_in_an_output_is_kept(
    take: Callable[..., TimedRound], monkeypatch: pytest.MonkeyPatch, renewed: bool, judged: bool, samples: int
) -> None:
    """What gives back its lead-in's result is found by that alone, also where time is short and values take long to put in place."""
    monkeypatch.setattr(FakeTimer, "lead_in", lambda _, call_ns: int(call_ns < 1e7))
    monkeypatch.setattr(measure, "_BOTH_CLOCKS", 0.0)  # blocks take longer than it looked
    values = values_of(0, 1, 2, place_s=60.0, judged=judged)
    entries = timed(baseline=lambda: 1e8, a=lambda: 1.0, b=lambda: 2.0)
    found = take(entries, values=values, seconds=1e-8, renew=lambda: renewed)
    assert [len(one.kept) for one in entries[1:]] == [int(judged)] * 2
    assert len(found.throttled) == samples and values.written.get("x", 0) <= len(entries)


def test_values_change_between_the_lead_in_and_the_sample(take: Callable[..., TimedRound]) -> None:
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
    assert {number for number, _ in entries[0].kept} <= {0, 1, 2} and 2 <= len(entries[0].kept) < len(pairs)


def test_outputs_are_kept_of_calls_whose_values_have_changed_since_the_lead_in(
    take: Callable[..., TimedRound], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert len(places) >= 2 and all(seen[place - 1] != seen[place] for place in places)
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
