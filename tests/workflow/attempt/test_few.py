"""Which cases a quick look takes."""

import pytest

from pairbench.model.case import Case, make_case
from pairbench.model.environment import Device
from pairbench.model.plan import ImplementationDescription, OperatorDescription, PlannedCase
from pairbench.plan import parse_selection
from pairbench.workflow.attempt.few import one_of_each

CPU = Device(selector="cpu", kind="cpu", name="a CPU")
GPU = Device(selector="cuda:0", kind="cuda", name="a GPU", uuid="GPU-0")


def planned(name: str) -> tuple[PlannedCase, ...]:
    cases: tuple[Case, ...] = tuple(
        make_case(name, {"n": n}, tier)
        for tier, sizes in (("smoke", (1, 2)), ("headline", (7,)), ("real", (3, 4)))
        for n in sizes
    )
    operator = OperatorDescription(
        suite="ops.py",
        path="/ops.py",
        name=name,
        summary="",
        source="",
        definition_hash="",
        implementations=(ImplementationDescription(name="baseline", needs=(), hash=""),),
        impostors=(),
        cases=cases,
    )
    return tuple(PlannedCase(operator=operator, case=case, entries=()) for case in cases)


CASES = (*planned("silu"), *planned("silu_and_mul"))


@pytest.mark.parametrize(
    ("select", "device", "taken"),
    [
        ([], CPU, ["silu[n=1]", "silu_and_mul[n=1]"]),
        ([], GPU, ["silu[n=3]", "silu_and_mul[n=3]"]),
        (["ops.py"], GPU, ["silu[n=3]", "silu_and_mul[n=3]"]),
        (["silu*"], GPU, ["silu[n=3]", "silu_and_mul[n=3]"]),
        (["silu[n=2]"], GPU, ["silu[n=2]", "silu_and_mul[n=3]"]),
        (["ops.py::silu[n=2]", "ops.py::silu[n=7]"], GPU, ["silu[n=2]", "silu[n=7]", "silu_and_mul[n=3]"]),
        (["*[n=4]"], GPU, ["silu[n=4]", "silu_and_mul[n=4]"]),
        (["ops.py::silu*", "*[n=7]"], GPU, ["silu[n=7]", "silu_and_mul[n=7]"]),
    ],
)
def test_cases_that_are_named_are_taken_and_of_other_operators_one(
    select: list[str], device: Device, taken: list[str]
) -> None:
    found = one_of_each(CASES, [parse_selection(text) for text in select], device)
    assert [one.case.key for one in found] == taken


def test_where_a_tier_was_asked_for_its_first_case_is_taken() -> None:
    headline = [one for one in CASES if one.case.tier == "headline"]
    assert [one.case.key for one in one_of_each(headline, [], GPU)] == ["silu[n=7]", "silu_and_mul[n=7]"]
