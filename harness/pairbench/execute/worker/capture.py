"""What a program calls: modules and functions of torch by signature, with their counts and the time of each.

A call is that of a module without parts (or of a class in `whole`), of code that `torch.compile` made, or of a function of torch outside of
those, so no two calls overlap. A signature is what tells calls apart: the class and the arguments that its module was made with, or the
function; and of its tensors the shapes, strides and dtypes. Modules are seen where `Module.__call__` is called, functions by a
`TorchFunctionMode`; both are above autograd and autocast. The first call of each signature is described and further ones are counted, so
memory does not grow with the number of calls.
"""

import atexit
import contextlib
import dataclasses
import functools
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from pairbench.execute.worker.signature import (
    autocast_now,
    class_name,
    form,
    is_capturing,
    key_of_values,
    made_with,
    random_state,
    told_of_function,
    told_of_module,
    version_of,
    weights_key,
)
from pairbench.execute.worker.trees import tensors
from pairbench.suite.captured import Seen, key_of
from pairbench.suite.captured_text import written

_MOST = 4096  # signatures that are told apart; calls of further ones are counted together
_FLUSH_S = 2.0  # how often a part is written, for programs that die
_EVERY = 32  # of so many calls of a whole model one is recorded, after the first ones
_MARK = "pairbench call "
_NOTHING = contextlib.nullcontext()
_QUIET = re.compile(
    r"__get__|__set__|size|dim|numel|stride|is_floating_point|view|reshape|transpose|permute|unsqueeze|"
    r"squeeze|expand|view_as|t|__getitem__|unbind|split|chunk|flatten|detach|element_size|data_ptr|"
    r"is_contiguous|__len__|__repr__|__hash__|_set_grad_enabled|_record_function.*|"
    r"__float__|__int__|__index__|_parse_to|_has_compatible_shallow_copy_type|"
    r"requires_grad_|storage_offset|untyped_storage|item|tolist|backward|__bool__|__format__|new_empty|"
    r"empty|is_complex|narrow"
)
"""Functions that launch nothing as a rule, or whose work is another call's."""


class Recorder:
    """Counts the calls of a program while `watching()` is entered.

    Calls before that of the first module, which make models and inputs, are forgotten. Within a module that is called by none, calls are recorded
    if it is the first, the second, the fourth and so on with its signature, or every 32nd; the others are taken to be like those recorded before.
    """

    def __init__(self, whole: Collection[str] = (), *, profiles: str = "") -> None:
        """Take the classes that are one call, and from when on the profiler records: `modules` for the first module's call, `start` for now."""
        self._whole, self._profiles = frozenset(whole), profiles
        self._made: WeakKeyDictionary[torch.nn.Module, Any] = WeakKeyDictionary()
        self._seen, self._outer = dict[Any, _Entry](), dict[Any, _Outer]()
        self._local, self._lock = _Local(), threading.Lock()
        self._began, self._has_modules = time.perf_counter(), False
        self._left_out, self._device_ns = Counter[str](), Counter[str]()
        self._backwards, self._busy_ns = 0, 0.0
        self._profile: torch.profiler.profile | None = None

    def write(self, path: str | Path, *, steps: float = 1) -> None:
        """Write what was seen as a suite, with counts of calls a step where so many `steps` were made."""
        Path(path).write_text(written(self.seen(), Path(path), steps=steps).text)

    def seen(self) -> Seen:
        """Return the signatures with their counts and times."""
        skipped = Counter[_Entry]()  # not added to the entries: another thread than the program's may ask
        for outer in list(self._outer.values()):
            skipped.update({entry: count * outer.skipped for entry, count in outer.sample.items()})
        with self._lock:
            counts = [(one, one.count + skipped[one]) for one in self._seen.values()]
        calls = tuple({**one.told, "count": count, "host_ns": one.ns(count)} for one, count in counts)
        return Seen(
            calls=calls,
            device_ns=dict(self._device_ns),
            busy_ns=self._busy_ns,
            wall_ns=(time.perf_counter() - self._began) * 1e9,
            left_out=dict(self._left_out),
            backwards=self._backwards,
            has_modules=self._has_modules,
            device=torch.cuda.get_device_name() if torch.cuda.is_initialized() else "",
            torch=torch.__version__,
        )

    @contextlib.contextmanager
    def watching(self) -> Iterator["Recorder"]:
        """Record all calls of this process that are made meanwhile: those of functions in this thread alone."""
        plain_init, plain_call = torch.nn.Module.__init__, torch.nn.Module.__call__
        plain_compile, differentiate = torch.compile, torch.autograd.backward

        @functools.wraps(plain_init)
        def init(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
            plain_init(module, *args, **kwargs)
            self._remember(module)

        @functools.wraps(plain_call)
        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self._local.inside:
                return plain_call(module, *args, **kwargs)
            if not self._has_modules:
                self._forget_set_up()
            run = functools.partial(plain_call, module)
            compiled = type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None
            if not module._modules or compiled or type(module).__name__ in self._whole:
                return self.record(module, run, args, kwargs, compiled=compiled)
            if self._local.sample is not None:
                return run(*args, **kwargs)
            return self._outermost(module, run, args, kwargs)

        @functools.wraps(plain_compile)
        def compiling(model: Any = None, **options: Any) -> Any:
            made = plain_compile(model, **options)
            if model is None or isinstance(made, torch.nn.Module):
                return made

            @functools.wraps(made)
            def compiled(*args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling() or self._local.inside:
                    return made(*args, **kwargs)
                return self.record(model, made, args, kwargs, compiled=True)

            return compiled

        @functools.wraps(differentiate)
        def backward(*args: Any, **kwargs: Any) -> Any:
            self._backwards += 1
            return differentiate(*args, **kwargs)

        patched = patch.multiple(torch.nn.Module, __init__=init, __call__=call)
        compiler, graphs = patch.object(torch, "compile", compiling), patch.object(torch.autograd, "backward", backward)
        with patched, compiler, graphs, self._optimizers(), self._profiled(), _Functions(self):
            yield self

    def _remember(self, module: torch.nn.Module) -> None:
        """Keep the arguments that a module was made with; the program notices no error of its own classes."""
        if not torch.compiler.is_compiling():
            with contextlib.suppress(Exception):
                self._made[module] = made_with(module, sys._getframe(2))

    def _forget_set_up(self) -> None:
        self._has_modules, self._began = True, time.perf_counter()
        with self._lock:
            self._seen.clear()
        if self._profile is not None and self._profiles == "modules":
            self._profile.start()

    def _outermost(self, module: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        local, stack = self._local, _without_mode()
        try:
            values = key_of_values((args, kwargs))
            key = type(module), module.training, torch.is_grad_enabled(), autocast_now(), values
            outer = self._outer.setdefault(key, _Outer())
            outer.count += 1
            is_recorded = outer.count & (outer.count - 1) == 0 or outer.count % _EVERY == 0 or bool(self._profiles)
            if not is_recorded:
                outer.skipped += 1
                local.inside = True
                return run(*args, **kwargs)
        finally:
            local.inside = False
            _with_modes(stack)
        outer.count_skipped()
        local.sample = Counter()
        try:
            return run(*args, **kwargs)
        finally:
            outer.sample, local.sample = local.sample, None

    def record(
        self, called: Any, run: Callable[..., Any], args: Any, kwargs: dict[str, Any], *, compiled: bool = False
    ) -> Any:
        """Make a call, and add one to the count of its signature and the time to the time of these calls."""
        local, stack = self._local, _without_mode()
        local.inside = True
        try:
            try:
                entry = self._entry(called, args, kwargs, compiled=compiled)
            except Exception as error:
                self._left_out[f"calls that could not be described ({type(error).__name__}: {error})"] += 1
                return run(*args, **kwargs)
            began = time.perf_counter_ns()
            try:
                if self._profiles:
                    with torch.profiler.record_function(entry.mark):
                        return run(*args, **kwargs)
                return run(*args, **kwargs) if entry.timed else _first(entry, run, args, kwargs)
            finally:
                entry.add(time.perf_counter_ns() - began)
                if local.sample is not None:
                    local.sample[entry] += 1
        finally:
            local.inside = False
            _with_modes(stack)

    def _entry(self, called: Any, args: Any, kwargs: dict[str, Any], *, compiled: bool) -> "_Entry":
        is_module = isinstance(called, torch.nn.Module)
        made = self._made.get(getattr(called, "_orig_mod", called)) if is_module else None
        grad, autocast = torch.is_grad_enabled(), autocast_now()
        of_module = (type(called), made and made[0], called.training, weights_key(called)) if is_module else called
        key = (of_module, grad, autocast, compiled, key_of_values(args), key_of_values(kwargs))
        found = self._seen.get(key)
        if found is not None:
            return found
        with self._lock:
            if len(self._seen) >= _MOST:
                self._left_out["calls of further signatures"] += 1
                return _Entry({}, timed=1)
        values = not self._profiles and not is_capturing()  # of tensors; reading them would be work of the device
        told: dict[str, Any] = {"kind": "module" if is_module else "function", "compiled": compiled}
        told |= {"args": form(args, values=values), "kwargs": form(kwargs, values=values)}
        told |= told_of_module(getattr(called, "_orig_mod", called), made) if is_module else told_of_function(called)
        needs = any(one.requires_grad for one in tensors((args, kwargs))) or bool(told.get("learned"))
        told |= {"grad": grad and needs, "autocast": list(autocast) if autocast else None}
        with self._lock:
            return self._seen.setdefault(key, _Entry(told))

    @contextlib.contextmanager
    def _optimizers(self) -> Iterator[None]:
        """Record each step of an optimizer as one call."""
        steps = dict[int, tuple[Any, ...]]()

        def begin(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            told = {"kind": "optimizer", "compiled": False, "name": class_name(type(optimizer)), "grad": False}
            told |= {"args": form(()), "kwargs": form({}), "autocast": None, "folder": "", "names": []}
            with self._lock:
                entry = self._seen.setdefault(type(optimizer), _Entry(told))
            mark = torch.profiler.record_function(entry.mark) if self._profiles else _NOTHING
            mark.__enter__()
            self._local.inside = True
            steps[id(optimizer)] = entry, mark, _without_mode(), time.perf_counter_ns()

        def end(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            entry, mark, stack, began = steps.pop(id(optimizer))
            entry.add(time.perf_counter_ns() - began)
            self._local.inside = False
            _with_modes(stack)
            mark.__exit__(None, None, None)

        before = register_optimizer_step_pre_hook(begin)
        behind = register_optimizer_step_post_hook(end)
        try:
            yield
        finally:
            before.remove()
            behind.remove()

    @contextlib.contextmanager
    def _profiled(self) -> Iterator[None]:
        if not self._profiles:
            yield
            return
        activities = (torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA)
        self._profile = torch.profiler.profile(activities=activities)
        if self._profiles == "start":
            self._profile.start()
        try:
            yield
        finally:
            if self._has_modules or self._profiles == "start":
                if torch.cuda.is_initialized():
                    torch.cuda.synchronize()
                self._profile.stop()
                found: Any = self._profile.profiler
                self._device_ns, self._busy_ns = device_times(found.kineto_results.events())


class _Local(threading.local):
    inside = False
    """Whether the thread is in a call that is recorded as one, or in a module whose calls are not recorded."""
    sample: "Counter[_Entry] | None" = None
    """The calls in the module that is called by none, where these are recorded."""


@dataclasses.dataclass(eq=False)
class _Entry:
    told: dict[str, Any]
    count: int = 0
    timed: int = 0
    first_ns: int = 0
    timed_ns: int = 0

    def add(self, ns: int) -> None:
        self.first_ns = self.first_ns or ns
        self.count += 1
        self.timed += 1
        self.timed_ns += ns

    def ns(self, count: int) -> float:
        """Return the time of so many calls on the host; the first, which may compile, counts as the mean of the others."""
        later = self.timed - 1
        return (self.timed_ns - self.first_ns) * count / later if later > 0 else float(self.timed_ns * count)

    @functools.cached_property
    def mark(self) -> str:
        return _MARK + key_of(self.told)


@dataclasses.dataclass(eq=False)
class _Outer:
    """Calls of one signature of a module that is called by none."""

    count: int = 0
    skipped: int = 0
    """Calls since the last that was recorded."""
    sample: Counter[_Entry] = dataclasses.field(default_factory=Counter)

    def count_skipped(self) -> None:
        """Count the calls within those that were skipped as in the last that was recorded."""
        for entry, count in self.sample.items():
            entry.count += count * self.skipped
        self.skipped = 0


def _first(entry: _Entry, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make the first call of a signature, and see whether it writes into its inputs, draws random numbers or makes a graph."""
    if is_capturing():
        return run(*args, **kwargs)
    given: dict[Any, Any] = dict(enumerate(args)) | kwargs
    before, state = _versions(given), random_state()
    outputs = run(*args, **kwargs)
    entry.told["writes"] = [name for name, seen in _versions(given).items() if seen != before[name]]
    entry.told["random"] = random_state() != state
    entry.told["graph"] = any(one.requires_grad for one in tensors(outputs))
    return outputs


def _versions(given: dict[Any, Any]) -> dict[Any, Any]:
    return {name: [version_of(one) for one in tensors(value)] for name, value in given.items()}


_is_quiet = functools.cache(_QUIET.fullmatch)


class _Functions(TorchFunctionMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        quiet = self._recorder._local.inside or _is_quiet(getattr(func, "__name__", ""))
        if quiet or getattr(func, "__module__", "") == "torch.nn.init":
            return func(*args, **given)
        return self._recorder.record(func, func, args, given)


def _without_mode() -> list[Any]:
    """Take the recorder's mode off the stack, as it costs each call of torch some us and the compiler would trace it; return the whole stack."""
    stack = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())][::-1]
    for mode in stack:
        if not isinstance(mode, _Functions):
            torch._C._push_on_torch_function_stack(mode)
    return stack


def _with_modes(stack: list[Any]) -> None:
    for _ in range(torch._C._len_torch_function_stack()):
        torch._C._pop_torch_function_stack()
    for mode in stack:
        torch._C._push_on_torch_function_stack(mode)


def device_times(events: list[Any]) -> tuple[Counter[str], float]:
    """Return the device's ns by the key of the call that launched it, with ` backward` behind for its backward, and those of all kernels and copies.

    Work of no recorded call stands under the name of its kernel.
    """
    on_host, on_device = list[Any](), list[Any]()
    for event in events:
        (on_host if event.device_type() == torch.autograd.DeviceType.CPU else on_device).append(event)
    launched_by, by_sequence = dict[int, str | None](), dict[int, str]()
    stacks: dict[int, list[tuple[int, str | None]]] = {}
    for event in sorted(on_host, key=lambda one: (one.start_ns(), -one.duration_ns())):
        stack, start = stacks.setdefault(event.start_thread_id(), []), event.start_ns()
        while stack and stack[-1][0] <= start:
            stack.pop()
        label, name = stack[-1][1] if stack else None, event.name()
        sequence = event.sequence_nr()
        if name.startswith(_MARK):
            label = name.removeprefix(_MARK)
        elif name.startswith("autograd::engine::evaluate_function") and sequence in by_sequence:
            label = f"{by_sequence[sequence]} backward"
        elif name.startswith(("cudaGraphLaunch", "cuGraphLaunch")) and label is None:
            label = "kernel of a CUDA graph"
        elif label and sequence >= 0 and not label.endswith("backward"):
            by_sequence[sequence] = label
        stack.append((start + event.duration_ns(), label))
        launched_by[event.correlation_id()] = label
    times, named = Counter[str](), {event.name() for event in on_host}
    for event in on_device:
        if event.name() in named:  # a mark of the host, drawn over the device's line
            continue
        times[launched_by.get(event.correlation_id()) or f"kernel {event.name()}"] += event.duration_ns()
    return times, float(sum(times.values()))


def record_this_process(folder: Path) -> None:
    """Record all calls of this process, and write them to a file of the folder every two seconds, and as it ends."""
    whole, profiles = json.loads(os.environ["PAIRBENCH_CAPTURE_WHOLE"]), os.environ["PAIRBENCH_CAPTURE_PROFILE"]
    recorder = Recorder(whole, profiles=profiles)
    watching = recorder.watching()
    watching.__enter__()
    stopped = threading.Event()

    def write() -> None:
        part = folder / f"{os.getpid()}.json"
        part.with_suffix(".partial").write_text(recorder.seen().to_json())
        part.with_suffix(".partial").replace(part)

    def finish() -> None:
        stopped.set()
        watching.__exit__(None, None, None)
        write()

    def keep_writing() -> None:
        while not stopped.wait(_FLUSH_S):
            write()

    atexit.register(finish)
    threading.Thread(target=keep_writing, name="pairbench capture", daemon=True).start()


@contextlib.contextmanager
def capture(*, whole: Collection[str] = ()) -> Iterator[Recorder]:
    """Record which modules and functions of torch are called meanwhile, with their shapes and counts.

    Calls of functions are seen in this thread alone, calls of modules in all. On a GPU, time is that of the host; `pairbench capture` also takes
    the device's.

    Args:
        whole: Names of classes whose modules are one call, although they call modules themselves, such as `LlamaMLP`.

    Example:
        >>> with pairbench.capture() as seen:
        ...     model(tokens)
        >>> seen.write("suites/model.py")
    """
    recorder = Recorder(whole)
    with recorder.watching():
        yield recorder
