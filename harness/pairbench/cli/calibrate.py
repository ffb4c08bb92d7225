"""`pairbench calibrate`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairbench.cli.options import (
    DeviceOption,
    FormatOption,
    ModeOption,
    Select,
    StoreOption,
    TierOption,
    TimeoutOption,
)
from pairbench.workflow.setup import configure, open_request, stamp

if TYPE_CHECKING:
    from pairbench.model.comparison import Calibration

_LEAST_RUNS = 2


def calibrate(
    select: Select = None,
    runs: Annotated[int, typer.Option(help="Runs to make and to compare with one another.")] = 5,
    device: DeviceOption = "auto",
    tier: TierOption = None,
    mode: ModeOption = None,
    rounds: Annotated[
        int | None, typer.Option(help="Fresh worker processes in each run. Default: 3.", show_default=False)
    ] = None,
    timeout: TimeoutOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Measure this machine against itself. How far latencies move when nothing changed, and how many alarms that raises.

    The runs are ordinary ones and stay in the store. What they show is kept beside them, and used and shown by every later comparison on this
    device model.

    Example: pairbench calibrate suites/conv.py --device cuda:0 --runs 5
    """
    from pairbench.errors import UsageError
    from pairbench.report.calibration import render_calibrations
    from pairbench.store.calibrations import write_calibration
    from pairbench.workflow.run.record import record_run

    if runs < _LEAST_RUNS:
        raise UsageError(f"--runs is {runs}, expected at least {_LEAST_RUNS}: one run cannot be compared with itself")
    config = configure(output, tier=tier, mode=mode, rounds=rounds, timeout=timeout, store=store)
    done = []
    with open_request(config, select, device) as request:
        for number in range(runs):
            request.progress.notify(f"pairbench: run {number + 1} of {runs}")
            done.append(record_run(request))
            if done[-1].interrupted:
                raise typer.Exit(done[-1].exit_code)
    found = calibrations([run.records for run in done])
    for calibration in found:
        write_calibration(config.store, calibration)
    typer.echo(render_calibrations(found, output), nl=False)
    if bad := max(run.exit_code for run in done):
        raise typer.Exit(bad)


def calibrations(runs: Sequence[Sequence[Any]]) -> "list[Calibration]":
    """Return what runs of the same code show of each device model that they were made on."""
    import datetime as dt

    from pairbench.analyze.compare.floors import calibrate_from
    from pairbench.model.comparison import Calibration

    found = []
    now = dt.datetime.now(dt.UTC)
    for name in dict.fromkeys(record.device_name for run in runs for record in run):
        here = [[record for record in run if record.device_name == name] for run in runs]
        here = [run for run in here if run]
        shown = calibrate_from(here)
        found.append(
            Calibration(
                calibration_id=stamp(now),
                made_at=now.isoformat(timespec="milliseconds"),
                device_name=name,
                environment_hash=here[0][0].environment_hash,
                runs=tuple(run[0].run_id for run in here),
                comparisons=shown.comparisons,
                judged=shown.judged,
                alarms=shown.alarms,
                floors=shown.floors,
            )
        )
    return found
