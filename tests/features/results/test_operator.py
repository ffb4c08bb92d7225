import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pairbench.features.results.operator import (
    AxisBound,
    CasePoint,
    ClaimState,
    LossCondition,
    ModeResults,
    OperatorResults,
    condition_of,
    results_of,
    state_of,
)
from pairbench.model.case import Claim
from pairbench.model.environment import HostLoad
from pairbench.model.record import Record
from tests.analyze.test_records import ENVIRONMENT
from tests.builders import ended, only, run_id_of
from tests.results_made import measured, operator

ONE = operator({"tokens": 64, "dtype": "bfloat16"})
KEY = "rms_norm[dtype=bfloat16,tokens=64]"
TIERS = ("real", "headline")
BUSY = HostLoad(cores=2, before=2.0)


def found_in(records: Sequence[Record], declared: object = ONE) -> OperatorResults:
    found = results_of(declared, records, TIERS)  # type: ignore[arg-type]
    assert found is not None
    return found


def eager(records: list[Record]) -> ModeResults:
    mode = found_in(records).cases[0].in_mode("eager")
    assert mode is not None
    return mode


def test_the_newest_run_counts_that_has_both_the_baseline_and_the_best_variant() -> None:
    newest = eager([*measured(ONE, 2), *measured(ONE, 1)]).best
    assert newest is not None and newest.run_id == run_id_of(2)
    newer = only(measured(ONE, 2), implementation="baseline")
    mode = eager([*measured(ONE, 1), *newer])
    assert mode.best is not None and mode.baseline is not None
    assert mode.best.run_id == mode.baseline.run_id == run_id_of(1)


def test_the_declared_definition_goes_before_a_newer_run_of_another() -> None:
    other = measured(ONE, 2, definition_hash="e" * 16)
    found = found_in([*measured(ONE, 1), *other])
    assert {run[0].run_id for run in found.runs} == {run_id_of(1)}
    assert found.outdated == ()
    assert found_in(other).outdated == (KEY,)


def test_a_skip_takes_the_place_of_no_measurement_but_a_failure_does() -> None:
    fused = only(measured(ONE, 2), implementation="fused")[0]
    skipped = [*measured(ONE, 1), ended(fused, "skipped", "interrupted")]
    assert eager(skipped).variants[0].status == "measured"
    failed = [*measured(ONE, 1), ended(fused, "failed", "it raised")]
    assert eager(failed).best is None
    assert [record.reason for record in found_in(failed).refused] == ["it raised"]


def test_a_cpu_that_had_other_work_to_do_has_no_speedups() -> None:
    busy = BUSY.put_in(ENVIRONMENT).rest
    records = [replace(one, device_kind="cpu", environment=json.dumps(busy)) for one in measured(ONE, 1)]
    mode = eager(records)
    assert mode.baseline is not None and mode.variants and mode.best is None and mode.steps == {}
    assert found_in(records).notes == (f"speedups withheld: {BUSY.disturbs('cpu')}",)
    assert eager([replace(one, device_kind="cuda") for one in records]).best is not None


def test_do_bench_stands_in_only_where_there_is_nothing_else() -> None:
    other = measured(ONE, 2, timer="do_bench")
    assert found_in([*measured(ONE, 1), *other]).notes == ()
    assert found_in(other).notes == ("some were timed by do_bench",)


def test_tf32_is_said_and_the_precision_of_a_case_goes_before_the_setting() -> None:
    on = '{"flags": {"matmul.allow_tf32": true}}'
    assert found_in(measured(ONE, environment=on)).notes == ("2 of 2 records were made with TF32 on",)
    records = [replace(one, float32_precision="ieee") for one in measured(ONE)]
    (note,) = found_in(records).notes
    assert note.startswith("float32 products and convolutions: IEEE float32")
    (mixed,) = found_in([replace(records[0], float32_precision="tf32"), *records[1:]]).notes
    assert mixed == "1 of 2 records were made with TF32 on"
    assert found_in([replace(one, environment=on) for one in records]).notes == (note,)
    assert found_in([replace(one, device_kind="cpu") for one in records]).notes == ()


def test_the_best_is_the_fastest_that_was_measured() -> None:
    declared = operator({"tokens": 64}, names=("baseline", "slow", "fused", "wrong"))
    records = measured(declared, slower={"slow": 1.5, "wrong": 0.1})
    records = [ended(record, "mismatched") if record.implementation == "wrong" else record for record in records]
    (case,) = found_in(records, declared).cases
    (mode,) = case.modes
    assert mode.best is not None and mode.best.implementation == "fused"
    assert [record.implementation for record in mode.variants] == ["slow", "fused", "wrong"]


@pytest.mark.parametrize(
    ("library", "over"),
    [(1.6, (1.25, "library")), (4.0, (0.5, "library")), (0.8, (2.0, "baseline")), (None, None)],
)
def test_own_kernels_stand_beside_the_best_alternative(library: float | None, over: tuple[float, str] | None) -> None:
    declared = operator(dict(ONE.cases[0].axes), names=("baseline", "fused", "library"))
    plain, fused, peer = declared.implementations
    declared = replace(declared, implementations=(plain, fused, replace(peer, kind="library")))
    speedups = {"fused": 2.0, "library": library}
    records = [
        replace(one, device_speedup=None, speedup=speedups.get(str(one.implementation))) for one in measured(declared)
    ]
    mode = found_in(records, declared).cases[0].in_mode("eager")
    assert mode is not None
    found = mode.over_best and (round(mode.over_best[0].estimate, 9), mode.over_best[1])
    assert found == over


def test_cases_come_by_dtype_and_then_by_size() -> None:
    points = [
        {"tokens": 4096, "dtype": "float32"},
        {"tokens": 64, "dtype": "float32"},
        {"tokens": 512, "dtype": "bfloat16"},
    ]
    for costs in (True, False):
        declared = operator(*points, costs=costs)
        found = found_in(measured(declared), declared)
        assert [case.case.key for case in found.cases] == [
            "rms_norm[dtype=bfloat16,tokens=512]",
            "rms_norm[dtype=float32,tokens=64]",
            "rms_norm[dtype=float32,tokens=4096]",
        ]


def test_what_is_declared_and_not_in_the_store_is_named() -> None:
    declared = operator({"tokens": 64}, {"tokens": 128})
    records = [record for record in measured(declared) if record.case != "rms_norm[tokens=128]"]
    assert [case.key for case in found_in(records, declared).missing] == ["rms_norm[tokens=128]"]


def test_other_tiers_and_cases_that_are_no_longer_declared_are_left_out() -> None:
    smoke = operator({"tokens": 64}, tier="smoke")
    assert results_of(smoke, measured(smoke), TIERS) is None
    assert results_of(replace(ONE, cases=()), measured(ONE), TIERS) is None
    assert results_of(ONE, [], TIERS) is None


POINT = {"tokens": 64, "dtype": "bfloat16"}
BASELINE, FUSED = measured(operator(POINT))
GIB = 2**30


def claim(**given: Any) -> Claim:
    return Claim(source="somebody", device="a GPU", **given)


@pytest.mark.parametrize(
    ("given", "columns", "state"),
    [
        # 2x, from 1.8 to 2.2.
        ({"speedup": 1.5}, {}, ClaimState.BETTER),
        ({"speedup": 2.1}, {}, ClaimState.SAME),
        ({"speedup": 2.5}, {}, ClaimState.WORSE),
        ({"speedup": (1.5, 1.9)}, {}, ClaimState.SAME),
        ({"speedup": (1.2, 1.7)}, {}, ClaimState.BETTER),
        ({"latency_ms": (10.0, 4.0)}, {}, ClaimState.WORSE),
        ({"latency_ms": (10.0, 5.0)}, {}, ClaimState.SAME),
        ({"speedup": 2.5}, {"speedup_low": None, "speedup_high": None}, ClaimState.UNPROVEN),
        ({"speedup": 2.5}, {"speedup": None}, ClaimState.UNMEASURED),
        ({"speedup": 1.5}, {"status": "failed"}, ClaimState.UNMEASURED),
        ({"launches": (4096, 5)}, {"launches_per_call": 5}, ClaimState.SAME),
        ({"launches": (4096, 5)}, {"launches_per_call": 1}, ClaimState.BETTER),
        ({"launches": (4096, 5)}, {"launches_per_call": 6}, ClaimState.WORSE),
        ({"launches": (4096, 5)}, {"launches_per_call": None}, ClaimState.UNMEASURED),
        ({"syncs": (4, 0)}, {"syncs_per_call": 0}, ClaimState.SAME),
        ({"peak_gib": (4.0, 1.0)}, {"peak_bytes": GIB}, ClaimState.SAME),
        ({"peak_gib": (4.0, 1.0)}, {"peak_bytes": 2 * GIB}, ClaimState.WORSE),
        ({"peak_gib": (4.0, 1.0)}, {"peak_bytes": 0}, ClaimState.BETTER),
        ({"peak_gib": (4.0, 1.0)}, {"peak_bytes": None}, ClaimState.UNMEASURED),
    ],
)
def test_states(given: dict[str, Any], columns: dict[str, Any], state: ClaimState) -> None:
    baseline = replace(BASELINE, peak_bytes=4 * GIB)
    variant = replace(FUSED, **{"speedup": 2.0, "speedup_low": 1.8, "speedup_high": 2.2, **columns})
    assert state_of(claim(**given), baseline, variant) is state


def test_a_claim_is_judged_in_its_mode_and_by_its_variant() -> None:
    claims = (
        claim(speedup=1.0, cases=[POINT]),
        claim(speedup=1.0, cases=[POINT], implementation="slow"),
        claim(speedup=1.0, cases=[POINT], mode="compile"),
        claim(speedup=1.0, cases=[POINT], mode="graph"),
        claim(speedup=1.0),
    )
    declared = operator(POINT, names=("baseline", "fused", "slow"), claims=claims)
    records = [*measured(declared, slower={"slow": 4.0}), *measured(declared, mode="compile", slower={"fused": 3.0})]
    found = found_in(records, declared)
    told = [(one.variant and (one.variant.implementation, one.variant.mode), str(one.state)) for one in found.claims]
    assert told == [
        (("fused", "eager"), "better"),
        (("slow", "eager"), "worse"),
        (("slow", "compile"), "better"),
        (None, "not measured"),
        (None, "not measured"),
    ]
    assert [one.case is None for one in found.claims] == [False] * 4 + [True]


def test_a_claim_stands_beside_the_baseline_that_its_variant_was_timed_with() -> None:
    declared = operator(
        POINT, names=("baseline", "fused", "slow"), claims=(claim(speedup=1.0, cases=[POINT], implementation="slow"),)
    )
    newer = only(measured(declared, 2), implementation="baseline") + only(measured(declared, 2), implementation="fused")
    found = found_in([*measured(declared, 1), *newer], declared)
    mode, judged = found.cases[0].modes[0], found.claims[0]
    assert mode.baseline is not None and mode.baseline.run_id == run_id_of(2)
    assert judged.variant is not None and judged.baseline is not None
    assert judged.variant.run_id == judged.baseline.run_id == run_id_of(1)


def test_a_claim_stands_beside_each_of_its_cases() -> None:
    points = ({"tokens": 64}, {"tokens": 128})
    declared = operator(*points, claims=(claim(speedup=1.0, cases=points),))
    records = only(measured(declared), case="rms_norm[tokens=64]")
    found = found_in(records, declared)
    assert [(one.case and one.case.key, str(one.state)) for one in found.claims] == [
        ("rms_norm[tokens=64]", "better"),
        ("rms_norm[tokens=128]", "not measured"),
    ]


def told(points: list[CasePoint]) -> tuple[str, ...]:
    found = condition_of(points)
    return tuple(f"{term.axis} {term.relation} {term.value}" for term in found.terms) if found else ()


def test_only_what_is_proven_slower_loses() -> None:
    declared = operator(*({"tokens": tokens} for tokens in (1, 2, 4, 8)), names=("baseline", "fused", "slow"))
    records = measured(declared, slower={"slow": 2.0})
    records = [
        replace(record, speedup=0.9, speedup_low=0.8, speedup_high=1.01 if record.case.endswith("=1]") else 0.99)  # type: ignore[union-attr]
        if record.implementation == "slow"
        else record
        for record in records
    ]
    found = found_in(records, declared)
    (loss,) = found.losses
    assert (loss.implementation, loss.mode, loss.measured) == ("slow", "eager", 4)
    assert [record.case for record in loss.losing] == [f"rms_norm[tokens={tokens}]" for tokens in (2, 4, 8)]
    assert loss.where == LossCondition(
        terms=(AxisBound(axis="tokens", relation=">=", value=2),), inside=(3, 3), outside=(0, 1)
    )


def by_number(count: int, loses: Callable[[int], bool]) -> list[CasePoint]:
    return [CasePoint(axes={"n": n}, loses=loses(n)) for n in range(count)]


def test_one_bound_or_one_word_and_an_axis_that_a_case_leaves_out_meets_no_bound() -> None:
    assert told(by_number(12, lambda n: n <= 3)) == ("n <= 3",)
    layouts = [(n, layout) for n in range(4) for layout in ("first", "last")]
    assert told([CasePoint(axes={"n": n, "layout": one}, loses=one == "last") for n, one in layouts]) == (
        "layout = last",
    )
    points = [CasePoint(axes={"n": n % 2, **({"bias": 1} if n > 5 else {})}, loses=n > 5) for n in range(9)]
    assert told(points) == ("bias >= 1",)


def test_two_bounds_where_there_are_cases_enough() -> None:
    def points(side: int) -> list[CasePoint]:
        return [
            CasePoint(axes={"rows": rows, "taps": taps}, loses=rows >= side // 2 and taps >= side // 2)
            for rows in range(side)
            for taps in range(side)
        ]

    assert told(points(6)) == ("rows >= 3", "taps >= 3")
    assert len(told(points(4))) <= 1


def test_no_condition_where_none_tells() -> None:
    assert condition_of(by_number(40, lambda n: n % 2 == 0)) is None
    assert condition_of(by_number(9, lambda n: True)) is None
    assert condition_of(by_number(9, lambda n: n == 8)) is None
    assert condition_of(by_number(3, lambda n: n > 1)) is None
    assert condition_of([CasePoint(axes={}, loses=n > 1) for n in range(9)]) is None
