"""What the verbs that judge print besides the table."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pairbench.cli.say import say

if TYPE_CHECKING:
    from pairbench.model.comparison import Comparison
    from pairbench.workflow.compare.comparer import ComparedRuns


def report_problems(compared: "ComparedRuns") -> None:
    """Print on stderr what could not be read or compared, and on GitHub what a reviewer needs to see."""
    for problem in compared.comparison.problems:
        say(f"pairbench: {problem}")
    for problem in compared.newer:
        say(f"pairbench: {problem}")
    if compared.note:
        say(f"pairbench: {compared.note}")
    annotate_github(compared.comparison)


def annotate_github(comparison: "Comparison") -> None:
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
            say(f"pairbench: GITHUB_STEP_SUMMARY {summary!r} cannot be written: {error.strerror}")
