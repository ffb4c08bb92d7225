"""Runs a suite's code in a worker: an exception becomes a status and a sentence, and ends an entry or a case, and never the worker."""

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from pairbench.errors import DeclarationError, SuiteError
from pairbench.execute.protocol import JUDGE_LACKED, CaseJob, Ended, Heartbeat, TimeCase
from pairbench.execute.worker.flags import put_back_flags, watched_flags
from pairbench.execute.worker.process_state import files
from pairbench.execute.worker.trusted import is_of_suite, left_running, processes, replaced
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry

_FEW = 2  # a suspect and its baseline
_WHEN = "before or after they were timed, "
_name_of, _trace_of = type.__dict__["__name__"].__get__, vars(BaseException)["__traceback__"].__get__
_OURS = {Path(__file__).resolve().parents[1], Path(__file__).resolve().parents[2] / "suite"}
_PYTHONS = Path(traceback.__file__).parent  # the standard library, wherever this Python is installed


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
            except BaseException as error:  # the suite's: a worker is interrupted by its parent alone, by a kill
                if is_fault(error):
                    raise
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
            status, reason = Status.SKIPPED, f"{JUDGE_LACKED}: {reason}"
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


def explain(error: BaseException) -> tuple[Status, str]:
    if _name_of(type(error)) == "InterpreterError" and error.__cause__ is not None:
        # Triton's interpreter raises it at the launch; what it was raised from has the kernel's line.
        status, why = explain(error.__cause__)
        return status, f"{why} (in Triton's interpreter)"
    message = message_of(error)
    if is_out_of_memory(error):
        return Status.OOM, f"{where(error)}out of memory: {message}"
    if issubclass(type(error), DeclarationError | SuiteError):
        return Status.FAILED, message
    return Status.FAILED, f"{where(error)}{_name_of(type(error))}: {message}"


def message_of(error: BaseException) -> str:
    """Return the first line of an exception's message, or a remark where the exception's own `__str__` raises."""
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    except BaseException as another:
        return f"its message cannot be printed ({_name_of(type(another))})"
    # The next line too where the first announces it, as a compiler's errors do.
    return " ".join(lines[: 1 + lines[0].endswith(":")])


def is_out_of_memory(error: BaseException) -> bool:
    if issubclass(type(error), MemoryError | torch.OutOfMemoryError):
        return True
    text = message_of(error)
    return issubclass(type(error), RuntimeError) and ("can't allocate memory" in text or "CUDA out of memory" in text)


@contextlib.contextmanager
def charged() -> Iterator[None]:
    """Mark exceptions raised inside as an implementation's own, so that memory which runs out here is charged to it."""
    try:
        yield
    except BaseException as error:
        error.of_implementation = True  # type: ignore[attr-defined]
        raise


def is_charged(error: BaseException) -> bool:
    return getattr(error, "of_implementation", False)


def where(error: BaseException) -> str:
    """Return the innermost line of the traceback that is neither ours nor a library's: the suite's own."""
    for frame in reversed(traceback.extract_tb(_trace_of(error))):
        path = Path(frame.filename)
        ours = not _OURS.isdisjoint(path.parents)
        library = "site-packages" in path.parts or "dist-packages" in path.parts or not path.is_file()
        if not ours and not library and path.parts[1:2] != ("usr",) and _PYTHONS not in path.parents:
            return f"{path.name}, line {frame.lineno}: "
    return ""


def gpu_is_broken() -> bool:
    """Return whether the CUDA context is unusable, as after an illegal address or a device-side assert."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").add_(1).item()
    except RuntimeError:
        return True
    return False


class SuiteFaultError(Exception):
    """The case itself cannot be judged: its inputs, its baseline or its oracle fail."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def is_fault(error: BaseException) -> bool:
    """Return whether an exception says that a case cannot be judged: a SuiteFaultError that no suite has raised itself."""
    frames = (frame for frame, _ in traceback.walk_tb(_trace_of(error)))
    return issubclass(type(error), SuiteFaultError) and not any(map(is_of_suite, frames))


class TooLargeError(SuiteFaultError):
    """There may be too little of a GPU's memory to judge a case in a process of its own."""


class UnnamedError(SuiteFaultError):
    """An unknown implementation changed something that all share: no latency of the process is believed."""

    def __init__(self, why: str, when: str = "while they were timed, ") -> None:
        super().__init__(Status.FAILED, f"{when}one of the implementations {why}")
        self.why = why
