"""The way out: what commands print and write. Names and messages come from files of anybody, so nothing in them commands a terminal or a CI runner."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pairbench.config import Config
from pairbench.errors import UsageError
from pairbench.model.plain import safe
from pairbench.workflow.setup import configure as configure_quietly

if TYPE_CHECKING:
    from pairbench.model.comparison import Comparison
    from pairbench.workflow.comparer import ComparedRuns

printed: list[bool] = []
"""Not empty once a command has printed its result on stdout."""


def put(text: object = "", *, nl: bool = True) -> None:
    """Print on stdout what was asked for; `nl` says whether a line break follows."""
    printed.append(True)
    typer.echo(safe(str(text), colored=sys.stdout.isatty() and "NO_COLOR" not in os.environ), nl=nl)


def put_rows(title: str, rows: Sequence[Mapping[str, object]], output: str, *, empty: str | None = None) -> None:
    """Print rows as a table, Markdown or JSON; `empty`, if given, takes the place of a table without rows."""
    from pairbench.report.render import render_rows

    if rows or empty is None or output == "json":
        put(render_rows(title, rows, output), nl=False)
    elif empty:
        put(empty)


def say(text: str, *, nl: bool = True) -> None:
    """Print a remark on stderr; `nl` says whether a line break follows."""
    typer.echo(safe(text), err=True, nl=nl)


def remark(*lines: object) -> None:
    """Print remarks on stderr, each under pairbench's name."""
    for line in lines:
        say(f"pairbench: {line}")


def configure(output: str = "table", **options: Any) -> Config:
    """Return the configuration of this command, and warn of credentials in the store's URL. See `workflow.setup.configure`."""
    config = configure_quietly(output, **options)
    if config.store != config.shown_store:
        remark(
            f"the URL of store {config.shown_store!r} holds credentials, which others can read in the list of processes, the "
            "history of a shell or a file; put them into the environment instead, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return config


def write(target: Path, content: str | bytes, *, make_folder: bool = False, option: str = "--output") -> None:
    """Write a file that a user asks for with `--output` or another option, and make its folder if asked."""
    try:
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        problem = f"{option} {str(target)!r} cannot be written: {error.strerror or error}"
        raise UsageError(f"{problem}; expected a file in a folder that is there") from error


def report_problems(compared: "ComparedRuns") -> None:
    """Print on stderr what could not be read or compared, and on GitHub what a reviewer needs to see."""
    remark(*compared.remarks)
    annotate_github(compared.comparison)


def annotate_github(comparison: "Comparison") -> None:
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
            remark(f"GITHUB_STEP_SUMMARY {summary!r} cannot be written: {error.strerror}")
