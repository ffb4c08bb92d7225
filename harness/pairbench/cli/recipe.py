"""The verb `pairbench recipe`."""

from pathlib import Path
from typing import Annotated

import typer

from pairbench.cli.options import FormatOption
from pairbench.cli.say import put, write


def recipe(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The recipe to print. Default: list them.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write it there instead; the list says where it belongs.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE where it exists.")] = False,
    output: FormatOption = "table",
) -> None:
    """Print a ready-made configuration for CI or a cluster, or list them. What a project must change is at the top of the file.

    Example: pairbench recipe github-cpu --output .github/workflows/pairbench-cpu.yml
    """
    from pairbench.errors import UsageError
    from pairbench.integrations import recipes
    from pairbench.report.render import render_rows
    from pairbench.workflow.setup import FORMATS

    if output not in FORMATS:
        raise UsageError(f"--format {output!r} is unknown, expected one of {', '.join(FORMATS)}")
    if name is not None:
        chosen = recipes.recipe(name)
        if file is None:
            put(chosen.text, nl=False)
        else:
            _write(file, chosen.text, force=force)
            put(file)
        return
    if file is not None:
        names = ", ".join(one.name for one in recipes.recipes())
        raise UsageError(f"--output {str(file)!r} needs the name of a recipe, one of {names}")
    rows = [{"recipe": one.name, "for": one.purpose, "file": one.place} for one in recipes.recipes()]
    put(render_rows("recipes", rows, output), nl=False)


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write a file that a project will have changed since: an existing one only where that was asked for.

    Raises:
        UsageError: it exists, or cannot be written.
    """
    from pairbench.errors import UsageError

    if file.exists() and not force:
        raise UsageError(f"{file} is there already and may hold changes of yours; --force replaces it")
    write(file, text, make_folder=True)
