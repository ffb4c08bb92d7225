"""The sums by weight at the end of a run."""

from dataclasses import replace

import pytest

from pairbench.model.case import Case
from pairbench.model.plan import LIBRARY, ImplementationDescription, OperatorDescription
from pairbench.model.record import Record
from pairbench.report.weighted import weighted, weighted_lines
from tests.builders import described, make_run


def operator(**weights: float | None) -> OperatorDescription:
    cases = tuple(Case(operator="op", axes=(("n", int(n[1:])),), tier="real", weight=of) for n, of in weights.items())
    kinds = {"baseline": "", "fused": "", "builtin": LIBRARY}
    known = tuple(ImplementationDescription(name=name, needs=(), hash="", kind=kind) for name, kind in kinds.items())
    return described(cases=cases, implementations=known)


def records(**times_ms: tuple[float, float, float]) -> list[Record]:
    """Return the records of the baseline, `fused` and `builtin` for each case."""
    names = ("baseline", "fused", "builtin")
    return [
        replace(record, suite="ops.py", call_p50_ns=times_ms[n][names.index(record.implementation)] * 1e6)
        for n in times_ms
        for record in make_run(cases=[f"op[n={n[1:]}]"], implementations=names)
    ]


def test_times_are_added_by_weight() -> None:
    (row,) = weighted(records(n1=(4.0, 2.0, 3.0), n2=(1.0, 1.5, 2.0)), [operator(n1=10, n2=5)])
    assert row["baseline_ms"] == pytest.approx(45)
    assert row["best_ms"] == pytest.approx(25)  # the baseline is the best of the second
    assert row["alternatives_ms"] == pytest.approx(35)
    assert row["gain"] == pytest.approx(20 / 45)
    assert row["operators"] == [{"operator": "op", "best": "fused", "gain": pytest.approx(20 / 45)}]


def test_cases_without_a_weight_do_not_count_and_those_without_a_latency_are_named() -> None:
    found = [
        one
        for one in records(n1=(4.0, 2.0, 3.0), n2=(1.0, 0.5, 2.0))
        if one.case != "op[n=1]" or one.role != "baseline"
    ]
    (row,) = weighted(found, [operator(n1=10, n2=5)])
    assert row["unmeasured"] == ["op[n=1]"]
    assert "op[n=1]" in weighted_lines([row])[-1]
    assert weighted(found, [operator(n1=None, n2=None)]) == []
