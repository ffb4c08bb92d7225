"""What a worker prints, and what that tells of its end: a file without a name, of which no more than the end is ever read."""

import os
import re
import signal
import sys
import tempfile
from pathlib import Path

from pairbench.model.outcome import Status

KILLED = "its process was killed (SIGKILL)"
"""Begins the reason of a worker's end by the signal that no process can handle."""
_FATAL = "fatal: "
"""Begins the line in which code that has to end a worker says why."""
_TAIL, _MOST = 1 << 20, 64 << 20
"""Bytes that are looked at when a worker ends, and that may be on disk before the log begins anew."""
_FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+) in .+')


class WorkerLog:
    """The standard output and standard error of one worker."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()

    def keep_short(self) -> None:
        if os.fstat(self.fileno()).st_size > _MOST:
            os.lseek(self.fileno(), 0, os.SEEK_SET)
            os.ftruncate(self.fileno(), 0)

    def line(self, marker: str) -> str | None:
        """Return the first of the last lines that contains the marker."""
        return next((line for line in self._lines() if marker in line), None)

    def _lines(self) -> list[str]:
        return [] if self._file.closed else last_lines(self.fileno())

    def explain(self, code: int) -> tuple[Status, str]:
        """Return how a worker ended and why, given its exit code or the negative number of the signal that ended it."""
        if code >= 0:
            if words := self.line(_FATAL):
                words = words.partition(_FATAL)[2].strip()
                status = Status.OOM if "out of memory" in words.lower() else Status.FAILED
                return status, f"ended its process with exit status {code}: {words}"
            words = f"{self._last_words()}{self._uncaught() if code == 1 else ''}"
            return Status.FAILED, f"ended its process with exit status {code}{words}"
        name = signal.Signals(-code).name
        meaning = signal.strsignal(-code) or name
        if -code == signal.SIGKILL:
            return Status.OOM, f"{KILLED}, most likely by the kernel because memory ran out"
        return Status.FAILED, f"crashed its process with signal {name} ({meaning.lower()}){self._last_words()}"

    def _uncaught(self) -> str:
        """Return what Python said of the exception that ended the process; empty where it said nothing."""
        lines = self._lines()
        return f": {lines[-1][:500]}" if "Traceback (most recent call last):" in lines and lines[-1] else ""

    def _last_words(self) -> str:
        """Return where in the suite a crash happened, as Python's fault handler tells it; empty where it does not."""
        frames = [match for line in self._lines() if (match := _FRAME.fullmatch(line))]
        ours = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
        theirs = [frame for frame in frames if not frame["file"].startswith((*ours, "<"))]
        return f" in {Path(theirs[0]['file']).name}, line {theirs[0]['line']}" if theirs else ""


def last_lines(descriptor: int) -> list[str]:
    """Return the lines at the end of an open file, of which no more is read."""
    # Not by a seek: a worker would write where its parent has sought, for both have one open file.
    end = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _TAIL, max(0, end - _TAIL))
    return [line.strip() for line in tail.decode(errors="replace").splitlines()]
