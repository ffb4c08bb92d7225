"""What a worker measures and judges with: bound before any suite is loaded, and watched from then on.

A suite is code like any other and may replace whatever it can reach, `torch.cuda.Event.elapsed_time` or pairbench's own `judge`
among it. A clock that was replaced would change the time of every implementation in the process, so timers call what is
bound here, and a process in which anything watched has changed is given up: what did it fails by name, and nothing else of that
process is believed. This is no sandbox: native code, or a change that is taken back before anybody looks, is not seen.
"""

import contextlib
import gc
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from operator import is_
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np
import torch

from pairbench.suite.modules import NAMESPACE

perf_counter = time.perf_counter
perf_counter_ns = time.perf_counter_ns
sleep = time.sleep
synchronize = torch.cuda.synchronize
record = torch.cuda.Event.record
wait = torch.cuda.Event.synchronize
query = torch.cuda.Event.query
elapsed_ms = torch.cuda.Event.elapsed_time

_OWN = "pairbench."
_WATCHED: tuple[tuple[str, Any], ...] = (
    ("time", time),
    ("gc", gc),
    ("random", random),
    ("numpy.random", np.random),
    ("torch", torch),
    ("torch.cuda", torch.cuda),
    ("torch.cuda.Event", torch.cuda.Event),
    ("torch.cuda.Stream", torch.cuda.Stream),
    ("torch.cuda.CUDAGraph", torch.cuda.CUDAGraph),
    ("torch.nn.functional", torch.nn.functional),
    ("torch.nn.Module", torch.nn.Module),
    ("torch.testing", torch.testing),
    ("torch.Tensor", torch.Tensor),
)
"""Modules and classes that are watched, by the names under which users know them."""
_CHANGED_BY_TORCH = frozenset({"torch.manual_seed", "torch.nn.Module.__init__", "torch.nn.Module.__setstate__"})
"""Replaced by torch itself when its compiler is loaded."""


_CHANGES_A_GPU = re.compile(
    r"nvml(Device|System)(Set(?!CpuAffinity)|Reset|PowerSmoothing(Set|Activate|Update)|WorkloadPowerProfile(Set|Clear|Update))"
)


def _refuse_changes_of_gpus() -> None:
    """Put in the place of each of `pynvml`'s functions that change a GPU's clocks, limits or modes one that raises a PermissionError.

    With the rights of an administrator an implementation could raise the clocks for itself, or lower them for the others. What changes
    them in a process of its own, `nvidia-smi`, say, is not kept from it.
    """
    with contextlib.suppress(ImportError):  # without the package a suite cannot call it either
        import pynvml

        for name in [name for name in vars(pynvml) if _CHANGES_A_GPU.match(name)]:
            setattr(pynvml, name, _refusal(name))


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(
            f"{name} would change the GPU for everything that is timed on it; pairbench measures a GPU as it finds it, so set it up before the run"
        )

    return refuse


class Watch:
    """Compares what can be called in the watched places with what was there when each was first seen."""

    def __init__(self) -> None:
        self._known: list[tuple[str, Mapping[str, Any], tuple[str, ...], tuple[Any, ...]]] = []
        """The name of a namespace, the namespace, names in it, and what each of them held."""
        self._modules: set[str] = set()
        for owner, place in _WATCHED:
            self._add(owner, vars(place))
        if nvml := sys.modules.get("pynvml"):
            # Not the hundreds of its structures: all of this is compared again and again.
            self._add("pynvml", vars(nvml), beginning="nvmlDevice")
        self.see_own_modules()

    def see_own_modules(self) -> None:
        """Watch those of pairbench's own modules that were loaded since this was last asked."""
        for owner, module in list(sys.modules.items()):
            if not owner.startswith(_OWN) or owner in self._modules:
                continue
            self._modules.add(owner)
            self._add(owner, vars(module))
            for name, value in vars(module).items():
                if isinstance(value, type) and value.__module__ == owner:
                    self._add(f"{owner}.{name}", vars(value))

    def _add(self, owner: str, namespace: Mapping[str, Any], beginning: str = "") -> None:
        held = {
            name: value
            for name, value in namespace.items()
            if name.startswith(beginning)
            and (callable(value) or isinstance(value, property | staticmethod | classmethod))
            and f"{owner}.{name}" not in _CHANGED_BY_TORCH
        }
        self._known.append((owner, namespace, tuple(held), tuple(held.values())))

    def changed(self) -> str | None:
        """Return the names of what was replaced or taken away since, or None; what is new is no concern."""
        # Thousands of names after each step of each implementation: without a loop of Python's own where nothing changed.
        names = [
            f"{owner}.{name}"
            for owner, namespace, known, held in self._known
            if not all(map(is_, map(namespace.get, known), held))
            for name, value in zip(known, held, strict=True)
            if namespace.get(name) is not value
        ]
        if not names:
            return None
        return f"{', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"


_refuse_changes_of_gpus()
watch = Watch()
"""The watch of this process. A worker imports this module before it loads a suite."""


def replaced() -> str | None:
    """Return a sentence about what the code that ran last has replaced, or None."""
    names = watch.changed()
    return (
        names and f"replaces {names}, which every implementation in the process shares; call your own functions instead"
    )


_IDLE_NS = 2_000_000
"""The processor time in ns that a thread which only waits may take between two looks."""
_thread_ns: dict[int, int] = {}
"""The processor time of each thread of a suite when it was last looked at."""


def left_running() -> str | None:
    """Return a sentence about a thread that is at work in a suite's code although no call is under way, or None.

    It would take processors, or the interpreter's lock, from whatever is timed next. One that waits in a library, for a process of
    its own to end, say, takes nothing, as long as it has taken no processor time either. Threads of native code are not seen.
    """
    for ident, top in sys._current_frames().items():
        frame = top if ident != threading.get_ident() else None
        while frame is not None and not _is_of_suite(frame):
            frame = frame.f_back
        if frame is not None and (frame is top or _took_ns(ident) > _IDLE_NS):
            place = f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"
            return f"leaves a thread running ({place}), which slows what is timed next; end it before the call returns"
    return None


def _is_of_suite(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(f"{NAMESPACE}.")


def _took_ns(ident: int) -> int:
    """Return the processor time in ns that a thread has taken since this was last asked of it."""
    try:
        now = time.clock_gettime_ns(time.pthread_getcpuclockid(ident))
    except OSError:  # it has just ended
        return 0
    taken = now - _thread_ns.get(ident, 0)
    _thread_ns[ident] = now
    return taken
