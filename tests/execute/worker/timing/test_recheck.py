"""Calls on values that they have never seen: what is remembered from others shows in their time."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pairbench.execute.worker.timing import recheck
from pairbench.execute.worker.timing.new_values import Again
from pairbench.execute.worker.timing.rights import Rights
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry


@pytest.mark.parametrize("has_baseline", [True, False])
def test_the_baseline_is_called_last_and_the_others_are_judged_by_what_it_gave(
    monkeypatch: pytest.MonkeyPatch, has_baseline: bool
) -> None:
    """While the others are called, nothing in the process is right on the new values, so none can have found it there."""
    called, given = list[Any](), list[Any]()

    def call_again(_: Any, timed: Any, __: Any, ___: Any) -> Again:
        called.append(timed)
        return Again([timed], 0.0)

    def right(_: Any, __: Any, given: Any, into: list[Any] = given) -> Any:
        into.append(given)
        return SimpleNamespace(vouched=True, contradicts=lambda outputs: "off" if outputs is timed[2] else None)

    monkeypatch.setattr(recheck, "call_again", call_again)
    monkeypatch.setattr(recheck, "new_values", lambda *_: [{}])
    monkeypatch.setattr(recheck, "is_suspicious", lambda *_: False)
    monkeypatch.setattr(recheck, "Right", right)
    for name in ("guarded", "attributed"):
        monkeypatch.setattr(recheck, name, lambda job, index, heartbeat, step: step())
    entries = [
        Entry(implementation="baseline", mode="eager" if has_baseline else "graph"),
        Entry(implementation="variant", mode="eager"),
        Entry(implementation="variant", mode="graph"),
    ]
    timed = [SimpleNamespace(entry=one, index=0) for one in entries]
    ready: Any = SimpleNamespace(job=None, inputs={}, device=torch.device("cpu"), values=SimpleNamespace(sets=({}, {})))
    heartbeat: Any = None
    chosen: Any = timed
    (ended,) = recheck._recheck(ready, heartbeat, chosen)
    assert ended.entry is entries[2] and ended.reason.startswith(
        "its timed call is wrong on fresh inputs at the same addresses: off"
    )
    assert called == (timed[1:] + timed[:1] if has_baseline else timed)
    assert given == [timed[0] if has_baseline else None]


@pytest.mark.parametrize(("round_index", "share"), [(0, 1.0), (1, 0.25), (2, 0.25)])
def test_calls_are_judged_on_new_values_in_the_first_round_and_by_chance_in_others(
    monkeypatch: pytest.MonkeyPatch, round_index: int, share: float
) -> None:
    rechecked: list[list[str]] = []

    def take(_: Any, __: Any, entries: list[Any]) -> Iterator[Any]:
        rechecked.append(entries)
        return iter(())

    monkeypatch.setattr(recheck, "_recheck", take)
    monkeypatch.setattr(recheck, "replaced", lambda: None)
    monkeypatch.setattr(recheck, "left_running", lambda: None)
    monkeypatch.setattr(recheck, "attributed", lambda job, index, heartbeat, step: step())
    contradicted: list[Any] = []
    monkeypatch.setattr(Rights, "contradict", lambda _, outputs: contradicted.append(outputs))
    values = SimpleNamespace(sets=({}, {}), spent_s=2.0)
    baseline, short, long = (
        SimpleNamespace(entry=Entry(implementation=name, mode="eager"), index=0, call_ns=[ns], kept=[])
        for name, ns in (("baseline", 0.5e6), ("short", 0.9e6), ("long", 1.1e6))
    )
    watch = SimpleNamespace(changed=lambda: None, changed_flags=lambda: None)
    job = SimpleNamespace(round=round_index)
    ready: Any = SimpleNamespace(watch=watch, job=job, values=values, inputs={}, timed=[short, long, baseline])
    heartbeat: Any = None
    for _ in range(400):
        short.kept, long.kept = [(0, "short")], [(0, "long")]
        assert list(recheck.judge_timed(ready, 0.0, heartbeat)) == []
    assert all(entries == [short, long, baseline] for entries in rechecked)
    assert len(rechecked) == pytest.approx(400 * share, abs=50 if share < 1 else 0)
    assert contradicted == [[(0, "short")], [], []] * 400  # of long calls, one on new values is judged instead
    contradicted.clear()
    baseline.call_ns = [1.1e6]
    for _ in range(400):
        short.kept = [(0, "short")]
        list(recheck.judge_timed(ready, 0.0, heartbeat))
    # What is right takes a long call.
    assert contradicted[::3].count([(0, "short")]) == pytest.approx(400 * share, abs=50 if share < 1 else 0)
    contradicted.clear()
    baseline.kept = [(0, "baseline")]
    for _ in range(100):
        short.kept, baseline.kept = [(0, "short"), (1, "short")], [(0, "baseline")]
        list(recheck.judge_timed(ready, 0.0, heartbeat))
    # It is at hand for one of the sets.
    assert all((0, "short") in kept for kept in contradicted[::3])
    contradicted.clear()
    values.sets, short.kept, long.kept = ({},), [(0, "short")], [(0, "long")]
    list(recheck.judge_timed(ready, 0.0, heartbeat))
    assert contradicted == [[(0, "short")], [(0, "long")], []]  # unless none can be compared


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
    timed = [
        SimpleNamespace(entry=Entry(implementation=name, mode="eager"), index=0, call_ns=[1e4], kept=[(1, given)])
        for name, given in names.items()
    ]
    ready: Any = SimpleNamespace(job=None, inputs={}, timed=timed, values=SimpleNamespace(sets=({}, {})))
    heartbeat: Any = None
    (ended,) = recheck._judge_kept(ready, 0.0, heartbeat, thorough=True)
    assert str(ended.entry) == "liar (eager)" and ended.status == Status.MISMATCHED
    assert ended.reason.startswith("a timed call gave a wrong output: output differs")
    assert judged == ["right", "wrong", *([] if agree else ["of the baseline"])]
