"""Runs a suite's code in a worker: an exception ends an entry or a case, and never the worker."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import CaseJob, Ended, TimeCase
from pairbench.execute.worker.faults import SuiteFaultError, UnnamedError, explain, is_out_of_memory
from pairbench.execute.worker.flags import put_back_flags, watched_flags
from pairbench.execute.worker.left_at_work import processes
from pairbench.execute.worker.process_state import files
from pairbench.execute.worker.trusted import left_running, replaced
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry

_FEW = 2  # a suspect and its baseline
_WHEN = "before or after they were timed, "


def guarded(job: CaseJob, index: int, heartbeat: Heartbeat, step: Callable[[], Any]) -> Any:
    """Run one entry's step and return its result, or the entry's `Ended` where it raises or leaves something changed or running; changes are undone first.

    To look for replaced values takes 2 to 6 ms. In a case with many entries `look_once` does so after all of them; if an entry fails before that, it is looked for
    at once, and an UnnamedError says what an implementation has replaced.
    """
    looks = _looks_each(job)
    entry, flags = job.entries[index], watched_flags()
    changed = why = None
    failed = True
    processes.begin()
    opened = files.read()
    try:
        with heartbeat.entry(index):
            try:
                found = step()
                failed = isinstance(found, Ended)
            except SuiteFaultError:
                raise
            except BaseException as error:  # the suite's: a worker is interrupted by its parent alone, by a kill
                status, reason = explain(error)
                found = Ended(entry=entry, status=status, reason=reason)
            finally:
                files.end_without(opened)
    finally:
        why = replaced() if looks or failed else None  # first, for it may be how flags are read
        changed = put_back_flags(flags)
    if not looks and (why := why or (replaced() if changed else None)):
        raise UnnamedError(why, _WHEN)
    if why is None and (isinstance(found, Ended) or getattr(found, "status", Status.VERIFIED) is not Status.VERIFIED):
        return found
    if why := why or changed:
        return Ended(entry=entry, status=Status.FAILED, reason=why)
    why = left_running()
    if why and processes.of_another:  # they were killed, and are nobody's that is known
        return found
    return Ended(entry=entry, status=Status.FAILED, reason=why) if why else found


def look_once(job: CaseJob) -> None:
    if not _looks_each(job) and (why := replaced()):
        raise UnnamedError(why, _WHEN)


def _looks_each(job: CaseJob) -> bool:
    """Return whether replaced values are looked for after each step: not where the parent can time suspects one by one instead."""
    return not (isinstance(job, TimeCase) and job.outside and len(job.entries) > _FEW)


def each_entry(job: CaseJob, heartbeat: Heartbeat, step: Callable[[Entry], Any]) -> Iterator[Any]:
    for index, entry in enumerate(job.entries):
        yield guarded(job, index, heartbeat, functools.partial(step, entry))


def attributed(job: CaseJob, index: int, heartbeat: Heartbeat, step: Callable[[], Any]) -> Any:
    """Run a step that judges one entry, which calls no variant, and return its result; an exception becomes that entry's `Ended`."""
    try:
        with heartbeat.entry(index):
            return step()
    except SuiteFaultError:
        raise
    except BaseException as error:
        status, reason = explain(error)
        if is_out_of_memory(error):  # what judges is ours
            status, reason = Status.SKIPPED, f"the harness ran out of memory as it judged what was timed: {reason}"
        return Ended(entry=job.entries[index], status=status, reason=reason)


def of_case(results: Iterator[Any]) -> Iterator[Any]:
    """Yield results; an exception outside of any entry's step becomes an `Ended` of the whole case."""
    try:
        yield from results
    except SuiteFaultError as error:
        unnamed = error.why if isinstance(error, UnnamedError) else None
        yield Ended(entry=None, status=error.status, reason=error.reason, unnamed=unnamed)
    except BaseException as error:
        if isinstance(error, GeneratorExit) and (error.__traceback__ is None or error.__traceback__.tb_next is None):
            raise  # it is this generator that is closed, and no suite that raises
        status, reason = explain(error)
        yield Ended(entry=None, status=status, reason=reason)
