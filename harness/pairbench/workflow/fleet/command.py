"""What `pairbench fleet run` does: units are asked for, taken through the fleet, shown as they come back, and added up."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pairbench.config import Config
from pairbench.model.outcome import Status
from pairbench.model.text import safe
from pairbench.model.unit import Host, Unit, UnitEnd, UnitResult
from pairbench.report.fleet import host_rows
from pairbench.workflow.fleet.asked import ANY, on_models
from pairbench.workflow.fleet.dask import checked_address, is_loopback, need_dask
from pairbench.workflow.fleet.drive import Drive, Progress, run_units
from pairbench.workflow.git.repository import git
from pairbench.workflow.interrupting import on_signals
from pairbench.workflow.setup import store_of

_LINE_EVERY_S = 10.0
_HOSTS = 40


@dataclass(frozen=True, kw_only=True)
class DoneFleet:
    """What a fleet has done."""

    hosts: tuple[Host, ...]
    results: tuple[UnitResult, ...]
    interrupted: bool
    seconds: float
    """Seconds from the first unit to the last."""

    @property
    def exit_code(self) -> int:
        """Return the contract's exit code."""
        ends = {result.end for result in self.results}
        if self.interrupted:
            return 130
        if ends & {UnitEnd.FAILED, UnitEnd.NOT_DONE}:
            return 4
        return int(any(Status(name).bad for result in self.results for name in result.statuses or ()))


def run_fleet(
    config: Config,
    units: Callable[[], tuple[Unit, ...]],
    *,
    address: str,
    certificates: Path | None,
    insecure: bool,
    patience_s: float,
) -> DoneFleet:
    """Have units measured by a fleet.

    Args:
        config: The settings, whose store every host writes to.
        units: Gives the units; loading suites takes some seconds, and wrong options are found before.
        address: The scheduler.
        certificates: The folder with `client.pem`; None without TLS.
        insecure: Whether to go without TLS beyond this machine.
        patience_s: Seconds to wait for a device or a scheduler.

    Raises:
        PairbenchError: the scheduler does not answer, or the store cannot be read.
    """
    need_dask()
    address = checked_address(address, certificates, insecure=insecure)
    store = store_of(config)
    asked = units()
    interrupted = threading.Event()
    with on_signals(lambda *_: interrupted.set()), open_table() as (show, notify):
        if store.is_local and not is_loopback(address):
            notify(
                f"pairbench: store {store.address} is a folder, which every host has to see under this name; s3:// and gs:// need none"
            )
        drive = Drive(
            address=address,
            certificates=certificates,
            store=store,
            patience_s=patience_s,
            notify=notify,
            show=show,
            interrupted=interrupted,
        )
        head = git(config.root, "rev-parse", "HEAD")
        if any(unit.commit == head for unit in asked if head) and git(config.root, "status", "--porcelain"):
            notify("pairbench: uncommitted changes are not measured: a unit is of its commit")
        named = [unit for unit in asked if unit.device != ANY]
        left = [unit for unit in asked if unit.device == ANY]
        done = run_units(named, drive, lambda hosts: on_models(left, hosts))
    return DoneFleet(
        hosts=done.hosts, results=tuple(done.results), interrupted=interrupted.is_set(), seconds=done.seconds
    )


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
