import math
from dataclasses import replace
from typing import Any

import pytest

from pairbench.model.case import Case
from pairbench.model.outcome import NOT_REACHED, OUT_OF_BUDGET
from pairbench.model.plan import Entry, ImplementationDescription, PlannedCase
from pairbench.workflow.record import COLUMNS, existing, in_turn, speedup_halfwidth
from tests.builders import described, make_run

NAMES = ("baseline", "fast", "gluon")
CASE = Case(operator="op", axes=(("rows", 4),), tier="smoke")
OPERATOR = described(
    definition_hash="question",
    implementations=tuple(ImplementationDescription(name=name, needs=(), hash=f"code of {name}") for name in NAMES),
    cases=(CASE,),
)
ENTRIES = tuple(Entry(implementation=name, mode="eager") for name in NAMES)
PLANNED = PlannedCase(operator=OPERATOR, case=CASE, entries=ENTRIES, skipped={ENTRIES[2]: "needs sm_90"})


def row(implementation: str, run_id: str = "first", **more: Any) -> dict[str, Any]:
    found = {
        "run_id": run_id,
        "suite": "ops.py",
        "case": CASE.key,
        "implementation": implementation,
        "mode": "eager",
        "definition_hash": "question",
        "implementation_hash": f"code of {implementation}",
        "status": "measured",
        "reason": None,
        "timer": "cuda_event",
        "n_rounds": 3.0,
        "launch_status": "exact",
    }
    assert set(found) == set(COLUMNS)
    return found | more


def there(*rows: dict[str, Any], rounds: int = 3) -> bool:
    return bool(existing([PLANNED], rows, timer="cuda_event", rounds=rounds))


def test_a_case_that_was_measured_whole_is_there() -> None:
    assert there(row("baseline"), row("fast"))
    assert not there()
    assert there(row("baseline", n_rounds=1), row("fast", n_rounds=1), rounds=1)
    nothing = replace(PLANNED, skipped=dict.fromkeys(ENTRIES, "needs sm_90"))
    assert existing([nothing], [], timer="cuda_event", rounds=1) == set(), "what nothing can run here is not there"


@pytest.mark.parametrize(
    "other",
    [
        {"definition_hash": "another question"},
        {"implementation_hash": "other code"},
        {"timer": "do_bench"},
        {"n_rounds": 2.0},
        {"n_rounds": float("nan")},
        {"launch_status": None},
        {"launch_status": float("nan")},
        {"mode": "graph"},
        {"case": "op[rows=5]"},
        {"suite": "others.py"},
        {"status": "failed"},
        {"status": "oom"},
        {"status": "timeout"},
        {"status": "skipped", "reason": NOT_REACHED},
        {"run_id": "second"},
    ],
    ids=lambda other: "-".join(map(str, other.values()))[:40],
)
def test_one_entry_that_differs_is_enough_to_measure_it_again(other: dict[str, Any]) -> None:
    assert not there(row("baseline"), row("fast", **other))
    assert there(row("baseline"), row("fast"), row("fast", **{"run_id": "second"} | other))


@pytest.mark.parametrize(
    "final", [{"status": "mismatched"}, {"status": "skipped", "reason": "not valid here"}, {"n_rounds": 5.0}]
)
def test_what_would_come_again_is_there(final: dict[str, Any]) -> None:
    assert there(row("baseline"), row("fast", **final))


def planned(n: int) -> PlannedCase:
    case = Case(operator="op", axes=(("n", n),), tier="smoke")
    return PlannedCase(operator=OPERATOR, case=case, entries=ENTRIES)


def rows(n: int, run_id: str, **changed: Any) -> list[dict[str, Any]]:
    return [row(name, run_id, case=f"op[n={n}]", **changed) for name in NAMES]


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
