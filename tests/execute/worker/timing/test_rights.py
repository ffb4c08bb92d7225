from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pairbench.execute.worker import trusted
from pairbench.execute.worker.timing import recheck
from pairbench.execute.worker.timing.recheck import Right, Rights
from pairbench.execute.worker.verify.case import oracle_or_why
from pairbench.model.case import Tolerance


class FakeRight:
    """What is right for one set: what judges is told its number, and it is at hand once something was judged."""

    def __init__(self, number: int, contradicts: Any, at_hand: bool) -> None:
        self._number = number
        self._contradicts = contradicts
        self.is_at_hand = at_hand

    def contradicts(self, outputs: Any) -> Any:
        self.is_at_hand = True
        return self._contradicts(self._number, outputs)


def rights_by(contradicts: Any, count: int = 3, at_hand: tuple[int, ...] = (), **named: float) -> Rights:
    sets: Any = [FakeRight(number, contradicts, number in at_hand) for number in range(count)]
    return Rights(sets, **{"more_s": 0.0, **named})


@pytest.mark.parametrize(("seconds", "judged"), [(0.0, 5), (0.003, 2), (1.0, 1)])
def test_outputs_are_judged_in_an_order_that_nobody_knows_and_one_at_least(
    monkeypatch: pytest.MonkeyPatch, seconds: float, judged: int
) -> None:
    now, seen = 0.0, list[tuple[int, str]]()

    def contradicts(number: int, outputs: str) -> str | None:
        nonlocal now
        now += seconds
        seen.append((number, outputs))
        return "wrong" if outputs == "bad" else None

    monkeypatch.setattr(trusted, "perf_counter", lambda: now)
    outputs = [(number % 3, str(number)) for number in range(5)]
    orders = set()
    for _ in range(40):
        of_case = rights_by(contradicts, more_s=0.005)
        assert of_case.contradict([]) is None
        seen.clear()
        assert of_case.contradict(outputs) is None
        assert len(seen) == judged and all(number == int(name) % 3 for number, name in seen)
        orders.add(tuple(seen))
    assert len(orders) > 3
    assert of_case.contradict([(0, "bad")]) == "wrong"


def test_behind_the_first_output_come_those_of_any_set() -> None:
    """Else a call that remembers what is right of the preferred set would be judged on that alone, where time is short."""
    of, seconds = list[int](), list[bool]()
    for _ in range(1000):
        of.clear()
        of_case = rights_by(lambda number, _: of.append(number), 2, more_s=10.0)
        of_case.contradict([(number, number) for number in (0, 0, 0, 1, 1, 1)])
        seconds.append(of[0] == of[1])
    # Two of five where the first drawn is of the preferred set, and none where it is not, for it comes next.
    assert sum(seconds) == pytest.approx(200, abs=75)  # six times the spread


def test_of_all_entries_outputs_of_one_set_are_judged_first_one_that_the_baseline_gave() -> None:
    # What is right is computed once for them all; which set that is, is drawn.
    of, asked = list[int](), set[int]()
    for _ in range(40):
        of_case = rights_by(lambda number, _: of.append(number))
        for _entry in range(4):
            of_case.contradict([(number, number) for number in (0, 1, 2, 0)])
        assert len(set(of)) == 1 and len(of) == 4
        asked.add(of[0])
        of.clear()
    assert asked == {0, 1, 2}
    of = list[int]()
    outputs = [(number, number) for number in (0, 1, 2)]
    for _ in range(40):
        rights_by(lambda number, _: of.append(number), at_hand=(0, 2)).contradict(outputs)
    assert set(of) == {0, 2} and len(of) == 40


def test_of_a_slow_baseline_nothing_is_computed_that_there_is_no_time_for() -> None:
    """Outputs of the set whose right answers are known are judged all the same."""
    of = list[int]()
    outputs = [(number, number) for number in (0, 0, 1, 1, 2, 2)]
    for right_s, judged in ((60.0, 2), (0.0, 6)):
        of.clear()
        rights_by(lambda number, _: of.append(number), more_s=30.0, right_s=right_s).contradict(outputs)
        assert len(of) == judged and len(set(of)) == judged // 2


class Baseline:
    """A baseline that returns its input, and counts its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        monkeypatch.setattr(recheck, "make_call", lambda operator, baseline, mode, inputs: self._call(inputs))
        monkeypatch.setattr(recheck, "oracle_or_why", lambda operator, inputs, needed: (None, "there is none"))
        operator = SimpleNamespace(
            baseline=None, state=(), tolerance_for=lambda dtype, path: Tolerance(rtol=0.1, atol=0.0)
        )
        self.ready: Any = SimpleNamespace(operator=operator)

    def _call(self, inputs: dict[str, Any]) -> Any:
        self.calls += 1
        return SimpleNamespace(observe=lambda: inputs["x"])


X, OTHER = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])


def test_what_the_baseline_gave_is_right_where_others_agree_and_else_computed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    baseline = Baseline(monkeypatch)
    right = Right(baseline.ready, {"x": X}, given=X)
    assert not right.vouched  # alone, it does not vouch for itself
    assert right.contradicts(X * 1.05) is None
    assert right.vouched and baseline.calls == 0
    baseline = Baseline(monkeypatch)
    right = Right(baseline.ready, {"x": X}, given=OTHER)  # the baseline's timed call was wrong
    assert right.contradicts(X) is None
    assert not right.vouched and "is 3 instead of 2" in str(right.contradicts(OTHER))
    right = Right(baseline.ready, {"x": X}, given=X)
    assert "is 3 instead of 2" in str(right.contradicts(OTHER))
    assert baseline.calls == 2  # once for each
    right = Right(baseline.ready, {"x": X})
    assert [right.contradicts(X) for _ in range(3)] == [None] * 3
    assert baseline.calls == 3 and not right.vouched, "without outputs of the baseline it is computed once"


def test_a_stray_is_let_through_by_the_oracle_without_another_call_of_the_baseline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    baseline = Baseline(monkeypatch)
    truth, stray = torch.ones(20_000, dtype=torch.float64), torch.ones(20_000)
    monkeypatch.setattr(recheck, "oracle_or_why", lambda operator, inputs, needed: (truth, None))
    stray[5] = 1.2  # beyond the tolerance to the variant, and right by the truth within the baseline's own error
    right = Right(baseline.ready, {"x": stray}, given=stray)
    assert right.contradicts(torch.ones(20_000)) is None
    assert right.vouched and baseline.calls == 0


def test_a_stray_that_the_oracle_lacks_memory_for_is_charged_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    baseline = Baseline(monkeypatch)

    def lacks(operator: Any, inputs: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(recheck, "oracle_or_why", oracle_or_why)
    monkeypatch.setattr("pairbench.execute.worker.verify.case.oracle_outputs", lacks)
    baseline.ready.operator.draws = None
    right = Right(baseline.ready, {"x": X}, given=X)
    assert right.contradicts(X) is None
    with pytest.raises(torch.OutOfMemoryError):
        right.contradicts(OTHER)


def test_who_is_within_the_tolerance_is_right_however_near_the_baseline_is_to_the_truth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is not compared element by element in one go, as NaN is not, is judged in full, and the oracle is asked."""
    baseline = Baseline(monkeypatch)
    exact = torch.tensor([1.0, torch.nan])
    monkeypatch.setattr(recheck, "oracle_or_why", lambda operator, inputs, needed: (exact.double(), None))
    right = Right(baseline.ready, {"x": exact})
    assert right.contradicts(exact * 1.05) is None  # thousands of times further off the truth than the baseline
    assert "is 1.2 instead of 1" in str(right.contradicts(exact * 1.2))
