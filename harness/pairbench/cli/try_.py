"""The verb `pairbench try`."""

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairbench.cli.options import (
    CatalogueOption,
    DeviceOption,
    FormatOption,
    ImplementationsOption,
    ModeOption,
    Select,
    StoreOption,
    TierOption,
    TimeoutOption,
)
from pairbench.workflow.setup import configure, open_context

if TYPE_CHECKING:
    from pairbench.model.attempt import Attempt, Tried


def try_(
    select: Select = None,
    catalogue: CatalogueOption = False,
    implementation: ImplementationsOption = None,
    device: DeviceOption = "auto",
    tier: TierOption = None,
    mode: ModeOption = None,
    all_cases: Annotated[
        bool,
        typer.Option(
            "--all-cases",
            help="Take all selected cases. Default: those that SELECT names by their keys, and of each other operator one: the first "
            "real one on a GPU, the first smoke one on a CPU.",
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            help="Try again whenever a file changes that a suite is made of, until Ctrl-C. With --format json a document a line.",
        ),
    ] = False,
    timeout: TimeoutOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Take a quick look at what is being edited: right or wrong first, then one round of timing.

    It stops at the first implementation that is wrong, and shows where. Latencies stand beside those of the last try and of the newest
    stored run. One process does everything, nothing is stored, and no verdict is given: that is for run and compare.

    Example: pairbench try my_ops.py -i triton --watch
    """
    config = configure(output, catalogue=catalogue, tier=tier, mode=mode, timeout=timeout, store=store)
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(open_context(config))
        # Only now, for it takes half a second, and the server that loads torch is under way.
        from pairbench.workflow.attempt.attempts import Attempts, WantedTry
        from pairbench.workflow.attempt.watch import try_on_changes

        wanted = WantedTry(
            select=tuple(select or ()),
            implementations=tuple(implementation or ()),
            device=device,
            every_case=all_cases,
        )
        attempts = Attempts(config, context, wanted, _tell)
        stack.callback(attempts.close)
        if not watch:
            attempt = attempts.once(_show if output == "table" else _keep_quiet)
            _finish(attempt, output)
            if code := attempt.exit_code:
                raise typer.Exit(code)
            return
        several = try_on_changes(
            attempts,
            context.interrupted,
            begin=_begin,
            show=_show if output == "table" else _keep_quiet,
            failed=lambda error: _tell(f"pairbench: {error}"),
        )
        for number, attempt in enumerate(several):
            _finish(attempt, output, again=number > 0, watched=True)


def _begin(changed: tuple[Path, ...]) -> None:
    names = ", ".join(sorted({file.name for file in changed}))
    _tell(
        f"{time.strftime('%H:%M:%S')} {names} changed"
        if names
        else "Trying, and again after every change; Ctrl-C ends it"
    )


def _tell(text: str) -> None:
    typer.echo(text, err=True)


def _show(case: "tuple[Tried, ...]") -> None:
    from pairbench.report.attempt import case_lines

    typer.echo("\n".join(case_lines(case)))


def _keep_quiet(_: "tuple[Tried, ...]") -> None:
    """Show nothing: the document comes at the end."""


def _finish(attempt: "Attempt", output: str, *, watched: bool = False, again: bool = False) -> None:
    """Print what belongs to the whole of an attempt.

    Args:
        attempt: What came out.
        output: The format.
        watched: Whether others follow, so that a JSON document takes one line.
        again: Whether there were others before, which said already what needs saying once.
    """
    from pairbench.report.attempt import LABEL, as_markdown, as_plain, closing_lines
    from pairbench.report.render import to_json

    for suite in attempt.broken:
        _tell(f"pairbench: {suite.reason}")
    if output == "json":
        typer.echo(to_json(as_plain(attempt), lines=watched), nl=False)
    elif output == "markdown":
        typer.echo(as_markdown(attempt), nl=False)
    elif attempt.cases:
        for line in [*closing_lines(attempt), LABEL] if not again else closing_lines(attempt)[: bool(attempt.untried)]:
            typer.echo(line)
