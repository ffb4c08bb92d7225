"""The scheduler of a fleet: Dask's, with settings under which it is a queue."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pairbench import __version__
from pairbench.errors import UsageError
from pairbench.workflow.fleet.dask import NO_HTTP, checked_address, configured, need_dask, security_of

METADATA = "pairbench"
"""The key under which a scheduler says that it is one of ours, and of which version."""


def run_scheduler(address: str, certificates: Path | None, *, insecure: bool, notify: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        address: Where to listen, such as tcp://127.0.0.1:8786.
        certificates: The folder with `scheduler.pem`; None without TLS.
        insecure: Whether to listen without TLS where others reach it.
        notify: Is given the address once it listens.

    Raises:
        UsageError: it cannot listen there, or must not.
    """
    need_dask()
    address = checked_address(address, certificates, insecure=insecure)
    with configured():
        asyncio.run(_serve(address, security_of(certificates), notify))


async def _serve(address: str, security: Any, notify: Callable[[str], None]) -> None:
    from distributed import Scheduler

    protocol, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    scheduler = Scheduler(
        host=host, port=int(port), protocol=protocol, security=security, dashboard=False, dashboard_address=NO_HTTP
    )
    try:
        await scheduler
    except (OSError, RuntimeError, ValueError) as error:
        why = error.__cause__ or error
        raise UsageError(f"the scheduler cannot listen at {address}: {why}") from error
    scheduler.task_metadata[METADATA] = {"version": __version__}
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    notify(scheduler.address)
    await ended.wait()
    await scheduler.close()
