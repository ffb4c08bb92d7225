"""A published figure is complete or refused, and belongs to cases that are there."""

import math
import re
from collections.abc import Mapping
from typing import Any

import pytest

from pairbench.errors import DeclarationError
from pairbench.model.case import QUANTITIES, Claim, grid
from pairbench.model.operator import Operator


def claim(**changes: Any) -> Claim:
    given: dict[str, Any] = {"source": "somebody #1", "device": "a GPU"}
    given.update(changes if set(changes) & set(QUANTITIES) else {"speedup": 2.0, **changes})
    return Claim(**given)


def inputs(make: Any, rows: int, dtype: str = "float32") -> Mapping[str, Any]:
    return {"x": make.normal(rows, dtype=dtype)}


def declare(*claims: Claim, **changes: Any) -> Operator:
    given: dict[str, Any] = {
        "baseline": lambda x: x + x,
        "variants": {"fast": lambda x: x * 2},
        "inputs": inputs,
        "cases": {"real": grid(rows=[1, 2], dtype=["float32"]), "edge": [{"rows": 0}]},
        "claims": claims,
    }
    return Operator("double", **{**given, **changes})


@pytest.mark.parametrize(
    ("given", "quantity", "ratio"),
    [
        ({"speedup": 18.2}, "speedup", (18.2, 18.2)),
        ({"speedup": (1.14, 1.31)}, "speedup", (1.14, 1.31)),
        ({"latency_ms": (1284.0, 642.0)}, "latency_ms", (2.0, 2.0)),
        ({"launches": (4096, 4)}, "launches", (1024.0, 1024.0)),
        ({"syncs": (8, 0)}, "syncs", (math.inf, math.inf)),
        ({"peak_gib": (3.0, 1.5)}, "peak_gib", (2.0, 2.0)),
    ],
)
def test_a_claim_is_about_one_thing(given: dict[str, Any], quantity: str, ratio: tuple[float, float]) -> None:
    found = claim(**given)
    assert found.quantity == quantity
    assert found.ratio == ratio
    assert (found.pair is None) == (quantity == "speedup")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"speedup": None, "latency_ms": None}, "it is about nothing, expected one of speedup, latency_ms"),
        ({"speedup": 2.0, "launches": (2, 1)}, "it is about speedup and launches"),
        ({"speedup": 0.0}, "speedup is 0.0, expected a number above 0, or (least, most)"),
        ({"speedup": (2.0, 1.0)}, "speedup is (2.0, 1.0)"),
        ({"speedup": ("a", "b")}, "speedup is ('a', 'b')"),
        ({"speedup": math.inf}, "speedup is inf"),
        ({"latency_ms": 1.0}, "latency_ms is 1.0, expected (baseline, variant)"),
        ({"launches": (4.5, 1)}, "expected (baseline, variant) of whole numbers"),
        ({"launches": (True, 1)}, "launches is (True, 1)"),
        ({"syncs": (1, -1)}, "syncs is (1, -1)"),
        ({"device": " "}, "device is ' ', expected a text"),
        ({"source": None}, "source is None, expected a text"),
        ({"mode": "fast"}, "mode 'fast' is unknown, expected one of eager, compile, graph"),
        ({"cases": {"rows": 1}}, "cases is {'rows': 1}, expected a list"),
    ],
)
def test_what_is_no_claim_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(sentence)):
        claim(**given)


def test_a_claim_belongs_to_the_cases_that_it_names_whole() -> None:
    operator = declare(claim(cases=[{"dtype": "float32", "rows": 2}]))
    belonging = [case.key for case in operator.cases if operator.claims[0].belongs_to(case)]
    assert belonging == ["double[dtype=float32,rows=2]"]
    assert claim(cases=[{"size": [3, 1]}]).cases == claim(cases=[{"size": (3, 1)}]).cases


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        (
            (claim(cases=[{"rows": 2}]),),
            "somebody #1 belongs to {'rows': 2}, which is none of the cases that are timed",
        ),
        ((claim(cases=[{"rows": 0}]),), "belongs to {'rows': 0}, which is none of the cases that are timed"),
        ((claim(implementation="slow"),), "is about 'slow', expected one of fast"),
        (("18.2x",), "'18.2x' is no claim, expected Claim(...)"),
        ("fast", "claims is 'fast', expected a list of Claim(...)"),
    ],
    ids=["a part of the axes", "an edge case", "no variant", "text", "no list"],
)
def test_an_operator_refuses_claims_about_what_it_has_not(claims: Any, sentence: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(sentence)):
        declare(claims=claims)
