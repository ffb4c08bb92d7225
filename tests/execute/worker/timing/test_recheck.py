"""Calls on values that they have never seen: what is remembered from others shows in their time."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy.stats import binom

from pairbench.execute.worker.timing import recheck
from pairbench.execute.worker.timing.measure import Timed
from pairbench.execute.worker.timing.new_values import Again
from pairbench.execute.worker.timing.rights import Rights
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry


def entry_of(name: str, mode: str = "eager", **fields: Any) -> Timed:
    return Timed(index=0, entry=Entry(implementation=name, mode=mode), run=lambda: None, **fields)


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("has_baseline", [True, False])
def test_the_baseline_is_called_last_and_the_others_are_judged_by_what_it_gave(
    monkeypatch: pytest.MonkeyPatch, has_baseline: bool, sampled: bool
) -> None:
    """While the others are called, nothing in the process is right on the new values, so none can have found it there."""
    called, given = list[Any](), list[Any]()

    def call_again(_: Any, timed: Timed, __: Any, ___: Any) -> Again:
        called.append(timed)
        return Again([str(timed.entry)], 0.0)

    def right(_: Any, __: Any, given: Any, into: list[Any] = given) -> Any:
        into.append(given)
        return SimpleNamespace(vouched=True, contradicts=lambda output: "off" if "graph" in output else None)

    monkeypatch.setattr(recheck, "call_again", call_again)
    monkeypatch.setattr(recheck, "new_values", lambda *_: [{}])
    monkeypatch.setattr(recheck, "is_suspicious", lambda *_: False)
    monkeypatch.setattr(recheck, "Right", right)
    for name in ("guarded", "attributed"):
        monkeypatch.setattr(recheck, name, lambda job, index, heartbeat, step: step())
    timed = [
        entry_of("baseline", "eager" if has_baseline else "compile"),
        entry_of("variant"),
        entry_of("variant", "graph"),
    ]
    for one in timed:
        one.call_ns = [3e7, 3e7]
        one.first_observed = str(one.entry) if sampled else None
    ready: Any = SimpleNamespace(job=None, inputs={}, device=torch.device("cpu"), values=SimpleNamespace(sets=({}, {})))
    heartbeat: Any = None
    (ended,) = recheck._recheck(ready, heartbeat, timed)
    assert ended.entry is timed[2].entry and ended.reason.startswith(
        "its timed call is wrong on fresh inputs at the same addresses: off"
    )
    last = timed[1:] + timed[:1] if has_baseline else timed
    assert [one.entry for one in called] == ([] if sampled else [one.entry for one in last])
    assert given == [str(timed[0].entry) if has_baseline else None]


@pytest.mark.parametrize("lies", ["", "after a lead-in", "after its warm-up"])
def test_where_one_remembers_those_that_began_on_new_values_are_called_in_pairs(
    monkeypatch: pytest.MonkeyPatch, lies: str
) -> None:
    """They may have found there what it computed, and so does one that is quicker than while it warmed up."""
    paired = list[str]()

    def remembers(_: Any, timed: Timed, __: Any, ___: Any) -> str | None:
        paired.append(timed.entry.implementation)
        return "remembers" if timed.entry.implementation == "with lead-in" else None

    monkeypatch.setattr(recheck, "call_again", lambda *_: Again([None], 9e6 if lies == "after a lead-in" else 1e5))
    monkeypatch.setattr(recheck, "new_values", lambda *_: [{}])
    monkeypatch.setattr(recheck, "remembers", remembers)
    monkeypatch.setattr(recheck, "Right", lambda *_, **__: SimpleNamespace(vouched=False, contradicts=lambda _: None))
    for name in ("guarded", "attributed"):
        monkeypatch.setattr(recheck, name, lambda job, index, heartbeat, step: step())
    timed = [entry_of("with lead-in", call_ns=[1e5], lead_in=1), entry_of("finds", call_ns=[1e5, 1e5])]
    timed[1].first_observed = "an output"
    timed[1].warm_up_ns = 25e6 if lies == "after its warm-up" else 1e5
    ready: Any = SimpleNamespace(job=None, inputs={}, device=torch.device("cpu"), values=SimpleNamespace(sets=({}, {})))
    heartbeat: Any = None
    ended = [str(end.entry) for end in recheck._recheck(ready, heartbeat, timed)]
    assert ended == (["with lead-in (eager)"] if lies == "after a lead-in" else [])
    assert paired == {"": [], "after a lead-in": ["with lead-in", "finds"], "after its warm-up": ["finds"]}[lies]


class Judging:
    """A case whose timed calls are judged, with what is done to them written down."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, round_index: int, *, sparing: bool = False, **call_ms: float
    ) -> None:
        self.rechecked: list[list[Any]] = []
        """The entries, each time that they were called on new values."""
        self.contradicted: list[Any] = []
        """The kept outputs of each entry that were judged."""
        monkeypatch.setattr(recheck, "_recheck", self._take)
        monkeypatch.setattr(recheck, "replaced", lambda: None)
        monkeypatch.setattr(recheck, "left_running", lambda: None)
        monkeypatch.setattr(recheck, "attributed", lambda job, index, heartbeat, step: step())
        monkeypatch.setattr(Rights, "contradict", lambda _, outputs: self.contradicted.append(outputs))
        self.timed = [entry_of(name, call_ns=[ms * 1e6]) for name, ms in call_ms.items()]
        self.values = SimpleNamespace(sets=({}, {}), spent_s=2.0)
        watch = SimpleNamespace(changed=lambda: None, changed_flags=lambda: None)
        job = SimpleNamespace(round=round_index, sparing=sparing, thorough=False, earlier_ns=())
        self.ready: Any = SimpleNamespace(watch=watch, job=job, values=self.values, inputs={}, timed=self.timed)

    def _take(self, _: Any, __: Any, entries: list[Any]) -> Iterator[Any]:
        self.rechecked.append(entries)
        return iter(())

    def judge(self, *kept: list[tuple[int, str]]) -> list[Any]:
        """Judge outputs that were kept of each entry; return those that were judged, the baseline's last."""
        self.contradicted.clear()
        for timed, outputs in zip(self.timed, kept, strict=True):
            timed.kept = list(outputs)
        heartbeat: Any = None
        assert list(recheck.judge_timed(self.ready, 0.0, heartbeat)) == []
        return list(self.contradicted)


OUTPUT = [(0, "an output")]
ROUNDS = pytest.mark.parametrize(
    ("round_index", "long", "sparing", "share"),
    [(0, True, True, 1.0), (1, False, False, 0.25), (2, True, False, 0.1), (1, False, True, 0.05)],
)


def _by_chance(share: float) -> range:
    """Return what this share of 400 comes to, but once in ten million times."""
    low, high = binom.interval(1 - 1e-7, 400, share)
    return range(int(low), int(high) + 1)


@ROUNDS
def test_calls_are_judged_on_new_values_in_the_first_round_and_by_chance_in_others(
    monkeypatch: pytest.MonkeyPatch, round_index: int, long: bool, sparing: bool, share: float
) -> None:
    case = Judging(monkeypatch, round_index, sparing=sparing, baseline=0.5, variant=1.1 if long else 0.9)
    for _ in range(400):
        case.judge([], [])
    assert all(entries == case.timed for entries in case.rechecked)
    assert len(case.rechecked) in _by_chance(share)


@pytest.mark.parametrize("round_index", [0, 1])
def test_kept_outputs_are_judged_however_long_a_call_takes(monkeypatch: pytest.MonkeyPatch, round_index: int) -> None:
    case = Judging(monkeypatch, round_index, short=0.9, long=1.1, baseline=0.5)
    assert case.judge(OUTPUT, OUTPUT, OUTPUT) == [OUTPUT] * 3


@pytest.mark.parametrize("round_index", [0, 1])
def test_of_calls_whose_first_sample_was_on_new_values_what_can_be_without_a_call_is_judged(
    monkeypatch: pytest.MonkeyPatch, round_index: int
) -> None:
    monkeypatch.setattr(recheck, "_LATER_LONG", 0.0)
    case = Judging(monkeypatch, round_index, long=25.0, baseline=25.0)
    for timed in case.timed:
        timed.first_observed, timed.call_ns = "an output", [25e6, 25e6]
    for _ in range(20):
        judged, *_ = case.judge([(0, "one"), (1, "another")], OUTPUT)
        assert judged == [(0, "one")], "the baseline gave an output for the first set alone"
        assert case.rechecked[-1] == case.timed, "that is done without a call, too"
    assert len(case.rechecked) == 20
    monkeypatch.setattr(recheck, "_SPARING", 0.0)
    case.ready.job.sparing = True
    case.judge([], [])
    assert len(case.rechecked) == 21, "nor is it spared"


def test_where_others_have_ended_all_are_called_on_new_values(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Judging(monkeypatch, 1, sparing=True, variant=25.0, baseline=25.0)
    case.ready.job.thorough = True
    for _ in range(20):
        case.judge([], [])
    assert case.rechecked == [case.timed] * 20


def test_who_became_quick_is_called_on_new_values_in_any_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first round too few calls may have fitted for it to show."""
    monkeypatch.setattr(recheck, "_SPARING", 0.0)
    case = Judging(monkeypatch, 2, sparing=True, variant=0.1, baseline=25.0)
    for timed in case.timed:
        timed.warm_up_ns = 25e6
    case.judge([], [])
    assert case.rechecked == [case.timed[:1]]


@pytest.mark.parametrize("shows", ["fresh_ns", "earlier_ns"])
def test_whose_times_show_it_is_called_on_new_values_in_any_round(monkeypatch: pytest.MonkeyPatch, shows: str) -> None:
    """In the first round the machine may have been so busy that it did not."""
    monkeypatch.setattr(recheck, "_SPARING", 0.0)
    case = Judging(monkeypatch, 2, sparing=True, variant=0.1, baseline=25.0)
    for index, timed in enumerate(case.timed):
        timed.lead_in, timed.index = 1, index
        timed.fresh_ns = [25e6] if shows == "fresh_ns" else []
    case.ready.job.earlier_ns = (25e6, 25e6) if shows == "earlier_ns" else ()
    case.judge([], [])
    assert case.rechecked == [case.timed[:1]]


@pytest.mark.parametrize(
    ("round_index", "sparing", "share"), [(0, True, 1.0), (1, False, 1.0), (1, True, 0.05 + 0.95 * 0.25)]
)
def test_kept_outputs_are_judged_in_each_round_until_judging_has_had_its_part(
    monkeypatch: pytest.MonkeyPatch, round_index: int, sparing: bool, share: float
) -> None:
    case = Judging(monkeypatch, round_index, sparing=sparing, variant=0.5, baseline=0.5)
    judged = [bool(case.judge(OUTPUT, [])) for _ in range(400)]
    assert judged.count(True) in _by_chance(share)


@ROUNDS
def test_where_what_is_right_takes_a_long_call_it_is_computed_as_often_as_calls_are_made_on_new_values(
    monkeypatch: pytest.MonkeyPatch, round_index: int, long: bool, sparing: bool, share: float
) -> None:
    monkeypatch.setattr(recheck, "_SPARING_KEPT", 1.0)
    case = Judging(monkeypatch, round_index, sparing=sparing, variant=0.5, baseline=1.1 if long else 0.9)
    judged = [case.judge(OUTPUT, [])[0] for _ in range(400)]
    assert judged.count(OUTPUT) in (_by_chance(share) if long else (400,))
    at_hand = [case.judge([*OUTPUT, (1, "another")], OUTPUT)[0] for _ in range(40)]
    assert all(OUTPUT[0] in kept for kept in at_hand)  # the baseline gave it for the first set


@pytest.mark.parametrize("agree", [True, False])
def test_a_timed_call_that_gave_a_wrong_output_is_ended(monkeypatch: pytest.MonkeyPatch, agree: bool) -> None:
    """Others are judged by what was kept of the baseline, and the baseline itself only where nobody agrees with it."""
    judged = list[str]()

    class Right:
        def __init__(self, _: Any, __: Any, *, alone: bool, given: str | None) -> None:
            assert alone
            self.is_at_hand, self.vouched = given is not None, False

        def contradicts(self, output: str) -> str | None:
            assert self.is_at_hand
            judged.append(output)
            self.vouched |= agree and output == "right"
            return "output differs" if output == "wrong" else None

    monkeypatch.setattr(recheck, "Right", Right)
    monkeypatch.setattr(recheck, "attributed", lambda job, index, heartbeat, step: step())
    names = {"baseline": "of the baseline", "honest": "right", "liar": "wrong"}
    timed = [entry_of(name, call_ns=[1e4], kept=[(1, given)]) for name, given in names.items()]
    ready: Any = SimpleNamespace(job=None, inputs={}, timed=timed, values=SimpleNamespace(sets=({}, {})))
    heartbeat: Any = None
    (ended,) = recheck._judge_kept(ready, 0.0, heartbeat, thorough=True)
    assert str(ended.entry) == "liar (eager)" and ended.status == Status.MISMATCHED
    assert ended.reason.startswith("a timed call gave a wrong output: output differs")
    assert judged == ["right", "wrong", *([] if agree else ["of the baseline"])]
