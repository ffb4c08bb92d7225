"""What is known of a series' noise: its past, calibrations, and which of them counts."""

from dataclasses import replace
from pathlib import Path

from pairbench.config import load_config
from pairbench.model.comparison import Calibration, Floor
from pairbench.model.record import Series
from pairbench.store.documents import write_calibration
from pairbench.store.run_index import RunIndex
from pairbench.workflow.comparer import Comparer
from pairbench.workflow.noise import newest_calibrations, past_floors, widest
from tests.builders import DEVICE, make_run, write_runs

NOW = make_run(20)
SERIES = {series for record in NOW if (series := Series.of(record))}
ONE = min(SERIES)
CALIBRATION = Calibration(
    calibration_id="c1",
    made_at="2024-01-01T00:00:00+00:00",
    device_name=DEVICE,
    environment_hash="f" * 16,
    runs=("a", "b"),
    comparisons=1,
    judged=4,
    alarms=0,
    floors={ONE: Floor(p50=0.04, p95=0.05, runs=2, source="calibration")},
)


def test_floors_come_from_earlier_clean_runs_of_the_device(tmp_path: Path) -> None:
    write_runs(tmp_path, *(make_run(number) for number in range(12)), NOW, make_run(21))
    index = RunIndex.of_store(tmp_path)
    current = index.beginning(NOW[0].run_id)
    found = past_floors(index, current, SERIES)
    assert found.keys() == SERIES
    assert all(floor.runs == 12 and floor.source == "history" and 0.001 < floor.p50 < 0.02 for floor in found.values())
    assert past_floors(index, current, {ONE}).keys() == {ONE}


def test_dirty_runs_and_other_devices_say_nothing(tmp_path: Path) -> None:
    others = [make_run(number, device_name="NVIDIA B200") for number in range(6)]
    write_runs(tmp_path, *others, *(make_run(number, dirty=True) for number in range(6, 12)), NOW)
    index = RunIndex.of_store(tmp_path)
    assert past_floors(index, index.first(1), SERIES) == {}


def test_a_run_without_a_past(tmp_path: Path) -> None:
    write_runs(tmp_path, NOW)
    index = RunIndex.of_store(tmp_path)
    assert past_floors(index, index.first(1), SERIES) == {}


def test_the_newest_calibration_of_the_same_environment_counts() -> None:
    later = replace(CALIBRATION, calibration_id="c2", made_at="2024-02-01T00:00:00+00:00", floors={})
    elsewhere = replace(
        CALIBRATION, calibration_id="c3", made_at="2024-03-01T00:00:00+00:00", environment_hash="0" * 16
    )
    other = replace(CALIBRATION, device_name="NVIDIA B200")
    shown, floors = newest_calibrations([elsewhere, later, other, CALIBRATION], NOW)
    assert shown == (later,) and floors == CALIBRATION.floors
    assert newest_calibrations([elsewhere, other], NOW)[0] == (elsewhere,)
    assert newest_calibrations([other], NOW) == ((), {})


def test_the_wider_floor_holds() -> None:
    narrow = Floor(p50=0.01, p95=0.2, runs=30, source="history")
    assert widest({ONE: narrow}, CALIBRATION.floors) == CALIBRATION.floors
    assert widest({ONE: narrow}, {}) == {ONE: narrow}


def test_a_calibrated_floor_keeps_noise_from_being_an_alarm(tmp_path: Path) -> None:
    runs = [make_run(0), make_run(1), make_run(2, slower={f"{ONE.case}-{ONE.implementation}": 1.05})]
    write_runs(tmp_path / "results", *runs)
    config = load_config(tmp_path, store=str(tmp_path / "results"))
    assert Comparer.open(config).compare().exit_code() == 1
    write_calibration(config.store, CALIBRATION)
    judged = Comparer.open(config).compare()
    assert judged.exit_code() == 0 and judged.comparison.calibrations == (CALIBRATION,)
