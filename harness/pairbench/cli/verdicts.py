"""What the verbs that judge have in common: the thresholds from their options, and what they say besides the table."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pairbench.model.comparison import Comparison
    from pairbench.model.policy import Policy
    from pairbench.workflow.compare.judge import ComparedRuns


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


def tell(found: "ComparedRuns") -> None:
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
    from pairbench.report.comparison.render import annotations, render_comparison

    # On stderr, for GitHub reads both, and stdout may be one JSON document.
    if os.environ.get("GITHUB_ACTIONS") == "true":
        typer.echo(annotations(comparison), err=True, nl=False)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(render_comparison(comparison, "markdown"))
        except OSError as error:
            typer.echo(f"pairbench: GITHUB_STEP_SUMMARY {summary!r} cannot be written: {error.strerror}", err=True)
