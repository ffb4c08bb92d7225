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
import enum
import functools
import inspect
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, cast
from unittest.mock import patch
from weakref import WeakKeyDictionary

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from pairbench.suite.captured import Seen, key_of
from pairbench.suite.captured_text import written

_PLAIN = (bool, int, float, str, type(None))
_MOST = 4096  # signatures that are told apart; calls of further ones are counted together
_SAMPLE = 1 << 14  # elements of a tensor that tell its mean and spread
_LONGEST = 256  # items of a list or dict among the arguments that are described
_FLUSH_S = 2.0  # how often a part is written, for programs that die
_MARK = "pairbench call "
_NOTHING = contextlib.nullcontext()
_QUIET = re.compile(
    r"__get__|__set__|size|dim|numel|stride|is_floating_point|view|reshape|transpose|permute|unsqueeze|"
    r"squeeze|expand|view_as|t|__getitem__|unbind|split|chunk|flatten|detach|element_size|data_ptr|"
    r"is_contiguous|__len__|__repr__|__hash__|_set_grad_enabled|_record_function\w+|_RecordFunction|"
    r"__float__|__int__|__index__|_parse_to|_has_compatible_shallow_copy_type|"
    r"requires_grad_|storage_offset|untyped_storage|item|tolist|backward|__bool__|__format__|new_empty|"
    r"empty|is_complex|narrow"
)
"""Functions that launch nothing as a rule, or whose work is another call's."""


class Recorder:
    """Counts the calls of a program while `watching()` is entered."""

    def __init__(self, whole: Collection[str] = (), *, profiles: bool = False) -> None:
        self._whole, self._profiles = frozenset(whole), profiles
        self._made: WeakKeyDictionary[torch.nn.Module, Any] = WeakKeyDictionary()
        self._seen = dict[Any, _Entry]()
        self._thread = threading.local()
        self._lock = threading.Lock()
        self._began = time.perf_counter()
        self._left_out = Counter[str]()
        self._backwards = 0
        self._device_ns = Counter[str]()
        self._busy_ns = 0.0

    def write(self, path: str | Path, *, steps: float = 1) -> None:
        """Write what was seen as a suite, with counts of calls a step where so many `steps` were made."""
        Path(path).write_text(written(self.seen(), Path(path), steps=steps).text)

    def seen(self) -> Seen:
        """Return the signatures with their counts and times."""
        with self._lock:
            calls = tuple(
                {**one.told, "count": one.count, "host_ns": one.ns} for one in self._seen.values() if one.count
            )
        return Seen(
            calls=calls,
            device_ns=dict(self._device_ns),
            busy_ns=self._busy_ns,
            wall_ns=(time.perf_counter() - self._began) * 1e9,
            left_out=dict(self._left_out),
            backwards=self._backwards,
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
            made = None if torch.compiler.is_compiling() else _made_with(module, sys._getframe(1))
            plain_init(module, *args, **kwargs)
            if made is not None:
                self._made[module] = made

        @functools.wraps(plain_call)
        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self._inside:
                return plain_call(module, *args, **kwargs)
            compiled = type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None
            if module._modules and not compiled and type(module).__name__ not in self._whole:
                return plain_call(module, *args, **kwargs)
            with self._without_mode() if compiled else contextlib.nullcontext():
                return self.record(module, functools.partial(plain_call, module), args, kwargs, compiled=compiled)

        @functools.wraps(plain_compile)
        def compiling(model: Any = None, **options: Any) -> Any:
            made = plain_compile(model, **options)
            if model is None or isinstance(made, torch.nn.Module):
                return made

            @functools.wraps(made)
            def compiled(*args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling() or self._inside:
                    return made(*args, **kwargs)
                with self._without_mode():
                    return self.record(model, made, args, kwargs, compiled=True)

            return compiled

        @functools.wraps(differentiate)
        def backward(*args: Any, **kwargs: Any) -> Any:
            self._backwards += 1
            return differentiate(*args, **kwargs)

        patched = patch.multiple(torch.nn.Module, __init__=init, __call__=call)
        compiler, graphs = patch.object(torch, "compile", compiling), patch.object(torch.autograd, "backward", backward)
        with patched, compiler, graphs, self._profiled(), _Functions(self):
            yield self

    @property
    def _inside(self) -> bool:
        return getattr(self._thread, "inside", False)

    def record(
        self,
        called: Any,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        compiled: bool = False,
    ) -> Any:
        """Make a call and count it."""
        self._thread.inside = True
        try:
            entry = self._entry(called, args, kwargs, compiled=compiled)
            began = time.perf_counter_ns()
            try:
                if entry.first_ns is None:
                    return self._first(entry, run, args, kwargs)
                with torch.profiler.record_function(entry.mark) if self._profiles else _NOTHING:
                    return run(*args, **kwargs)
            finally:
                took = time.perf_counter_ns() - began
                entry.count += 1
                entry.first_ns = entry.first_ns or took
                entry.timed_ns += took
        finally:
            self._thread.inside = False

    def _first(self, entry: "_Entry", run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the first call of a signature, and see whether it writes into its inputs or draws random numbers."""
        tensors = {path: one for path, one in _tensors({"args": args, "kwargs": kwargs}) if not one.is_inference()}
        versions, state = {path: one._version for path, one in tensors.items()}, _random_state()
        with torch.profiler.record_function(entry.mark) if self._profiles else _NOTHING:
            outputs = run(*args, **kwargs)
        entry.told["writes"] = [path for path, one in tensors.items() if one._version != versions[path]]
        entry.told["random"] = _random_state() != state
        entry.told["graph"] = any(one.requires_grad for _, one in _tensors(outputs))
        return outputs

    def _entry(self, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, compiled: bool) -> "_Entry":
        is_module = isinstance(called, torch.nn.Module)
        made = self._made.get(called) if is_module else None
        grad, autocast = torch.is_grad_enabled(), _autocast()
        of_module = (type(called), made and made[0], called.training, _weights_key(called)) if is_module else called
        key = (of_module, grad, autocast, compiled, _key(args), _key(kwargs))
        found = self._seen.get(key)
        if found is not None:
            return found
        with self._lock:
            if len(self._seen) >= _MOST:
                self._left_out["calls of further signatures"] += 1
                return _Entry({}, first_ns=1)
        forms = {"args": form(args), "kwargs": form(kwargs)}
        told: dict[str, Any] = {"kind": "module" if is_module else "function", "compiled": compiled, **forms}
        if is_module:
            inner = getattr(called, "_orig_mod", called)
            made = self._made.get(inner)
            weights = list(inner.parameters())
            dtypes = {str(one.dtype).removeprefix("torch.") for one in weights if one.is_floating_point()}
            told |= {"name": _class_name(type(inner)), "made": made[1] if made else None, "training": inner.training}
            told |= {"names": _parameter_names(inner.forward), "elements": sum(one.numel() for one in weights)}
            told |= {"dtype": dtypes.pop() if len(dtypes) == 1 else None, "device": _device_of(weights)}
            learned = [name for name, one in inner.named_parameters() if one.requires_grad] if grad else []
            told |= {"learned": learned}
        else:
            told |= {"name": _function_name(called), "names": _parameter_names(called)}
        needs = any(one.requires_grad for _, one in _tensors((args, kwargs))) or bool(told.get("learned"))
        told |= {"grad": grad and needs, "autocast": list(autocast) if autocast else None}
        told["folder"] = _folder_of(type(called) if is_module else called)
        with self._lock:
            return self._seen.setdefault(key, _Entry(told))

    @contextlib.contextmanager
    def _without_mode(self) -> Iterator[None]:
        """Take the recorder's mode off the stack, which the compiler would trace."""
        stack = torch.overrides._get_current_function_mode_stack()
        for _ in stack:
            torch._C._pop_torch_function_stack()
        for mode in stack:
            if not isinstance(mode, _Functions):
                torch._C._push_on_torch_function_stack(mode)
        try:
            yield
        finally:
            for _ in range(torch._C._len_torch_function_stack()):
                torch._C._pop_torch_function_stack()
            for mode in stack:
                torch._C._push_on_torch_function_stack(mode)

    @contextlib.contextmanager
    def _profiled(self) -> Iterator[None]:
        if not self._profiles:
            yield
            return
        activities = (torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities) as profile:
            try:
                yield
            finally:
                if torch.cuda.is_initialized():
                    torch.cuda.synchronize()
        self._device_ns, self._busy_ns = device_times(profile.profiler.kineto_results.events())


@dataclasses.dataclass(eq=False)
class _Entry:
    told: dict[str, Any]
    count: int = 0
    first_ns: int | None = None
    timed_ns: int = 0

    @property
    def ns(self) -> float:
        """The time of all calls on the host; the first, which may compile, counts as the mean of the others."""
        later = self.count - 1
        return (self.timed_ns - (self.first_ns or 0)) * self.count / later if later else float(self.timed_ns)

    @functools.cached_property
    def mark(self) -> str:
        return _MARK + key_of(self.told)


_is_quiet = functools.cache(_QUIET.fullmatch)


class _Functions(TorchFunctionMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        name = getattr(func, "__name__", "")
        if self._recorder._inside or _is_quiet(name) or getattr(func, "__module__", "") == "torch.nn.init":
            return func(*args, **given)
        return self._recorder.record(func, func, args, given)


def _made_with(module: torch.nn.Module, frame: FrameType | None) -> tuple[str, list[Any]]:
    """Return the arguments of the outermost `__init__` of a module, from the frames in which it runs: what tells them apart, and their form."""
    made: dict[str, Any] = {}
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_code.co_varnames:
        if frame.f_locals.get(frame.f_code.co_varnames[0]) is not module:
            break
        names, more, keywords, values = inspect.getargvalues(frame)
        made = {name: values[name] for name in names[1:] if name in values}
        made |= {"*": list(values[more])} if more and values.get(more) else {}
        made |= values.get(keywords, {}) if keywords else {}
        frame = frame.f_back
    made = {name: value for name, value in made.items() if name != "device" and not isinstance(value, torch.device)}
    told = form(made)
    usual = _defaults(cast("Any", type(module)))
    defaults = [name for name, value in made.items() if usual.get(name, _NOTHING) is value]
    return json.dumps(told, sort_keys=True), [*told, defaults]


@functools.cache
def _defaults(kind: Any) -> dict[str, Any]:
    return {name: one.default for name, one in inspect.signature(kind).parameters.items()}


def _weights_key(module: torch.nn.Module) -> Any:
    """Return what tells the weights of two modules of one class apart, which their arguments may not."""
    weights = module._parameters.values() if not module._modules else module.parameters()
    return tuple((one.shape, one.dtype, one.device, one.requires_grad) for one in weights if one is not None)


def _key(value: Any) -> Any:
    """Return what tells the form of a value from others, to be hashed: values of tensors do not count."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.device, value.requires_grad
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, list | tuple):
        return type(value), tuple(map(_key, value))
    if isinstance(value, dict):
        return dict, tuple((str(name), _key(one)) for name, one in value.items())
    return (type(value), value) if isinstance(value, torch.dtype | torch.device | enum.Enum) else type(value)


def form(value: Any) -> Any:
    """Return a value as JSON: plain values as they are, others as a list of their kind and what it takes to make one like it."""
    if isinstance(value, torch.nn.Module):
        return ["module", _class_name(type(value)), None]
    if isinstance(value, torch.Tensor):
        return ["tensor", _tensor(value)]
    if isinstance(value, enum.Enum):
        return ["enum", _class_name(type(value)), value.name]
    if isinstance(value, _PLAIN) and type(value) in _PLAIN:
        return value
    if isinstance(value, torch.device):
        return ["device"]
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return ["torch", str(value)]
    if isinstance(value, dict) and type(value) is dict and len(value) <= _LONGEST:
        return ["dict", {str(name): form(one) for name, one in value.items()}]
    if isinstance(value, list | tuple) and len(value) <= _LONGEST:
        kind = "list" if isinstance(value, list) else "tuple"  # torch.Size, too
        return [kind, [form(one) for one in value]]
    if isinstance(value, type | FunctionType | type(len)) and "<" not in value.__qualname__:
        return ["name", f"{value.__module__}:{value.__qualname__}"]
    if callable(plain := getattr(value, "to_dict", None)) and hasattr(type(value), "from_dict"):
        with contextlib.suppress(Exception):  # of the program's own class
            made = json.loads(json.dumps((getattr(value, "to_diff_dict", None) or plain)()))
            return ["from_dict", _class_name(type(value)), made]
    return ["other", _class_name(type(value))]


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    told: dict[str, Any] = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
    told["device"] = tensor.device.type
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
        return {**told, "kind": _class_name(type(tensor)) if tensor.layout == torch.strided else str(tensor.layout)}
    if not tensor.is_contiguous():
        told["stride"] = list(tensor.stride())
    told |= {"storage": tensor.untyped_storage().data_ptr(), "offset": tensor.storage_offset()}
    told |= {"needs_grad": True} if tensor.requires_grad else {}
    on_gpu = tensor.device.type == "cuda"
    if not tensor.numel() or tensor.device.type == "meta" or (on_gpu and torch.cuda.is_current_stream_capturing()):
        return told
    sample = tensor.detach().flatten()[:: max(1, tensor.numel() // _SAMPLE)]
    if tensor.is_floating_point():
        finite = sample.double()[sample.isfinite()]
        if finite.numel():
            told |= {"mean": float(finite.mean()), "scale": float(finite.std(correction=0))}
    elif not tensor.is_complex():
        negative = sample[sample < 0].unique() if tensor.dtype != torch.bool else sample[:0]
        # One negative number beside others marks what is to be ignored, as a target of cross entropy does.
        kept = sample[sample >= 0] if negative.numel() == 1 and bool((sample >= 0).any()) else sample
        told |= {"low": int(kept.min()), "high": int(kept.max())}
    return told


def _tensors(tree: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, dict | list | tuple):
        for name, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _tensors(value, f"{path}.{name}" if path else str(name))


def _random_state() -> bytes:
    states = [torch.default_generator.get_state()]
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        states.append(torch.cuda.get_rng_state())
    return b"".join(one.numpy().tobytes() for one in states)


def _autocast() -> tuple[str, str] | None:
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return device, str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return None


def _class_name(kind: type) -> str:
    if getattr(torch.nn, kind.__name__, None) is kind:
        return f"torch.nn:{kind.__name__}"
    return f"{kind.__module__}:{kind.__qualname__}"


def _function_name(function: Any) -> str:
    """Return the name under which a function of torch can be called, or that of any other function with its module."""
    named = resolve_name(function)
    if named is None and isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        named = f"torch.ops.{str(function).replace('::', '.')}"
    return (
        named or f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__name__)}"
    )


def _parameter_names(function: Any) -> list[str]:
    """Return the names of the positional parameters of a function, or none where it does not tell them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def _device_of(weights: list[torch.nn.Parameter]) -> str:
    return weights[0].device.type if weights else ""


def _folder_of(called: Any) -> str:
    """Return the folder from which the module of a class or function was imported, where that is none of the installed packages."""
    module = sys.modules.get(getattr(called, "__module__", "") or "")
    file = getattr(module, "__file__", None)
    if not file or "site-packages" in file or "dist-packages" in file:
        return ""
    depth = 0 if module is None or module.__name__ == "__main__" else module.__name__.count(".")
    folder = Path(file).resolve().parents[depth + (Path(file).name == "__init__.py")]
    return str(folder / Path(file).name if module is not None and module.__name__ == "__main__" else folder)


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
        elif label and sequence >= 0 and not label.endswith("backward"):
            by_sequence[sequence] = label
        stack.append((start + event.duration_ns(), label))
        launched_by[event.correlation_id()] = label
    times = Counter[str]()
    for event in on_device:
        if event.name().startswith(_MARK):  # the mark itself, drawn over the device's line
            continue
        times[launched_by.get(event.correlation_id()) or f"kernel {event.name()}"] += event.duration_ns()
    return times, float(sum(times.values()))


def record_this_process(folder: Path) -> None:
    """Record all calls of this process, and write them to a file of the folder every two seconds, and as it ends."""
    whole, profiles = json.loads(os.environ["PAIRBENCH_CAPTURE_WHOLE"]), "PAIRBENCH_CAPTURE_PROFILE" in os.environ
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
