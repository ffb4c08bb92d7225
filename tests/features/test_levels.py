import pytest

from pairbench.features.levels import render_calibrations
from pairbench.model.comparison import Calibration, Floor
from pairbench.model.record import Series
from tests.builders import make_calibration


def calibration(*hosts: float | None, relative: float | None = None) -> Calibration:
    floors = {
        Series(device_name="D", suite="s.py", case=f"op[n={index}]", implementation="fast", mode="eager"): Floor(
            p50=0.002, p95=0.01, runs=5, source="calibration", latency="device", host=host, host_relative=relative
        )
        for index, host in enumerate(hosts)
    }
    return make_calibration(floors)


@pytest.mark.parametrize(
    ("hosts", "relative", "header", "row"),
    [
        ((0.03, 0.05, 0.4), None, "host floor, median", "| 5.0% | 2 of 3 |"),
        ((0.03, 0.5, 0.4), None, "host floor, median", "| 40% | 0 of 3 |"),  # the host repeats in too few series
        ((0.3, 0.5, 0.4), 0.06, "host / baseline floor, median", "| 40% | 6.0% | 3 of 3 |"),
        ((0.3, 0.5, 0.4), 0.4, "host / baseline floor, median", "| 40% | 40% | 0 of 3 |"),  # it may double by itself
    ],
)
def test_it_says_in_how_many_series_the_host_is_judged(
    hosts: tuple[float, ...], relative: float | None, header: str, row: str
) -> None:
    text = render_calibrations([calibration(*hosts, relative=relative)], "markdown")
    assert header in text and row in text


@pytest.mark.parametrize("output", ["markdown", "table"])
def test_of_a_cpu_it_says_nothing_of_the_host(output: str) -> None:
    assert "host" not in render_calibrations([calibration(None, None)], output)


def test_of_few_runs_it_says_that_there_are_no_floors() -> None:
    assert "no noise floors: they take 5 runs, and these were 2 (`--runs 5`)" in render_calibrations(
        [calibration()], "table"
    )
