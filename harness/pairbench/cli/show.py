"""The verb `pairbench show`."""

from typing import Annotated

import typer

from pairbench.cli.options import (
    DeviceNameOption,
    FormatOption,
    NamesOption,
    StoredImplementationsOption,
    StoredModeOption,
    StoreOption,
    wanted_series,
)
from pairbench.cli.say import configure, put, say
from pairbench.workflow.setup import store_of


def show(
    run_id: Annotated[
        str, typer.Argument(metavar="[RUN]", help="A run, the beginning of its id, or latest. `--runs` lists them.")
    ] = "latest",
    select: NamesOption = None,
    list_runs: Annotated[bool, typer.Option("--runs", help="List the runs in the store instead.")] = False,
    device_name: DeviceNameOption = None,
    implementation: StoredImplementationsOption = None,
    mode: StoredModeOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Show what a run measured.

    Example: pairbench show latest --select 'depthwise*' --format markdown
    """
    from pairbench.errors import SelectionError
    from pairbench.plan import parse_selection
    from pairbench.report.render import render_rows
    from pairbench.report.rows import render
    from pairbench.store.reader import read_run, runs
    from pairbench.store.reading import current_name

    config = configure(output, mode=mode, store=store)
    meant = wanted_series(config, implementation, mode)
    if list_runs:
        found = runs(store_of(config))
        put(render_rows("runs", [vars(run) for run in found.value], output), nl=False)
        _warn(found.problems)
        return
    location = store_of(config)
    reading = read_run(location, run_id)
    records = reading.value
    if select:
        wanted = [parse_selection(current_name(text, location.moved)) for text in select]
        records = tuple(
            record
            for record in records
            if any(item.takes_name(record.suite, record.operator, record.case) for item in wanted)
        )
        if not records:
            raise SelectionError(f"{' '.join(select)!r} selects nothing of run {reading.value[0].run_id}")
    records = tuple(
        record
        for record in records
        if meant.takes(record.implementation, record.mode, beside="baseline")
        and (device_name is None or device_name.lower() in record.device_name.lower())
    )
    if not records:
        raise SelectionError(
            f"--implementation, --mode and --device-name take nothing of run {reading.value[0].run_id}"
        )
    put(render(records, output), nl=False)
    _warn(reading.problems)


def _warn(problems: tuple[str, ...]) -> None:
    for problem in problems:
        say(f"pairbench: {problem}")
