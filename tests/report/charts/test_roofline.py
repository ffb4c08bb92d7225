"""A roofline as values to draw: points, roofs, and what is not known."""

import math
from dataclasses import replace
from typing import Any

import pytest

from pairbench.model.site import SeriesFacts
from pairbench.report.operator_charts import intensity_of, ridge, roof_fraction, roofline_chart, roofline_summary
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


def test_roofs_are_those_of_the_dtypes_in_use() -> None:
    assert [roof.name for roof in roofline_chart([facts()], CEILINGS).roofs] == ["copy", "bfloat16"]


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


def test_what_lies_above_a_roof_is_said() -> None:
    told = roofline_summary(
        roofline_chart([facts(roofline_fraction=1.8), facts("other", roofline_fraction=0.2)], CEILINGS)
    )
    assert (
        told.startswith("2 series. Nearest to its roof, or highest above it: fused at 180%")
        and "1 above a roof" in told
    )


def test_nothing_is_a_chart_too() -> None:
    chart = roofline_chart([], {})
    assert chart.points == () and chart.roofs == () and "no place" not in roofline_summary(chart)


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


def test_what_limits_a_failure_is_not_known() -> None:
    assert limit_of(made.failed(), CEILINGS).word == ""
