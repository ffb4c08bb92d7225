"""The verb `pairbench compare`."""

from typing import Annotated

import typer

from pairbench.cli.options import FormatOption, MinEffectOption, NamesOption, StoreOption
from pairbench.cli.say import configure, put, report_problems
from pairbench.execute.garbage import collector_at_rest
from pairbench.model.comparison import policy_of

_SIDE = (
    "auto, latest, latest~N (the Nth before it), previous, last:N, a run id or its beginning, a commit, branch or tag, a date or dates (2026-11-01..2026-11-07), "
    "a parquet file, or another store."
)


def compare(
    reference: Annotated[
        str,
        typer.Argument(
            metavar="[REFERENCE]",
            help=f"What to compare with. auto: the newest comparable runs of the default branch, up to 5 for each series; outside a checkout, every earlier one. Or {_SIDE}",
        ),
    ] = "auto",
    current: Annotated[
        str,
        typer.Argument(
            metavar="[CURRENT]",
            help="What to judge, named in the same way. auto: the newest run, with the run that confirms it.",
        ),
    ] = "auto",
    select: NamesOption = None,
    min_effect: MinEffectOption = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with 3 where something is undecided, missing, incomparable or unreadable, or nothing is there to compare with.",
        ),
    ] = False,
    quiet_only: Annotated[
        bool,
        typer.Option(
            "--quiet-only",
            help="Judge times on a CPU only where `pairbench calibrate` has found it quiet, as `pytest --pairbench-gate` does; "
            "counts and correctness on any.",
        ),
    ] = False,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Compare a run with earlier ones, series by series. Each verdict names the likely cause.

    Exit code: 1 for a regression or a failure; 4 where the newest run cannot be read or could load no suite; 3 as --strict says; else 0.

    Example: pairbench compare main latest --strict
    """
    from pairbench.report.comparison import render_comparison
    from pairbench.workflow.comparer import Comparer

    config = configure(output, store=store)
    policy = policy_of(min_effect)
    with collector_at_rest():
        comparer = Comparer.open(config, policy=policy, quiet_only=quiet_only)
        compared = comparer.compare(reference, current, select=select or ())
    put(render_comparison(compared.comparison, output), nl=False)
    report_problems(compared)
    if code := compared.exit_code(strict=strict):
        raise typer.Exit(code)
