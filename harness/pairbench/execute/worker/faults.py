"""Turns an exception into a status and a sentence, and checks whether the GPU survived it."""

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from pairbench.errors import DeclarationError
from pairbench.model.outcome import Status

_OURS = {Path(__file__).resolve().parents[1], Path(__file__).resolve().parents[2] / "suite"}


def explain(error: BaseException) -> tuple[Status, str]:
    if type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        # Triton's interpreter raises it at the launch; what it was raised from has the kernel's line.
        status, why = explain(error.__cause__)
        return status, f"{why} (in Triton's interpreter)"
    message = message_of(error)
    if is_out_of_memory(error):
        return Status.OOM, f"{where(error)}out of memory: {message}"
    if isinstance(error, DeclarationError):
        return Status.FAILED, message
    return Status.FAILED, f"{where(error)}{type(error).__name__}: {message}"


def message_of(error: BaseException) -> str:
    """Return the first line of an exception's message, or a remark where the exception's own `__str__` raises."""
    try:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    except BaseException as another:
        return f"its message cannot be printed ({type(another).__name__})"
    # The next line too where the first announces it, as a compiler's errors do.
    return " ".join(lines[: 1 + lines[0].endswith(":")])


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = message_of(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "CUDA out of memory" in text)


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
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        ours = not _OURS.isdisjoint(path.parents)
        library = "site-packages" in path.parts or "dist-packages" in path.parts or not path.is_file()
        if not ours and not library and path.parts[1:2] != ("usr",):
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


class TooLargeError(SuiteFaultError):
    """There may be too little of a GPU's memory to judge a case in a process of its own."""


class UnnamedError(SuiteFaultError):
    """An unknown implementation changed something that all share: no latency of the process is believed."""

    def __init__(self, why: str, when: str = "while they were timed, ") -> None:
        super().__init__(Status.FAILED, f"{when}one of the implementations {why}")
        self.why = why
