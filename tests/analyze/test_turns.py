"""Which cases a run with a budget takes first, and how wide a case's speedup is known."""

import math
from dataclasses import replace
from typing import Any

import pytest

from pairbench.model.case import Case
from pairbench.model.outcome import NOT_REACHED, OUT_OF_BUDGET
from pairbench.model.plan import Entry, ImplementationDescription, OperatorDescription, PlannedCase
from pairbench.workflow.record import in_turn, speedup_halfwidth
from tests.builders import make_run

NAMES = ("baseline", "v")
ENTRIES = tuple(Entry(implementation=name, mode="eager") for name in NAMES)
OPERATOR = OperatorDescription(
    suite="ops.py",
    path="/ops.py",
    name="op",
    summary="",
    source="",
    definition_hash="d",
    implementations=tuple(ImplementationDescription(name=name, needs=(), hash=name) for name in NAMES),
    impostors=(),
    cases=(),
)


def planned(n: int) -> PlannedCase:
    return PlannedCase(operator=OPERATOR, case=Case(operator="op", axes=(("n", n),), tier="smoke"), entries=ENTRIES)


def rows(n: int, run_id: str, **changed: Any) -> list[dict[str, Any]]:
    row = {
        "run_id": run_id,
        "suite": "ops.py",
        "case": f"op[n={n}]",
        "mode": "eager",
        "definition_hash": "d",
        "reason": None,
    }
    return [{**row, "implementation": name, "implementation_hash": name, **changed} for name in NAMES]


def order(*several: list[dict[str, Any]]) -> list[int]:
    cases = in_turn([planned(n) for n in (1, 2, 3)], [row for of_case in several for row in of_case])
    return [int(str(dict(case.case.axes)["n"])) for case in cases]


def test_never_measured_then_oldest() -> None:
    assert order() == [1, 2, 3]
    assert order(rows(1, "b"), rows(2, "a")) == [3, 2, 1]
    assert order(rows(1, "a"), rows(2, "b"), rows(3, "c"), rows(1, "d")) == [2, 3, 1]


@pytest.mark.parametrize("reason", [OUT_OF_BUDGET, NOT_REACHED])
def test_what_was_not_reached_was_not_tried(reason: str) -> None:
    assert order(rows(1, "a"), rows(2, "b"), rows(3, "c"), rows(1, "d", reason=reason)) == [1, 2, 3]


def test_what_fails_each_time_has_had_its_turn() -> None:
    assert order(rows(1, "c", reason="mismatched"), rows(2, "a"), rows(3, "b")) == [2, 3, 1]


@pytest.mark.parametrize("changed", [{"definition_hash": "other"}, {"implementation_hash": "other"}])
def test_another_question_or_other_code_was_never_measured(changed: dict[str, str]) -> None:
    assert order(rows(1, "a"), rows(2, "b"), rows(3, "c", **changed)) == [3, 1, 2]


def test_the_widest_interval_of_the_variants() -> None:
    made = make_run()[1]
    narrow = replace(made, device_kind="cpu", speedup_low=1.0, speedup_high=1.02)
    wide = replace(narrow, speedup_high=1.21)
    assert speedup_halfwidth([narrow, wide]) == pytest.approx(math.log(1.21) / 2)
    unknown = replace(narrow, speedup_low=None, speedup_high=None)
    assert speedup_halfwidth([unknown, replace(narrow, speedup_high=math.inf)]) is None
