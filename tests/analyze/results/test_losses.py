"""Where variants lose, and the condition that tells it."""

from dataclasses import replace

from pairbench.features.results.operator import CasePoint, condition_of, results_of
from pairbench.features.results.values import AxisBound, LossCondition
from tests.results_made import measured, operator


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
    found = results_of(declared, records, ("real",))
    assert found is not None
    (loss,) = found.losses
    assert (loss.implementation, loss.mode, loss.measured) == ("slow", "eager", 4)
    assert [record.case for record in loss.losing] == [f"rms_norm[tokens={tokens}]" for tokens in (2, 4, 8)]
    assert loss.where == LossCondition(
        terms=(AxisBound(axis="tokens", relation=">=", value=2),), inside=(3, 3), outside=(0, 1)
    )


def test_one_bound_or_one_word() -> None:
    assert told([CasePoint(axes={"n": n}, loses=n >= 8) for n in range(12)]) == ("n >= 8",)
    assert told([CasePoint(axes={"n": n}, loses=n <= 3) for n in range(12)]) == ("n <= 3",)
    words = [
        CasePoint(axes={"n": n, "layout": layout}, loses=layout == "last")
        for n in range(4)
        for layout in ("first", "last")
    ]
    assert told(words) == ("layout = last",)


def test_an_axis_that_a_case_leaves_out_meets_no_bound() -> None:
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
    assert condition_of([CasePoint(axes={"n": n}, loses=n % 2 == 0) for n in range(40)]) is None
    assert condition_of([CasePoint(axes={"n": n}, loses=True) for n in range(9)]) is None
    assert condition_of([CasePoint(axes={"n": n}, loses=n == 8) for n in range(9)]) is None
    assert condition_of([CasePoint(axes={"n": n}, loses=n > 1) for n in range(3)]) is None
    assert condition_of([CasePoint(axes={}, loses=n > 1) for n in range(9)]) is None
