"""From records to levels: rounds where there are any, one number where there is none, and variants relative to their baselines."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairbench.analyze.compare.rounds import (
    MeasuredSides,
    collect,
    damage,
    log_rounds,
    mean_log,
    relative_to_baselines,
)
from pairbench.analyze.compare.runs import compare
from pairbench.model.comparison import Attribution, Change, GateOutcome, Verdict
from pairbench.model.record import CALL, DEVICE, Record, Series
from tests.builders import make_run, moved_alone, with_device

RECORD = replace(make_run(0)[0], round_p50_ns=(100.0, 200.0, 400.0), round_p95_ns=(150.0, 150.0, 150.0))


def test_a_level_is_the_mean_of_the_rounds_logarithms() -> None:
    found = log_rounds(RECORD, CALL.p50)
    assert found is not None and found.rounds == 3
    assert math.exp(found.mean) == pytest.approx(200)
    assert found.square == pytest.approx(2 * math.log(2) ** 2)


def test_a_file_without_rounds_has_one_number() -> None:
    old = replace(RECORD, round_p95_ns=None, call_p95_ns=160.0)
    found = log_rounds(old, CALL.p95)
    assert found is not None and (found.rounds, found.square) == (1, 0.0)
    assert math.exp(found.mean) == pytest.approx(160)
    assert log_rounds(replace(old, call_p95_ns=None), CALL.p95) is None


def test_the_mean_of_runs_gives_each_the_same_weight() -> None:
    other = replace(RECORD, round_p50_ns=(800.0,))
    assert math.exp(mean_log(CALL.p50, [RECORD, other])) == pytest.approx(400)
    assert math.isnan(mean_log(CALL.p50, []))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0.0, -1.0, None])
@pytest.mark.parametrize("column", ["round_p50_ns", "round_p95_ns"])
def test_a_latency_that_cannot_be_is_damage(wrong: float | None, column: str) -> None:
    values: Any = (100.0, wrong, 100.0)
    said = damage(replace(RECORD, **{column: values}))
    assert said is not None and RECORD.run_id in said and "expected a positive number" in said
    none = damage(replace(RECORD, round_p50_ns=(), call_p50_ns=None))
    assert none is not None and "holds no latency" in none
    assert damage(RECORD) is damage(replace(RECORD, round_p95_ns=None, call_p95_ns=None)) is None


def test_runs_are_collected_by_series_and_side() -> None:
    other = replace(RECORD, round_p50_ns=(50.0,))
    found = collect([((RECORD, other), (RECORD,)), ((), (other,))], CALL.p50)
    assert found.series.tolist() == [0, 0, 0, 1]
    assert found.current.tolist() == [False, False, True, True]
    assert found.count.tolist() == [3, 1, 3, 1]
    assert np.exp(found.mean).tolist() == pytest.approx([200, 50, 200, 50])


MANY = tuple(f"rms_norm[tokens={number}]" for number in range(20))
CASE = MANY[3]
BEFORE = tuple(record for number in range(3) for record in make_run(number, cases=MANY))


def variant(current: Sequence[Record]) -> Change:
    """Return what became of the variant whose case moved; no other case may raise an alarm."""
    changes = compare(BEFORE, current)
    return moved_alone([one for one in changes if one.series.case != CASE or one.role == "variant"], CASE)


def now(*, machine: float, code: float) -> tuple[Record, ...]:
    """Return a run in which the machine takes so much longer for one case, and the code of its variant besides."""
    return make_run(5, cases=MANY, slower={CASE: machine, f"{CASE}-fused": code})


def test_a_machine_that_became_faster_hides_no_slower_variant() -> None:
    found = variant(now(machine=0.9935, code=1.0192))
    assert (found.outcome, found.verdict) == (GateOutcome.REGRESSION, Verdict.SLOWER)
    assert found.attribution is Attribution.CODE
    assert found.p50 is not None and found.p50.change is not None
    assert 1.01 < found.p50.change.estimate < 1.015
    assert found.reason.startswith("median latency +1.") and " slower (+" in found.reason
    assert "relative to its baseline; its control moved -0.8 %" in found.reason
    other_source = [
        replace(record, implementation_hash="f" * 16) if (record.case, record.role) == (CASE, "baseline") else record
        for record in now(machine=0.9935, code=1.0192)
    ]
    assert variant(other_source).verdict is Verdict.SAME, "a baseline with another source is no measure"


@pytest.mark.parametrize(
    ("slower", "outcome", "words"),
    [
        ({CASE: 1.0065, f"{CASE}-fused": 0.9808}, GateOutcome.IMPROVEMENT, "relative to its baseline"),
        ({CASE: 0.9935}, GateOutcome.UNCHANGED, ""),
        ({CASE: 1.0065}, GateOutcome.UNCHANGED, ""),
        ({f"{CASE}-baseline": 0.97}, GateOutcome.UNCHANGED, ""),  # its kernel may have been chosen anew
    ],
)
def test_neither_a_machine_nor_a_baseline_that_moved_alone_is_a_change(
    slower: dict[str, float], outcome: GateOutcome, words: str
) -> None:
    found = variant(make_run(5, cases=MANY, slower=slower))
    assert found.outcome is outcome and words in found.reason


@pytest.mark.parametrize(("code", "outcome"), [(1.0192, GateOutcome.REGRESSION), (1.0, GateOutcome.UNCHANGED)])
def test_what_was_hidden_has_to_be_seen_again(code: float, outcome: GateOutcome) -> None:
    first = now(machine=0.9935, code=1.0192)
    slower = {CASE: 0.9935, f"{CASE}-fused": code}
    second = make_run(6, cases=[CASE], slower=slower, confirms=first[0].run_id)
    found = variant([*first, *second])
    assert (found.outcome, found.confirmed or False) == (outcome, outcome is GateOutcome.REGRESSION)


def sides(reference: Sequence[Record], current: Sequence[Record]) -> list[MeasuredSides]:
    found = []
    for before, after in zip(reference, current, strict=True):
        series = Series.of(after)
        assert series is not None
        found.append(MeasuredSides(series=series, reference=(before,), current=(after,)))
    return found


def test_rounds_are_those_that_a_steady_baseline_would_have_left_of_runs_in_which_it_has_as_many() -> None:
    reference, current = (make_run(number, cases=[CASE], rounds=3) for number in range(2))
    found = relative_to_baselines(sides(reference, current), CALL.p50, (True, True))
    assert (found.series.tolist(), found.current.tolist(), found.count.tolist()) == ([1, 1], [False, True], [3, 3])
    baseline, fused = (np.log([run[place].round_p50_ns or () for run in (reference, current)]) for place in range(2))
    steady = fused - baseline + baseline.mean()
    assert found.mean == pytest.approx(steady.mean(axis=1))
    assert found.square == pytest.approx(steady.var(axis=1) * 3)
    cut = replace(reference[0], round_p50_ns=(reference[0].round_p50_ns or ())[:2])
    found = relative_to_baselines(sides([cut, reference[1]], current), CALL.p50, (True, True))
    assert found.current.tolist() == [True]


@pytest.mark.parametrize(("metric", "chosen"), [(DEVICE.p50, (True, True)), (CALL.p50, (True, False))])
def test_only_a_latency_that_is_there_and_a_series_that_is_chosen_count(metric: str, chosen: tuple[bool, ...]) -> None:
    reference, current = (make_run(number, cases=[CASE]) for number in range(2))
    assert not len(relative_to_baselines(sides(reference, current), metric, chosen).series)


ROUNDS_US = json.loads(Path(__file__).with_name("rounds_on_an_h100.json").read_text(encoding="utf-8"))
"""Medians of the rounds of `tests/suites/planted.py` on an H100 in us: of each implementation two runs, and one with what
`tests/gpu/test_judging.py` plants. Six times; in the first, third and fourth the machine became faster in between."""


def measured_run(number: int, rounds_us: dict[str, list[list[float]]]) -> list[Record]:
    """Return one of the three runs, 95th percentiles 2 % above the medians."""
    found = []
    for name, runs in rounds_us.items():
        operator, implementation = name.split()
        role = "baseline" if implementation == "baseline" else "variant"
        row = make_run(number, cases=[f"{operator}[n=4096]"], implementations=[implementation])[0]
        (record,) = with_device([row], device=[1e3 * value for value in runs[number]])
        found.append(replace(record, role=role))
    return found


@pytest.mark.parametrize("rounds_us", ROUNDS_US, ids=range(len(ROUNDS_US)))
def test_a_variant_that_was_slowed_on_an_h100_is_found_each_time(rounds_us: dict[str, list[list[float]]]) -> None:
    runs = [measured_run(number, rounds_us) for number in range(3)]
    changes = {
        f"{change.series.case.split('[')[0]} {change.series.implementation}": change
        for change in compare([*runs[0], *runs[1]], runs[2])
    }
    slowed = changes.pop("slower slowed")
    assert (slowed.outcome, slowed.verdict) == (GateOutcome.REGRESSION, Verdict.SLOWER)
    assert changes.pop("launches launches_more").outcome is GateOutcome.REGRESSION
    for implementation in ("baseline", "swapped"):
        assert changes.pop(f"machine {implementation}").attribution is Attribution.MACHINE
    assert {change.outcome for change in changes.values()} <= {GateOutcome.UNCHANGED, GateOutcome.UNDECIDED}
