"""The rows of the overview: which variant is best, by how much, where it loses, and what needs attention."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pairbench.analyze.facts import series_facts
from pairbench.analyze.history.trend import Trend, make_trend
from pairbench.model.record import Record, Series
from pairbench.model.site import SeriesFacts
from pairbench.site.summary import gate_status_of, overview_rows
from tests.builders import CASES, ended, make_run

IMPLEMENTATIONS = ("baseline", "fused", "slow")


def with_interval(record: Record, width: float = 0.01) -> Record:
    if record.speedup is None:
        return record
    return replace(record, speedup_low=record.speedup * (1 - width), speedup_high=record.speedup * (1 + width))


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


def runs(number: int = 3, **slower: float) -> list[tuple[Record, ...]]:
    factors = {"slow": 3.0, **{key.replace("_", "-"): value for key, value in slower.items()}}
    made = [make_run(day, implementations=IMPLEMENTATIONS, slower=factors, cv=0.0) for day in range(number)]
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
    made = [
        tuple(
            replace(record, call_p50_ns=4e5, speedup=0.5, speedup_low=0.49, speedup_high=0.51)
            if (record.case, record.implementation) == (CASES[0], "fused")
            else record
            for record in run
        )
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
    some = tuple(record for record in second if record.case == CASES[0])
    (row,) = overview_rows(series_of([first, some, third]))
    assert len(row.spark) == 2
