"""What a store says of units, from made-up runs."""

from dataclasses import replace
from pathlib import Path

from pairbench.features.fleet.queue import last_devices, runs_of
from pairbench.model.unit import Unit, marked
from pairbench.store.location import StoreLocation
from tests.builders import CASES, make_run, write_runs

UNIT = Unit(operators=("suites/norm.py::rms_norm",), device="nvidia-h200", commit="a" * 40)


def test_the_gpu_that_measured_a_series_last(tmp_path: Path) -> None:
    for number, gpu in enumerate(("GPU-1", "GPU-2", "GPU-1")):
        write_runs(tmp_path, make_run(number, device_uuid=gpu))
    write_runs(tmp_path, make_run(9, cases=["other[n=1]"], device_uuid="GPU-2"))
    found = last_devices(StoreLocation.of(tmp_path), [UNIT, replace(UNIT, device="cpu")])
    assert [(unit.device, last.identity) for unit, last in found.items()] == [("nvidia-h200", "GPU-1")]
    assert f"{found[UNIT].seen:%H}" == "02"
    one = replace(UNIT, operators=(f"suites/norm.py::{CASES[0]}",), device="GPU-2")
    other = last_devices(StoreLocation.of(tmp_path), [one])[one]
    assert (other.identity, f"{other.seen:%H}") == ("GPU-2", "09")


def test_runs_of_units_are_found_by_their_names(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0), make_run(1, run_id=marked("20240101T010000-aaaaaa", UNIT.key)))
    found = runs_of(StoreLocation.of(tmp_path), [UNIT, replace(UNIT, rounds=7)])
    assert {key: [run.run_id for run in runs] for key, runs in found.items()} == {
        UNIT.key: [f"20240101T010000-aaaaaa-u{UNIT.key}"]
    }
    assert runs_of(StoreLocation.of(tmp_path / "nothing"), [UNIT]) == {}
