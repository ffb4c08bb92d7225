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


ABC = (rows(1, "a"), rows(2, "b"), rows(3, "c"))


@pytest.mark.parametrize(
    ("stored", "order"),
    [
        pytest.param((), [1, 2, 3], id="nothing"),
        pytest.param((rows(1, "b"), rows(2, "a")), [3, 2, 1], id="never measured, then oldest"),
        pytest.param((*ABC, rows(1, "d")), [2, 3, 1], id="measured again"),
        pytest.param((*ABC, rows(1, "d", reason=OUT_OF_BUDGET)), [1, 2, 3], id="out of budget is not tried"),
        pytest.param((*ABC, rows(1, "d", reason=NOT_REACHED)), [1, 2, 3], id="not reached is not tried"),
        pytest.param(
            (rows(1, "c", reason="mismatched"), rows(2, "a"), rows(3, "b")), [2, 3, 1], id="what fails has had its turn"
        ),
        pytest.param((*ABC[:2], rows(3, "c", definition_hash="other")), [3, 1, 2], id="another question"),
        pytest.param((*ABC[:2], rows(3, "c", implementation_hash="other")), [3, 1, 2], id="other code"),
    ],
)
def test_never_measured_comes_first_then_what_was_measured_longest_ago(
    stored: tuple[list[dict[str, Any]], ...], order: list[int]
) -> None:
    cases = in_turn([planned(n) for n in (1, 2, 3)], [row for of_case in stored for row in of_case])
    assert [dict(case.case.axes)["n"] for case in cases] == order


def test_the_widest_interval_of_the_variants() -> None:
    made = make_run()[1]
    narrow = replace(made, device_kind="cpu", speedup_low=1.0, speedup_high=1.02)
    wide = replace(narrow, speedup_high=1.21)
    assert speedup_halfwidth([narrow, wide]) == pytest.approx(math.log(1.21) / 2)
    unknown = replace(narrow, speedup_low=None, speedup_high=None)
    assert speedup_halfwidth([unknown, replace(narrow, speedup_high=math.inf)]) is None
