"""Runs a suite's code in a worker: what it raises ends an entry or a case, and never the worker."""

from collections.abc import Callable, Iterator
from typing import Any

from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import CaseJob, Ended
from pairbench.execute.worker.faults import SuiteFaultError, explain
from pairbench.execute.worker.trusted import replaced
from pairbench.model.outcome import Status


def guarded(job: CaseJob, index: int, heartbeat: Heartbeat, step: Callable[[], Any]) -> Any:
    """Run one entry's step and return its result; what it raises becomes that entry's `Ended`."""
    entry = job.entries[index]
    found: Any
    try:
        with heartbeat.entry(index):
            found = step()
    except SuiteFaultError:
        raise
    except (Exception, SystemExit) as error:
        status, reason = explain(error)
        found = Ended(entry=entry, status=status, reason=reason)
    if why := replaced():
        return Ended(entry=entry, status=Status.FAILED, reason=why)
    return found


def of_case(results: Iterator[Any]) -> Iterator[Any]:
    """Yield results; what is raised outside of any entry's step becomes an `Ended` of the whole case."""
    try:
        yield from results
    except SuiteFaultError as error:
        yield Ended(entry=None, status=error.status, reason=error.reason)
    except Exception as error:
        status, reason = explain(error)
        yield Ended(entry=None, status=status, reason=reason)
