"""Calibrating a machine: several runs of the same code, compared with one another, and what that shows of each device.

What `pairbench calibrate` prints: the false alarms that it counted, and the noise floors by operator.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

from pairbench.analyze.compare.floors import LEAST_RUNS, calibrate_from
from pairbench.analyze.compare.latency import judged_hosts
from pairbench.errors import UsageError
from pairbench.model.comparison import Calibration
from pairbench.model.record import Record
from pairbench.report.comparison import measured
from pairbench.report.render import render_rows, to_json
from pairbench.report.units import percent
from pairbench.store.documents import write_calibration
from pairbench.store.location import StoreLocation
from pairbench.store.spool import Spool
from pairbench.workflow.run.files import Kept, settle
from pairbench.workflow.run.record import record_run
from pairbench.workflow.setup import Request, stamp


def render_calibrations(calibrations: Sequence[Calibration], output: str) -> str:
    """Return calibrations in one of the formats; only JSON has the floor of each series."""
    if output == "json":
        return to_json({"calibrations": [_plain(calibration) for calibration in calibrations]})
    return "\n".join(_text(calibration, output) for calibration in calibrations)


def _text(calibration: Calibration, output: str) -> str:
    rows = []
    judged = judged_hosts(calibration.floors)
    series = sorted(calibration.floors, key=lambda one: (one.operator, one.mode))
    for (operator, mode), group in groupby(series, key=lambda one: (one.operator, one.mode)):
        members = list(group)
        floors = [calibration.floors[one] for one in members]
        hosts = [floor.host for floor in floors if floor.host is not None]
        ratios = [floor.host_relative for floor in floors if floor.host_relative is not None]
        rows.append(
            {
                "operator": operator,
                "mode": mode,
                "series": len(floors),
                "P50 floor, median": percent(median(floor.p50 for floor in floors)),
                "P50 floor, largest": percent(max(floor.p50 for floor in floors)),
                "P95 floor, median": percent(median(floor.p95 for floor in floors)),
                "P95 floor, largest": percent(max(floor.p95 for floor in floors)),
                **({"host floor, median": percent(median(hosts))} if hosts else {}),
                **({"host / baseline floor, median": percent(median(ratios))} if ratios else {}),
                **({"host judged": f"{len(judged.intersection(members))} of {len(hosts)}"} if hosts else {}),
            }
        )
    table = ""
    if rows:
        table = render_rows(f"noise floors of {calibration.device_name}", rows, output)
    elif len(calibration.runs) < LEAST_RUNS:
        table = f"no noise floors: they take {LEAST_RUNS} runs, and these were {len(calibration.runs)} (`--runs {LEAST_RUNS}`)\n"
    return f"{table}\n{measured(calibration)}\n"


def _plain(calibration: Calibration) -> dict[str, Any]:
    floors = [{**vars(series), **vars(floor)} for series, floor in sorted(calibration.floors.items())]
    return {**vars(calibration), "floors": floors}


_LEAST_RUNS = 2


@dataclass(frozen=True, kw_only=True)
class CalibratedMachine:
    """What calibrating a machine came to."""

    calibrations: tuple[Calibration, ...]
    """One for each device model, as stored; none where the runs were interrupted."""
    exit_code: int
    """The worst exit code of the runs; 4 where the store did not take a calibration."""
    kept: Kept | None = None
    """What the store did not take; None where it has everything."""


def check_runs(runs: int) -> None:
    """Refuse a number of runs that tells nothing, before anything is measured.

    Raises:
        UsageError: there are fewer than two.
    """
    if runs < _LEAST_RUNS:
        raise UsageError(f"--runs is {runs}, expected at least {_LEAST_RUNS}: one run cannot be compared with itself")


def calibrate_machine(request: Request, *, runs: int) -> CalibratedMachine:
    """Run the chosen pairs several times, and store what the runs say of the noise of each device model.

    Raises:
        StoreError: the store cannot be written, which is known before anything is measured.
        StoreFailedError: it is elsewhere, and takes nothing.
    """
    done = []
    for number in range(runs):
        request.progress.notify(f"pairbench: run {number + 1} of {runs}")
        done.append(record_run(request))
        if done[-1].error is not None:
            raise done[-1].error
        if done[-1].interrupted:
            return CalibratedMachine(calibrations=(), exit_code=done[-1].exit_code)
    calibrations = calibrations_of([run.records for run in done], dt.datetime.now(dt.UTC))
    notify = request.progress.notify
    spool = Spool(StoreLocation.of(request.config.store), f"calibration-{stamp(dt.datetime.now(dt.UTC))}", notify)
    for calibration in calibrations:
        write_calibration(request.config.store, calibration, spool.publish_alone)
    kept = settle(spool, notify)
    code = max(run.exit_code for run in done)
    return CalibratedMachine(calibrations=calibrations, exit_code=max(code, 4 if kept else 0), kept=kept)


def calibrations_of(runs: Sequence[Sequence[Record]], now: dt.datetime) -> tuple[Calibration, ...]:
    """Return what runs of the same code show of each device model that they were made on.

    Args:
        runs: The records of each run, oldest first.
        now: When the calibration is made; its id begins with that.
    """
    calibrations = []
    for name in dict.fromkeys(record.device_name for run in runs for record in run):
        of_device = [[record for record in run if record.device_name == name] for run in runs]
        of_device = [run for run in of_device if run]
        shown = calibrate_from(of_device)
        calibrations.append(
            Calibration(
                calibration_id=stamp(now),
                made_at=now.isoformat(timespec="milliseconds"),
                device_name=name,
                environment_hash=of_device[0][0].environment_hash,
                runs=tuple(run[0].run_id for run in of_device),
                comparisons=shown.comparisons,
                judged=shown.judged,
                alarms=shown.alarms,
                floors=shown.floors,
            )
        )
    return tuple(calibrations)
