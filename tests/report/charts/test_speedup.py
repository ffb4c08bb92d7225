"""Speedups as values to draw: what wins, what loses, what is open, and where each lies."""

import math
from dataclasses import replace

import pytest

from pairbench.model.site import SeriesFacts
from pairbench.report.operator_charts import speedup_chart, speedup_summary, state_of
from tests.report.site import made

CASES = tuple(f"op[tokens={tokens}]" for tokens in (64, 8))


def variant(case: str, name: str, speedup: float, *, reach: float = 0.01, mode: str = "eager") -> SeriesFacts:
    facts = made.series_facts(made.series(case, name, mode))
    ends = {"speedup": speedup, "speedup_low": speedup * (1 - reach), "speedup_high": speedup * (1 + reach)}
    return replace(facts, axes={"tokens": int(case[10:-1])}, numbers={**facts.numbers, **ends})


def baseline(case: str, mode: str = "eager") -> SeriesFacts:
    return replace(variant(case, "baseline", 1.0, mode=mode), numbers={"p50_ns": 1.0})


def test_every_variant_of_every_case_has_a_row_below_the_name_of_its_case() -> None:
    series = [
        one for case in CASES for one in (baseline(case), variant(case, "fused", 2.0), variant(case, "plain", 0.5))
    ]
    chart = speedup_chart(series)
    assert chart.groups == ("tokens=8", "tokens=64") and chart.cases == CASES[::-1]
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
        chart.cases[one.group] for one in chart.points
    ]
    assert "2 slower than the baseline" in chart.subtitle
    assert speedup_summary(chart).startswith("4 pairs of a variant and a case: 2 proven faster, 2 proven slower.")


def test_modes_are_groups_of_their_own() -> None:
    series = [variant(CASES[0], "fused", 2.0, mode=mode) for mode in ("graph", "eager")]
    chart = speedup_chart(series)
    assert chart.modes == ("eager", "graph") and chart.groups == ("tokens=64, eager", "tokens=64, graph")


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
    chart = speedup_chart([skipped, variant(CASES[0], "fused", 2.0)])
    assert [point.variant for point in chart.points] == ["fused"] and chart.left_out == 1
    assert chart.variants == ("other", "fused"), "colours stay the same"
    assert speedup_summary(chart).endswith("Skipped and not shown: 1.")


@pytest.mark.parametrize("broken", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_ratio_is_no_speedup(broken: float) -> None:
    facts = made.series_facts()
    (point,) = speedup_chart([replace(facts, numbers={**facts.numbers, "speedup": broken})]).points
    assert point.state == "none" and math.isnan(point.speedup)


@pytest.mark.parametrize(("speedups", "log"), [((0.9, 2.0), False), ((1.1, 5.0), True), ((0.2,), True), ((), False)])
def test_a_wide_range_is_logarithmic(speedups: tuple[float, ...], log: bool) -> None:
    assert speedup_chart([variant(CASES[0], f"v{at}", value) for at, value in enumerate(speedups)]).log is log


def test_too_many_rows_are_shared_by_the_variants_of_a_case() -> None:
    cases = [f"op[tokens={tokens}]" for tokens in range(150)]
    chart = speedup_chart([variant(case, name, 2.0) for case in cases for name in ("a", "b")])
    assert chart.shared and chart.rows == 150 and chart.heads == tuple(range(150))
    assert [point.row for point in chart.points[:4]] == [0, 0, 1, 1]


def test_nothing_is_a_chart_too() -> None:
    chart = speedup_chart([])
    assert chart.points == () and chart.rows == 0
