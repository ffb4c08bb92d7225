"""`pairbench compare`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairbench.cli.context import configure
from pairbench.cli.options import FormatOption, StoreOption

if TYPE_CHECKING:
    from pairbench.cli.judging import Judged
    from pairbench.model.comparison import Comparison
    from pairbench.model.policy import Policy

_SIDE = (
    "auto, latest, last:N, a run id or its beginning, a commit, branch or tag, a date or dates (2026-11-01..2026-11-07), "
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
    select: Annotated[
        list[str] | None,
        typer.Option("--select", "-s", help="An operator, a glob, or a case key; repeatable.", show_default=False),
    ] = None,
    min_effect: Annotated[
        float | None,
        typer.Option(
            "--min-effect",
            metavar="PERCENT",
            help="Smallest change of a latency that counts, in percent. Default: 2.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with 3 where something is undecided, missing, incomparable or unreadable, or nothing is there to compare with.",
        ),
    ] = False,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Compare a run with earlier ones: a verdict for every series, and whose doing a change is.

    Exit code: 1 for a regression or a failure; 4 where the newest run cannot be read; 3 as --strict says; else 0.

    Example: pairbench compare main latest --strict
    """
    import gc

    from pairbench.cli.judging import judge
    from pairbench.report.comparison import render_comparison

    config = configure(output, store=store)
    policy = policy_of(min_effect)
    gc.disable()  # millions of values and no garbage among them; looking for it takes a third of the time
    try:
        found = judge(config, reference, current, select=select or (), policy=policy)
    finally:
        gc.enable()
    typer.echo(render_comparison(found.comparison, output), nl=False)
    tell(found)
    if code := found.exit_code(strict=strict):
        raise typer.Exit(code)


def policy_of(min_effect: float | None) -> "Policy":
    """Return the thresholds that hold.

    Raises:
        UsageError: no such effect.
    """
    from pairbench.errors import UsageError
    from pairbench.model.policy import DEFAULT

    if min_effect is None:
        return DEFAULT
    if not 0 < min_effect < 100:
        raise UsageError(f"--min-effect is {min_effect:g}, expected a percentage between 0 and 100, such as 2")
    return replace(DEFAULT, minimum_effect=min_effect / 100)


def tell(found: "Judged") -> None:
    """Say on stderr what could not be read or compared, and on GitHub what is to be seen there."""
    for problem in found.comparison.problems:
        typer.echo(f"pairbench: {problem}", err=True)
    for problem in found.newer:
        typer.echo(f"pairbench: the newest run may be in a file that cannot be read: {problem}", err=True)
    if found.note:
        typer.echo(f"pairbench: {found.note}", err=True)
    tell_github(found.comparison)


def tell_github(comparison: "Comparison") -> None:
    """Annotate the pull request and add to the job's summary, when run there."""
    from pairbench.report.comparison import annotations, render_comparison

    # On stderr, for GitHub reads both, and stdout may be one JSON document.
    if os.environ.get("GITHUB_ACTIONS") == "true":
        typer.echo(annotations(comparison), err=True, nl=False)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(render_comparison(comparison, "markdown"))
        except OSError as error:
            typer.echo(f"pairbench: GITHUB_STEP_SUMMARY {summary!r} cannot be written: {error.strerror}", err=True)
