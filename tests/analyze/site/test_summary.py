"""The first screen in values: the rows of the overview, what stands for an operator and a device, and how far GPUs of one model differ."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.facts import series_facts
from pairbench.analyze.history.trend import Trend, make_trend
from pairbench.model.record import Record, Series
from pairbench.model.site import OverviewRow, SeriesFacts
from pairbench.site.summary import (
    device_summaries,
    family_of,
    gate_status_of,
    gpu_ratios,
    is_self_test,
    operator_summaries,
    operator_verdict,
    overview_rows,
    spreads,
    where,
)
from pairbench.stats import Interval
from tests.builders import CASES, DEVICE, SUITE, ended, make_run, only
from tests.report.site import made

IMPLEMENTATIONS = ("baseline", "fused", "slow")


def with_interval(record: Record) -> Record:
    speedup = record.speedup
    return record if speedup is None else replace(record, speedup_low=0.99 * speedup, speedup_high=1.01 * speedup)


def series_of(runs: Sequence[Sequence[Record]]) -> list[tuple[SeriesFacts, Trend]]:
    records = [record for run in runs for record in run]
    found = []
    for series in sorted({one for record in records if (one := Series.of(record))}):
        beside = [record for record in records if (record.case, record.mode) == (series.case, series.mode)]
        trend = make_trend(beside, series)
        newest = trend.points[-1].record
        facts = series_facts(newest, series, gate_status_of(newest.status, newest.reason, None, trend.newest))
        found.append((facts, trend))
    return found


def runs(number: int = 3) -> list[tuple[Record, ...]]:
    made = [make_run(day, implementations=IMPLEMENTATIONS, slower={"slow": 3.0}, cv=0.0) for day in range(number)]
    return [tuple(map(with_interval, run)) for run in made]


def test_the_best_variant_and_its_mean() -> None:
    (row,) = overview_rows(series_of(runs()))
    assert (row.operator, row.dtype, row.tier, row.mode, row.cases) == ("rms_norm", "bfloat16", "real", "eager", 2)
    assert row.variant == "fused" and row.losing == ()
    assert row.speedup is not None and row.speedup.estimate == pytest.approx(2.0)
    # Two independent cases of 1 % each: 1 % over the square root of two.
    assert math.log(row.speedup.high) - math.log(2) == pytest.approx(0.01 / math.sqrt(2), rel=0.01)
    assert (row.launches_before, row.launches_after) == ((6, 6), (1, 1))
    assert row.spark == pytest.approx((2.0, 2.0, 2.0)) and row.margin == 0.75
    assert row.statuses == {"measured": 6}


def test_a_case_in_which_the_best_variant_is_slower_is_named() -> None:
    slow: dict[str, Any] = {"call_p50_ns": 4e5, "speedup": 0.5, "speedup_low": 0.49, "speedup_high": 0.51}
    made = [
        [replace(one, **slow if (one.case, one.implementation) == (CASES[0], "fused") else {}) for one in run]
        for run in runs()
    ]
    (row,) = overview_rows(series_of(made))
    assert row.variant == "fused" and row.losing == (CASES[0],)
    assert row.least == pytest.approx(0.5) and row.most == pytest.approx(2.0)
    assert row.speedup is not None and row.speedup.estimate == pytest.approx(1.0)


def test_speedups_on_a_gpu_are_of_the_device_and_a_host_bound_case_is_named() -> None:
    """The call's ratio of what the host limits is a coin: the same two launches read 11.9x, then 1.4x."""
    made = [
        replace(record, device_p50_ns=2e4, device_speedup=1.27, device_speedup_low=1.26, device_speedup_high=1.28)
        if record.implementation == "fused"
        else replace(record, device_p50_ns=2.54e4)
        for record in runs(1)[0]
    ]
    bound = [replace(record, bound="host" if record.case == CASES[0] else "device") for record in made]
    (row,) = overview_rows(series_of([bound]))
    assert row.variant == "fused" and row.speedup is not None and row.speedup.estimate == pytest.approx(1.27)
    assert row.spark == pytest.approx((1.27,)) and row.latency == "device" and row.host_bound == (CASES[0],)
    (row,) = overview_rows(series_of([[replace(record, device_kind="cpu", bound=None) for record in made]]))
    assert row.speedup is not None and row.speedup.estimate == pytest.approx(2.0)
    assert row.latency == "call" and row.host_bound == ()


def test_groups_are_apart_and_a_failure_is_the_state_of_its_row() -> None:
    half = [replace(record, dtype="float16") for record in runs(1)[0]]
    failed = [ended(record, "mismatched", "off by 3") if record.implementation == "slow" else record for record in half]
    rows = overview_rows(series_of([runs(1)[0]]) + series_of([failed]))
    assert [row.dtype for row in rows] == ["bfloat16", "float16"]
    assert [row.state for row in rows] == ["undecided", "failed"]
    assert rows[1].statuses == {"measured": 4, "mismatched": 2}


def test_a_baseline_alone_and_failures_alone_have_no_variant() -> None:
    (row,) = overview_rows(series_of([make_run(0, implementations=("baseline",))]))
    assert (row.variant, row.speedup, row.launches_before, row.spark) == (None, None, None, ())
    (row,) = overview_rows(series_of([[ended(record, "failed") for record in make_run(0)]]))
    assert (row.variant, row.state) == (None, "failed")


def test_a_run_of_some_cases_only_is_left_out_of_the_line() -> None:
    first, second, third = runs()
    (row,) = overview_rows(series_of([first, only(second, case=CASES[0]), third]))
    assert len(row.spark) == 2


def row(operator: str, speedup: float | None, **changes: object) -> OverviewRow:
    interval = Interval(speedup, 0.99 * speedup, 1.01 * speedup) if speedup is not None else None
    one: OverviewRow = made.row(operator, speedup=interval, **changes)
    return one


def test_the_headline_tier_stands_for_an_operator() -> None:
    rows = [row("a", 9.0, tier="smoke"), row("a", 2.0, tier="real"), row("a", 3.0, tier="headline", mode="graph")]
    rows += [row("a", 4.0, tier="headline"), row("a", 5.0, tier="headline", device_name="B", state="failed")]
    (one,) = operator_summaries(rows)
    leading = [(each.device_name, each.speedup and each.speedup.estimate) for each in one.leading]
    assert leading == [("B", 5.0), (made.DEVICE, 4.0)]
    assert one.state == "failed" and len(one.rows) == 5
    (bare,) = operator_summaries([row("a", None, tier="headline"), row("a", 2.0, tier="real")])
    assert bare.leading[0].tier == "real"


def test_a_median_that_no_giant_ruins() -> None:
    speedups = (0.5, 1.5, 2.0, 3.0, 6_000.0)
    rows = [row(f"op{number}", speedup, tier="headline") for number, speedup in enumerate(speedups)]
    rows += [row("small", 40.0, tier="smoke"), row("test", 9.0, suite="selftest/a.py", tier="headline")]
    (whole, *_) = device_summaries(rows, ("selftest/*",))
    assert (whole.operators, len(whole.groups), whole.faster, whole.slower) == (6, 5, 4, 1)
    assert whole.median == 2.0 and whole.of == "device, headline tier"
    assert [one.operator for one in whole.wins] == ["op4", "op3", "op2", "op1"]
    assert [one.operator for one in whole.losses] == ["op0"]
    assert operator_verdict([row("a", None)], []) is None and operator_verdict([], []) is None
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


SERIES = Series(device_name=DEVICE, suite=SUITE, case=CASES[0], implementation="fused", mode="eager")


def trend(*runs: tuple[str | None, float, str]) -> Trend:
    """Return the trend of runs, each on a GPU, so much slower, of some source."""
    records: list[Record] = []
    for number, (gpu, slower, source) in enumerate(runs):
        made = make_run(number, cases=CASES[:1], slower={"fused": slower}, cv=0.0)
        records += [replace(record, device_uuid=gpu, implementation_hash=source) for record in made]
    return make_trend(records, SERIES)


def test_gpus_are_set_beside_the_median_one_and_other_code_and_single_ones_say_nothing() -> None:
    assert gpu_ratios(trend(("A", 1.0, "old"), ("B", 1.03, "new"))) == {}
    assert gpu_ratios(trend((None, 1.0, "s"), ("B", 1.03, "s"))) == {}
    found = gpu_ratios(trend(("A", 1.0, "s"), ("B", 1.03, "s"), ("C", 0.98, "s"), ("A", 1.0, "s")))
    assert found == pytest.approx({"A": 1.0, "B": 1.03, "C": 0.98})
    (slowest, *_) = rows = spreads([(DEVICE, found), (DEVICE, {"A": 1.0, "B": 1.05})])
    assert [row.gpu for row in rows] == ["B", "A", "C"]
    assert slowest.series == 2 and slowest.ratio == pytest.approx(1.04)
