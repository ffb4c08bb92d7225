"""Runs a suite's code in a worker: what it raises ends an entry or a case, and never the worker."""

from collections.abc import Callable, Iterator
from typing import Any

from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import CaseJob, Ended
from pairbench.execute.worker.faults import SuiteFaultError, explain
from pairbench.execute.worker.flags import changed_flags, restore_flags, watched_flags
from pairbench.execute.worker.trusted import left_running, replaced
from pairbench.model.outcome import Status


def attributed(job: CaseJob, index: int, heartbeat: Heartbeat, step: Callable[[], Any]) -> Any:
    """Run a step that judges one entry, or is part of `guarded`, and return its result.

    What it raises becomes that entry's `Ended`, and so does a thread that it leaves behind.
    """
    try:
        with heartbeat.entry(index):
            found = step()
    except SuiteFaultError:
        raise
    except BaseException as error:  # of the suite's: a worker is interrupted by its parent alone, which kills it
        status, reason = explain(error)
        return Ended(entry=job.entries[index], status=status, reason=reason)
    if isinstance(found, Ended) or getattr(found, "status", Status.VERIFIED) is not Status.VERIFIED:
        return found
    return Ended(entry=job.entries[index], status=Status.FAILED, reason=why) if (why := left_running()) else found


def guarded(job: CaseJob, index: int, heartbeat: Heartbeat, step: Callable[[], Any]) -> Any:
    """Run one entry's step and return its result; what it raises becomes that entry's `Ended`, and so does what it leaves changed."""
    entry, flags = job.entries[index], watched_flags()
    found = attributed(job, index, heartbeat, step)
    changed = changed_flags(flags)
    if changed:
        restore_flags(flags)
    if why := replaced():
        return Ended(entry=entry, status=Status.FAILED, reason=why)
    if isinstance(found, Ended) or getattr(found, "status", Status.VERIFIED) is not Status.VERIFIED:
        return found
    why = changed and f"changes global flags, which are pinned alike for all: {changed}"
    return Ended(entry=entry, status=Status.FAILED, reason=why) if why else found


def of_case(results: Iterator[Any]) -> Iterator[Any]:
    """Yield results; what is raised outside of any entry's step becomes an `Ended` of the whole case."""
    try:
        yield from results
    except SuiteFaultError as error:
        yield Ended(entry=None, status=error.status, reason=error.reason)
    except BaseException as error:
        if isinstance(error, GeneratorExit) and (error.__traceback__ is None or error.__traceback__.tb_next is None):
            raise  # it is this generator that is closed, and no suite that raises
        status, reason = explain(error)
        yield Ended(entry=None, status=status, reason=reason)
