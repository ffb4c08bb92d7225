"""What differs between two descriptions of an operator, which untouched ones are the control, and what the store is told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.features.since import TouchedSuite, control_sample, difference
from pairbench.model.case import Case
from pairbench.model.plan import ImplementationDescription, OperatorDescription
from pairbench.workflow.requested import Narrowed

TOUCHED = TouchedSuite(suite="ops.py", file=Path("/ops.py"), was=Path("/ops.py"), unhashed=())


def implementation(name: str, digest: str = "1") -> ImplementationDescription:
    return ImplementationDescription(name=name, needs=(), hash=digest)


def operator(
    name: str = "op", suite: str = "ops.py", tiers: tuple[str, ...] = ("smoke", "real")
) -> OperatorDescription:
    return OperatorDescription(
        suite=suite,
        path=f"/{suite}",
        name=name,
        summary="",
        source="",
        definition_hash="d",
        implementations=(implementation("baseline"), implementation("v")),
        impostors=(),
        cases=tuple(Case(operator=name, axes=(("n", n),), tier=tier) for n, tier in enumerate(tiers)),
        code_digest="c",
    )


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ({}, ""),
        ({"summary": "other words", "costs": {"a": (1.0, 2.0)}}, ""),
        ({"definition_hash": "e"}, "its definition differs"),
        ({"implementations": (implementation("baseline"), implementation("v", "2"))}, "v differs"),
        (
            {"implementations": (implementation("baseline", "2"), implementation("w"))},
            "baseline differs, w is new, v is gone",
        ),
        ({"cases": operator(tiers=("smoke",)).cases}, "its cases differ"),
        ({"code_digest": "other"}, "code that it reaches differs"),
    ],
)
def test_what_differs(now: dict[str, Any], why: str) -> None:
    assert difference(operator(), replace(operator(), **now), TOUCHED) == why


def test_what_is_new_and_what_no_hash_covers() -> None:
    assert difference(None, operator(), TOUCHED) == "new"
    touched = replace(TOUCHED, unhashed=("mylib/step.py",))
    assert difference(operator(), operator(), touched) == "its suite uses mylib/step.py"


def test_controls_are_few_the_same_and_of_different_suites() -> None:
    many = [operator(f"op{n}_{of}", suite=f"suite{of}.py") for of in range(5) for n in range(20)]
    sample = control_sample(many, {"smoke", "real"})
    assert len(sample) == 3 == len({one.suite for one in sample})
    assert [[case.tier for case in one.cases] for one in sample] == [["real"]] * 3
    assert control_sample(list(reversed(many)), {"smoke", "real"}) == sample
    # One that is touched is replaced, and the others stay.
    others = [one for one in many if one.name != sample[0].name]
    assert {one.name for one in control_sample(others, {"smoke", "real"})} >= {one.name for one in sample[1:]}


def test_controls_of_few_operators() -> None:
    assert len(control_sample([operator("a"), operator("b")], {"smoke"})) == 1
    assert control_sample([operator("a", tiers=("headline",))], {"smoke"}) == ()
    assert control_sample([], {"smoke"}) == ()


def test_what_the_store_is_told() -> None:
    """What is whole by its name, so that a case that vanishes is missing; what is taken in part by its cases of these tiers."""
    narrowed = Narrowed(
        ref="main",
        sha="0123456789",
        changed={("ops.py", "whole"): "new", ("ops.py", "part"): "v differs"},
        whole=frozenset({("ops.py", "whole")}),
        control={("ops.py", "still"): "still[n=0]"},
        left_out=tuple(("ops.py", f"op{n}") for n in range(50)),
        gone=(("ops.py", "past"), ("old.py", None)),
    )
    operators = [operator("whole"), operator("part"), operator("still", tiers=("smoke",))]
    assert list(narrowed.select(operators, {"smoke"}, {"part[n=1]"})) == [
        *(("ops.py", name) for name in ("whole", "part[n=0]", "part[n=1]", "still[n=0]")),
        *narrowed.gone,
    ]
    told = "\n".join(narrowed.lines())
    for words in (
        "main (0123456)",
        "whole (new)",
        "still[n=0]",
        "50 operators untouched",
        "and 10 more",
        "past, old.py",
    ):
        assert words in told
    assert len(narrowed.plain()["left_out"]) == 50
