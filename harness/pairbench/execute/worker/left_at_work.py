"""Processes and native threads that run although no call does: they would take processors from the next timed call.

Libraries keep pools of both, which sleep between calls, so only running ones are found; of processes, descendants of any depth, and stopped ones too, which could
continue while others are timed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import torch

from pairbench.execute.worker.process_state import native_threads as ids_of_threads

_perf_counter_ns, _sleep, _open = time.perf_counter_ns, time.sleep, open
_waitid = getattr(os, "waitid", None)  # not on every system
_ENDS = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT if _waitid else 0
_WATCHED_NS = 2_000_000  # time in ns for which a thread is watched that has run since the last look
_BUSY = 0.5
"""Part of that time for which a thread at work runs; threads that spin at the end of a parallel region run less."""


class _Processes:
    def __init__(self) -> None:
        self._at_work: dict[int, str] = {}
        self.compile_pool = False
        """Whether all at work are of the pool of torch's compiler, which starts beside the first compilation and then sleeps."""
        self._known: set[int] = set()
        # Those found by the last look, for the next step or turn; None where there was no look since one began.
        self._newest: set[int] | None = None
        self.of_another = False
        """Whether all that were killed last were there before the step or turn: they are another implementation's, and slept until then."""

    def begin(self) -> None:
        found, self._newest = self._newest, None
        self._known = found if found is not None else set(_descendants()) if _has_children() else set()

    def at_work(self) -> str | None:
        """Describe a process below this one that runs or is stopped, or return None; without children this takes a microsecond."""
        self.compile_pool = False
        if not _has_children():
            self._at_work, self._newest = {}, set()
            return None
        self._newest = set(_descendants())
        found = {pid: state for pid in self._newest if (state := _state(pid))[:1] in ("R", "T", "t")}
        # Seen twice in a row: one that begins or ends runs for a moment.
        again = {pid: state for pid, state in found.items() if pid in self._at_work}
        self._at_work = found
        if not found:
            return None
        pools = getattr(sys.modules.get("torch._inductor.async_compile"), "_pool_set", ())
        roots = [pool.process.pid for pool in pools if isinstance(getattr(pool, "process", None), subprocess.Popen)]
        self.compile_pool = bool(roots) and found.keys() <= {*roots, *_descendants(roots)}
        pid, state = next(iter((again or found).items()))
        return f"a process {'stopped' if state[0] in 'Tt' else 'running'} (pid {pid}: {state[2:]!r})"

    def kill(self) -> None:
        self.of_another = bool(self._at_work) and self._known.issuperset(self._at_work)
        for pid in self._at_work:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._at_work = {}


def _has_children() -> bool:
    """Return whether there is a child that has not been waited for; this takes a microsecond."""
    if _waitid is None:
        return False
    try:
        _waitid(os.P_ALL, 0, _ENDS)
    except ChildProcessError:
        return False
    return True


def _descendants(of: Iterable[int] = ()) -> list[int]:
    found, at = list[int](), [*of] or [os.getpid()]
    while at:
        pid = at.pop()
        with contextlib.suppress(OSError):  # it has just ended
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 (asked often)
                with contextlib.suppress(OSError), _open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    at += (children := list(map(int, file.read().split())))
                    found += children
    return found


def _state(pid: int) -> str:
    """Return a process's state, one letter, and its name; nothing once it has ended."""
    try:
        with _open(f"/proc/{pid}/stat") as file:
            head, _, tail = file.read().rpartition(")")
    except OSError:
        return ""
    return f"{tail[1:2]} {head.partition('(')[2]}"


class _NativeThreads:
    """The threads of this process beyond those before any implementation is called: torch's own pools, once they are warm."""

    def __init__(self) -> None:
        self._own: set[int] | None = None
        self._ran_ns: dict[int, int] = {}

    def begin(self) -> None:
        """Have torch start its pools, once, and exempt the threads that there are."""
        if self._own is None:
            torch.zeros(1 << 18).add_(1.0)
            left = torch.ones(64, 64)
            torch.mm(left, left)
            self._own = set(ids_of_threads())

    def at_work(self) -> str | None:
        """Describe a running thread that belongs to none of torch's pools, or return None."""
        if self._own is None:
            return None
        others = [tid for tid in ids_of_threads() if tid not in self._own and tid != threading.get_native_id()]
        before, self._ran_ns = self._ran_ns, {tid: _ran_ns(tid) for tid in others}
        suspected = [tid for tid in others if self._ran_ns[tid] > before.get(tid, 0)]
        if not suspected:
            return None
        began = _perf_counter_ns()
        _sleep(_WATCHED_NS / 1e9)
        now = {tid: _ran_ns(tid) for tid in suspected}
        watched_ns = _perf_counter_ns() - began
        at_work = [tid for tid in suspected if now[tid] - self._ran_ns[tid] > _BUSY * watched_ns]
        self._ran_ns |= now
        if not at_work:
            return None
        name = str(at_work[0])
        with contextlib.suppress(OSError):
            name = Path(f"/proc/self/task/{name}/comm").read_text().strip()
        return f"a thread running (native, {name!r})"


def _ran_ns(tid: int) -> int:
    """Return for how long a thread has run, or waited for a core, in ns."""
    try:
        with _open(f"/proc/self/task/{tid}/schedstat", "rb") as file:
            return sum(map(int, file.read().split()[:2]))
    except (OSError, ValueError, IndexError):  # it has ended, or the kernel does not tell
        return 0


processes = _Processes()
native_threads = _NativeThreads()
