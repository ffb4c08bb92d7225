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
    Tf32Option,
    TierOption,
    TimeoutOption,
)
from pairbench.cli.say import configure, put, say
from pairbench.errors import PairbenchError
from pairbench.workflow.setup import ask, open_context

if TYPE_CHECKING:
    from pairbench.features.attempt.values import Attempt, Tried


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
    tf32: Tf32Option = None,
    timeout: TimeoutOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Take a quick look at what is being edited: right or wrong first, then one round of timing.

    It stops at the first implementation that is wrong, and shows where. Latencies stand beside those of the last try and of the newest
    stored run. One process does everything and judges itself, nothing is stored, and no verdict is given: that is for run and compare.

    Example: pairbench try my_ops.py -i triton --watch
    """
    config = configure(output, catalogue=catalogue, tier=tier, mode=mode, tf32=tf32, timeout=timeout, store=store)
    suites = ask(config, select).files
    with contextlib.ExitStack() as stack:
        context = stack.enter_context(open_context(config, suites, quick=True))
        # Only now, for it takes half a second, and the server that loads torch is under way.
        from pairbench.features.attempt.attempts import Attempts, WantedTry
        from pairbench.features.attempt.watch import try_on_changes

        wanted = WantedTry(
            select=tuple(select or ()),
            implementations=tuple(implementation or ()),
            device=device,
            every_case=all_cases,
        )
        page = _Page(output, watched=watch)
        stack.callback(page.line.clear)
        attempts = Attempts(config, context, wanted, page)
        stack.callback(attempts.close)
        if watch:
            for attempt in try_on_changes(attempts, context.interrupted, begin=page.begin, failed=page.failed):
                page.finish(attempt)
        else:
            attempt = attempts.once()
            page.finish(attempt)
            if code := attempt.exit_code:
                raise typer.Exit(code)


class _Page:
    """What is printed: tables to stdout, and what is going on to stderr."""

    def __init__(self, output: str, *, watched: bool) -> None:
        from pairbench.workflow.progress import StatusLine

        self.line = StatusLine()
        self._output, self._watched, self._finished = output, watched, 0

    def doing(self, what: str) -> None:
        self.line.say(what)

    def notify(self, text: str) -> None:
        self.line.clear()
        say(text)

    def begin(self, changed: tuple[Path, ...]) -> None:
        names = ", ".join(sorted({file.name for file in changed}))
        self.notify(
            f"{time.strftime('%H:%M:%S')} {names} changed"
            if names
            else "pairbench: trying once, and again after every change; Ctrl-C ends it"
        )

    def failed(self, error: PairbenchError) -> None:
        self.notify(f"pairbench: {error}")

    def case(self, tried: "tuple[Tried, ...]") -> None:
        from pairbench.features.attempt.words import case_lines

        self.line.clear()
        if self._output == "table":
            put("\n".join(case_lines(tried)))

    def finish(self, attempt: "Attempt") -> None:
        """Print what belongs to the whole of an attempt; what need be said once is said the first time."""
        from pairbench.features.attempt.words import LABEL, as_markdown, as_plain, closing_lines
        from pairbench.report.render import to_json

        self.line.clear()
        for suite in attempt.broken:
            self.notify(f"pairbench: {suite.reason}")
        if self._output == "json":
            put(to_json(as_plain(attempt), lines=self._watched), nl=False)
        elif self._output == "markdown":
            put(as_markdown(attempt), nl=False)
        elif attempt.cases:
            lines = closing_lines(attempt, with_left_out=not self._finished)
            for line in lines if self._finished else [*lines, LABEL]:
                put(line)
            self._finished += 1
