"""The verb `pairbench plot`."""

from pathlib import Path
from typing import Annotated

import typer

from pairbench.cli.options import (
    DeviceNameOption,
    FormatOption,
    StoredImplementationsOption,
    StoredModeOption,
    StoreOption,
    wanted_series,
)
from pairbench.cli.say import configure, put, say, write


def plot(
    select: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SELECT]...",
            help="What to draw of the store: an operator, file::operator, a glob, or case keys. Default: everything.",
            show_default=False,
        ),
    ] = None,
    x: Annotated[
        str | None,
        typer.Option(
            "--x", metavar="AXIS", help="Axis of the cases. Default: the only one that varies.", show_default=False
        ),
    ] = None,
    y: Annotated[
        str | None,
        typer.Option(
            "--y",
            metavar="QUANTITY",
            help="device_p50_us, call_p50_us, host_p50_us, speedup, gbps or tflops. Default: the latency that is the result, the "
            "device's on a GPU and the call's on a CPU.",
            show_default=False,
        ),
    ] = None,
    log: Annotated[
        bool | None,
        typer.Option(
            "--log/--linear", help="Scale of both axes. Default: by how far values spread.", show_default=False
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Draw it into this .png, .svg or .html file, too.",
            show_default=False,
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="Take this run: its id, the beginning of it, or latest. Default: of each series the newest run that measured it.",
            show_default=False,
        ),
    ] = None,
    device_name: DeviceNameOption = None,
    implementation: StoredImplementationsOption = None,
    mode: StoredModeOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Draw stored results along an axis of the cases: a line an implementation, with 95 % intervals, and where each crosses the baseline.

    Prints the same values as a table. Cases that differ in other axes have panels of their own.

    Example: pairbench plot silu --x n --y speedup --output silu.svg
    """
    from pairbench.errors import UsageError
    from pairbench.report.axis_chart import SUFFIXES, axis_chart, chart_rows, crossover_sentences
    from pairbench.report.render import render_rows, to_json
    from pairbench.workflow.lookup import stored_points

    if target is not None and target.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"--output {str(target)!r} ends in {target.suffix or 'nothing'!r}, expected {', '.join(SUFFIXES)}"
        )
    config = configure(output, mode=mode, store=store)
    wanted = wanted_series(config, implementation, mode)
    reading = stored_points(config, select or [], run=run_id, device_name=device_name, wanted=wanted)
    chart = axis_chart(reading.value, x, y, log=log)
    rows, said = chart_rows(chart), crossover_sentences(chart)
    if output == "json":
        put(to_json({"x": chart.x, "y": chart.quantity, "chart": chart, "crossovers": said}), nl=False)
    else:
        put(render_rows(f"{chart.title}: {chart.y}", rows, output), nl=False)
        for sentence in said:
            put(sentence)
    for problem in reading.problems:
        say(f"pairbench: {problem}")
    if target is not None:
        from pairbench.report.figures import axis_bytes

        write(target, axis_bytes(chart, target.suffix.lower()))
        say(f"pairbench: drew {target}")
