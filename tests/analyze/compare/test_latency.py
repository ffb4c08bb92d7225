"""Verdicts in words, and rounds as pairs: what both sides share is gone, what one side has is found, and what chance does raises no alarm."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbench.analyze.compare.attribute import percent
from pairbench.analyze.compare.effect import Effects, estimate_paired
from pairbench.analyze.compare.latency import judge_interleaved, judge_latencies, spread_groups, suspicious
from pairbench.analyze.compare.rounds import Floats, MeasuredSides
from pairbench.model.comparison import GateOutcome, Judgement, Verdict
from pairbench.model.record import CALL, Record, Series
from pairbench.stats import Interval
from tests.builders import make_run


def measured(reference: Record, current: Record) -> MeasuredSides:
    series = Series.of(current)
    assert series is not None
    return MeasuredSides(series=series, reference=(reference,), current=(current,))


def varied(slower: float = 1.0, **columns: Any) -> MeasuredSides:
    before, now = make_run(0)[0], replace(make_run(1)[0], **columns)
    rounds = tuple(slower * value for value in now.round_p50_ns or ())
    return measured(before, replace(now, round_p50_ns=rounds))


WIDE = (198_000.0, 202_000.0, 206_000.0)


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        (varied(), Verdict.SAME, "median latency the same: "),
        (varied(1.2), Verdict.SLOWER, "median latency 20.0 % slower (+19.7 % to +20.4 %)"),
        (varied(0.8), Verdict.FASTER, "median latency 20.0 % faster (-20.2 % to -19.8 %)"),
        (varied(round_p50_ns=WIDE), Verdict.UNDECIDED, "median latency +0.9 % ("),
        (
            varied(round_p50_ns=(206_000.0, 210_000.0, 214_000.0)),
            Verdict.UNDECIDED,
            "median latency +4.9 % (+2.0 % to +7.9 %): it looks changed, but chance is not ruled out (p = 0.011 among all latencies compared)",
        ),
    ],
)
def test_each_verdict_has_its_sentence(found: MeasuredSides, verdict: Verdict, words: str) -> None:
    (said,) = judge_latencies([found], {})
    assert said[CALL.p50].verdict is verdict and said[CALL.p50].reason.startswith(words)
    assert said[CALL.p95].verdict is Verdict.SAME


def test_a_latency_that_one_side_lacks_is_not_judged() -> None:
    (found,) = judge_latencies([varied(round_p95_ns=None, call_p95_ns=None)], {})
    assert set(found) == {CALL.p50}
    assert judge_latencies([], {}) == []


def test_only_one_device_and_mode_lend_each_other() -> None:
    first, second = varied(), varied()
    other = replace(first, series=replace(first.series, mode="graph"))
    assert spread_groups([first, other, second]).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("verdict", "change", "expected"),
    [
        (Verdict.UNDECIDED, Interval(1.05, 1.01, 2.1), True),
        (Verdict.UNDECIDED, Interval(1.05, 0.99, 2.1), False),
        (Verdict.UNDECIDED, Interval(1.005, 1.001, 2.01), False),
        (Verdict.UNDECIDED, None, False),
        (Verdict.SAME, Interval(1.05, 1.01, 2.1), False),
    ],
)
def test_suspicious_is_large_and_by_itself_no_chance(verdict: Verdict, change: Interval | None, expected: bool) -> None:
    undecided = Judgement(metric=CALL.p95, outcome=GateOutcome.UNDECIDED, minimum_effect=0.02, reason="")
    assert suspicious(replace(undecided, verdict=verdict, change=change)) is expected


def test_percent_has_no_negative_zero() -> None:
    assert [percent(value) for value in (1.02, 0.98, 0.99999, 1.0)] == ["+2.0 %", "-2.0 %", "0.0 %", "0.0 %"]
    assert percent(math.e) == "+171.8 %"


def effects(ratios: list[Floats], latency_ns: float = 1e5) -> Effects:
    size = len(ratios)
    return estimate_paired(ratios, np.full(size, np.log(latency_ns)), np.zeros(size, dtype=np.int64))


def of_rounds(record: Record, values: list[float]) -> Record:
    return replace(record, round_p50_ns=tuple(values), round_p95_ns=tuple(1.1 * value for value in values))


def judged(now: float, rounds: int = 5, spread: float = 0.0005) -> dict[str, Judgement]:
    """Return what is said of one series whose rounds drift far more than it changes."""
    rng = np.random.default_rng(0)
    record = make_run()[0]
    before = [2e5 * mood for mood in (1.0, 1.4, 0.8, 1.1, 2.0)[:rounds]]
    after = [value * now * float(np.exp(rng.normal(0, spread))) for value in before]
    return judge_interleaved([measured(of_rounds(record, before), of_rounds(record, after))])[0]


def test_a_change_of_2_percent_is_found_in_a_machine_that_drifts_by_half() -> None:
    found = judged(1.02)
    assert set(found) == {CALL.p50, CALL.p95}
    change = found[CALL.p50].change
    assert found[CALL.p50].verdict is Verdict.SLOWER and change is not None
    assert change.low > 1.015 and change.high < 1.025 and change.estimate == pytest.approx(1.02, abs=0.002)
    assert {item.verdict for item in judged(1.0).values()} == {Verdict.SAME}
    assert judged(0.97)[CALL.p50].verdict is Verdict.FASTER


def test_one_round_proves_nothing() -> None:
    found = judged(1.5, rounds=1)[CALL.p50]
    assert found.verdict is Verdict.UNDECIDED and found.change is None
    assert "one round" in found.reason


def test_sides_without_the_same_rounds_are_no_pairs() -> None:
    record = make_run()[0]
    with pytest.raises(ValueError, match="2 rounds against 3, expected pairs"):
        judge_interleaved([measured(of_rounds(record, [1.0, 2.0]), of_rounds(record, [1.0, 2.0, 3.0]))])
    assert judge_interleaved([]) == []


def test_a_second_measurement_lends_its_rounds() -> None:
    record = make_run()[0]
    one = measured(of_rounds(record, [1e5, 1e5]), of_rounds(record, [1.03e5, 1.031e5]))
    two = replace(one, reference=one.reference * 2, current=one.current * 2)
    widths = []
    for item in (one, two):
        change = judge_interleaved([item])[0][CALL.p50].change
        assert change is not None
        widths.append(change.high - change.low)
    assert widths[1] < widths[0] / 2


def test_rounds_that_agree_by_chance_are_not_believed_to_the_last_digit() -> None:
    found = effects([np.full(3, 0.001)])
    assert found.error[0] >= 0.0003 * np.sqrt(2 / 3)


def test_steps_of_the_clock_are_no_change_of_a_short_call() -> None:
    """A step of 32 ns is 0.8 % of 4 us."""
    found = effects([np.full(5, 0.008)] * 2, latency_ns=4e3)
    assert (found.low < 0).all() and (found.high > 0).all()


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), shift=st.floats(-0.1, 0.1))
def test_a_shift_of_all_rounds_shifts_the_interval_and_the_sides_are_alike(seed: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    ratios = [rng.normal(0.01, 0.003, 5) for _ in range(12)]
    here, there, back = (effects(made) for made in (ratios, [one + shift for one in ratios], [-one for one in ratios]))
    assert np.allclose(there.change - here.change, shift)
    assert np.allclose(there.low - here.low, shift) and np.allclose(there.error, here.error)
    assert np.allclose(here.p_value, back.p_value) and np.allclose(here.low, -back.high)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    missed = 0
    for _ in range(40):
        found = effects([rng.normal(0.01, 0.004, 4) for _ in range(60)])
        missed += int(((found.low > 0.01) | (found.high < 0.01)).sum())
    assert 0.03 < missed / (40 * 60) < 0.07


def test_the_same_code_raises_no_alarm_and_2_percent_is_caught_among_hundreds() -> None:
    """Ratios of rounds of an H200 spread by 0.3 % at 100 us: two processes that each differ by 0.2 %."""
    rng = np.random.default_rng(2)
    base = make_run()[0]
    alarms, caught = 0, 0
    for _ in range(8):
        all_measured = []
        for index in range(100):
            record = replace(base, case=f"op[n={index}]")
            before = 1e5 * np.exp(rng.normal(0, 0.1, 5))
            after = before * np.exp(rng.normal(0.0, 0.003, 5)) * (1.02 if index == 0 else 1.0)
            all_measured.append(measured(of_rounds(record, before.tolist()), of_rounds(record, after.tolist())))
        verdicts = [found[CALL.p50].verdict for found in judge_interleaved(all_measured)]
        caught += verdicts[0] is Verdict.SLOWER
        alarms += sum(verdict in (Verdict.SLOWER, Verdict.FASTER) for verdict in verdicts[1:])
    assert caught == 8
    assert alarms == 0
