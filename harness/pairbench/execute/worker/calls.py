"""The devices of this machine, a case's seeded inputs, and implementations prepared to be called in one mode: with their own state and prepared weights, compiled or captured."""

import functools
import inspect
import platform
import random
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker import trees
from pairbench.execute.worker.graphs import Replay, capture
from pairbench.execute.worker.guard import charged, is_out_of_memory
from pairbench.execute.worker.judge.plain import readable
from pairbench.execute.worker.modules import InputForms
from pairbench.execute.worker.training import Training, arguments
from pairbench.execute.worker.trees import check_supported, copy_inputs, leaves, named_tensors
from pairbench.execute.worker.verify.distance import DRAW
from pairbench.model.case import OUTPUT_GRADIENTS, SAVED, Case
from pairbench.model.environment import Device
from pairbench.model.operator import Operator, Variant
from pairbench.model.plain import Value

making = SimpleNamespace(seconds=0.0)  # seconds that making inputs took in this process so far, as `making.seconds`
Dtype: TypeAlias = str | torch.dtype
SEEDS = (0, 1)
"""Seeds of the inputs. The second seed's values are put at the addresses of the first one's, so that a cached answer shows."""
_MUCH = 1 / 16  # part of a GPU's memory that torch may have cached unused


class Call(Value):
    operator: Operator
    variant: Variant
    mode: str
    shared: dict[str, Any]
    kwargs: dict[str, Any]
    """The keyword arguments of the call: shared inputs, own copies of state and of consumed inputs, prepared weights."""
    run: Callable[[], Any]
    reset: Callable[[], None]
    """Restores state and consumed inputs and builds the graph of a backward; called before each `run`, before a flush and outside of the clock."""
    initial: dict[str, Any]  # the state that `reset` restores; empty where it restores no values
    consumed: dict[str, Any]
    """Copies of the inputs that the call may overwrite, and of those that share memory with them or with its state."""
    training: Training | None = None

    def refill(self, fresh: dict[str, Any]) -> bool:
        """Put fresh values into the tensors that only this call uses, at the same addresses; False where shapes differ. The caller refills the shared inputs."""
        state = {name: fresh[name] for name in self.operator.state}
        trees.restore(self.initial, state if self.initial else {})
        replacement = dict[str, Any]()
        if trees.named_tensors({name: fresh[name] for name in self.operator.constants}):
            replacement = _prepared(self.operator, self.variant, fresh)
        fits = not replacement or trees.refill({name: self.kwargs[name] for name in replacement}, replacement)
        return fits and trees.restore(self.kwargs, state)

    def overwritten(self) -> set[str]:
        names = self.consumed.keys() & {*self.variant.consumes}
        return {name for name in names if trees.changed_inputs(self.shared[name], self.consumed[name])}

    @property
    def given(self) -> dict[str, Any]:
        """The arguments that the implementation receives: in training with leaves of this call's own."""
        return self.training.kwargs if self.training else self.kwargs

    def observe(self) -> Any:
        """Reset, run once and return the `observed` outputs; of an operator that draws, those of as many runs."""
        if draws := self.operator.draws:
            return {f"{DRAW} {number}": trees.copy_tree(self._observe_once()) for number in range(draws)}
        return self._observe_once()

    def _observe_once(self) -> Any:
        self.reset()
        try:
            with charged():
                outputs = self.run()
        except TypeError:
            _check_names(self.variant.function, self.kwargs)
            raise
        return self.observed(outputs)

    def observed(self, outputs: Any) -> Any:
        """Return outputs and state of a run that has just ended, in the form of `readable`."""
        if self.training is not None:
            self.training.check(outputs)
        if self.operator.state:
            state = {name: trees.as_outputs(self.kwargs[name]) for name in self.operator.state}
            outputs = {"output": outputs, "state": state}
        return readable(outputs)

    def capture(self, pool: tuple[int, int] | None = None) -> Replay:
        return self.training.capture(pool) if self.training else capture(self.run, pool, before=self.reset)


def bound(function: Callable[..., Any], inputs: dict[str, Any]) -> Callable[[], Any]:
    """Bind arguments to a function: by name, but those with numbers for names, from an `inputs` that returns a tuple, by position."""
    places = sorted(filter(str.isdecimal, inputs), key=int)
    if not places:
        return functools.partial(function, **inputs)
    named = {name: value for name, value in inputs.items() if name not in places}
    return functools.partial(function, *(inputs[place] for place in places), **named)


def why_invalid(variant: Variant, inputs: dict[str, Any]) -> str | None:
    if variant.valid is None:
        return None
    given = trees.copy_inputs(arguments(inputs))
    try:
        valid = bound(variant.valid, given)()
    except TypeError:
        _check_names(variant.valid, given, of_valid=True)
        raise
    if valid is None:  # a forgotten return, which would exclude the variant
        raise DeclarationError("`valid` returned None, expected True, or False or a sentence with the reason")
    if not isinstance(valid, str) and valid:  # also what `and` gives, such as a remainder
        return None
    return f"not valid here: {valid or 'its `valid` says that it computes something else'}"


def is_compiled(variant: Variant, mode: str) -> bool:
    return mode == "compile" or variant.compiled


def make_call(operator: Operator, variant: Variant, mode: str, inputs: dict[str, Any]) -> Call:
    """Prepare an implementation; compiling happens at the first call, capturing here."""
    names = trees.together_with(inputs, (*operator.state, *variant.consumes))
    own = trees.copy_inputs({name: inputs[name] for name in names})
    state = {name: own[name] for name in operator.state}
    initial = trees.copy_inputs(state) if operator.reset is True else {}
    consumed = {name: value for name, value in own.items() if name not in state}
    given = {**inputs, **consumed}
    forms = InputForms(own, own=True)
    reset: Callable[[], None] = functools.partial(_reset, operator, state, initial, consumed, inputs, forms)
    kwargs = {**arguments(given), **state, **_prepared(operator, variant, inputs)}
    function = variant.function
    if is_compiled(variant, mode):
        function = torch.compile(function, dynamic=False)
    if operator.direction and any(map(str.isdecimal, kwargs)):
        by_name = function
        function = lambda **given: bound(by_name, given)()  # noqa: E731 (as long as what it replaces)
    training, run = None, bound(function, kwargs)
    if operator.direction:
        once = bool(set(variant.consumes) - {OUTPUT_GRADIENTS})
        training = Training(operator, function, kwargs, given.get(OUTPUT_GRADIENTS, {}), reset, once)
        run = training.run
    if mode == "graph":
        with charged():
            run = training.capture() if training else capture(run, before=reset)
        trees.restore(state, {name: inputs[name] for name in state})  # capturing has called it some times
    if training:
        reset = run.before if isinstance(run, Replay) else training.ready
    made = functools.partial(Call, operator=operator, variant=variant, mode=mode, shared=inputs, kwargs=kwargs)
    return made(run=run, reset=reset, initial=initial, consumed=consumed, training=training)


def _reset(operator: Operator, state: Any, initial: Any, consumed: Any, inputs: Any, forms: InputForms) -> None:
    if why := forms.changed():  # else its code would run here, outside of the clock
        raise DeclarationError(why)
    if callable(operator.reset):
        bound(operator.reset, state)()
    elif operator.reset:
        trees.restore(state, initial)
    if consumed and not trees.refill(consumed, {name: inputs[name] for name in consumed}):
        what = f"the shape or the structure of an input that it consumes ({', '.join(consumed)})"
        raise DeclarationError(f"changes {what}; consumes= lets it overwrite values alone")


def _check_names(function: Callable[..., Any], kwargs: dict[str, Any], *, of_valid: bool = False) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled code without a signature
        return
    try:
        bound(signature.bind, kwargs)()
    except TypeError as error:
        takes, returned = (
            ("`valid` takes", "inputs() returns") if of_valid else ("takes", "inputs() and prepare() return")
        )
        expected = f"the names that {returned}, {', '.join(kwargs)}"
        advice = "wrap it in a function of these names"
        raise DeclarationError(f"{takes} {signature}, expected {expected}: {error}; {advice}") from None


def _prepared(operator: Operator, variant: Variant, inputs: dict[str, Any]) -> dict[str, Any]:
    if variant.prepare is None:
        return {}
    with charged():
        prepared = bound(variant.prepare, {name: inputs[name] for name in operator.constants})()
    if not isinstance(prepared, dict):
        raise DeclarationError(f"prepare() returned {type(prepared).__name__}, expected a dict of keyword arguments")
    return prepared


def as_dtype(name: Dtype) -> torch.dtype:
    dtype = name if isinstance(name, torch.dtype) else getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        expected = "expected a torch dtype's name such as 'float32' or 'bfloat16'"
        raise DeclarationError(f"dtype {name!r} is unknown, {expected}")
    return dtype


class Make(Value):
    """Makes tensors on the device under test; the same seed gives the same values.

    What `inputs` makes by torch's own functions is on the host, and takes long where it is large: within `with make.device:` it is made on that
    device as well, and is the same for a seed.

    Random values are drawn in float32 (float64 for float64) and then rounded, so that a seed means the same in every dtype.
    """

    device: torch.device
    seed: int
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "generator", torch.Generator(self.device).manual_seed(self.seed))

    def normal(self, *shape: int, dtype: Dtype = "float32", mean: float = 0.0, scale: float = 1.0) -> torch.Tensor:
        """Return a tensor of that shape with normally distributed values of that mean and standard deviation (`scale`)."""
        wanted = as_dtype(dtype)
        drawn = wanted if wanted.is_complex else _drawn(wanted)
        values = torch.randn(shape, dtype=drawn, device=self.device, generator=self.generator)
        return values.mul_(scale).add_(mean).to(wanted)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: Dtype = "float32") -> torch.Tensor:
        """Return a tensor of that shape with values spread evenly over [low, high)."""
        wanted = as_dtype(dtype)
        values = torch.rand(shape, dtype=_drawn(wanted), device=self.device, generator=self.generator)
        return values.mul_(high - low).add_(low).to(wanted)

    def rand(self, *shape: int, dtype: Dtype = "float32") -> torch.Tensor:
        """Return a tensor of that shape with values spread evenly over [0, 1), as `torch.rand` does."""
        return self.uniform(*shape, dtype=dtype)

    def like(self, tensor: torch.Tensor, *, mean: float = 0.0, scale: float = 1.0) -> torch.Tensor:
        """Return a tensor with another's shape, strides and dtype, a parameter's too, with normally distributed values of that mean and scale.

        Raises:
            DeclarationError: the other has integers, of which nobody knows the range.
        """
        if not (tensor.is_floating_point() or tensor.is_complex()):
            advice = "make.integers(..., low=, high=) draws integers"
            raise DeclarationError(f"make.like was given a tensor of {tensor.dtype}; {advice}")
        values = self.normal(*tensor.shape, dtype=tensor.dtype, mean=mean, scale=scale)
        return torch.empty_like(tensor.detach(), device=self.device).copy_(values)

    def integers(self, *shape: int, low: int = 0, high: int, dtype: Dtype = "int64") -> torch.Tensor:
        """Return a tensor of that shape with integers spread evenly over [low, high)."""
        return torch.randint(low, high, shape, dtype=as_dtype(dtype), device=self.device, generator=self.generator)

    def module(
        self,
        make: Callable[[], torch.nn.Module],
        *,
        dtype: Dtype | None = None,
        training: bool = False,
        elements: int | None = None,
    ) -> torch.nn.Module:
        """Return the module that a function makes, on the device under test, with weights that need no gradient.

        Its class initialises the weights, with the same values for a seed; parameters that it leaves NaN are drawn as `normal(scale=0.02)`.
        A call must not depend on the calls before it, so dropout is off, and batch norm in training keeps its running statistics.

        Args:
            make: A function without arguments, such as `lambda: torch.nn.Linear(64, 128)`.
            dtype: That of the floating-point parameters; None for the dtypes that the class gives them.
            training: Whether the module is in training mode.
            elements: The number of elements of all parameters, if it is known: another number is an error.

        Raises:
            DeclarationError: the module has another number of elements.
        """
        with self.device:
            module = make()
        module = settle(module.to(self.device).train(training))
        found = sum(weight.numel() for weight in module.parameters())
        if elements not in (None, found):
            what = f"make.module made a {type(module).__name__} of {found:,} elements, expected {elements:,}"
            raise DeclarationError(f"{what}: the arguments of its class make another module than the captured one")
        for weight in module.parameters():
            if dtype is not None and weight.is_floating_point():
                weight.data = weight.data.to(as_dtype(dtype))
            if weight.is_floating_point() and weight.isnan().any():
                weight.data.copy_(self.normal(*weight.shape, dtype=weight.dtype, scale=0.02))
        return module

    def zeros(self, *shape: int, dtype: Dtype = "float32") -> torch.Tensor:
        """Return a tensor of zeros of that shape."""
        return torch.zeros(shape, dtype=as_dtype(dtype), device=self.device)

    def ones(self, *shape: int, dtype: Dtype = "float32") -> torch.Tensor:
        """Return a tensor of ones of that shape."""
        return torch.ones(shape, dtype=as_dtype(dtype), device=self.device)


def settle(module: Any) -> Any:
    """Have no call of a module depend on the calls before it, and no weight need a gradient; return it."""
    for weight in module.parameters():  # ScriptModules have no requires_grad_()
        weight.requires_grad_(False)
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.eval()
        elif isinstance(part, torch.nn.modules.batchnorm._NormBase):
            part.momentum, part.num_batches_tracked = 0.0, None
    return module


def _drawn(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def build_inputs(
    operator: Operator, case: Case, device: torch.device, seed: int, like: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a case's inputs, the keyword arguments of every implementation; `like`, inputs of the same case, give the form of the outputs' gradients, else a call of the baseline does."""
    began = time.perf_counter()
    try:
        return _built(operator, case, device, seed, like or {})
    finally:
        making.seconds += time.perf_counter() - began


def seed_generators(number: int, *, cuda: bool) -> None:
    """Seed the generators that a suite's own code would use."""
    # Not torch.manual_seed, which takes a millisecond: it notes down for each kind of device that is not there who asked.
    torch.default_generator.manual_seed(number)
    if cuda:
        torch.cuda.manual_seed_all(number)
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002


def _built(operator: Operator, case: Case, device: torch.device, seed: int, like: dict[str, Any]) -> dict[str, Any]:
    number = zlib.crc32(f"{case.key}:{seed}".encode())
    make = Make(device=device, seed=number)
    # What inputs() makes without `make`, the weights of an nn.Linear say, is the same in every process as well.
    with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=True):
        seed_generators(number, cuda=device.type == "cuda")
        inputs = operator.inputs(make, **case.axes_for(operator.inputs, ["direction"] if operator.gradients else []))
    if isinstance(inputs, tuple):  # arguments by position, see `calls.bound`
        inputs = {str(place): value for place, value in enumerate(inputs)}
    if not isinstance(inputs, dict) or not all(isinstance(name, str) for name in inputs):
        expected = "expected a dict of keyword arguments by their names, or a tuple of arguments by position"
        raise DeclarationError(f"inputs() returned {type(inputs).__name__}, {expected}")
    named = {"constants": operator.constants, "state": operator.state}
    for key, variant in {**operator.implementations, **operator.impostors}.items():
        named[f"consumes of {key!r}"] = tuple(one for one in variant.consumes if one not in (OUTPUT_GRADIENTS, SAVED))
    for what, names in named.items():
        if missing := next((name for name in names if name not in inputs), None):
            known = ", ".join(inputs) or "nothing"
            raise DeclarationError(f"{what} names {missing!r}, but inputs() returns only {known}")
    check_supported(inputs)
    if any(tensor.is_inference() for tensor in named_tensors(inputs).values()):
        # Those of inference mode are never written to outside of it, as other values are put in place.
        inputs = copy_inputs(inputs)
    if not operator.direction:
        return inputs
    _require_gradients(operator, inputs)
    if operator.direction == "fwd":
        return inputs
    # A backward also gets gradients of the outputs.
    forms = like.get(OUTPUT_GRADIENTS) or _differentiable_outputs(operator, inputs)
    return {**inputs, OUTPUT_GRADIENTS: {path: _gradient(form, make.generator) for path, form in forms.items()}}


def _differentiable_outputs(operator: Operator, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
    try:
        outputs = make_call(operator.towards("fwd"), operator.baseline, "eager", inputs).run()
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return {}  # it is verified next, which says what is wrong with it
    return {path: leaf for path, leaf in leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad}


def _require_gradients(operator: Operator, inputs: dict[str, Any]) -> None:
    """Set `requires_grad` of the inputs that `gradients` names; a DeclarationError where a name is none of an input, or not of one that can have a gradient."""
    found = named_tensors(inputs)
    for name in operator.gradients:
        if name not in found:
            known = ", ".join(found) or "nothing"
            advice = "parameters of a module are named with it, as in 'module.weight'"
            raise DeclarationError(f"gradients names {name!r}, but inputs() returns only {known}; {advice}")
        target = found[name]
        if not (target.is_floating_point() or target.is_complex()) or not target.is_leaf:
            what = "computed from what requires a gradient itself" if not target.is_leaf else f"of {target.dtype}"
            expected = "expected a tensor of floating-point numbers that inputs() made"
            raise DeclarationError(f"gradients names {name!r}, which is {what}, {expected}")
        target.requires_grad_()


def _gradient(form: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a random gradient of an output: normal, but between 1 and 2 for a single number. It is never 1, so that its omission shows."""
    dtype = form.dtype if form.is_complex() or form.dtype == torch.float64 else torch.float32
    if form.dim():
        values = torch.randn(form.shape, dtype=dtype, device=form.device, generator=generator)
    else:
        values = 1.25 + 0.75 * torch.rand((), dtype=dtype, device=form.device, generator=generator)
    return values.to(form.dtype)


def torch_device(device: Device) -> torch.device:
    """Return the device as this worker sees it: its first visible GPU, or the CPU."""
    return torch.device("cuda", 0) if device.kind == "cuda" else torch.device("cpu")


def find_devices() -> tuple[Device, ...]:
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    found = [
        Device(
            selector=f"cuda:{index}",
            kind="cuda",
            name=properties.name,
            uuid=f"GPU-{properties.uuid}",
            capability=(properties.major, properties.minor),
            memory_bytes=properties.total_memory,
        )
        for index, properties in zip(gpus, map(torch.cuda.get_device_properties, gpus), strict=True)
    ]
    return (*found, Device(selector="cpu", kind="cpu", name=cpu_name()))


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device; of the host, those available without swapping."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return sys.maxsize
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), sys.maxsize)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release_memory() -> None:
    """Give unused memory of the GPU back: another worker may need it."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
        if _reserves_much():
            # cuBLAS's workspaces, a part of a large block, keep all of it. A graph of the suite's own may use them, so they are kept otherwise.
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()


def empty_large_cache() -> None:
    """Give the GPU's memory that torch has cached back if it is more than a sixteenth of the whole; cuBLAS's workspaces stay, because captured graphs may use them."""
    if torch.cuda.is_initialized() and _reserves_much():
        torch.cuda.empty_cache()


def _reserves_much() -> bool:
    return torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > _MUCH * torch.cuda.mem_get_info()[1]
