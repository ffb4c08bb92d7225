"""The parent's side of a look into cases: a worker that never times is asked one job after the other."""

from collections.abc import Iterable, Iterator
from typing import Any

from pairbench.execute.pool import Site, WorkerEndedError, Workers
from pairbench.execute.protocol import BreakDownCase, DivergeCase, Ended
from pairbench.model.environment import Device


def inspect(
    site: Site, device: Device, jobs: Iterable[BreakDownCase | DivergeCase], *, interpret: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Yield jobs about one entry each with what a worker answers; what ends the worker is an `Ended` of that entry.

    Args:
        site: as for a run.
        device: where.
        jobs: what to ask.
        interpret: run Triton kernels through its interpreter.
    """
    with Workers(site, device, interpret=interpret) as workers:
        for job in jobs:
            try:
                for answer in workers.get().request(job):
                    yield job, answer
            except WorkerEndedError as error:
                yield job, Ended(entry=job.entries[0], status=error.status, reason=error.reason)
