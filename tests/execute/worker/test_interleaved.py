import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pairbench import Operator
from pairbench.execute.protocol import CloseCase, Ended, Heartbeat, OpenCase, Opened, TakeBlock, TakenBlock
from pairbench.execute.worker.stages import InterleavedCases
from pairbench.model.outcome import Status, TimedRound
from tests.execute.made import CONFIG, VARIANT, declare, job_of


def opening(operator: Operator) -> OpenCase:
    opened: OpenCase = job_of(OpenCase, operator, round=0, capturable=())
    return opened


@pytest.fixture
def turns(heartbeat: Heartbeat) -> Iterator[InterleavedCases]:
    made = InterleavedCases(CONFIG, heartbeat)
    yield made
    made._drop()


TAKE = TakeBlock(lead_in=(1, 1))


def test_a_turn_is_one_sample_of_each_behind_the_lead_in_that_is_asked_for(turns: InterleavedCases) -> None:
    calls: list[int] = []
    operator = declare(lambda x: calls.append(1) or x + 1)  # type: ignore[func-returns-value]
    assert list(turns.open(opening(operator), operator)) == [Opened(lead_in=(1, 1))]
    assert not gc.isenabled()
    latencies, made = [], []
    for lead_in in (1, 1, 4):
        before = len(calls)
        (turn,) = turns.take(TakeBlock(lead_in=(0, lead_in)))
        assert isinstance(turn, TakenBlock) and turn.throttled == 0
        latencies.append(turn.call_ns)
        made.append(len(calls) - before)
    assert made == [2, 2, 5]
    (timed,) = turns.close(CloseCase(stop_reason="precise"))
    assert isinstance(timed, TimedRound) and timed.stop_reason == "precise"
    assert [samples.call_ns for samples in timed.entries] == list(zip(*latencies, strict=True))
    assert gc.isenabled()


def test_what_fails_in_its_turn_or_as_it_gets_ready_is_named(turns: InterleavedCases) -> None:
    tired: list[bool] = []

    def tires(x: Any) -> Any:
        if tired:
            raise ValueError("tired")
        return x + 1

    operator = declare(tires)
    list(turns.open(opening(operator), operator))
    tired.append(True)
    (ended,) = turns.take(TAKE)
    assert ended.entry == VARIANT and ended.status is Status.FAILED
    assert "ValueError: tired, while being timed" in ended.reason
    (ended,) = turns.open(opening(operator), operator)
    assert isinstance(ended, Ended) and ended.entry == VARIANT
    with pytest.raises(RuntimeError, match="no case is open"):
        list(turns.take(TAKE))


def test_what_is_wrong_on_fresh_inputs_is_named_and_the_round_comes(turns: InterleavedCases) -> None:
    kept = dict[int, Any]()
    operator = declare(lambda x: kept.setdefault(0, x + 1))
    for _ in range(2):  # to open again is to start anew
        list(turns.open(opening(operator), operator))
        list(turns.take(TAKE))
    ended, timed = turns.close(CloseCase(stop_reason="time_cap"))
    assert ended.status is Status.MISMATCHED and isinstance(timed, TimedRound) and len(timed.throttled) == 1


def test_time_adds_up_over_turns(heartbeat: Heartbeat) -> None:
    """An entry has one allowance for the stage, however many jobs that is."""
    heartbeat.begin_job(1.0)  # enough to open a case on a busy machine
    made = InterleavedCases(CONFIG, heartbeat)
    operator = declare(lambda x: time.sleep(0.05) or x + 1)  # type: ignore[func-returns-value]
    list(made.open(opening(operator), operator))
    results: list[Any] = []
    while not results or isinstance(results[-1], TakenBlock):
        heartbeat.rest()
        heartbeat.go_on()
        results += made.take(TAKE)
        assert len(results) < 1000
    assert isinstance(results[-1], Ended) and results[-1].status is Status.TIMEOUT
    made._drop()
