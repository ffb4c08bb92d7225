"""The verb `pairbench breakdown`."""

from pathlib import Path
from typing import Annotated

import typer

from pairbench.cli.options import (
    CaseOption,
    CatalogueOption,
    DeviceOption,
    FormatOption,
    OneOperator,
    StoreOption,
    Tf32Option,
    TimeoutOption,
)
from pairbench.cli.say import configure, put, say
from pairbench.errors import UsageError

_MODES = ("eager", "graph")


def breakdown(
    operator: OneOperator,
    case: CaseOption = None,
    catalogue: CatalogueOption = False,
    implementation: Annotated[
        list[str] | None,
        typer.Option(
            "--implementation",
            "-i",
            help="baseline, a variant, or all; repeatable. Default: baseline.",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[str, typer.Option("--mode", help="eager or graph.")] = "eager",
    device: DeviceOption = "auto",
    expand: Annotated[
        bool,
        typer.Option(
            "--expand", help="Show each module of a list by itself, instead of one line for modules of one kind."
        ),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE.json",
            help="Also write the profiler's trace, for chrome://tracing or Perfetto.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Also store it, so that the dashboard shows it.")] = False,
    tf32: Tf32Option = None,
    timeout: TimeoutOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Show where one call spends its time. By module, kind of work and kernel, and by source line for copies, casts and syncs.

    The call runs under a profiler, which slows it down: read the shares, and take no time here for a latency. Times are
    those of ATen operators on a CPU, and of kernels on a GPU.

    Example: pairbench breakdown suites/conv.py::causal_conv3d --case dtype=bfloat16 -i all --trace conv.json
    """
    from pairbench.features.breakdown.breakdown import WantedBreakdown, break_down, render_breakdown
    from pairbench.model.breakdown import Breakdown, NoBreakdown

    if mode not in _MODES:
        raise UsageError(f"--mode {mode!r} cannot be broken down, expected one of {', '.join(_MODES)}")
    config = configure(output, catalogue=catalogue, tier=["all"], mode=[mode], tf32=tf32, timeout=timeout, store=store)
    wanted = WantedBreakdown(
        operator=operator,
        case=case,
        device=device,
        implementations=tuple(implementation or ("baseline",)),
        trace=trace,
        keep=keep,
    )
    found, kept = break_down(config, wanted)
    put(render_breakdown(found, output, expand=expand), nl=False)
    if kept:
        say(f"pairbench: kept as {kept}")
    if any(isinstance(part, NoBreakdown) and part.bad for part in found.parts):
        raise typer.Exit(1)
    if not any(isinstance(part, Breakdown) for part in found.parts):
        raise typer.Exit(2)
