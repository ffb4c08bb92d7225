"""Whole comparisons: one change for every series, the worst outcome wins, and each says why."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.analyze.compare.runs import SEVERITY, compare
from pairbench.model.comparison import Attribution, Change, Floor, GateOutcome, Verdict
from pairbench.model.record import KernelCount, Record, Series
from tests.builders import change_of, ended, judgement_of, make_run

MANY = tuple(f"rms_norm[tokens={number}]" for number in range(20))
BEFORE = make_run(0, cases=MANY)
ONE = f"{MANY[3]}-fused"


def fused(changes: Sequence[Change], implementation: str = "fused") -> Change:
    return change_of(changes, MANY[3], implementation)


def now(**more: Any) -> tuple[Record, ...]:
    return make_run(1, cases=MANY, **more)


def edited(run: Sequence[Record], **columns: Any) -> list[Record]:
    """Return a run in which the one series has other columns."""
    return [replace(record, **columns) if f"{record.case}-{record.implementation}" == ONE else record for record in run]


def outcomes(changes: Sequence[Change]) -> Counter[GateOutcome]:
    return Counter(change.outcome for change in changes)


def test_identical_code_is_proven_unchanged() -> None:
    changes = compare(BEFORE, now())
    assert outcomes(changes) == {GateOutcome.UNCHANGED: 40}
    assert {change.verdict for change in changes} == {Verdict.SAME}
    assert all(change.attribution is None and change.reason for change in changes)
    assert all(change.reference_runs and change.current_runs for change in changes)


def test_two_percent_in_one_variant_is_the_codes_doing() -> None:
    changes = compare(BEFORE, now(slower={ONE: 1.02}))
    found = fused(changes)
    assert (found.outcome, found.verdict, found.attribution) == (
        GateOutcome.REGRESSION,
        Verdict.SLOWER,
        Attribution.CODE,
    )
    assert "median latency 2.0 % slower" in found.reason and "its source did not change" in found.reason
    judged = judgement_of(found, "call_p50_ns")
    assert found.judgements[0] == judged and judged.change is not None and judged.p_value is not None
    assert judged.change.low > 1.015 and judged.minimum_effect == pytest.approx(0.02) and judged.p_value < 0.005
    assert found.control is not None and found.control.estimate == pytest.approx(1, abs=0.005)
    assert outcomes(changes) == {GateOutcome.UNCHANGED: 39, GateOutcome.REGRESSION: 1}
    faster = fused(compare(BEFORE, now(slower={ONE: 0.9})))
    assert (faster.outcome, faster.verdict) == (GateOutcome.IMPROVEMENT, Verdict.FASTER)


def test_all_variants_slower_is_still_seen() -> None:
    """Where most series move, the baselines tell what noise is."""
    changes = compare(BEFORE, now(slower={"fused": 1.03}))
    assert outcomes(changes) == {GateOutcome.UNCHANGED: 20, GateOutcome.REGRESSION: 20}


def test_a_case_slower_with_its_control_is_the_machines_doing_and_a_baseline_alone_the_codes() -> None:
    changes = compare(BEFORE, now(slower={MANY[3]: 1.05}))
    for implementation in ("fused", "baseline"):
        found = fused(changes, implementation)
        assert (found.outcome, found.verdict) == (GateOutcome.UNDECIDED, Verdict.SLOWER)
        assert found.attribution is Attribution.MACHINE and "pairbench ab" in found.reason
    found = fused(compare(BEFORE, now(slower={f"{MANY[3]}-baseline": 1.05})), "baseline")
    assert (found.outcome, found.attribution) == (GateOutcome.REGRESSION, Attribution.CODE)


def test_a_changed_environment_is_named_and_proves_nothing_of_the_code() -> None:
    tf32 = '{"flags": {"matmul.allow_tf32": true}}'
    changes = compare(BEFORE, now(slower={ONE: 1.05}, environment=tf32, environment_hash="e"))
    found = fused(changes)
    assert (found.outcome, found.verdict) == (GateOutcome.UNDECIDED, Verdict.SLOWER)
    assert found.attribution is Attribution.ENVIRONMENT
    assert "matmul.allow_tf32 false -> true" in found.reason and str(found.era[0]).startswith("flags.matmul")
    faster = fused(compare(BEFORE, now(slower={ONE: 0.9}, environment=tf32, environment_hash="e")))
    assert (faster.outcome, faster.attribution) == (GateOutcome.IMPROVEMENT, Attribution.ENVIRONMENT)


def test_one_more_launch_is_a_regression_whatever_the_latency_and_the_environment() -> None:
    more = edited(now(slower={ONE: 0.8}, driver="580.2"), launches_per_call=2, implementation_hash="new")
    found = fused(compare(BEFORE, more))
    assert (found.outcome, found.verdict) == (GateOutcome.REGRESSION, Verdict.FASTER)
    assert "1 more launches a call, 1 -> 2" in found.reason and "faster" in found.reason
    assert found.judgements[0].metric == "launches_per_call" and found.implementation_changed is True
    unchanged = edited(now(driver="580.2"), launches_per_call=2)
    assert fused(compare(BEFORE, unchanged)).attribution is Attribution.ENVIRONMENT


def test_the_tail_alone_is_a_regression() -> None:
    run = now()
    (tail,) = [record.round_p95_ns for record in run if f"{record.case}-{record.implementation}" == ONE]
    assert tail is not None
    found = fused(compare(BEFORE, edited(run, round_p95_ns=tuple(1.3 * value for value in tail))))
    assert (found.outcome, found.verdict) == (GateOutcome.REGRESSION, Verdict.SAME)
    assert found.reason.startswith("95th percentile 30.") and found.judgements[0].metric == "call_p95_ns"


def test_a_tail_that_nobody_can_tell_is_listed_and_decides_nothing() -> None:
    wild = tuple(100_000 * math.exp(0.2 * math.sin(7 * number)) for number in range(5))
    found = fused(compare(edited(BEFORE, round_p95_ns=wild), edited(now(), round_p95_ns=wild[::-1])))
    assert found.outcome is GateOutcome.UNCHANGED
    assert judgement_of(found, "call_p95_ns").outcome is GateOutcome.UNDECIDED


def test_a_file_without_rounds_of_the_tail_is_judged_more_widely() -> None:
    found = fused(compare(make_run(0, cases=MANY, round_p95_ns=None), now(round_p95_ns=None)))
    assert found.outcome is GateOutcome.UNCHANGED
    tail = judgement_of(found, "call_p95_ns")
    assert tail.outcome is GateOutcome.UNDECIDED and tail.change is None and "three rounds or more" in tail.reason


def test_one_round_and_no_knowledge_is_undecided_and_with_a_floor_it_is_not() -> None:
    single = [replace(record, round_p50_ns=(100_000.0,), round_p95_ns=(105_000.0,)) for record in BEFORE]
    slow = [replace(record, round_p50_ns=(110_000.0,), round_p95_ns=(115_000.0,)) for record in now()]
    found = fused(compare(single, slow))
    assert found.outcome is GateOutcome.UNDECIDED and "one round a side" in found.reason
    floor = Floor(p50=0.004, p95=0.01, runs=20, source="history")
    only = fused(compare(edited(single), edited(single, round_p50_ns=(110_000.0,)), floors={found.series: floor}))
    assert only.verdict is Verdict.SLOWER
    assert judgement_of(only, "call_p50_ns").floor == pytest.approx(0.004, rel=0.01)


def test_a_noisy_series_needs_a_larger_change() -> None:
    floor = Floor(p50=0.03, p95=0.03, runs=20, source="history")
    quiet = fused(compare(BEFORE, now(slower={ONE: 1.03})))
    noisy = fused(compare(BEFORE, now(slower={ONE: 1.03}), floors={quiet.series: floor}))
    assert quiet.outcome is GateOutcome.REGRESSION
    assert noisy.outcome is not GateOutcome.REGRESSION
    assert judgement_of(noisy, "call_p50_ns").minimum_effect == pytest.approx(2 * math.expm1(0.03))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0.0, -5.0])
@pytest.mark.parametrize("side", ["reference", "current"])
def test_a_latency_that_cannot_be_is_undecided_with_a_sentence(wrong: float, side: str) -> None:
    bad = {"round_p50_ns": (wrong, 1.0, 1.0)}
    sides = (edited(BEFORE, **bad), now()) if side == "reference" else (BEFORE, edited(now(), **bad))
    found = fused(compare(*sides))
    assert found.outcome is GateOutcome.UNDECIDED and "expected a positive number" in found.reason


def test_a_damaged_run_beside_good_ones_is_left_out_and_named() -> None:
    bad = edited(BEFORE, round_p50_ns=(math.nan,))
    found = fused(compare([*bad, *make_run(1, cases=MANY)], make_run(2, cases=MANY)))
    assert found.outcome is GateOutcome.UNCHANGED and "left out: run" in found.reason


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"round_p50_ns": None, "call_p50_ns": None}, "holds no latency"),
        ({"margin": 0.05}, "only 5 % of the tolerance is left"),
    ],
)
def test_no_latency_and_a_shrinking_margin_are_undecided(columns: dict[str, Any], words: str) -> None:
    found = fused(compare(BEFORE, edited(now(), **columns)))
    assert found.outcome is GateOutcome.UNDECIDED and words in found.reason
    assert found.judgements[0].metric in ("margin", "call_p50_ns")


def test_what_fails_now_fails() -> None:
    run = [ended(record, "oom", "out of memory") if record.implementation == "fused" else record for record in now()]
    found = fused(compare(BEFORE, run))
    assert (found.outcome, found.verdict) == (GateOutcome.FAILED, None) and "out of memory" in found.reason


def test_kernels_go_with_the_change() -> None:
    other = (KernelCount(name="slow_kernel", count=1, total_ns=120_000.0),)
    found = fused(compare(BEFORE, edited(now(slower={ONE: 1.1}), kernels=other)))
    assert [(kernel.name, kernel.what) for kernel in found.kernels] == [
        ("slow_kernel", "new"),
        ("fused_kernel", "gone"),
    ]


def test_launches_that_were_never_counted_decide_nothing_and_those_that_are_no_longer_do() -> None:
    never = {"launch_status": "unreliable"}
    found = fused(compare(edited(BEFORE, **never), edited(now(), **never)))
    assert (
        found.outcome is GateOutcome.UNCHANGED and judgement_of(found, "launch_status").outcome is GateOutcome.UNDECIDED
    )
    assert fused(compare(BEFORE, edited(now(), **never))).outcome is GateOutcome.UNDECIDED


def test_a_run_against_itself_and_nothing_on_either_side() -> None:
    assert compare([], []) == ()
    assert outcomes(compare(BEFORE, BEFORE)) == {GateOutcome.UNCHANGED: 40}
    assert outcomes(compare([], BEFORE)) == {GateOutcome.NEW: 40}
    assert outcomes(compare(BEFORE, [])) == {GateOutcome.MISSING: 40}


def test_every_outcome_has_its_rank() -> None:
    assert sorted(SEVERITY) == sorted(GateOutcome)


STATUSES = ("measured", "failed", "skipped", "mismatched", "timeout", "oom")


@given(st.data())
def test_whatever_the_records_say_every_series_gets_one_outcome_and_one_sentence(data: st.DataObject) -> None:
    def run(number: int) -> list[Record]:
        found = []
        for record in make_run(number):
            if data.draw(st.booleans(), label="there"):
                status = data.draw(st.sampled_from(STATUSES))
                rounds = data.draw(
                    st.none()
                    | st.lists(st.floats(), max_size=3)
                    | st.lists(st.floats(1e3, 1e9), min_size=1, max_size=4)
                )
                found.append(
                    replace(
                        record if status == "measured" else ended(record, status),
                        round_p50_ns=None if rounds is None else tuple(rounds),
                        launch_status=data.draw(st.sampled_from(["exact", None])),
                        margin=data.draw(st.none() | st.floats()),
                        timer=data.draw(st.sampled_from(["cuda_event", "do_bench"])),
                    )
                )
        return found

    reference, current = [*run(0), *run(1)], [*run(2), *run(3)]
    changes = compare(reference, current)
    series = {Series.of(record) for record in [*reference, *current]}
    assert len(changes) == len(series) and {change.series for change in changes} == series
    assert all(change.reason for change in changes)
    # What fails now is never lost, and what does not is never called failed.
    failing = {Series.of(record) for record in current if record.status not in ("measured", "skipped")}
    assert {change.series for change in changes if change.outcome is GateOutcome.FAILED} == failing


def test_a_case_in_tf32_is_not_compared_with_one_without() -> None:
    def in_precision(records: Iterable[Record], precision: str) -> list[Record]:
        axis = f",tf32={precision == 'tf32'}]"
        return [replace(one, case=f"{str(one.case)[:-1]}{axis}", float32_precision=precision) for one in records]

    changes = compare(in_precision(BEFORE, "ieee"), in_precision(now(slower={ONE: 1.5}), "tf32"))
    assert {change.outcome for change in changes} == {GateOutcome.NEW, GateOutcome.MISSING}
