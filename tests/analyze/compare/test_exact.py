"""Which records belong together, and why some cannot be compared; counts, margins and statuses of those that can."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.compare.exact import (
    COUNTS,
    LAUNCHES,
    METRICS,
    Matched,
    judge_exact,
    judge_margin,
    judge_status,
    match,
    representative,
)
from pairbench.analyze.compare.runs import compare
from pairbench.model.comparison import Attribution, GateOutcome, Judgement
from pairbench.model.outcome import OUT_OF_BUDGET
from pairbench.model.record import Record
from tests.builders import ended, make_run, run_id_of

BEFORE, NOW = make_run(0), make_run(1)


def outcomes(found: Sequence[Matched]) -> list[GateOutcome | None]:
    return [item.outcome for item in found]


def test_several_runs_come_oldest_first_doubled_ones_once_and_two_gpus_are_two_records() -> None:
    found = match([*make_run(2), *BEFORE, *BEFORE], [*NOW, *(replace(record, device_uuid="GPU-1") for record in NOW)])
    assert [(len(item.reference), len(item.current)) for item in found] == [(2, 2)] * 4
    assert all(item.reference[0].run_id < item.reference[1].run_id for item in found)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_what_a_run_had_no_time_for_is_not_compared_on_either_side(mode: str) -> None:
    before, now = make_run(0, mode=mode), make_run(1, mode=mode)
    left = [ended(record, "skipped", OUT_OF_BUDGET) for record in now]
    for found in (match(before, left), match([], left)):
        assert outcomes(found) == [GateOutcome.INCOMPARABLE] * 4
        assert {item.reason for item in found} == {"not measured: out of budget"}
    # Beside a run that did measure it, or as the reference, it says nothing.
    assert outcomes(match(before, [*left, *make_run(2, mode=mode)])) == [None] * 4
    earlier = [ended(record, "skipped", OUT_OF_BUDGET) for record in before]
    assert {change.outcome for change in compare(earlier, now)} == {GateOutcome.NEW}


@pytest.mark.parametrize(
    ("column", "before", "now", "words"),
    [
        ("timer", "cuda_event", "do_bench", "another timer: cuda_event -> do_bench"),
        ("device_name", "NVIDIA H200", "NVIDIA A100", "another device model: NVIDIA H200 -> NVIDIA A100"),
        ("mode", "eager", "graph", "another mode: eager -> graph"),
        ("definition_hash", "old", "new", "the question changed: definition old -> new"),
        ("definition_hash", None, "new", "definition unknown -> new"),
    ],
)
def test_what_must_not_be_compared_is_named(column: str, before: Any, now: Any, words: str) -> None:
    found = match(make_run(0, **{column: before}), make_run(1, **{column: now}))
    assert outcomes(found) == [GateOutcome.INCOMPARABLE] * 4
    assert all(words in item.reason for item in found)
    assert {item.attribution for item in found} == {Attribution.DEFINITION if column == "definition_hash" else None}


@pytest.mark.parametrize("column", ["timer", "device_name", "mode", "definition_hash"])
def test_what_fails_now_fails_whatever_it_cannot_be_compared_with(column: str) -> None:
    other: dict[str, Any] = {column: "other"}
    current = [replace(ended(record, "oom", "too large"), **other) for record in NOW]
    found = match(BEFORE, [*make_run(2, **other), *current])
    assert outcomes(found) == [GateOutcome.FAILED] * 4
    assert all("oom: too large; " in item.reason for item in found)


@pytest.mark.parametrize(("column", "usual"), [("timer", "cuda_event"), ("environment_hash", "f" * 16)])
def test_runs_by_the_same_timer_and_of_the_same_era_alone_are_the_reference(column: str, usual: str) -> None:
    other: dict[str, Any] = {column: "other"}
    found = match([*make_run(0, **other), *make_run(1)], make_run(2))
    assert outcomes(found) == [None] * 4
    assert {getattr(record, column) for item in found for record in item.reference} == {usual}
    all_old = match(make_run(0, environment_hash="old"), make_run(2))
    assert outcomes(all_old) == [None] * 4 and all(item.reference for item in all_old)


def test_new_missing_and_new_but_broken() -> None:
    found = match(BEFORE, [*NOW, *make_run(1, mode="graph")])
    assert outcomes(found) == [None] * 4 + [GateOutcome.NEW] * 4, "another mode beside the known one is new"
    other = make_run(1, cases=["softmax[tokens=1]"])
    found = match(BEFORE, [*NOW, *other])
    assert outcomes(found)[4:] == [GateOutcome.NEW] * 2
    found = match([*BEFORE, *other], NOW)
    assert outcomes(found)[4:] == [GateOutcome.MISSING] * 2
    found = match(BEFORE, [*NOW, ended(other[0], "oom", "too large")])
    assert found[-1].outcome is GateOutcome.FAILED and "new, and oom: too large" in found[-1].reason
    found = match(BEFORE, [*NOW, ended(other[0], "skipped", "no Triton")])
    assert found[-1].outcome is GateOutcome.NEW and "skipped: no Triton" in found[-1].reason


def test_a_renamed_case_is_missing_with_a_guess_and_a_vanished_one_without() -> None:
    renamed = [replace(record, case=record.case and record.case.replace("tokens", "rows")) for record in NOW]
    gone = [item for item in match(BEFORE, renamed) if item.outcome is GateOutcome.MISSING]
    assert len(gone) == 4
    assert all(f"renamed to {item.series.name.replace('tokens', 'rows')}?" in item.reason for item in gone)
    changed = [replace(record, implementation_hash="x") for record in make_run(1, cases=["softmax[tokens=1]"])]
    gone = [item for item in match(BEFORE, changed) if item.outcome is GateOutcome.MISSING]
    assert len(gone) == 4 and not any("renamed to" in item.reason for item in gone)


def broken(run: Sequence[Record], suite: str) -> Record:
    names = ("operator", "case", "implementation", "mode", "role", "timer", "call_p50_ns", "round_p50_ns")
    return replace(run[0], **dict.fromkeys(names), suite=suite, status="failed", reason="SyntaxError: x")  # type: ignore[arg-type]


def test_a_suite_that_cannot_be_loaded_fails_all_its_series_and_an_unknown_one_is_not_lost() -> None:
    found = match(BEFORE, [broken(NOW, str(NOW[0].suite))])
    assert outcomes(found) == [GateOutcome.FAILED] * 4
    assert all("could not be loaded: SyntaxError: x" in item.reason for item in found)
    *known, last = match(BEFORE, [*NOW, broken(NOW, "suites/other.py")])
    assert outcomes(known) == [None] * 4
    assert last.outcome is GateOutcome.FAILED and last.series.suite == "suites/other.py" and not last.series.case


def test_the_newest_that_was_measured_speaks() -> None:
    later = ended(make_run(5)[0], "failed")
    assert representative([BEFORE[0], NOW[0], later]) is NOW[0]
    assert representative([later]) is later


def test_two_device_models_are_put_beside_each_other_and_not_judged() -> None:
    now = make_run(1, device_name="NVIDIA A100", slower={"baseline": 2.0, "fused": 3.0})
    changes = {change.series.implementation: change for change in compare(BEFORE, now)}
    for implementation, factor in (("baseline", 2.0), ("fused", 3.0)):
        beside = changes[implementation].across
        assert beside is not None and changes[implementation].verdict is None
        assert beside.reference_device == "NVIDIA H200" and beside.ratio == pytest.approx(factor, rel=0.05)
    # What answers another question, or by another clock, has no ratio, nor has a device model beside itself.
    for column in ("timer", "definition_hash", "mode"):
        assert {one.across for one in compare(BEFORE, [replace(one, **{column: "x"}) for one in now])} == {None}  # type: ignore[arg-type]
    assert {one.across for one in compare(BEFORE, NOW)} == {None}


def on_gpu(number: int, uuid: str | None, slower: float = 1.0) -> tuple[Record, ...]:
    return make_run(number, device_uuid=uuid, slower={"fused": slower})


@pytest.mark.parametrize(
    ("before", "now", "attribution", "outcome"),
    [
        ("GPU-0", "GPU-0", Attribution.CODE, GateOutcome.REGRESSION),
        ("GPU-0", "GPU-1", Attribution.MACHINE, GateOutcome.UNDECIDED),
        (None, "GPU-1", Attribution.CODE, GateOutcome.REGRESSION),
    ],
)
def test_another_gpu_of_the_model_is_never_the_code(
    before: str | None, now: str, attribution: Attribution, outcome: GateOutcome
) -> None:
    reference = [record for number in range(5) for record in on_gpu(number, before)]
    slower = [replace(one, implementation_hash="new") if one.role == "variant" else one for one in on_gpu(9, now, 1.1)]
    fused = [change for change in compare(reference, slower) if change.role == "variant"]
    assert [(change.attribution, change.outcome) for change in fused] == [(attribution, outcome)] * 2
    another = before == "GPU-0" != now
    assert all(("another GPU of the model, GPU-0 -> GPU-1" in one.reason) == another for one in fused)
    found = match([*on_gpu(1, "GPU-0"), *on_gpu(2, "GPU-1")], on_gpu(3, "GPU-0"))
    assert {record.device_uuid for item in found for record in item.reference} == {"GPU-0"}, "where it has one"


RECORD = replace(make_run(0)[0], peak_bytes=1 << 30)


def one(metric: str, before: Any, now: Any, **more: Any) -> list[Judgement]:
    found = judge_exact(replace(RECORD, **{metric: before}), replace(RECORD, **{metric: now, **more}))
    return [item for item in found if item.metric == metric]


@pytest.mark.parametrize("metric", [*LAUNCHES, *COUNTS])
def test_one_more_is_a_regression_and_one_less_an_improvement(metric: str) -> None:
    same = [*judge_exact(RECORD, RECORD)]
    assert {item.metric for item in same} == set(METRICS)
    assert {item.outcome for item in same} == {GateOutcome.UNCHANGED}
    (worse,), (better,) = one(metric, 3, 4), one(metric, 3, 2)
    assert worse.outcome is GateOutcome.REGRESSION and "1 more" in worse.reason and "3 -> 4" in worse.reason
    assert better.outcome is GateOutcome.IMPROVEMENT and "1 fewer" in better.reason


@pytest.mark.parametrize("metric", [*COUNTS, "peak_bytes"])
@pytest.mark.parametrize("gone", [None, math.nan])
def test_a_count_that_is_gone_is_undecided(metric: str, gone: float | None) -> None:
    (lost,) = one(metric, 3, gone)
    assert lost.outcome is GateOutcome.UNDECIDED and "known now" in lost.reason
    assert one(metric, None, 3) == []


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("exact", "unreliable", GateOutcome.UNDECIDED),
        ("exact", None, GateOutcome.UNDECIDED),
        ("unreliable", "unreliable", GateOutcome.UNDECIDED),
        ("not_applicable", "not_applicable", None),
        ("unavailable", "exact", None),
    ],
)
def test_launches_need_to_be_exact_on_both_sides(before: str, now: str | None, expected: GateOutcome | None) -> None:
    current = replace(RECORD, launch_status=now, launches_per_call=99)
    found = [*judge_exact(replace(RECORD, launch_status=before), current)]
    assert not [item for item in found if item.metric in LAUNCHES]
    assert [item.outcome for item in found if item.metric == "launch_status"] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (1 << 30, (1 << 30) + (10 << 20), GateOutcome.UNCHANGED),
        (1 << 30, (1 << 30) + (11 << 20), GateOutcome.REGRESSION),
        (1 << 30, (1 << 30) - (11 << 20), GateOutcome.IMPROVEMENT),
        (1024, 1024 + (1 << 20), GateOutcome.UNCHANGED),
        (1024, 1025 + (1 << 20), GateOutcome.REGRESSION),
    ],
)
def test_memory_may_move_by_one_percent_or_one_mebibyte(before: int, now: int, expected: GateOutcome) -> None:
    (found,) = one("peak_bytes", before, now)
    assert found.outcome is expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (0.9, 0.9, GateOutcome.UNCHANGED),
        (0.9, 0.6, GateOutcome.UNCHANGED),
        (1.0, 0.5, GateOutcome.UNCHANGED),
        (0.9, 0.3, GateOutcome.UNDECIDED),
        (0.2, 0.09, GateOutcome.UNDECIDED),
        (0.2, 0.18, GateOutcome.UNCHANGED),
        (0.2, 0.9, GateOutcome.UNCHANGED),
        (0.5, None, GateOutcome.UNDECIDED),
        (0.5, math.nan, GateOutcome.UNDECIDED),
    ],
)
def test_half_of_it_lost_and_less_than_half_left(before: float, now: float | None, expected: GateOutcome) -> None:
    (found,) = judge_margin(replace(RECORD, margin=before), replace(RECORD, margin=now))
    assert (found.metric, found.outcome) == ("margin", expected)
    assert (found.reference, found.current) == (before, now)


def test_the_oracle_rule_has_a_margin_too() -> None:
    before, now = (replace(RECORD, margin=None, oracle_ratio=ratio) for ratio in (0.5, 1.6))
    (found,), (fine,) = judge_margin(before, now), judge_margin(now, now)
    assert (found.metric, found.outcome) == ("oracle_ratio", GateOutcome.UNDECIDED)
    assert "only 20 % of the oracle rule is left, before 75 %" in found.reason
    assert fine.outcome is GateOutcome.UNCHANGED
    assert not list(judge_margin(replace(RECORD, margin=None), RECORD))


GOOD = (make_run(0)[0], make_run(1)[0])


def of(record: Record, status: str, mode: str = "eager") -> Record:
    found = record if status == "measured" else ended(record, status, f"{status} for a reason")
    return replace(found, mode=mode)


@pytest.mark.parametrize(
    ("before", "now", "expected", "words"),
    [
        ("measured", "measured", GateOutcome.UNCHANGED, "as before"),
        ("measured", "failed", GateOutcome.FAILED, "failed: failed for a reason"),
        ("measured", "mismatched", GateOutcome.FAILED, "mismatched for a reason"),
        ("measured", "timeout", GateOutcome.FAILED, "timeout for a reason"),
        ("measured", "oom", GateOutcome.FAILED, "oom for a reason"),
        ("measured", "exploded", GateOutcome.FAILED, "exploded for a reason"),
        ("failed", "failed", GateOutcome.FAILED, "failing since run "),
        ("skipped", "failed", GateOutcome.FAILED, "failed for a reason"),
        ("measured", "skipped", GateOutcome.MISSING, "no longer measured: skipped"),
        ("failed", "skipped", GateOutcome.MISSING, "it was failed before"),
        ("failed", "measured", GateOutcome.IMPROVEMENT, "works again"),
        ("skipped", "measured", GateOutcome.NEW, "measured for the first time"),
        ("skipped", "skipped", GateOutcome.UNCHANGED, "skipped, as before"),
    ],
)
def test_every_way_from_one_end_to_another(before: str, now: str, expected: GateOutcome, words: str) -> None:
    found = judge_status([of(GOOD[0], before)], [of(GOOD[1], now)])
    assert (found.outcome, found.reference, found.current) == (expected, before, now)
    assert words in found.reason


def test_graphability_is_exact_and_a_reason_is_always_given() -> None:
    lost = judge_status([of(GOOD[0], "measured", "graph")], [of(GOOD[1], "skipped", "graph")])
    assert lost.outcome is GateOutcome.REGRESSION and "no longer works as a CUDA graph" in lost.reason
    won = judge_status([of(GOOD[0], "skipped", "graph")], [of(GOOD[1], "measured", "graph")])
    assert won.outcome is GateOutcome.IMPROVEMENT
    nameless = replace(of(GOOD[1], "failed"), reason=None)
    assert "no reason was stored" in judge_status([GOOD[0]], [nameless]).reason


def test_one_failure_among_several_runs_is_not_lost_and_undecided_where_it_then_works() -> None:
    failed = ended(GOOD[1], "failed", "crashed")
    found = judge_status([GOOD[0]], [failed, make_run(2)[0]])
    assert found.outcome is GateOutcome.FAILED and "failed in 1 of 2 current runs: crashed" in found.reason
    again = replace(make_run(2)[0], confirms=run_id_of(1))
    found = judge_status([GOOD[0]], [failed, again])
    assert found.outcome is GateOutcome.UNDECIDED and "it worked when it was measured again" in found.reason
    broken_again = ended(again, "failed", "again")
    for first in (failed, GOOD[1]):
        assert judge_status([GOOD[0]], [first, broken_again]).outcome is GateOutcome.FAILED
