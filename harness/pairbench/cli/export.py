"""The verb `pairbench export`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pairbench.cli.options import StoreOption
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
    from pairbench.integrations.export import benchmarks_of, csv_of, pick_runs

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
