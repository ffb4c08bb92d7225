"""Verdicts in words."""

import math
from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.compare.attribute import percent
from pairbench.analyze.compare.latency import judge_latencies, spread_groups, suspicious
from pairbench.analyze.compare.rounds import MeasuredSides
from pairbench.model.comparison import GateOutcome, Judgement, Verdict
from pairbench.model.latency import CALL
from pairbench.model.record import Series
from pairbench.stats import Interval
from tests.builders import make_run


def measured(slower: float = 1.0, **columns: Any) -> MeasuredSides:
    before, now = make_run(0)[0], replace(make_run(1)[0], **columns)
    series = Series.of(now)
    assert series is not None
    rounds = tuple(slower * value for value in now.round_p50_ns or ())
    return MeasuredSides(series=series, reference=(before,), current=(replace(now, round_p50_ns=rounds),))


WIDE = (198_000.0, 202_000.0, 206_000.0)


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        (measured(), Verdict.SAME, "median latency the same: "),
        (measured(1.2), Verdict.SLOWER, "median latency 20.0 % slower (+19.7 % to +20.4 %)"),
        (measured(0.8), Verdict.FASTER, "median latency 20.0 % faster (-20.2 % to -19.8 %)"),
        (measured(round_p50_ns=WIDE), Verdict.UNDECIDED, "median latency +0.9 % ("),
        (
            measured(round_p50_ns=(206_000.0, 210_000.0, 214_000.0)),
            Verdict.UNDECIDED,
            (
                "median latency +4.9 % (+2.0 % to +7.9 %): it looks changed, but chance is not ruled out (p = 0.011 among all "
                "latencies compared)"
            ),
        ),
    ],
)
def test_each_verdict_has_its_sentence(found: MeasuredSides, verdict: Verdict, words: str) -> None:
    (said,) = judge_latencies([found], {})
    assert said[CALL.p50].verdict is verdict and said[CALL.p50].reason.startswith(words)
    assert said[CALL.p95].verdict is Verdict.SAME


def test_a_latency_that_one_side_lacks_is_not_judged() -> None:
    (found,) = judge_latencies([measured(round_p95_ns=None, call_p95_ns=None)], {})
    assert set(found) == {CALL.p50}
    assert judge_latencies([], {}) == []


def test_only_one_device_and_mode_lend_each_other() -> None:
    first, second = measured(), measured()
    other = replace(first, series=replace(first.series, mode="graph"))
    assert spread_groups([first, other, second]).tolist() == [0, 1, 0]


def judged(verdict: Verdict, estimate: float, low: float) -> Judgement:
    return Judgement(
        metric=CALL.p95,
        outcome=GateOutcome.UNDECIDED,
        verdict=verdict,
        change=Interval(estimate, low, 2 * estimate),
        minimum_effect=0.02,
        reason="",
    )


@pytest.mark.parametrize(
    ("judgement", "expected"),
    [
        (judged(Verdict.UNDECIDED, 1.05, 1.01), True),
        (judged(Verdict.UNDECIDED, 1.05, 0.99), False),
        (judged(Verdict.UNDECIDED, 1.005, 1.001), False),
        (judged(Verdict.SAME, 1.05, 1.01), False),
        (replace(judged(Verdict.UNDECIDED, 1.05, 1.01), change=None), False),
    ],
)
def test_suspicious_is_large_and_by_itself_no_chance(judgement: Judgement, expected: bool) -> None:
    assert suspicious(judgement) is expected


def test_percent_has_no_negative_zero() -> None:
    assert [percent(value) for value in (1.02, 0.98, 0.99999, 1.0)] == ["+2.0 %", "-2.0 %", "0.0 %", "0.0 %"]
    assert percent(math.e) == "+171.8 %"
