"""The functions that a worker measures and judges with: bound before any suite is loaded, and watched from then on.

A suite may replace whatever it can reach, `torch.cuda.Event.elapsed_time` or pairbench's own `judge` among it. So timers call the functions bound here, and a process
in which anything watched has changed is given up: its author fails by name, and nothing else of that process is believed. This is no sandbox: native code, or a
change that is taken back before the next look, is not seen.

Processes and native threads that run although no call does would take processors from the next timed call, so they are looked for, too.
Libraries keep pools of both, which sleep between calls, so only running ones count; of processes, descendants of any depth, and stopped
ones too, which could continue while others are timed.
"""

import _thread
import builtins
import contextlib
import faulthandler
import functools
import operator
import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import filelock  # noqa: F401 (torch.compile loads it, and with it an audit hook, which is refused below)
import numpy as np
import torch

from pairbench.execute.protocol import CaseJob
from pairbench.execute.worker.frozen import Frozen, is_genuine, words
from pairbench.execute.worker.process_state import native_threads as ids_of_threads
from pairbench.execute.worker.process_state import notice_registrations
from pairbench.model.operator import Operator
from pairbench.suite.modules import NAMESPACE

perf_counter = time.perf_counter
perf_counter_ns = time.perf_counter_ns
sleep = time.sleep
synchronize = torch.cuda.synchronize
record = torch.cuda.Event.record
wait = torch.cuda.Event.synchronize
query = torch.cuda.Event.query
elapsed_ms = torch.cuda.Event.elapsed_time

_CLASSES = ("cuda.Event", "cuda.Stream", "cuda.CUDAGraph", "nn.Module", "Tensor")
"""Classes of torch that all implementations share, by the names under which users know them."""
_MODULES = (builtins, np.random, torch, torch.cuda, torch.linalg, torch.nn.functional, torch.random, torch.testing)


_CHANGES_A_GPU = re.compile(
    r"nvml(Device|System)(Set(?!CpuAffinity)|Reset|PowerSmoothing(Set|Activate|Update)|WorkloadPowerProfile(Set|Clear|Update))"
)
_PYTHON = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_LIBRARIES = (
    *(str(Path(str(module.__file__)).parent) for module in (torch, np)),  # wherever they are built
    str(Path(__file__).parents[2]),
)
_GRACE_S = 0.25  # seconds in which a thread may end that has been told to, and in which a process may come to rest
_COMPILE_POOL_S = 30.0  # seconds that the processes of torch's compiler may take to start: they import torch
_WAITING = (getattr(subprocess.Popen, name, None) for name in ("_wait", "_try_wait"))
_WAIT_FOR_A_PROCESS = {function.__code__ for function in _WAITING if function}
_perf_counter_ns, _sleep, _open = time.perf_counter_ns, time.sleep, open
_waitid = getattr(os, "waitid", None)  # not on every system
_ENDS = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT if _waitid else 0
_WATCHED_NS = 2_000_000  # time in ns for which a thread is watched that has run since the last look
_BUSY = 0.5  # part of that time for which a thread at work runs; those that spin after a parallel region run less
_STARTERS = tuple(
    (module, name)
    for module, names in (
        (threading, ("_start_new_thread", "_start_joinable_thread")),
        (_thread, ("start_new_thread", "start_new", "start_joinable_thread")),
    )
    for name in names
    if hasattr(module, name)  # which of them there are depends on Python's version
)


def _refuse_changes_of_gpus() -> None:
    """Replace each function of `pynvml` that changes a GPU's clocks, limits or modes by one that raises a PermissionError; a process of its own, as `nvidia-smi`, is not refused."""
    with contextlib.suppress(ImportError):  # without the package a suite cannot call it either
        import pynvml

        for name in [name for name in vars(pynvml) if _CHANGES_A_GPU.match(name)]:
            setattr(pynvml, name, functools.partial(_refuse, name, "the GPU"))


def _refuse(name: str, changed: str, *_: object, **__: object) -> NoReturn:
    advice = f"pairbench measures {changed} as it finds it, so set it up before the run"
    raise PermissionError(f"{name} would change {changed} for everything that is timed on it; {advice}")


class _Thread:
    def __init__(self, place: str, name: str) -> None:
        self.place = place  # the suite's line that started it
        self.name = name
        self.ident: int | None = None

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Run the function that the suite starts a thread with; the thread is in `_threads` until it returns."""
        self.ident = threading.get_ident()
        try:
            function(*args, **kwargs)
        finally:
            _threads.discard(self)


_threads = set[_Thread]()
_newest = list[_Thread]()


def _noticed(start: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that starts threads, so that a suite's threads are put into `_threads`."""

    def start_noticed(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        place = _place_of_suite(sys._getframe(1))
        if place is None:
            return start(function, *args, **kwargs)
        thread = getattr(function, "__self__", None)
        name = thread.name if isinstance(thread, threading.Thread) else getattr(function, "__qualname__", "a thread")
        started = _Thread(place, name)
        _threads.add(started)
        _newest[:] = [started]
        try:
            return start(functools.partial(started.run, function), *args, **kwargs)
        except BaseException:  # there can be no more threads
            _threads.discard(started)
            raise

    return start_noticed


def newest_thread() -> _Thread | None:
    return _newest[0] if _newest else None


def _place_of_suite(frame: FrameType | None) -> str | None:
    """Return the line of a suite that starts a thread, given the frame of the caller, or None where a library starts it.

    The nearest frame outside of Python's own library decides: a suite that compiles a function stands above torch, whose threads are not the suite's. Code without a
    file is the suite's, and so is a thread that a thread of the suite starts by Python's library alone.
    """
    while frame is not None:
        if is_of_suite(frame) or (origin := _origin(frame.f_code.co_filename)) is None:
            return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"
        if frame.f_code is _Thread.run.__code__:
            return str(frame.f_locals["self"].place)
        if origin == "library":
            return None
        frame = frame.f_back
    return None


@functools.cache
def _origin(file: str) -> str | None:
    """Return whether a file is Python's or a library's; None where it is neither."""
    if file.startswith(_LIBRARIES) or {"site-packages", "dist-packages"} & {*Path(file).parts}:
        return "library"
    return "python" if file.startswith((*_PYTHON, "<frozen ")) else None


def _registers_for_suite(frame: FrameType | None) -> str | None:
    """Return the line of a suite that registers a kernel, given the frame of the dispatcher's caller, or None where a library does."""
    while frame is not None and frame.f_code.co_filename.startswith(_TO_REGISTER):
        frame = frame.f_back
    return _place_of_suite(frame)


_TO_REGISTER = tuple(
    str(Path(str(torch.__file__)).parent / name) for name in ("library.py", "_library", "_ops.py", "_compile.py")
)
"""Code of torch that registers kernels for others."""


for _module, _starter in _STARTERS:
    setattr(_module, _starter, _noticed(getattr(_module, _starter)))
notice_registrations(_registers_for_suite)
vars(sys)["addaudithook"] = functools.partial(_refuse, "sys.addaudithook", "the interpreter")  # a hook would stay
_refuse_changes_of_gpus()
watch = Frozen()  # the frozen values of this process; a worker imports this module before it loads a suite
_declared = dict[Path, Frozen]()
_of_suite = list[Frozen]()  # the element of `_declared` whose suite has a case under way; empty where none has
_tampered = list[str]()


def _hold() -> None:
    for module in _MODULES:
        watch.hold_module(module)
    for name in _CLASSES:
        watch.hold_class(f"torch.{name}", operator.attrgetter(name)(torch))
    for kind in {one for one in vars(torch.nn).values() if isinstance(one, type)}:
        watch.hold_class(f"torch.nn.{kind.__name__}", kind)
    if nvml := sys.modules.get("pynvml"):
        # Not the hundreds of its structures: all of this is compared again and again.
        watch.hold_module(nvml, beginning="nvmlDevice")
    for module, name in _STARTERS:
        watch.hold_module(module, beginning=name)
    see_own_modules()


def see_own_modules() -> None:
    """Freeze the modules of pairbench that were loaded since the last call, and Triton's way to run a kernel."""
    watch.hold_own_modules()
    if (triton := sys.modules.get("triton.runtime.jit")) is not None and hasattr(triton, "JITFunction"):
        watch.hold_class("triton.JITFunction", triton.JITFunction)


_hold()


def freeze_suite(path: Path, operators: Iterable[Operator]) -> None:
    _declared[path] = Frozen()
    for declared in operators:
        _declared[path].hold_operator(declared)


def begin_case(job: CaseJob, operator: Operator) -> None:
    """Freeze a case with its copy of the operator, and the modules that measure it, before any variant is called."""
    see_own_modules()
    frozen = _declared.setdefault(job.path, Frozen())
    if frozen.changed():  # by a variant of another suite
        frozen.restore()
    frozen.begin_case(operator, job.case)
    _of_suite[:] = [frozen]
    native_threads.begin()


def replaced() -> str | None:
    """Return a sentence about what the last code to run has replaced, and restore that; None where nothing was."""
    if not (names := [name for frozen in (watch, *_of_suite) for name in frozen.changed()]):
        return None
    for frozen in (watch, *_of_suite):
        frozen.restore()
    _tampered.extend(names)
    if all(name.startswith("operator ") for name in names):
        return f"changes what its suite declares for all implementations: {words(names)}"
    return f"replaces {words(names)}, which every implementation in the process shares; call your own functions instead"


def tampered() -> bool:
    """Return whether anything was replaced in this process, which is given up although it was restored."""
    return bool(_tampered)


def left_running(*, thorough: bool = True) -> str | None:
    """Return a sentence about a suite's thread or process that runs although no call is under way, or None; running processes are killed.

    It would take processors, or the interpreter's lock, from the next timed call. Threads that wait for a process to end, and sleeping native threads and processes, as
    in libraries' pools, are left alone. `thorough` includes native threads, which takes 20 us.
    """
    began = perf_counter()
    faulthandler.cancel_dump_traceback_later()  # its thread would write, and may crash, while another's call runs
    while words := _left_behind() or processes.at_work() or (native_threads.at_work() if thorough else None):
        grace_s = _COMPILE_POOL_S if processes.compile_pool else _GRACE_S
        if perf_counter() - began > grace_s:
            processes.kill()
            return f"leaves {words}, which slows what is timed next; end it before the call returns"
        sleep(grace_s / 250)
    return None


def _left_behind() -> str | None:
    tops = sys._current_frames()
    # A frame that holds itself would hold all that its callers have until garbage is collected.
    tops.pop(threading.get_ident(), None)
    for thread in [*_threads]:
        top = tops.get(thread.ident or 0)
        if top is None or top.f_code not in _WAIT_FOR_A_PROCESS:
            return f"a thread running ({thread.place}: {thread.name!r})"
    # Those of a library may be at work for a suite.
    for top in tops.values():
        frame = top if top.f_code not in _WAIT_FOR_A_PROCESS else None
        while frame is not None and not is_of_suite(frame):
            frame = frame.f_back
        if frame is not None:
            return f"a thread running ({Path(frame.f_code.co_filename).name}, line {frame.f_lineno})"
    return None


def is_of_suite(frame: FrameType) -> bool:
    """Return whether running code is a suite's: in one of its modules, or under the name of a library's file that does not hold it."""
    if str(frame.f_globals.get("__name__", "")).startswith(f"{NAMESPACE}."):
        return True
    return _origin(frame.f_code.co_filename) is not None and not is_genuine(frame.f_code)


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
