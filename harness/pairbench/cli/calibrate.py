"""The verb `pairbench calibrate`."""

from typing import Annotated

import typer

from pairbench.cli.options import (
    CatalogueOption,
    DeviceOption,
    FormatOption,
    ModeOption,
    Select,
    StoreOption,
    Tf32Option,
    TierOption,
    TimeoutOption,
)
from pairbench.cli.say import configure, put, say
from pairbench.workflow.setup import open_request


def calibrate(
    select: Select = None,
    catalogue: CatalogueOption = False,
    runs: Annotated[int, typer.Option(help="Runs to make and to compare with one another.")] = 5,
    device: DeviceOption = "auto",
    tier: TierOption = None,
    mode: ModeOption = None,
    rounds: Annotated[
        int | None, typer.Option(help="Fresh worker processes in each run. Default: 3.", show_default=False)
    ] = None,
    tf32: Tf32Option = None,
    timeout: TimeoutOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Measure this machine against itself. How far latencies move when nothing changed, and how many alarms that raises.

    The runs are ordinary ones and stay in the store. What they show is kept beside them, and used and shown by every later comparison on this
    device model.

    Example: pairbench calibrate suites/conv.py --device cuda:0 --runs 5
    """
    from pairbench.features.levels import calibrate_machine, check_runs, render_calibrations

    check_runs(runs)
    config = configure(
        output, catalogue=catalogue, tier=tier, mode=mode, rounds=rounds, tf32=tf32, timeout=timeout, store=store
    )
    with open_request(config, select, device) as request:
        calibrated = calibrate_machine(request, runs=runs)
    if calibrated.calibrations:
        put(render_calibrations(calibrated.calibrations, output), nl=False)
    for line in calibrated.kept.lines() if calibrated.kept else ():
        say(f"pairbench: {line}")
    if calibrated.exit_code:
        raise typer.Exit(calibrated.exit_code)
