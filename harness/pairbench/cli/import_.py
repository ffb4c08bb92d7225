"""The verb `pairbench import`."""

from collections import Counter
from enum import StrEnum
from typing import Annotated, Any

import typer

from pairbench.cli.options import FormatOption, StoreOption
from pairbench.cli.say import configure, put, say


class Tool(StrEnum):
    """The tools whose results can be imported."""

    PYTEST_BENCHMARK = "pytest-benchmark"
    ASV = "asv"


class When(StrEnum):
    """What a run's time is."""

    MEASURED = "measured"
    COMMITTED = "committed"


def import_(
    tool: Annotated[Tool, typer.Argument(metavar="TOOL", help="pytest-benchmark or asv.", show_default=False)],
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="For pytest-benchmark, JSON files that it saved. For asv, its results_dir. Each file becomes one run.",
            show_default=False,
        ),
    ],
    implementation: Annotated[
        str | None,
        typer.Option(
            "--implementation",
            metavar="AXIS[:BASELINE]",
            help="The parameter whose values are implementations of one operator, and its value for the plain one "
            "(default: baseline). Without it every benchmark is a baseline of its own, and there are no speedups.",
            show_default=False,
        ),
    ] = None,
    when: Annotated[
        When | None,
        typer.Option(
            "--when",
            help="What a run's time is, by which runs are ordered: when it was measured (default), or when its commit was "
            "made. A history that asv measured in another order than its commits were made needs one of them.",
            show_default=False,
        ),
    ] = None,
    device_name: Annotated[
        str | None,
        typer.Option(
            "--device-name",
            help="Model of the GPU that the benchmarks ran on, which these files do not record. Default: the CPU they name.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Import results of pytest-benchmark or asv. Each file becomes a run that trend, compare and dashboard show.

    A run that is in the store already is left as it is. P95 is kept where the file has samples of single calls; what is
    neither a latency nor a peak of memory is left out and named. Files in which pairbench's own pytest plugin or
    `pairbench export` put its columns are restored.

    Exit code: 1 where something could not be imported, while all the rest was; 2 for an --implementation that pairs
    nothing, or where --when is needed; else 0.

    Example: pairbench import pytest-benchmark .benchmarks/*/*.json --implementation backend:torch
    """
    from pairbench.integrations.foreign.importing import NOT_IMPORTED, WantedImport, import_runs

    config = configure(output, store=store)
    wanted = WantedImport(
        tool=tool, paths=tuple(paths), implementation=implementation, when=when, device_name=device_name
    )
    rows = import_runs(config.store, wanted)
    put(_render(rows, output), nl=False)
    for row in rows:
        if row["outcome"] == NOT_IMPORTED:
            say(f"pairbench: {row['reason']}")
    _warn_of_left_out(rows)
    if any(row["outcome"] == NOT_IMPORTED for row in rows):
        raise typer.Exit(1)


def _render(rows: list[dict[str, Any]], output: str) -> str:
    from pairbench.report.render import render_rows

    if output != "json":  # the names, and the reasons, go to stderr
        rows = [
            {**row, "commit": (row.get("commit") or "")[:10], "left_out": sum(row.get("left_out", {}).values())}
            for row in rows
        ]
        rows = [{name: value for name, value in row.items() if name != "reason"} for row in rows]
    return render_rows("imports", rows, output)


def _warn_of_left_out(rows: list[dict[str, Any]]) -> None:
    """Say on stderr, in one line, what was left out of all files."""
    left_out: Counter[str] = Counter()
    for row in rows:
        left_out.update(row.get("left_out", {}))
    if left_out:
        names = ", ".join(f"{name} ({count})" for name, count in sorted(left_out.items()))
        say(
            f"pairbench: {left_out.total()} values left out, neither a latency nor a peak of memory, or there twice: {names}",
        )
