"""`pairbench calibrate`: runs of the same code against one another, kept for later comparisons."""

import datetime as dt
import json
from pathlib import Path

from pairbench.features.levels import calibrations_of, render_calibrations
from pairbench.store.documents import read_calibrations
from tests.builders import CASES, DEVICE, make_run
from tests.cli.conftest import SUITES, Pairbench


def test_every_pair_of_runs_of_a_device_is_compared_and_floors_are_about_as_wide_as_they_spread() -> None:
    """Six runs of the same code; another device has two of them."""
    runs = [
        [*make_run(number), *make_run(number, device_name="Another")][: 8 if number < 2 else 4] for number in range(6)
    ]
    found = {one.device_name: one for one in calibrations_of(runs, dt.datetime(2024, 2, 1, tzinfo=dt.UTC))}
    made = found[DEVICE]
    assert len(found["Another"].runs) == 2
    assert len(made.runs) == 6 and made.comparisons == 15
    assert made.judged == 15 * 2 * len(CASES) and made.alarms == 0
    assert len(made.floors) == 2 * len(CASES)
    for floor in made.floors.values():
        # Rounds spread by 0.2 %, so medians of five by about 0.1 %, and changes between two such by up to 0.3 %.
        assert 0.0003 < floor.p50 < 0.01 and floor.source == "calibration"
    for output in ("table", "markdown"):
        text = render_calibrations([made], output)
        assert "rms" in text and f"measured false alarms on {DEVICE}: 0 of 60" in text
    (document,) = json.loads(render_calibrations([made], "json"))["calibrations"]
    assert len(document["floors"]) == 4 and document["floors"][0]["p50"] > 0 and document["alarms"] == 0


def test_it_runs_keeps_and_tells(pairbench: Pairbench, tmp_path: Path) -> None:
    done = pairbench("calibrate", f"{SUITES}/good.py::running_total", "--runs", "2", "--format", "json")
    assert done.returncode == 0, done.stderr
    (kept,) = read_calibrations(tmp_path / "results").value
    (document,) = json.loads(done.stdout)["calibrations"]
    assert (document["alarms"], document["judged"]) == (kept.alarms, kept.judged)
    assert len(kept.runs) == 2 and kept.comparisons == 1
    assert len(list((tmp_path / "results" / "records").rglob("*.parquet"))) == 2
