"""The verb `pairbench import`.

The verb `pairbench export`.
"""

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pairbench.cli.options import FormatOption, StoreOption
from pairbench.cli.say import configure, put, say, write
from pairbench.errors import UsageError


class Form(StrEnum):
    """What a run can be written as."""

    PYTEST_BENCHMARK = "pytest-benchmark"
    CSV = "csv"


def export(
    form: Annotated[
        Form | None, typer.Argument(metavar="FORM", help="pytest-benchmark or csv.", show_default=False)
    ] = None,
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="Which run, named as in `pairbench compare`: latest, a run id or its beginning, a commit, branch or tag, "
            "a parquet file, or another store. csv takes several, too: last:N, or dates like 2026-11-01..2026-11-07.",
        ),
    ] = "latest",
    target: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to. Default: standard output.", show_default=False),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Export a run for pytest-benchmark, or as CSV. `pytest-benchmark compare` reads the one; the other has every column.

    The statistics of a pytest-benchmark file are of the raw samples where the store has them, else of the medians of
    rounds; `extra_info.stats_of` says which. On a GPU they are of the latency on the device, wherever that could be taken;
    `extra_info.samples_of` says so. `pairbench import` restores such a file to the records that it was made of.

    Exit code: 2 where there is no such run, or the file cannot be written; else 0.

    Example: pairbench export pytest-benchmark latest --output run.json && pytest-benchmark compare run.json
    """
    from pairbench.features.exchange.export import benchmarks_of, csv_of, pick_runs

    if form is None:
        raise UsageError(
            f"export takes a form: {' or '.join(Form)}, as in `pairbench export csv latest --output run.csv`"
        )
    runs = pick_runs(configure(store=store), run)
    for problem in runs.problems:
        say(f"pairbench: {problem}")
    text, not_measured = (csv_of(runs.records), ()) if form is Form.CSV else benchmarks_of(runs)
    if not_measured:
        say(
            f"pairbench: {len(not_measured)} without a latency, which pytest-benchmark has no place for: "
            f"{', '.join(not_measured)}",
        )
    if target is None:
        put(text, nl=False)
    else:
        write(Path(target), text)


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
    from pairbench.features.exchange.importing import NOT_IMPORTED, WantedImport, import_runs

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
