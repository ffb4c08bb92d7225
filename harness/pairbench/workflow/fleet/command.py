"""What `pairbench fleet run` does: units are asked for, taken through the fleet, and added up."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pairbench.config import Config
from pairbench.model.outcome import Status
from pairbench.model.unit import Host, Unit, UnitEnd, UnitResult
from pairbench.workflow.fleet.asked import ANY, on_models
from pairbench.workflow.fleet.dask import checked_address, is_loopback, need_dask
from pairbench.workflow.fleet.drive import Drive, run_units
from pairbench.workflow.fleet.live import open_table
from pairbench.workflow.interrupting import on_signals
from pairbench.workflow.setup import store_of


@dataclass(frozen=True, kw_only=True)
class DoneFleet:
    """What a fleet has done."""

    hosts: tuple[Host, ...]
    results: tuple[UnitResult, ...]
    interrupted: bool
    seconds: float
    """From the first unit to the last."""

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
        units: Gives the units; loading suites takes some seconds, and wrong options are told before.
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
        named = [unit for unit in asked if unit.device != ANY]
        left = [unit for unit in asked if unit.device == ANY]
        done = run_units(named, drive, lambda hosts: on_models(left, hosts))
    return DoneFleet(
        hosts=done.hosts, results=tuple(done.results), interrupted=interrupted.is_set(), seconds=done.seconds
    )
