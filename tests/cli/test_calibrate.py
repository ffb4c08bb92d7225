"""`pairbench calibrate`: runs of the same code against one another, kept for later comparisons."""

import datetime as dt
import json
from pathlib import Path

import pytest

from pairbench.features.levels import calibrations_of, render_calibrations
from pairbench.model.comparison import Calibration
from pairbench.store.documents import read_calibrations
from tests.builders import CASES, DEVICE, make_run
from tests.cli.conftest import SUITES, Pairbench

NOW = dt.datetime(2024, 2, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def made() -> Calibration:
    """Return what six runs of the same code say of a device; another device has two."""
    runs = [
        [*make_run(number), *make_run(number, device_name="Another")][: 8 if number < 2 else 4] for number in range(6)
    ]
    found = {calibration.device_name: calibration for calibration in calibrations_of(runs, NOW)}
    assert len(found["Another"].runs) == 2
    return found[DEVICE]


def test_every_pair_of_runs_is_compared(made: Calibration) -> None:
    assert len(made.runs) == 6 and made.comparisons == 15
    assert made.judged == 15 * 2 * len(CASES) and made.alarms == 0


def test_floors_are_about_as_wide_as_the_runs_spread(made: Calibration) -> None:
    assert len(made.floors) == 2 * len(CASES)
    for floor in made.floors.values():
        # Rounds spread by 0.2 %, so medians of five by about 0.1 %, and changes between two such by up to 0.3 %.
        assert 0.0003 < floor.p50 < 0.01 and floor.source == "calibration"


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_it_is_told(made: Calibration, output: str) -> None:
    text = render_calibrations([made], output)
    assert "rms" in text and f"measured false alarms on {DEVICE}: 0 of 60" in text


def test_json_has_each_floor(made: Calibration) -> None:
    (document,) = json.loads(render_calibrations([made], "json"))["calibrations"]
    assert len(document["floors"]) == 4 and document["floors"][0]["p50"] > 0
    assert document["alarms"] == 0


def test_it_runs_keeps_and_tells(pairbench: Pairbench, tmp_path: Path) -> None:
    done = pairbench("calibrate", f"{SUITES}/good.py::extremes", "--runs", "2")
    assert done.returncode == 0, done.stderr
    assert "measured false alarms" in done.stdout
    (kept,) = read_calibrations(tmp_path / "results").value
    assert len(kept.runs) == 2 and kept.comparisons == 1
    assert len(list((tmp_path / "results" / "records").rglob("*.parquet"))) == 2
