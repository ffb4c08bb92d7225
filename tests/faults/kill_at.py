"""Kills a process at each line of the code under test in turn, as `kill -9` may at any moment."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

_MARK = f"{os.sep}pairbench{os.sep}"


def lines_of(work: Callable[[], object], *parts: str) -> int:
    """Return how many lines of some files of the package are gone through by work that is left alone, in a fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        counted = _Counted(parts)
        _trace(counted)
        _work(work)
        sys.settrace(None)
        os.write(writing, str(counted.lines).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    assert not os.waitpid(child, 0)[1], "the work fails by itself"
    return int(text)


def killed_at(line: int, work: Callable[[], object], *parts: str, number: int = signal.SIGKILL) -> bool:
    """Do work in a fork that a signal meets before its n-th line; return whether it was met before its end."""
    child = os.fork()
    if not child:
        _trace(_Counted(parts, line, number))
        _work(work)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return status != 0


class _Counted:
    def __init__(self, parts: tuple[str, ...], stop: int | None = None, number: int = signal.SIGKILL) -> None:
        self._parts, self._stop, self._number = parts, stop, number
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if event == "call":
            return self if _MARK in name and any(part in name for part in self._parts) else None
        if event == "line":
            self.lines += 1
            if self.lines == self._stop:
                os.kill(os.getpid(), self._number)
        return self


def _trace(counted: _Counted) -> None:
    sys.settrace(counted)


def _work(work: Callable[[], object]) -> None:
    try:
        work()
    except KeyboardInterrupt:
        os._exit(130)
    except BaseException:  # noqa: BLE001 (a fork must not go on as its parent)
        traceback.print_exc()
        os._exit(1)
