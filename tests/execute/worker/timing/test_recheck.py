from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from scipy.stats import binom

from pairbench.execute.protocol import Answer
from pairbench.execute.worker.graphs import Replay
from pairbench.execute.worker.judge.elsewhere import Again, Elsewhere
from pairbench.execute.worker.timing import new_values, recheck
from pairbench.execute.worker.timing.measure import Timed
from pairbench.execute.worker.timing.recheck import Rights
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry
from tests.execute.made import declare, entry


def entry_of(name: str, mode: str = "eager", **fields: Any) -> Timed:
    return Timed(index=0, entry=entry(name, mode), run=lambda: None, **fields)


@pytest.fixture(autouse=True)
def _steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("guarded", "attributed"):
        monkeypatch.setattr(recheck, name, lambda job, index, heartbeat, step: step())


def case_of(timed: list[Timed]) -> Any:
    """Return a case with two sets of values, and no job."""
    values = SimpleNamespace(sets=({}, {}))
    return SimpleNamespace(job=None, inputs={}, device=torch.device("cpu"), values=values, timed=timed)


NOBODY: Any = None
"""The heartbeat of steps that run alone."""


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("has_baseline", [True, False])
def test_the_baseline_is_called_last_and_the_others_are_judged_by_what_it_gave(
    monkeypatch: pytest.MonkeyPatch, has_baseline: bool, sampled: bool
) -> None:
    """While the others are called, nothing in the process is right on the new values, so none can have found it there."""
    called, given = list[Any](), list[Any]()

    def call_again(_: Any, timed: Timed, *__: Any) -> Again:
        called.append(timed)
        return Again(str(timed.entry), 0.0)

    def right(_: Any, __: Any, given: Any, into: list[Any] = given) -> Any:
        into.append(given)
        return SimpleNamespace(vouched=True, contradicts=lambda output: "off" if "graph" in output else None)

    monkeypatch.setattr(recheck, "call_again", call_again)
    monkeypatch.setattr(recheck, "new_values", lambda *_: {})
    monkeypatch.setattr(recheck, "is_suspicious", lambda *_: False)
    monkeypatch.setattr(recheck, "Right", right)
    modes = {"baseline": "eager" if has_baseline else "compile", "variant": "eager", "captured": "graph"}
    timed = [entry_of(name, mode, call_ns=[3e7, 3e7]) for name, mode in modes.items()]
    for one in timed:
        one.first_observed = str(one.entry) if sampled else None
    (ended,) = recheck._recheck(case_of(timed), NOBODY, timed)
    wrong = "its timed call is wrong on fresh inputs at the same addresses: off"
    assert ended.entry is timed[2].entry and ended.reason.startswith(wrong)
    last = timed[1:] + timed[:1] if has_baseline else timed
    assert called == ([] if sampled else last)
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

    monkeypatch.setattr(recheck, "call_again", lambda *_: Again(None, 9e6 if lies == "after a lead-in" else 1e5))
    monkeypatch.setattr(recheck, "new_values", lambda *_: {})
    monkeypatch.setattr(recheck, "remembers", remembers)
    monkeypatch.setattr(recheck, "Right", lambda *_, **__: SimpleNamespace(vouched=False, contradicts=lambda _: None))
    timed = [entry_of("with lead-in", call_ns=[1e5], lead_in=1), entry_of("finds", call_ns=[1e5, 1e5])]
    timed[1].first_observed = "an output"
    timed[1].warm_up_ns = 25e6 if lies == "after its warm-up" else 1e5
    ended = [str(end.entry) for end in recheck._recheck(case_of(timed), NOBODY, timed)]
    assert ended == (["with lead-in (eager)"] if lies == "after a lead-in" else [])
    assert paired == {"": [], "after a lead-in": ["with lead-in", "finds"], "after its warm-up": ["finds"]}[lies]


class Judging:
    """A case whose timed calls are judged, and which notes each step that the judge takes."""

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
        monkeypatch.setattr(Rights, "contradict", lambda _, outputs: self.contradicted.append(outputs))
        self.timed = [entry_of(name, call_ns=[ms * 1e6]) for name, ms in call_ms.items()]
        self.values = SimpleNamespace(sets=({}, {}), spent_s=2.0)
        watch = SimpleNamespace(changed=lambda: None, changed_flags=lambda: None)
        job = SimpleNamespace(round=round_index, sparing=sparing, thorough=False, earlier_ns=())
        self.ready: Any = SimpleNamespace(
            watch=watch, job=job, values=self.values, inputs={}, timed=self.timed, replays={}, captures=lambda _: 0
        )

    def _take(self, _: Any, __: Any, entries: list[Any]) -> Iterator[Any]:
        self.rechecked.append(entries)
        return iter(())

    def judge(self, *kept: list[tuple[int, str]]) -> list[Any]:
        """Judge outputs that were kept of each entry; return those that were judged, the baseline's last."""
        self.contradicted.clear()
        for timed, outputs in zip(self.timed, kept, strict=True):
            timed.kept = list(outputs)
        assert list(recheck.judge_timed(self.ready, 0.0, NOBODY)) == []
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
    """Kept outputs are judged in each round until judging has had its part."""
    case = Judging(monkeypatch, round_index, sparing=sparing, baseline=0.5, variant=1.1 if long else 0.9)
    judged = [bool(case.judge(OUTPUT, [])) for _ in range(400)]
    assert all(entries == case.timed for entries in case.rechecked)
    assert len(case.rechecked) in _by_chance(share)
    assert judged.count(True) in _by_chance(share + (1 - share) * 0.25 if sparing else 1.0)


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


@pytest.mark.parametrize("shows", ["warm_up_ns", "fresh_ns", "earlier_ns"])
def test_whose_times_show_it_is_called_on_new_values_in_any_round(monkeypatch: pytest.MonkeyPatch, shows: str) -> None:
    """In the first round too few calls may have fitted, or the machine may have been so busy that it did not show."""
    monkeypatch.setattr(recheck, "_SPARING", 0.0)
    case = Judging(monkeypatch, 2, sparing=True, variant=0.1, baseline=25.0)
    for index, timed in enumerate(case.timed):
        timed.lead_in, timed.index = int(shows != "warm_up_ns"), index
        timed.warm_up_ns = 25e6 if shows == "warm_up_ns" else timed.warm_up_ns
        timed.fresh_ns = [25e6] if shows == "fresh_ns" else []
    case.ready.job.earlier_ns = (25e6, 25e6) if shows == "earlier_ns" else ()
    case.judge([], [])
    assert case.rechecked == [case.timed[:1]]


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
    names = {"baseline": "of the baseline", "honest": "right", "liar": "wrong"}
    timed = [entry_of(name, call_ns=[1e4], kept=[(1, given)]) for name, given in names.items()]
    (ended,) = recheck._judge_kept(case_of(timed), 0.0, NOBODY, thorough=True)
    assert str(ended.entry) == "liar (eager)" and ended.status == Status.MISMATCHED
    assert ended.reason.startswith("a timed call gave a wrong output: output differs")
    assert judged == ["right", "wrong", *([] if agree else ["of the baseline"])]


class Replayed:
    """A case on a GPU that is not there: what graphs write lies in the host's memory, and what a replay computes is said by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sets: int = 3, **computes: list[Any]) -> None:
        """Capture calls; `computes` says by entry what each of its captures computes, given its input and its output."""
        self.x = torch.zeros(4)
        self.owned = set[int]()
        """Addresses of tensors that belong to graphs."""
        self.seen = list[tuple[str, float]]()
        """The entries that were replayed, and the first value of their input."""
        monkeypatch.setattr(
            recheck, "memory_of_graphs", lambda: lambda tensor: tensor.untyped_storage().data_ptr() in self.owned
        )
        monkeypatch.setattr(new_values, "build_inputs", lambda *_, like: {"x": torch.full((4,), 77.0)})
        self.timed = [entry_of(name, call_ns=[1e4]) for name in computes]
        operator = declare()
        calls: dict[Entry, Any] = {
            timed.entry: SimpleNamespace(refill=lambda _: True, observed=lambda outputs: outputs)
            for timed in self.timed
        }
        replays = {
            timed.entry: SimpleNamespace(replays=tuple(self._capture(name, one) for one in captures))
            for timed, (name, captures) in zip(self.timed, computes.items(), strict=True)
        }
        values = [{"x": torch.full((4,), float(number))} for number in range(sets)]
        self.ready: Any = SimpleNamespace(
            operator=operator,
            job=SimpleNamespace(case=operator.cases[0]),
            device=torch.device("cpu"),
            inputs={"x": self.x},
            inputs_s=0.0,
            calls=calls,
            replays=replays,
            timed=self.timed,
            values=SimpleNamespace(sets=values, current=1),
            captures=lambda timed: len(replays[timed.entry].replays),
        )

    def _capture(self, name: str, computes: Any) -> Replay:
        # The first output of a capture is in its memory, unless the capture says where it is.
        outputs = getattr(computes, "outputs", None)
        if outputs is None:
            outputs = torch.zeros(4)
            self.owned.add(outputs.untyped_storage().data_ptr())

        def replay() -> None:
            self.seen.append((name, float(self.x[0])))
            computes(self.x, outputs)

        graph: Any = SimpleNamespace(replay=replay)
        return Replay(lambda: None, graph, outputs)

    def judge(self, *, thorough: bool = True) -> dict[str, str]:
        """Return why entries end."""
        ends = recheck._judge_replays(self.ready, NOBODY, set(), thorough=thorough)
        return {end.entry.implementation: end.reason for end in ends if end.entry}


def right(x: torch.Tensor, outputs: torch.Tensor) -> None:
    torch.add(x, 1, out=outputs)


def less(x: torch.Tensor, outputs: torch.Tensor) -> None:
    outputs[:1] = x[:1] + 1


def stale(_: torch.Tensor, outputs: torch.Tensor) -> None:
    outputs.fill_(1.0)


@pytest.mark.parametrize("lie", [less, stale])
@pytest.mark.parametrize("place", [0, 1, 6])
@pytest.mark.parametrize("thorough", [True, False])
def test_each_capture_of_each_entry_is_judged(
    monkeypatch: pytest.MonkeyPatch, lie: Any, place: int, thorough: bool
) -> None:
    captures = [right] * 7
    captures[place] = lie
    case = Replayed(monkeypatch, baseline=[right] * 7, liar=captures, honest=[right] * 7)
    ended = case.judge(thorough=thorough)
    assert list(ended) == ["liar"]
    assert ended["liar"].startswith("a replay of its captured call computes something else: output ")
    replayed = [name for name, _ in case.seen]
    assert replayed.count("honest") == 7 and replayed.count("liar") == place + 1
    assert replayed.count("baseline") in (7, 8), "one that others vouch for is judged by them"


def test_replays_have_values_that_no_call_has_seen_wherever_there_is_time_to_make_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A graph that copies what the last call computed has the right answer for that call's values."""
    case = Replayed(monkeypatch, sets=4, baseline=[right])
    for thorough, inputs_s, seen in ((False, 0.0, {77.0}), (False, 0.2, set()), (True, 0.2, {77.0})):
        case.ready.inputs_s = inputs_s
        case.seen.clear()
        case.judge(thorough=thorough)
        assert {value for _, value in case.seen} == seen


def test_a_baseline_is_judged_itself_where_no_other_agrees_and_outputs_outside_of_the_graphs_memory_are_not_poisoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Replayed(monkeypatch, baseline=[stale], honest=[right])
    assert list(case.judge()) == ["baseline"]
    assert list(Replayed(monkeypatch, baseline=[right, stale]).judge()) == ["baseline"]
    assert list(Replayed(monkeypatch, baseline=[right, stale], honest=[right]).judge()) == ["baseline"]
    assert list(Replayed(monkeypatch, baseline=[right, right], liar=[stale]).judge()) == ["liar"]
    # A buffer of the variant's own may hold what no call writes again; two captures may write to the same one.
    own = torch.tensor([78.0, 0.0, 0.0, 78.0])

    def middle(x: torch.Tensor, outputs: torch.Tensor) -> None:
        outputs[1:3] = x[1:3] + 1

    def nothing(_: torch.Tensor, __: torch.Tensor) -> None:
        pass

    middle.outputs, nothing.outputs = own, own  # type: ignore[attr-defined]
    assert Replayed(monkeypatch, baseline=[right], keeps=[middle]).judge() == {}
    own[1:3] = 5.0
    assert list(Replayed(monkeypatch, baseline=[right], lies=[nothing, middle]).judge()) == ["lies"]


def test_state_is_put_back_before_each_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the second replay would begin with what the first one left."""
    case = Replayed(monkeypatch, baseline=[right], counts=[right] * 3)
    state, put = torch.zeros(1), list[int]()
    entry = case.timed[1].entry
    object.__setattr__(case.ready.operator, "state", ("seen",))
    case.ready.calls[entry] = SimpleNamespace(
        refill=lambda _: put.append(1), observed=lambda outputs: {"output": outputs, "state": state}
    )
    case.ready.calls[case.timed[0].entry].observed = lambda outputs: {"output": outputs, "state": torch.zeros(1)}
    assert case.judge() == {} and len(put) == 3


def test_the_worker_replays_the_next_entry_while_outputs_are_judged() -> None:
    """An answer that nobody waits for is taken in the end, else the judge would take it for its next job."""
    timed, line = [Timed(index=at, entry=entry("a"), run=print) for at in (0, 1)], MagicMock()
    line.ask.return_value = line.answered.return_value = Answer(described="[]")
    case = Elsewhere(NOBODY, declare(lambda x: x), torch.device("cpu"), line)
    case._captures = {0: 1, 1: 2}
    assert (case.replayed(timed[0], 7, timed[1]), case.replayed(timed[1], 7)) == ([{}], [{}, {}])
    case.replayed(timed[0], 7, timed[1])
    assert case.take_ahead() is not None and case.take_ahead() is None
    assert [name for name, *_ in line.method_calls] == ["ask", "send", "answered"] * 2
