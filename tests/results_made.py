"""Made-up operators with their records, for tests of the page of results."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pairbench.model.case import Claim, make_case
from pairbench.model.plan import ImplementationDescription, OperatorDescription
from pairbench.model.record import Record
from tests.builders import SUITE, described, make_run

NAME = "rms_norm"


def operator(
    *points: dict[str, Any],
    tier: str = "real",
    names: tuple[str, ...] = ("baseline", "fused"),
    claims: tuple[Claim, ...] = (),
    costs: bool = True,
    builds_on: Mapping[str, str] | None = None,
) -> OperatorDescription:
    """Return an operator as its suite would describe it, with a case for each point; `tokens` are its bytes."""
    cases = tuple(make_case(NAME, point, tier) for point in points)
    sizes = {case.key: float(point["tokens"]) for case, point in zip(cases, points, strict=True)}
    return described(
        suite=SUITE,
        path="",
        name=NAME,
        summary="Divide by the root mean square.",
        source="a paper",
        definition_hash="d" * 16,
        implementations=tuple(
            ImplementationDescription(name=name, needs=(), hash="", builds_on=(builds_on or {}).get(name, ""))
            for name in names
        ),
        cases=cases,
        costs={key: (size, size * 1024) for key, size in sizes.items()} if costs else {},
        claims=claims,
    )


def measured(declared: OperatorDescription, number: int = 0, **changes: Any) -> list[Record]:
    """Return the records of one run of all cases; speedups have an interval of a tenth to either side."""
    given = {"implementations": [item.name for item in declared.implementations], **changes}
    axes = {case.key: json.dumps(dict(case.axes)) for case in declared.cases}
    found = make_run(number, cases=[case.key for case in declared.cases], **given)
    return [
        replace(
            record,
            axes=axes[str(record.case)],
            dtype=next(case.dtype for case in declared.cases if case.key == record.case),
            speedup_low=record.speedup and record.speedup * 0.9,
            speedup_high=record.speedup and record.speedup * 1.1,
        )
        for record in found
    ]
