"""A table of the hosts on a terminal that is written anew as units come back; elsewhere a line now and then."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from pairbench.model.text import safe
from pairbench.report.fleet import host_rows
from pairbench.workflow.fleet.drive import Progress

_LINE_EVERY_S = 10.0
_HOSTS = 40


@contextlib.contextmanager
def open_table() -> Iterator[tuple[Callable[[Progress], None], Callable[[str], None]]]:
    """Give what shows progress and what prints a message, both to stderr."""
    if not sys.stderr.isatty():
        yield _Lines().show, _say
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    console = Console(stderr=True)
    with Live(console=console, refresh_per_second=2, transient=True) as live:

        def show(progress: Progress) -> None:
            table = Table(title=_head(progress), title_justify="left", box=None, pad_edge=False)
            rows = host_rows(progress.hosts, progress.flying, progress.results)
            for name in ("host", "workers", "devices", "done", "other", "now"):
                table.add_column(name, overflow="ellipsis", no_wrap=True)
            for row in rows[:_HOSTS]:
                table.add_row(*(safe(str(value)).replace("[", "\\[") for value in row.values()))
            live.update(table)

        yield show, lambda text: console.print(safe(text), markup=False, highlight=False)


def _head(progress: Progress) -> str:
    return f"{len(progress.results)} units over, {len(progress.flying)} under way, {progress.waiting} waiting, {len(progress.hosts)} workers"


def _say(text: str) -> None:
    sys.stderr.write(f"{safe(text)}\n")
    sys.stderr.flush()


class _Lines:
    def __init__(self) -> None:
        self._at = 0.0

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._at >= _LINE_EVERY_S:
            self._at = now
            _say(f"pairbench: {_head(progress)}")
