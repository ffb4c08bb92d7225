"""Whole comparisons: one change for every series, the worst outcome wins, and each says why; what was accepted, and what has to be seen again."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbench.analyze.compare.exact import AcceptedLevel, acceptance_of
from pairbench.analyze.compare.runs import SEVERITY, again, compare, suspects
from pairbench.errors import UsageError
from pairbench.model.breakdown import KernelCount
from pairbench.model.comparison import Acceptance, Attribution, Change, Floor, GateOutcome, Verdict
from pairbench.model.record import Record, Series
from tests.builders import change_of, ended, judgement_of, make_run, run_id_of

MANY = tuple(f"rms_norm[tokens={number}]" for number in range(20))
BEFORE = make_run(0, cases=MANY)
ONE = f"{MANY[3]}-fused"
BASELINE = f"{MANY[3]}-baseline"
TF32 = {"environment": '{"flags": {"matmul.allow_tf32": true}}', "environment_hash": "e"}
WILD = tuple(100_000 * math.exp(0.2 * math.sin(7 * number)) for number in range(5))


def now(slower: float = 1.0, of: str = ONE, **more: Any) -> tuple[Record, ...]:
    return make_run(1, cases=MANY, slower={of: slower}, **more)


def edited(run: Sequence[Record], **columns: Any) -> list[Record]:
    return [replace(record, **columns) if f"{record.case}-{record.implementation}" == ONE else record for record in run]


def fused(changes: Sequence[Change], implementation: str = "fused") -> Change:
    return change_of(changes, MANY[3], implementation)


def outcomes(changes: Sequence[Change]) -> Counter[GateOutcome]:
    return Counter(change.outcome for change in changes)


UNCHANGED, REGRESSION, IMPROVEMENT = GateOutcome.UNCHANGED, GateOutcome.REGRESSION, GateOutcome.IMPROVEMENT
UNDECIDED = GateOutcome.UNDECIDED
SAME, SLOWER, FASTER, UNKNOWN = Verdict.SAME, Verdict.SLOWER, Verdict.FASTER, Verdict.UNDECIDED
CODE, MACHINE, ENVIRONMENT = Attribution.CODE, Attribution.MACHINE, Attribution.ENVIRONMENT
KERNELS = (KernelCount(name="slow_kernel", count=1, total_ns=120_000.0),)
(TAIL,) = [one.round_p95_ns or () for one in now() if f"{one.case}-{one.implementation}" == ONE]


@pytest.mark.parametrize(
    ("current", "outcome", "verdict", "cause", "words"),
    [
        (now(), UNCHANGED, SAME, None, "the same"),
        (now(1.02), REGRESSION, SLOWER, CODE, "median latency 2.0 % slower"),
        (now(1.02), REGRESSION, SLOWER, CODE, "its source did not change"),
        (now(0.9), IMPROVEMENT, FASTER, CODE, "faster"),
        (now(1.05, MANY[3]), UNDECIDED, SLOWER, MACHINE, "pairbench ab"),
        (now(1.05, **TF32), UNDECIDED, SLOWER, ENVIRONMENT, "matmul.allow_tf32 false -> true"),
        (now(0.9, **TF32), IMPROVEMENT, FASTER, ENVIRONMENT, "matmul.allow_tf32"),
        (edited(now(), launches_per_call=2), REGRESSION, SAME, CODE, "1 more launches a call, 1 -> 2"),
        (edited(now(0.8), launches_per_call=2), REGRESSION, FASTER, CODE, "faster"),
        (edited(now(driver="580.2"), launches_per_call=2), REGRESSION, SAME, ENVIRONMENT, "driver 580.1 -> 580.2"),
        (edited(now(), round_p95_ns=tuple(1.3 * v for v in TAIL)), REGRESSION, SAME, CODE, "95th percentile 30."),
        (edited(now(), margin=0.05), UNDECIDED, SAME, CODE, "only 5 % of the tolerance is left"),
        (edited(now(), round_p50_ns=(math.nan, 1.0)), UNDECIDED, UNKNOWN, None, "expected a positive number"),
        (edited(now(), round_p50_ns=None, call_p50_ns=None), UNDECIDED, UNKNOWN, None, "holds no latency"),
        (edited(now(), launch_status="unreliable"), UNDECIDED, SAME, CODE, "launches cannot be judged"),
    ],
)
def test_what_becomes_of_one_series_among_forty(
    current: Sequence[Record], outcome: GateOutcome, verdict: Verdict | None, cause: Attribution | None, words: str
) -> None:
    changes = compare(BEFORE, current)
    found = fused(changes)
    assert (found.outcome, found.verdict, found.attribution) == (outcome, verdict, cause)
    assert words in found.reason
    assert len(changes) == 40 and all(one.reason and one.reference_runs and one.current_runs for one in changes)
    others = {one.outcome for one in changes if one.series.case != MANY[3]}
    assert others == {UNCHANGED} and (outcome is UNCHANGED or found.judgements[0].outcome is outcome)


def test_a_judgement_has_its_interval_its_chance_and_its_control_and_kernels_go_with_it() -> None:
    found = fused(compare(BEFORE, edited(now(1.02), kernels=KERNELS)))
    judged = judgement_of(found, "call_p50_ns")
    assert found.judgements[0] == judged and judged.change is not None and judged.p_value is not None
    assert judged.change.low > 1.015 and judged.minimum_effect == pytest.approx(0.02) and judged.p_value < 0.005
    assert found.control is not None and found.control.estimate == pytest.approx(1, abs=0.005)
    changes = [(kernel.name, kernel.what) for kernel in found.kernels]
    assert changes == [("slow_kernel", "new"), ("fused_kernel", "gone")]


def test_all_variants_slower_is_still_seen_and_a_baseline_alone_is_the_code() -> None:
    """Where most series move, the baselines tell what noise is."""
    assert outcomes(compare(BEFORE, now(1.03, "fused"))) == {UNCHANGED: 20, REGRESSION: 20}
    found = fused(compare(BEFORE, now(1.05, BASELINE)), "baseline")
    assert (found.outcome, found.attribution) == (REGRESSION, CODE)


def test_code_that_did_not_change_is_not_blamed_for_a_skip() -> None:
    skipped = ended(now()[0], "skipped", "none of its variants is right")
    causes: list[tuple[dict[str, Any], Any]] = [
        ({}, None),
        ({"implementation_hash": "another"}, CODE),
        (TF32, ENVIRONMENT),
    ]
    for columns, cause in causes:
        (found,) = compare(BEFORE[:1], [replace(skipped, **columns)])
        assert (found.outcome, found.attribution) == (GateOutcome.MISSING, cause)
        assert "look at what it calls" not in found.reason


@pytest.mark.parametrize(
    ("columns", "metric", "words"),
    [
        ({"round_p95_ns": WILD}, "call_p95_ns", "%"),
        ({"launch_status": "unreliable"}, "launch_status", "launch"),
    ],
)
def test_what_neither_side_knows_is_listed_and_decides_nothing(
    columns: dict[str, Any], metric: str, words: str
) -> None:
    found = fused(compare(edited(BEFORE, **columns), edited(now(), **columns)))
    judged = judgement_of(found, metric)
    assert (found.outcome, judged.outcome) == (UNCHANGED, UNDECIDED) and words in judged.reason


def test_a_file_without_rounds_of_the_tail_is_judged_more_widely() -> None:
    found = fused(compare(make_run(0, cases=MANY, round_p95_ns=None), now(round_p95_ns=None)))
    tail = judgement_of(found, "call_p95_ns")
    assert (found.outcome, tail.outcome, tail.change) == (UNCHANGED, UNDECIDED, None)
    assert "three rounds or more" in tail.reason


def test_one_round_and_no_knowledge_is_undecided_and_with_a_floor_it_is_not() -> None:
    single = [replace(record, round_p50_ns=(100_000.0,), round_p95_ns=(105_000.0,)) for record in BEFORE]
    slow = [replace(record, round_p50_ns=(110_000.0,), round_p95_ns=(115_000.0,)) for record in now()]
    found = fused(compare(single, slow))
    assert found.outcome is UNDECIDED and "one round a side" in found.reason
    floor = Floor(p50=0.004, p95=0.01, runs=20, source="history")
    only = fused(compare(edited(single), edited(single, round_p50_ns=(110_000.0,)), floors={found.series: floor}))
    assert only.verdict is SLOWER
    assert judgement_of(only, "call_p50_ns").floor == pytest.approx(0.004, rel=0.01)


def test_a_noisy_series_needs_a_larger_change() -> None:
    floor = Floor(p50=0.03, p95=0.03, runs=20, source="history")
    (series,) = {Series.of(record) for record in BEFORE if f"{record.case}-{record.implementation}" == ONE}
    assert series is not None
    noisy = fused(compare(BEFORE, now(1.03), floors={series: floor}))
    assert noisy.outcome is not REGRESSION
    assert judgement_of(noisy, "call_p50_ns").minimum_effect == pytest.approx(2 * math.expm1(0.03))


def test_a_damaged_run_is_undecided_and_beside_good_ones_left_out_and_named() -> None:
    bad = edited(BEFORE, round_p50_ns=(math.nan,))
    alone = fused(compare(bad, now()))
    assert alone.outcome is UNDECIDED and "expected a positive number" in alone.reason
    found = fused(compare([*bad, *make_run(1, cases=MANY)], make_run(2, cases=MANY)))
    assert found.outcome is UNCHANGED and "left out: run" in found.reason


def test_a_run_against_itself_and_nothing_on_either_side() -> None:
    assert compare([], []) == ()
    assert outcomes(compare(BEFORE, BEFORE)) == {UNCHANGED: 40}
    assert outcomes(compare([], BEFORE)) == {GateOutcome.NEW: 40}
    assert outcomes(compare(BEFORE, [])) == {GateOutcome.MISSING: 40}
    assert sorted(SEVERITY) == sorted(GateOutcome)


STATUSES = ("measured", "failed", "skipped", "mismatched", "timeout", "oom")


@settings(max_examples=25)
@given(st.data())
def test_whatever_the_records_say_every_series_gets_one_outcome_and_one_sentence(data: st.DataObject) -> None:
    positive = st.lists(st.floats(1e3, 1e9), min_size=1, max_size=4)

    def run(number: int) -> list[Record]:
        found = []
        for record in make_run(number):
            if data.draw(st.booleans(), label="there"):
                status = data.draw(st.sampled_from(STATUSES))
                rounds = data.draw(st.none() | st.lists(st.floats(), max_size=3) | positive)
                columns: dict[str, Any] = {
                    "round_p50_ns": None if rounds is None else tuple(rounds),
                    "launch_status": data.draw(st.sampled_from(["exact", None])),
                    "margin": data.draw(st.none() | st.floats()),
                    "timer": data.draw(st.sampled_from(["cuda_event", "do_bench"])),
                }
                found.append(replace(record if status == "measured" else ended(record, status), **columns))
        return found

    reference, current = [*run(0), *run(1)], [*run(2), *run(3)]
    changes = compare(reference, current)
    series = {Series.of(record) for record in [*reference, *current]}
    assert len(changes) == len(series) and {change.series for change in changes} == series
    assert all(change.reason for change in changes)
    # What fails now is never lost, and what does not is never called failed.
    failing = {Series.of(record) for record in current if record.status not in ("measured", "skipped")}
    assert {change.series for change in changes if change.outcome is GateOutcome.FAILED} == failing


RECORD = next(record for record in BEFORE if f"{record.case}-{record.implementation}" == ONE)
SERIES = Series.of(RECORD)
assert SERIES is not None
LEVEL = Acceptance(
    series=SERIES,
    definition_hash=RECORD.definition_hash,
    p50_ns=110_000.0,
    p95_ns=115_500.0,
    exact={"launches_per_call": 2, "peak_bytes": 1 << 24, "margin": 0.1},
    run_id=run_id_of(1),
    at="2026-01-02T00:00:00+00:00",
    reason="correct at last",
)


def with_level(acceptance: Acceptance | None = LEVEL, slower: float = 1.0, **columns: Any) -> Change:
    """Return what became of the one series where a level of it was accepted."""
    accepted = {acceptance.series: acceptance} if acceptance else {}
    return fused(compare(BEFORE, edited(now(slower), **columns), accepted=accepted))


@pytest.mark.parametrize("worse", [{"slower": 1.1}, {"launches_per_call": 2}, {"peak_bytes": 1 << 24}, {"margin": 0.2}])
def test_what_was_accepted_is_unchanged_and_says_why(worse: dict[str, Any]) -> None:
    assert with_level(None, **worse).outcome in (REGRESSION, UNDECIDED)
    found = with_level(**worse)
    assert (found.outcome, found.accepted) == (UNCHANGED, "correct at last")
    assert "correct at last" in found.reason and run_id_of(1) in found.reason


@pytest.mark.parametrize("worse", [{"slower": 1.1, "launches_per_call": 3}, {"slower": 1.15}])
def test_another_worsening_or_level_was_not_accepted(worse: dict[str, Any]) -> None:
    found, unmoved = with_level(**worse), with_level()
    assert (found.outcome, found.accepted) == (REGRESSION, None)
    assert (unmoved.outcome, unmoved.accepted) == (UNCHANGED, None)


@pytest.mark.parametrize(
    ("metric", "value", "within"),
    [
        ("call_p50_ns", 110_000.0 * 1.08, True),
        ("call_p50_ns", 110_000.0 * 1.081, False),
        ("call_p95_ns", 115_500.0 * 1.08, True),
        ("call_p95_ns", 115_500.0 * 1.081, False),
        ("call_p50_ns", None, False),
        ("launches_per_call", 2, True),
        ("launches_per_call", 3, False),
        ("peak_bytes", (1 << 24) + (1 << 20), True),
        ("peak_bytes", (1 << 24) + (1 << 20) + 1, False),
        ("margin", 0.1, True),
        ("margin", 0.09, False),
        ("ops_per_call", 1, False),
    ],
)
def test_what_an_accepted_level_covers(metric: str, value: float | None, within: bool) -> None:
    level = AcceptedLevel(acceptance=LEVEL, minimum_effect=0.08)
    assert level.covers(metric, value, LEVEL.definition_hash) == within
    assert not level.covers(metric, value, "another definition")


def test_what_is_accepted_is_the_runs_own_latency_and_counts() -> None:
    found = acceptance_of(LEVEL.series, [RECORD], run_id=RECORD.run_id, at="2026", reason="right")
    assert (found.p50_ns, found.p95_ns) == (RECORD.call_p50_ns, RECORD.call_p95_ns)
    assert found.exact["launches_per_call"] == RECORD.launches_per_call and found.exact["margin"] == RECORD.margin
    with pytest.raises(UsageError, match=r"has no level to accept in run .*: failed: made up"):
        acceptance_of(LEVEL.series, [ended(RECORD, "failed")], run_id=RECORD.run_id, at="2026", reason="right")


def first(slower: float = 1.1, **columns: Any) -> list[Record]:
    return edited(now(slower), **columns)


def second(slower: float = 1.1, **columns: Any) -> list[Record]:
    """Return the run that measures the one series again."""
    return edited(make_run(2, cases=MANY[3:4], slower={ONE: slower}, confirms=run_id_of(1)), **columns)


def test_suspects_are_what_would_fail_and_was_not_measured_twice() -> None:
    alone = compare(BEFORE, first())
    (suspect,) = suspects(alone)
    assert (suspect.case, suspect.implementation, fused(alone).confirmed) == (MANY[3], "fused", None)
    assert suspects(compare(BEFORE, [*first(), *second()])) == suspects(compare(BEFORE, now())) == ()
    assert suspects(compare(BEFORE, [ended(record, "failed") for record in first()])) != ()
    assert again([*first(), *second()]) == second()
    assert again(second()) == [], "only runs that are there can be confirmed"


@pytest.mark.parametrize(
    ("before", "later", "seen"),
    [
        (first(), second(), True),
        (first(), second(1.0), False),
        (first(), second(0.9), False),
        *((first(1.0, launches_per_call=2), second(1.0, launches_per_call=n), n == 2) for n in (2, 1, 3, None)),
        (first(1.0, peak_bytes=1 << 24), second(1.0, peak_bytes=(1 << 24) + 512), True),
        (first(1.0, peak_bytes=1 << 24), second(1.0, peak_bytes=1 << 20), False),
        (first(1.1, launches_per_call=2), second(1.0, launches_per_call=2), True),
    ],
)
def test_what_was_worse_has_to_be_seen_again(before: list[Record], later: list[Record], seen: bool) -> None:
    """Of several metrics it is enough that one is: the last has a latency that is not."""
    changes = compare(BEFORE, [*before, *later])
    found = fused(changes)
    assert all(item.confirmed is None for item in changes if item is not found)
    assert (found.outcome is REGRESSION, found.confirmed) == (seen, seen)
    assert found.current_runs == (run_id_of(1), run_id_of(2))
    assert seen or "not seen again" in found.reason


def test_a_failure_has_to_come_again() -> None:
    failed = [ended(record, "failed") if record.case == MANY[3] else record for record in first()]
    twice = [ended(record, "failed") for record in second()]
    for later, expected in ((twice, (GateOutcome.FAILED, True)), (second(1.0), (UNDECIDED, False))):
        of_case = [one for one in compare(BEFORE, [*failed, *later]) if one.series.case == MANY[3]]
        assert {(one.outcome, one.confirmed) for one in of_case} == {expected}
