"""Keeps the thread that issues calls on one core while it is timed, where that does no harm."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

import torch

from pairbench.execute.worker.process_state import pinned

_FEWEST_CORES = 4
"""The number of cores below which nothing is pinned: whatever else runs could not get out of the way."""


@contextlib.contextmanager
def on_one_core(device: torch.device) -> Iterator[None]:
    """Keep this thread on the core where it is, then let it go; only for a GPU, whose calls one thread issues.

    Other threads stay free, those of torch among them: they were started by the first calls. On an H200 the median host time
    of a call spread between processes by 1.5 to 2.8 % with its thread pinned, and by 2.7 to 6.2 % without.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else frozenset[int]()
    core = _core()
    if device.type != "cuda" or len(allowed) < _FEWEST_CORES or core not in allowed:
        yield
        return
    try:
        os.sched_setaffinity(0, {core})
    except OSError:  # a container may forbid it
        yield
        return
    pinned.update(now=frozenset({core}), before=frozenset(allowed))
    try:
        yield
    finally:
        pinned.clear()
        os.sched_setaffinity(0, allowed)


def _core() -> int:
    """Return the core that this thread runs on; -1 where the platform does not say."""
    library = ctypes.CDLL(None)
    return int(library.sched_getcpu()) if hasattr(library, "sched_getcpu") else -1
