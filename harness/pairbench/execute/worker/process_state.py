"""The state of the process that an implementation may change beside torch's flags (`flags.py`): read by value, compared around each entry's steps and turns, and restored."""

import contextlib
import functools
import gc
import importlib
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch

_LIBRARIES = ("CUDA_", "CUBLAS_", "KMP_", "TRITON_", "TORCH", "_TORCH", "PYTORCH_", "NCCL_", "GLOO_")
"""Prefixes of variables that libraries set for themselves at their first use: these are removed, and nobody is named."""
pinned: dict[str, frozenset[int]] = {}
"""While the calling thread is kept on a core: that core, under `now`, and its former cores, under `before`."""
_MOST_THREADS = 64  # threads whose cores and priority are compared: each takes 3 us
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_RECURSION_LIMIT = sys.getrecursionlimit()
_getsignal: Callable[[int], Any] = importlib.import_module("_signal").getsignal
"""`signal.getsignal` without the search for the handler's name in an enumeration, which takes 1 us a signal."""
_SIGNALS = tuple(sorted(signal.valid_signals()))
_LIMITS = {value: name for name, value in vars(resource).items() if name.startswith("RLIMIT_")}
Settings = dict[tuple[str, str], Any]  # by module or group, and name
_UNSET = object()
_COMPILERS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
compiler_limits: dict[str, Any] = {"recompile_limit": 64, "fail_on_recompile_limit_hit": True}
"""Settings that a worker makes as soon as the compiler is loaded. The number is of compilations of one function in one case, all implementations and shapes together."""
compiler_limits |= {"cache_size_limit": 64, "fail_on_cache_limit_hit": True}  # as torch 2.6 calls them
_HARMLESS = ("Meta", "Python", "FuncTorch", "Functionalize", "Fake", "PreDispatch")
"""Prefixes of the dispatch keys under which nothing timed is computed."""
registered: list[tuple[str, Any]] = []
"""Kernels that a suite has registered for an operator of torch or one with a kernel, in order: a text, and the library."""


class Flag(NamedTuple):
    """A switch of the whole process: how it is read and restored."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    said: Callable[[Any, Any], str] | None = None
    """Says what changed, given both values; None where these are short. An empty sentence names nobody."""


def leave(_: object) -> None:
    """Restore nothing: only the code that entered a mode can leave it."""


def _affinity() -> frozenset[int]:
    cores = frozenset(os.sched_getaffinity(0))
    return pinned["before"] if cores == pinned.get("now") else cores


def native_threads() -> list[int]:
    """Return the kernel's ids of this process's threads; none outside of Linux."""
    try:
        return list(map(int, os.listdir("/proc/self/task")))  # noqa: PTH208 (asked often)
    except OSError:  # not Linux
        return []


def _of_threads() -> dict[int, tuple[frozenset[int], int]]:
    own, found = threading.get_native_id(), {}
    for tid in native_threads()[:_MOST_THREADS]:
        with contextlib.suppress(OSError):  # it has just ended
            if tid != own:
                found[tid] = (frozenset(os.sched_getaffinity(tid)), os.getpriority(os.PRIO_PROCESS, tid))
    return found


def _set_threads(before: dict[int, tuple[frozenset[int], int]]) -> None:
    for tid, (cores, nice) in before.items():
        with contextlib.suppress(OSError):  # it has ended, or there is no right to
            os.sched_setaffinity(tid, cores)
            os.setpriority(os.PRIO_PROCESS, tid, nice)


def _stop_timers(armed: tuple[bool, ...]) -> None:
    for timer, was in zip(_TIMERS, armed, strict=True):
        if not was:
            signal.setitimer(timer, 0)


def _set_handlers(handlers: tuple[Any, ...]) -> None:
    for number, handler in zip(_SIGNALS, handlers, strict=True):
        if handler is not None and _getsignal(number) is not handler:
            signal.signal(number, handler)


def _set_limits(limits: tuple[tuple[int, int], ...]) -> None:
    for number, limit in zip(_LIMITS, limits, strict=True):
        if resource.getrlimit(number) != limit:
            resource.setrlimit(number, limit)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _set_environment(variables: dict[str, str]) -> None:
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


def _changed_variables(before: dict[str, str], now: dict[str, str]) -> str:
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    named = [name for name in names if name in before or not name.startswith(_LIBRARIES)]
    return f"environment variables ({', '.join(named)})" if named else ""


class _Files:
    def __init__(self) -> None:
        self.spare: dict[int, int] = {}
        self._held: dict[int, tuple[int, int] | None] = {}
        os.register_at_fork(after_in_child=self.let_go)  # what a suite forks must not keep the line open

    def hold(self, *numbers: int) -> None:
        """Keep a second descriptor of each, from which it can be restored."""
        for number in numbers:
            with contextlib.suppress(OSError):
                self.spare[number] = os.dup(number)
                self._held[number] = _file(number)

    def require(self, number: int) -> None:
        """End the process where a descriptor is no longer its file; see `end_without`."""
        if _file(number) != self._held[number]:
            _end()

    def let_go(self) -> None:
        """Close the second descriptors, and watch nothing any more."""
        for spare in self.spare.values():
            with contextlib.suppress(OSError):
                os.close(spare)
        self.spare = {}

    def read(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(map(_file, self.spare))

    def end_without(self, files: tuple[tuple[int, int] | None, ...]) -> None:
        """End the process where one of them is gone and cannot be restored, for the parent to name the running entry."""
        for (number, spare), was in zip(self.spare.items(), files, strict=True):
            if _file(number) != was and _file(spare) != was:
                _end()

    def write(self, files: tuple[tuple[int, int] | None, ...]) -> None:
        self.end_without(files)
        for (number, spare), was in zip(self.spare.items(), files, strict=True):
            if _file(number) != was:
                os.dup2(spare, number, inheritable=number <= 2)


def _file(number: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _end() -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, b"fatal: files of the worker were closed, its line to the parent among them\n")
    os._exit(1)


files = _Files()


_TRACERS: tuple[Callable[[Any], object], ...] = (sys.settrace, sys.setprofile, threading.settrace, threading.setprofile)
_IMPORTS = ("path", "meta_path", "path_hooks")
"""Where modules are looked for. Entries that libraries append behind all others hide nothing."""


def _set_imports(before: tuple[tuple[Any, ...], ...]) -> None:
    for name, was in zip(_IMPORTS, before, strict=True):
        entries = getattr(sys, name)
        entries[:] = [*was, *(entry for entry in entries if entry not in was)]


def _of_imports(before: tuple[tuple[Any, ...], ...], now: tuple[tuple[Any, ...], ...]) -> str:
    pairs = zip(_IMPORTS, before, now, strict=True)
    return ", ".join(f"sys.{name}" for name, was, found in pairs if found[: len(was)] != was)


def _set_collector(state: tuple[Any, ...]) -> None:
    gc.set_threshold(*state[0])
    gc.callbacks[:] = state[1]
    gc.set_debug(state[2])


def _global_hooks() -> dict[str, Any]:
    found = vars(torch.nn.modules.module)
    return {name: value for name, value in found.items() if name.startswith("_global_") and isinstance(value, dict)}


def _set_module_hooks(before: dict[str, tuple[Any, ...]]) -> None:
    for name, hooks in _global_hooks().items():
        hooks.clear()
        hooks.update(before.get(name, ()))


def _saved_tensor_hooks() -> Any:
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def _set_saved_tensor_hooks(before: Any) -> None:
    while _saved_tensor_hooks() is not None and _saved_tensor_hooks() != before:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _compiler_settings() -> Settings:
    """Return the settings of torch's compiler that have been made, as far as it is loaded."""
    context = copy_context()
    return {
        (name, key): value
        for name in _COMPILERS
        if (module := sys.modules.get(name)) is not None
        for key, entry in getattr(module, "_config", {}).items()
        # A context variable that is not in the context has none; to read all of them takes five times as long.
        if type(entry.user_override) is not ContextVar or entry.user_override in context
        if type(value := _made(entry)) is not object and not (key in compiler_limits and compiler_limits[key] == value)
    }


def _made(entry: Any) -> Any:
    """Return the value given to a setting; a plain object, ours or torch's, where none was given. Torch itself gives a list or a set its default as it is read."""
    value = entry.user_override
    value = value.get() if type(value) is ContextVar else value
    return _UNSET if value == entry.default else value


def _set_compiler_settings(before: Settings) -> None:
    for name, key in _compiler_settings():
        if (name, key) not in before:
            delattr(sys.modules[name], key)
            sys.modules[name]._config[key].hide = False  # else the setting is gone
    for (name, key), value in before.items():
        setattr(sys.modules[name], key, value)


def _of_settings(before: Settings, now: Settings, prefix: tuple[str, ...] = ()) -> str:
    names = sorted(key for key in {*before, *now} if before.get(key, _UNSET) != now.get(key, _UNSET))
    return ", ".join(".".join((*prefix, *name)) for name in names[:5])


def _knobs() -> Iterator[tuple[str, Any]]:
    module = sys.modules.get("triton.knobs")
    kind = getattr(module, "base_knobs", ())
    return ((name, group) for name, group in vars(module).items() if isinstance(group, kind)) if kind else iter(())


def _triton_settings() -> Settings:
    return {
        (name, key): (value, tuple(getattr(value, "calls", ())))
        for name, group in _knobs()
        for key, value in {**vars(type(group)), **vars(group)}.items()
        if (key in vars(group) or isinstance(getattr(value, "calls", None), list)) and getattr(value, "calls", True)
    }


def _set_triton_settings(before: Settings) -> None:
    groups = dict(_knobs())
    now = _triton_settings()
    for (name, key), (value, calls) in {**now, **before}.items():
        if (name, key) not in before:
            vars(groups[name]).pop(key, None)
        elif now.get((name, key), (None,))[0] is not value:
            setattr(groups[name], key, value)
        if isinstance(getattr(value, "calls", None), list):
            value.calls[:] = calls if (name, key) in before else ()


def notice_registrations(is_of_suite: Callable[[Any], Any]) -> None:
    """Record registrations with torch's dispatcher from Python for known operators, if `is_of_suite` finds a suite's code behind the caller's frame."""
    if not hasattr(torch._C, "_DispatchModule"):  # not in every release
        return
    own = {str(name).partition("::")[0] for name in torch._C._dispatch_get_all_op_names()}
    kind, make = torch._C._DispatchModule, torch._C._dispatch_library
    spaces: list[tuple[Any, str]] = []

    def make_noticed(*arguments: Any) -> Any:
        made = make(*arguments)
        spaces.append((made, str(arguments[1])))
        return made

    def noticed(name: str, register: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(register)
        def register_noticed(library: Any, *arguments: Any, **more: Any) -> Any:
            if is_of_suite(sys._getframe(1)):
                space = next((space for made, space in spaces if made is library), "")
                operator = str(arguments[0]) if name != "fallback" and arguments else "all operators"
                full = operator if "::" in operator or name == "fallback" else f"{space}::{operator}"
                key = next((str(value) for value in (*arguments, *more.values()) if _is_key(value)), "")
                if not key.startswith(_HARMLESS) and (not space or space in own or has_kernel(full, key)):
                    registered.append((f"{full} ({key})" if key else full, library))
            return register(library, *arguments, **more)

        return register_noticed

    torch._C._dispatch_library = make_noticed
    for name in ("impl", "fallback", "impl_with_aoti_compile"):
        if hasattr(kind, name):
            setattr(kind, name, noticed(name, getattr(kind, name)))


def _is_key(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(value) and torch._C._dispatch_key_parse(value) is not None
    except RuntimeError:
        return False


def has_kernel(operator: str, key: str) -> bool:
    """Return whether torch's dispatcher has a kernel for an operator under a key; False for one that TorchScript alone knows."""
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))
    except RuntimeError:
        return False


def _take_back_registrations(count: int) -> None:
    for _, library in registered[count:]:
        library.reset()
    del registered[count:]


def _changed_ones(of: str, names: Iterable[Any], before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    changed = [name for name, was, found in zip(names, before, now, strict=True) if was != found]
    return f"{of} ({', '.join(getattr(name, 'name', str(name)) for name in changed)})"


STATE: dict[str, Flag] = {
    "affinity": Flag(
        _affinity,
        lambda cores: os.sched_setaffinity(0, pinned.get("now", cores)),
        lambda before, now: f"affinity {sorted(before)} -> {sorted(now)}",
    ),
    "threads' affinity and priority": Flag(
        _of_threads,
        _set_threads,
        lambda before, now: (
            "the cores or the priority of other threads"
            if any(before.get(tid, found) != found for tid, found in now.items())
            else ""
        ),
    ),
    "nice": Flag(lambda: os.getpriority(os.PRIO_PROCESS, 0), lambda value: os.setpriority(os.PRIO_PROCESS, 0, value)),
    "scheduler": Flag(lambda: os.sched_getscheduler(0), leave),
    "timers": Flag(lambda: tuple(any(signal.getitimer(timer)) for timer in _TIMERS), _stop_timers),
    "signal handlers": Flag(
        lambda: tuple(map(_getsignal, _SIGNALS)),
        _set_handlers,
        functools.partial(_changed_ones, "handlers of signals", _SIGNALS),
    ),
    "resource limits": Flag(
        lambda: tuple(map(resource.getrlimit, _LIMITS)),
        _set_limits,
        functools.partial(_changed_ones, "limits of resources", _LIMITS.values()),
    ),
    "umask": Flag(_umask, os.umask, lambda before, now: f"umask {before:03o} -> {now:03o}"),
    "environment": Flag(lambda: dict(os.environ), _set_environment, _changed_variables),
    "folder": Flag(os.getcwd, os.chdir),
    "open files": Flag(
        files.read, files.write, lambda *_: "open files of the worker, which it closes or puts others in the place of"
    ),
    "imports": Flag(lambda: tuple(tuple(getattr(sys, name)) for name in _IMPORTS), _set_imports, _of_imports),
    "tracing": Flag(
        lambda: (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        lambda functions: [put(function) for put, function in zip(_TRACERS, functions, strict=True)],
        lambda *_: "a trace or profile function",
    ),
    "switch_interval": Flag(sys.getswitchinterval, sys.setswitchinterval),
    # torch's compiler raises it, which harms nobody.
    "recursion_limit": Flag(lambda: min(sys.getrecursionlimit(), _RECURSION_LIMIT), sys.setrecursionlimit),
    "collector": Flag(
        lambda: (gc.get_threshold(), tuple(gc.callbacks), gc.get_debug()),
        _set_collector,
        lambda *_: "settings of the garbage collector",
    ),
    "warnings that are errors": Flag(lambda: [one for one in warnings.filters if one[0] == "error"], leave),
    "numpy's errors": Flag(np.geterr, lambda before: np.seterr(**before)),
    "module_hooks": Flag(
        lambda: {name: tuple(hooks.items()) for name, hooks in _global_hooks().items() if hooks},
        _set_module_hooks,
        lambda *_: "hooks of all modules",
    ),
    "saved_tensor_hooks": Flag(_saved_tensor_hooks, _set_saved_tensor_hooks, lambda *_: "hooks of all saved tensors"),
    "profiler": Flag(
        lambda: bool(torch._C._autograd._profiler_enabled()), lambda was: was or torch._C._autograd._disable_profiler()
    ),
    "forward_mode_level": Flag(lambda: torch.autograd.forward_ad._current_level, leave),
    "compiler": Flag(_compiler_settings, _set_compiler_settings, _of_settings),
    "triton": Flag(_triton_settings, _set_triton_settings, functools.partial(_of_settings, prefix=("triton",))),
    "registrations": Flag(
        lambda: len(registered),
        _take_back_registrations,
        lambda before, _: (
            f"kernels of operators that others use: {', '.join(name for name, _ in registered[before:][:5])}"
        ),
    ),
}
