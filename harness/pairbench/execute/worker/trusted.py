"""What a worker measures and judges with: bound before any suite is loaded, and watched from then on.

A suite is code like any other and may replace whatever it can reach, `torch.cuda.Event.elapsed_time` or pairbench's own `judge`
among it. A clock that was replaced would change the time of every implementation in the process, so timers call what is
bound here, and a process in which anything watched has changed is given up: what did it fails by name, and nothing else of that
process is believed. This is no sandbox: native code, or a change that is taken back before anybody looks, is not seen.
"""

import _thread
import contextlib
import functools
import gc
import random
import re
import subprocess
import sys
import sysconfig
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
        for module, name in _STARTERS:
            self._add(module.__name__, vars(module), beginning=name)
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


_STARTERS = tuple(
    (module, name)
    for module, names in (
        (threading, ("_start_new_thread", "_start_joinable_thread")),
        (_thread, ("start_new_thread", "start_new", "start_joinable_thread")),
    )
    for name in names
    if hasattr(module, name)  # which of them there are depends on Python's version
)
"""What starts Python's threads, whoever is asked to."""


class _Thread:
    """A thread that a suite has started and that has not ended."""

    def __init__(self, place: str, name: str) -> None:
        self.place = place
        """The line of the suite that started it."""
        self.name = name
        self.ident: int | None = None
        """Its identity; None until it runs."""

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Run the function that the suite starts a thread with; the thread is in `_threads` until it returns."""
        self.ident = threading.get_ident()
        try:
            function(*args, **kwargs)
        finally:
            _threads.discard(self)


_threads = set[_Thread]()


def _noticed(start: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that starts threads, so that threads which a suite starts are put into `_threads`."""

    def start_noticed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        place = _place_of_suite(sys._getframe(1))
        if place is None:
            return start(function, *args, **kwargs)
        thread = getattr(function, "__self__", None)
        name = thread.name if isinstance(thread, threading.Thread) else getattr(function, "__qualname__", "a thread")
        started = _Thread(place, name)
        _threads.add(started)
        try:
            return start(functools.partial(started.run, function), *args, **kwargs)
        except BaseException:  # there can be no more threads
            _threads.discard(started)
            raise

    return start_noticed


def _place_of_suite(frame: FrameType | None) -> str | None:
    """Return the line of a suite that starts a thread, given the frame of who asks for it, or None where a library does.

    The nearest frame outside of Python's own library decides: a suite that compiles a function stands above torch, whose threads are not
    the suite's. Code without a file is nobody's but the suite's, and so is what a thread of the suite starts by Python's library alone.
    """
    while frame is not None:
        if _is_of_suite(frame) or (origin := _origin(frame.f_code.co_filename)) is None:
            return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"
        if frame.f_code is _Thread.run.__code__:
            return str(frame.f_locals["self"].place)
        if origin == "library":
            return None
        frame = frame.f_back
    return None


_PYTHON = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_LIBRARIES = (
    *(str(Path(str(module.__file__)).parent) for module in (torch, np)),  # wherever they are built
    str(Path(__file__).parents[2]),
)


@functools.cache
def _origin(file: str) -> str | None:
    """Return whether a file is Python's or a library's; None where it is neither."""
    if file.startswith(_LIBRARIES) or {"site-packages", "dist-packages"} & {*Path(file).parts}:
        return "library"
    return "python" if file.startswith((*_PYTHON, "<frozen ")) else None


def _notice_threads() -> None:
    for module, name in _STARTERS:
        setattr(module, name, _noticed(getattr(module, name)))


_notice_threads()
_refuse_changes_of_gpus()
watch = Watch()
"""The watch of this process. A worker imports this module before it loads a suite."""


def replaced() -> str | None:
    """Return a sentence about what the code that ran last has replaced, or None."""
    names = watch.changed()
    return (
        names and f"replaces {names}, which every implementation in the process shares; call your own functions instead"
    )


_GRACE_S = 0.25
"""Seconds in which a thread may end that has been told to."""
_WAIT_FOR_A_PROCESS = {
    function.__code__ for name in ("_wait", "_try_wait") if (function := getattr(subprocess.Popen, name, None))
}


def left_running() -> str | None:
    """Return a sentence about a thread that a suite has left behind, or that is in a suite's code, although no call is under way.

    It would take processors, or the interpreter's lock, from whatever is timed next, now or when it wakes up. One that waits for a process of
    its own to end is left alone: it wakes up when nothing is timed any more. Threads of native code are not seen.
    """
    until = perf_counter() + _GRACE_S
    while words := _left_behind():
        if perf_counter() > until:
            return f"leaves a thread running ({words}), which slows what is timed next; end it before the call returns"
        sleep(0.001)
    return None


def _left_behind() -> str | None:
    """Describe a thread of a suite that is alive and not waiting for a subprocess; None where there is none."""
    tops = sys._current_frames()
    for thread in [*_threads]:
        top = tops.get(thread.ident or 0)
        if top is None or top.f_code not in _WAIT_FOR_A_PROCESS:
            return f"{thread.place}: {thread.name!r}"
    # Those of a library may be at work for a suite.
    for ident, top in tops.items():
        frame = top if ident != threading.get_ident() and top.f_code not in _WAIT_FOR_A_PROCESS else None
        while frame is not None and not _is_of_suite(frame):
            frame = frame.f_back
        if frame is not None:
            return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"
    return None


def _is_of_suite(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(f"{NAMESPACE}.")
