import math
from dataclasses import replace
from typing import Any

import pytest

from pairbench.model.site import SeriesFacts
from pairbench.report.operator_charts import (
    intensity_of,
    ridge,
    roof_fraction,
    roofline_chart,
    roofline_summary,
    speedup_chart,
    speedup_summary,
    state_of,
)
from pairbench.site.operator import LIMITS, limit_of
from tests.report.site import made

CEILINGS = {"copy_gbps": 4000.0, "float32_tflops": 50.0, "bfloat16_tflops": 800.0}


def facts(implementation: str = "fused", dtype: str = "bfloat16", **numbers: Any) -> SeriesFacts:
    one = made.series_facts(made.series(implementation=implementation), dtype=dtype)
    return replace(one, numbers={**one.numbers, **numbers})


def test_points_are_what_was_achieved_over_what_the_case_demands() -> None:
    one = facts(flops=2e12, bytes_moved=1e9, tflops=400.0, gbps=200.0, roofline_fraction=0.5)
    (point,) = roofline_chart([one], CEILINGS).points
    assert (point.intensity, point.tflops, point.gbps, point.fraction) == (2000.0, 400.0, 200.0, 0.5)
    assert point.label == "bfloat16, tokens=1024"
    chart = roofline_chart([facts(roofline_fraction=1.8), facts("other", roofline_fraction=0.2)], CEILINGS)
    told = roofline_summary(chart)
    assert told.startswith("2 series. Nearest to its roof, or highest above it: fused at 180%")
    assert "1 above a roof" in told
    assert [roof.name for roof in chart.roofs] == ["copy", "bfloat16"], "those of the dtypes in use"


def test_roofs_meet_at_the_ridge_and_end_within_the_axes() -> None:
    chart = roofline_chart([facts(), facts("other", "float32")], CEILINGS)
    copy, *flat = chart.roofs
    assert [roof.name for roof in chart.roofs] == ["copy", "bfloat16", "float32"]
    assert copy.label == "copy 4000 GB/s" and flat[0].label == "bfloat16 800.0 TFLOP/s"
    assert all(y == pytest.approx(4.0 * x) for x, y in zip(copy.x, copy.y, strict=True))
    assert copy.x[1] == flat[0].x[0] == ridge(CEILINGS, "bfloat16") == 200.0
    assert flat[1].x[0] == 12.5 and flat[1].y == (50.0, 50.0)
    for roof in chart.roofs:
        assert chart.x[0] <= min(roof.x) and max(roof.x) <= chart.x[1]
        assert chart.y[0] <= min(roof.y) and max(roof.y) <= chart.y[1]
    for point in chart.points:
        assert chart.x[0] < point.intensity < chart.x[1] and chart.y[0] < point.tflops < chart.y[1]


def test_a_case_without_a_dtype_has_a_roof_only_where_memory_limits_in_all() -> None:
    """The record takes float32 for granted, which may be 16 times too little."""
    below = facts(dtype="", flops=1e9, bytes_moved=1e9, gbps=2000.0, roofline_fraction=0.5)
    above = facts(dtype="", flops=1e12, bytes_moved=1e9, gbps=2000.0, tflops=200.0, roofline_fraction=4.0)
    assert roof_fraction(below, CEILINGS) == 0.5 and math.isnan(roof_fraction(above, CEILINGS))
    chart = roofline_chart([above], CEILINGS)
    assert [roof.name for roof in chart.roofs] == ["copy", "bfloat16", "float32"]
    assert chart.subtitle.endswith("all roofs are shown") and roofline_summary(chart).endswith(
        "what roof is theirs is not known."
    )


def test_what_has_no_declared_arithmetic_is_counted_and_left_out() -> None:
    undeclared = replace(facts("other"), numbers={"p50_ns": 1.0})
    chart = roofline_chart([facts(), undeclared, facts("copies", flops=0.0, tflops=0.0), made.failed()], CEILINGS)
    assert [point.series_index for point in chart.points] == [0] and chart.left_out == 2
    assert math.isnan(intensity_of(undeclared))


@pytest.mark.parametrize("ceilings", [{}, {"copy_gbps": 0.0}, {"bfloat16_tflops": 800.0}, {"copy_gbps": 4000.0}])
def test_roofs_that_were_not_measured_are_not_drawn(ceilings: dict[str, float]) -> None:
    chart = roofline_chart([facts()], ceilings)
    assert {roof.name for roof in chart.roofs} == {
        {"copy_gbps": "copy"}.get(name, "bfloat16") for name, value in ceilings.items() if value
    }
    assert all(0 < low < high < math.inf for low, high in (chart.x, chart.y))


def test_nothing_is_a_chart_too() -> None:
    roofline, speedups = roofline_chart([], {}), speedup_chart([])
    assert roofline.points == () and roofline.roofs == () and "no place" not in roofline_summary(roofline)
    assert speedups.points == () and speedups.rows == 0
    assert limit_of(made.failed(), CEILINGS).word == ""


@pytest.mark.parametrize(
    ("numbers", "word", "detail"),
    [
        (
            {"host_p50_ns": 88e3, "device_p50_ns": 17.9e3, "kernels_per_call": 8},
            "host",
            "88 us to issue 18 us of work",
        ),
        (
            {"call_p50_ns": 4.1e6, "device_p50_ns": 4e6, "kernels_per_call": 2000},
            "launches",
            "2000 kernels of 2.000 us",
        ),
        ({"call_p50_ns": 5e3, "device_p50_ns": 5e3, "kernels_per_call": 1}, "launches", "1 kernel of 5.000 us"),
        ({"call_p50_ns": 1e6, "device_p50_ns": 1e6, "roofline_fraction": 0.9}, "memory", "90% of its roof"),
        (
            {"call_p50_ns": 1e6, "device_p50_ns": 1e6, "roofline_fraction": 0.7, "flops": 1e12, "bytes_moved": 1e9},
            "compute",
            "70% of its roof",
        ),
        ({"call_p50_ns": 1e6, "device_p50_ns": 1e6, "roofline_fraction": 0.1}, "none of these", "10% of its roof"),
    ],
)
def test_what_limits_a_series(numbers: dict[str, Any], word: str, detail: str) -> None:
    one = facts(**numbers)
    found = limit_of(replace(one, texts={**one.texts, "bound": "host" if word == "host" else "device"}), CEILINGS)
    assert (found.word, found.detail) == (word, detail) and found.word in LIMITS


CASES = tuple(f"op[tokens={tokens}]" for tokens in (64, 8))


def paired(case: str, name: str, speedup: float = 1.0, *, mode: str = "eager") -> SeriesFacts:
    axes = {"tokens": int(case[10:-1])}
    return made.series_facts(made.series(case, name, mode), level=2e5 / speedup, axes=axes)


def test_every_variant_of_every_case_has_a_row_below_the_name_of_its_case() -> None:
    series = [
        one
        for case in CASES
        for one in (paired(case, "baseline"), paired(case, "fused", 2.0), paired(case, "plain", 0.5))
    ]
    chart = speedup_chart(series)
    assert chart.groups == ("tokens=8", "tokens=64")
    assert chart.heads == (0, 3) and chart.rows == 6 and not chart.shared
    assert [(point.row, point.variant, point.state) for point in chart.points] == [
        (1, "fused", "faster"),
        (2, "plain", "slower"),
        (4, "fused", "faster"),
        (5, "plain", "slower"),
    ]
    assert [series[point.series_index].series.implementation for point in chart.points] == [
        one.variant for one in chart.points
    ]
    assert [series[point.series_index].series.case for point in chart.points] == [
        f"op[{chart.groups[one.group]}]" for one in chart.points
    ]
    assert speedup_summary(chart).startswith("4 pairs of a variant and a case: 2 proven faster, 2 proven slower.")
    modes = speedup_chart([paired(CASES[0], "fused", 2.0, mode=mode) for mode in ("graph", "eager")])
    assert modes.groups == ("tokens=64, eager", "tokens=64, graph")


@pytest.mark.parametrize(
    ("speedup", "low", "high", "state"),
    [
        (2.0, 1.9, 2.1, "faster"),
        (0.5, 0.4, 0.6, "slower"),
        (1.2, 0.9, 1.5, "open"),
        (1.0, 1.0, 1.0, "open"),
        (2.0, math.nan, math.nan, "open"),
        (math.nan, math.nan, math.nan, "none"),
    ],
)
def test_only_an_interval_beside_one_is_proof(speedup: float, low: float, high: float, state: str) -> None:
    assert state_of(speedup, low, high) == state


def test_what_has_no_speedup_says_why() -> None:
    alone = replace(made.series_facts(), numbers={"p50_ns": 1.0})
    chart = speedup_chart([made.failed(status="mismatched"), alone])
    assert [(point.state, point.note) for point in chart.points] == [
        ("none", "mismatched"),
        ("none", "no baseline to compare with"),
    ]
    assert all(math.isnan(value) for point in chart.points for value in (point.speedup, point.low, point.high))
    assert speedup_summary(chart) == "No variant has a speedup yet."


def test_what_was_skipped_says_nothing_of_speed_and_is_only_counted() -> None:
    skipped = replace(made.failed(made.series(CASES[0], "other"), status="skipped"), axes={"tokens": 64})
    chart = speedup_chart([skipped, paired(CASES[0], "fused", 2.0)])
    assert [point.variant for point in chart.points] == ["fused"] and chart.left_out == 1
    assert speedup_summary(chart).endswith("Skipped and not shown: 1.")


@pytest.mark.parametrize("broken", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_ratio_is_no_speedup(broken: float) -> None:
    facts = made.series_facts()
    (point,) = speedup_chart([replace(facts, numbers={**facts.numbers, "speedup": broken})]).points
    assert point.state == "none" and math.isnan(point.speedup)


@pytest.mark.parametrize(("speedups", "log"), [((0.9, 2.0), False), ((1.1, 5.0), True), ((0.2,), True), ((), False)])
def test_a_wide_range_is_logarithmic(speedups: tuple[float, ...], log: bool) -> None:
    assert speedup_chart([paired(CASES[0], f"v{at}", value) for at, value in enumerate(speedups)]).log is log


def test_too_many_rows_are_shared_by_the_variants_of_a_case() -> None:
    cases = [f"op[tokens={tokens}]" for tokens in range(150)]
    chart = speedup_chart([paired(case, name, 2.0) for case in cases for name in ("a", "b")])
    assert chart.shared and chart.rows == 150 and chart.heads == tuple(range(150))
    assert [point.row for point in chart.points[:4]] == [0, 0, 1, 1]
