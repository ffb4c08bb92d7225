"""The first screen in values: what stands for an operator, what a device's operators come to, and where a variant loses."""

import pytest

from pairbench.model.site import OverviewRow
from pairbench.site.summary import (
    device_summaries,
    family_of,
    is_self_test,
    operator_summaries,
    operator_verdict,
    where,
)
from pairbench.stats import Interval
from tests.report.site import made


def row(operator: str, speedup: float | None, **changes: object) -> OverviewRow:
    interval = Interval(speedup, 0.99 * speedup, 1.01 * speedup) if speedup is not None else None
    one: OverviewRow = made.row(operator, speedup=interval, **changes)
    return one


def test_the_headline_tier_stands_for_an_operator() -> None:
    rows = [row("a", 9.0, tier="smoke"), row("a", 2.0, tier="real"), row("a", 3.0, tier="headline", mode="graph")]
    rows += [row("a", 4.0, tier="headline"), row("a", 5.0, tier="headline", device_name="B", state="failed")]
    (one,) = operator_summaries(rows)
    assert [(each.device_name, each.speedup and each.speedup.estimate) for each in one.leading] == [
        ("B", 5.0),
        (made.DEVICE, 4.0),
    ]
    assert one.state == "failed" and len(one.rows) == 5
    (bare,) = operator_summaries([row("a", None, tier="headline"), row("a", 2.0, tier="real")])
    assert bare.leading[0].tier == "real"


def test_a_median_that_no_giant_ruins() -> None:
    rows = [
        row(f"op{number}", speedup, tier="headline") for number, speedup in enumerate((0.5, 1.5, 2.0, 3.0, 6_000.0))
    ]
    rows += [row("small", 40.0, tier="smoke"), row("test", 9.0, suite="selftest/a.py", tier="headline")]
    (whole, *_) = device_summaries(rows, ("selftest/*",))
    assert (whole.operators, len(whole.groups), whole.faster, whole.slower) == (6, 5, 4, 1)
    assert whole.median == 2.0 and whole.of == "device, headline tier"
    assert [one.operator for one in whole.wins] == ["op4", "op3", "op2", "op1"]
    assert [one.operator for one in whole.losses] == ["op0"]
    thin = device_summaries([row("a", 2.0, margin=0.000003), row("b", 2.0, margin=0.8)])[0].thin
    assert [one.operator for one in thin] == ["a"]


@pytest.mark.parametrize(("suite", "family"), [("suites/conv/causal.py", "conv"), ("planted.py", "planted")])
def test_a_family_is_the_folder_of_a_suite(suite: str, family: str) -> None:
    assert family_of(suite) == family
    assert is_self_test(suite, ["planted.py"]) == (family == "planted")


def test_where_it_loses_is_said_by_one_axis() -> None:
    def cases(*values: object) -> list[dict[str, object]]:
        return [{"dtype": "bf16", "t": value} for value in values]

    assert where(cases(1, 1), cases(4, 16)) == "t = 1"
    assert where(cases(1, 4), cases(16, 64)) == "t ≤ 4"
    assert where(cases(16, 64), cases(1)) == "t ≥ 16"
    assert where(cases("a", "b"), cases("c")) == "t is a, b"
    assert where(cases(1, 16), cases(1)) == where(cases(1), []) == where([], cases(1)) == ""


def test_no_speedup_no_verdict() -> None:
    assert operator_verdict([row("a", None)], []) is None and operator_verdict([], []) is None
