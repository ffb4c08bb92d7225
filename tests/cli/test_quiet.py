"""Times on a CPU under a gate: judged where a calibration found the machine quiet, else undecided; counts always."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.config import Config
from pairbench.model.comparison import Calibration, Change, Floor, GateOutcome
from pairbench.model.record import Record, Series
from pairbench.store.documents import write_document
from pairbench.workflow.comparer import Comparer
from tests.builders import CASES, make_calibration, make_run, run_id_of, write_runs
from tests.cli.conftest import SLOWER

CPU: dict[str, Any] = {"device_kind": "cpu", "device_name": "a CPU", "device_uuid": None}
CPU["launch_status"] = "not_applicable"


def calibration(records: tuple[Record, ...], **changes: Any) -> Calibration:
    """Return a calibration of the machine of some records that found it quiet."""
    floor = Floor(p50=0.004, p95=0.01, runs=5, source="calibration")
    floors = {series: floor for one in records if (series := Series.of(one))}
    found = make_calibration(floors, device_name=records[0].device_name, judged=400, alarms=4)
    return replace(found, **changes)


def changes(store: Path, *, quiet_only: bool = True) -> dict[str, Change]:
    found = Comparer.open(Config(root=store, store=str(store)), quiet_only=quiet_only).compare(current=run_id_of(9))
    return {
        change.series.implementation: change for change in found.comparison.changes if change.series.case == CASES[0]
    }


def slowed(store: Path, **columns: Any) -> tuple[Record, ...]:
    """Write a reference and a run with one variant slower; return the latter."""
    records = make_run(9, slower=SLOWER, **columns)
    write_runs(store, *(make_run(number, **columns) for number in range(3)), records)
    return records


def test_without_a_calibration_nothing_is_said_of_time(tmp_path: Path) -> None:
    slowed(tmp_path, **CPU)
    found = changes(tmp_path)["fused"]
    assert (
        found.outcome is GateOutcome.UNDECIDED and "`pairbench calibrate` has not found this CPU quiet" in found.reason
    )
    assert "+20" in found.reason or "+19" in found.reason  # what was measured is said all the same
    assert changes(tmp_path, quiet_only=False)["fused"].outcome is GateOutcome.REGRESSION


def test_a_quiet_machine_is_judged(tmp_path: Path) -> None:
    write_document(str(tmp_path), calibration(slowed(tmp_path, **CPU)))
    assert changes(tmp_path)["fused"].outcome is GateOutcome.REGRESSION
    assert changes(tmp_path)["baseline"].outcome is GateOutcome.UNCHANGED


@pytest.mark.parametrize(
    "wrong", [{"alarms": 5}, {"environment_hash": "e" * 16}, {"device_name": "another CPU"}, {"floors": {}}]
)
def test_a_calibration_that_does_not_show_it_quiet_is_not_enough(tmp_path: Path, wrong: dict[str, Any]) -> None:
    write_document(str(tmp_path), calibration(slowed(tmp_path, **CPU), **wrong))
    assert changes(tmp_path)["fused"].outcome is GateOutcome.UNDECIDED


def test_a_gpu_needs_no_calibration(tmp_path: Path) -> None:
    slowed(tmp_path)
    assert changes(tmp_path)["fused"].outcome is GateOutcome.REGRESSION


def test_counts_gate_on_any_machine(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0, **CPU, ops_per_call=3), make_run(9, **CPU, ops_per_call=4))
    assert changes(tmp_path)["fused"].outcome is GateOutcome.REGRESSION
