"""Ctrl-C, SIGTERM and SIGHUP: what asks a command to end is heard wherever it comes."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.001


class _Asked(SystemExit):
    """Ends a command that was asked to end."""


@contextlib.contextmanager
def ends_on_signals() -> Iterator[None]:
    """Have Ctrl-C, SIGTERM and SIGHUP end a command at once, with what it has to clean up, by the exit code 130.

    Python drops what is raised in a few places, such as the callbacks by which it takes care of imports, with a traceback
    on stderr. There it is raised again a moment later.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        raise _Asked(130)

    def dropped(told: "sys.UnraisableHookArgs") -> None:
        if isinstance(told.exc_value, _Asked):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            before(told)

    before: Callable[[Any], object] = sys.unraisablehook
    with on_signals(end, more=(signal.SIGALRM,)):
        sys.unraisablehook = dropped
        try:
            yield
        finally:
            sys.unraisablehook = before


@contextlib.contextmanager
def on_signals(
    handler: Callable[[int, FrameType | None], object], *, more: tuple[signal.Signals, ...] = ()
) -> Iterator[None]:
    """Handle what asks the process to end; SIGHUP is left ignored where it was, as `nohup` has it."""
    if threading.current_thread() is not threading.main_thread():  # which alone may
        yield
        return
    before = {number: signal.getsignal(number) for number in (*_NUMBERS, *more)}
    kept = {signal.SIGHUP} if before[signal.SIGHUP] == signal.SIG_IGN else set()
    handled = {number: old for number, old in before.items() if number not in kept and old is not None}
    for number in handled:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in handled.items():
            signal.signal(number, old)
