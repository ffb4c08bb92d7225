"""What a worker is doing and until when it may, in memory that its parent can read even when the worker hangs.

A worker that loops for ever, or was killed, cannot say which implementation did it. So before each step it writes the
entry's index and the deadline into shared memory; a pipe would cost a system call for each sample.
"""

import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager

SIZE = 4096
NOBODY = -1  # the case's own code is running: inputs, baseline outputs, oracle


class Heartbeat:
    """The worker's end. Time adds up for each entry over its steps, until `begin_job` starts a new stage."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._index, self._deadline = _fields(memory)
        self._allowed_s = 0.0
        self._spent_s: dict[int, float] = {}
        self._waited_s = 0.0

    def begin_job(self, allowed_s: float) -> None:
        """Give every entry a fresh allowance; the case's own code has the same."""
        self._allowed_s = allowed_s
        self._spent_s = {}
        self._mark(NOBODY)

    def go_on(self) -> None:
        """Continue the stage after a rest; what an entry has spent of its allowance stays spent."""
        self._mark(NOBODY)

    @contextmanager
    def entry(self, index: int) -> Iterator[None]:
        """Blame what happens inside on an entry."""
        started = self._mark(index) - self._waited_s
        try:
            yield
        finally:
            self._spent_s[index] = self._spent_s.get(index, 0.0) + time.monotonic() - started - self._waited_s
            self._mark(NOBODY)

    @property
    def running(self) -> int:
        return self._index[0]

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Stop the entry's time while the worker waits for an answer of its parent; what goes wrong is still the entry's."""
        index, deadline, began = self._index[0], self._deadline[0], time.monotonic()
        self._write(index, float("inf"))
        try:
            yield
        finally:
            waited = time.monotonic() - began
            self._waited_s += waited
            self._write(index, deadline + waited)

    def exhausted(self, index: int) -> bool:
        return self._spent_s.get(index, 0.0) >= self._allowed_s

    def let_go(self) -> None:
        """Write to memory of its own from now on, as a process must that a worker's code has forked."""
        self._index, self._deadline = _fields(bytearray(SIZE))

    def _mark(self, index: int) -> float:
        now = time.monotonic()
        self._write(index, now + self._allowed_s - self._spent_s.get(index, 0.0))
        return now

    def rest(self) -> None:
        self._write(NOBODY, float("inf"))

    def _write(self, index: int, deadline: float) -> None:
        # Each is one aligned store, so the parent sees no half of it; `struct.pack_into` clears its fields first, and a
        # parent that looked just then saw a deadline of 0, and ended a worker for a timeout that never was.
        self._deadline[0] = deadline
        self._index[0] = index


def read_heartbeat(memory: mmap.mmap) -> tuple[int, float]:
    """Return the index of the entry that runs, and the `time.monotonic` after which it is over time."""
    index, deadline = _fields(memory)
    return index[0], deadline[0]


def _fields(memory: mmap.mmap | bytearray) -> "tuple[memoryview[int], memoryview[float]]":
    view = memoryview(memory)
    return view[:8].cast("q"), view[8:16].cast("d")
