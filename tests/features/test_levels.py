"""What a calibration prints."""

import pytest

from pairbench.features.levels import render_calibrations
from pairbench.model.comparison import Calibration, Floor
from pairbench.model.record import Series


def calibration(*hosts: float | None, relative: float | None = None) -> Calibration:
    floors = {
        Series(device_name="D", suite="s.py", case=f"op[n={index}]", implementation="fast", mode="eager"): Floor(
            p50=0.002, p95=0.01, runs=5, source="calibration", latency="device", host=host, host_relative=relative
        )
        for index, host in enumerate(hosts)
    }
    return Calibration(
        calibration_id="c",
        made_at="2026-01-01T00:00:00+00:00",
        device_name="D",
        environment_hash="e",
        runs=("a", "b"),
        comparisons=1,
        judged=3,
        alarms=0,
        floors=floors,
    )


def test_it_says_in_how_many_series_the_host_is_judged() -> None:
    text = render_calibrations([calibration(0.03, 0.05, 0.4)], "markdown")
    assert "host floor, median" in text and "| 5.0% | 2 of 3 |" in text


def test_where_the_host_repeats_in_few_series_none_is_judged_by_itself() -> None:
    assert "| 40% | 0 of 3 |" in render_calibrations([calibration(0.03, 0.5, 0.4)], "markdown")


def test_where_the_ratio_to_the_baseline_repeats_the_host_is_judged() -> None:
    text = render_calibrations([calibration(0.3, 0.5, 0.4, relative=0.06)], "markdown")
    assert "host / baseline floor, median" in text and "| 40% | 6.0% | 3 of 3 |" in text


def test_where_the_ratio_may_double_by_itself_it_is_not_judged() -> None:
    assert "| 40% | 40% | 0 of 3 |" in render_calibrations([calibration(0.3, 0.5, 0.4, relative=0.4)], "markdown")


@pytest.mark.parametrize("output", ["markdown", "table"])
def test_of_a_cpu_it_says_nothing_of_the_host(output: str) -> None:
    assert "host" not in render_calibrations([calibration(None, None)], output)


def test_of_few_runs_it_says_that_there_are_no_floors() -> None:
    assert "no noise floors: they take 5 runs, and these were 2 (`--runs 5`)" in render_calibrations(
        [calibration()], "table"
    )
