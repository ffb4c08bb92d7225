"""How a measured pair stands beside a published figure."""

from dataclasses import replace
from typing import Any

import pytest

from pairbench.features.results.operator import results_of, state_of
from pairbench.features.results.values import ClaimState
from pairbench.model.claim import Claim
from tests.builders import ended, only, run_id_of
from tests.results_made import measured, operator

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


def test_what_failed_stands_beside_nothing() -> None:
    assert state_of(claim(speedup=2.0), BASELINE, ended(FUSED, "failed")) is ClaimState.UNMEASURED
    assert state_of(claim(speedup=2.0), BASELINE, None) is ClaimState.UNMEASURED


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
    found = results_of(declared, records, ("real",))
    assert found is not None
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
    found = results_of(declared, [*measured(declared, 1), *newer], ("real",))
    assert found is not None
    mode, judged = found.cases[0].modes[0], found.claims[0]
    assert mode.baseline is not None and mode.baseline.run_id == run_id_of(2)
    assert judged.variant is not None and judged.baseline is not None
    assert judged.variant.run_id == judged.baseline.run_id == run_id_of(1)


def test_a_claim_stands_beside_each_of_its_cases() -> None:
    points = ({"tokens": 64}, {"tokens": 128})
    declared = operator(*points, claims=(claim(speedup=1.0, cases=points),))
    records = only(measured(declared), case="rms_norm[tokens=64]")
    found = results_of(declared, records, ("real",))
    assert found is not None
    assert [(one.case and one.case.key, str(one.state)) for one in found.claims] == [
        ("rms_norm[tokens=64]", "better"),
        ("rms_norm[tokens=128]", "not measured"),
    ]
