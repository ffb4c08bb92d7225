"""The seeded tensor factory that a suite's `inputs` function is given as `make`."""

import random
import time
import zlib
from dataclasses import field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker.calls import make_call
from pairbench.execute.worker.faults import is_out_of_memory
from pairbench.execute.worker.trees import check_supported, copy_inputs, leaves, named_tensors
from pairbench.model.case import OUTPUT_GRADIENTS, SAVED, Case
from pairbench.model.operator import Operator
from pairbench.model.plain import Value

making = SimpleNamespace(seconds=0.0)
"""Seconds that making inputs took in this process so far, as `making.seconds`."""


def as_dtype(name: str | torch.dtype) -> torch.dtype:
    dtype = name if isinstance(name, torch.dtype) else getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        expected = "expected a torch dtype's name such as 'float32' or 'bfloat16'"
        raise DeclarationError(f"dtype {name!r} is unknown, {expected}")
    return dtype


class Make(Value):
    """Makes tensors on the device under test; the same seed gives the same values.

    What `inputs` makes by torch's own functions is on the host, and takes long where it is large: within `with make.device:` it is made on that
    device as well, and is the same for a seed.

    Random values are drawn in float32 (float64 for float64) and then rounded, so that one seed means nearly the same
    input in every dtype.
    """

    device: torch.device
    seed: int
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "generator", torch.Generator(self.device).manual_seed(self.seed))

    def normal(
        self, *shape: int, dtype: str | torch.dtype = "float32", mean: float = 0.0, scale: float = 1.0
    ) -> torch.Tensor:
        """Return a tensor of that shape with normally distributed values of that mean and standard deviation (`scale`)."""
        wanted = as_dtype(dtype)
        drawn = wanted if wanted.is_complex else _drawn(wanted)
        values = torch.randn(shape, dtype=drawn, device=self.device, generator=self.generator)
        return values.mul_(scale).add_(mean).to(wanted)

    def uniform(
        self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: str | torch.dtype = "float32"
    ) -> torch.Tensor:
        """Return a tensor of that shape with values spread evenly over [low, high)."""
        wanted = as_dtype(dtype)
        values = torch.rand(shape, dtype=_drawn(wanted), device=self.device, generator=self.generator)
        return values.mul_(high - low).add_(low).to(wanted)

    def rand(self, *shape: int, dtype: str | torch.dtype = "float32") -> torch.Tensor:
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

    def integers(self, *shape: int, low: int = 0, high: int, dtype: str | torch.dtype = "int64") -> torch.Tensor:
        """Return a tensor of that shape with integers spread evenly over [low, high)."""
        return torch.randint(low, high, shape, dtype=as_dtype(dtype), device=self.device, generator=self.generator)

    def zeros(self, *shape: int, dtype: str | torch.dtype = "float32") -> torch.Tensor:
        """Return a tensor of zeros of that shape."""
        return torch.zeros(shape, dtype=as_dtype(dtype), device=self.device)

    def ones(self, *shape: int, dtype: str | torch.dtype = "float32") -> torch.Tensor:
        """Return a tensor of ones of that shape."""
        return torch.ones(shape, dtype=as_dtype(dtype), device=self.device)


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


def _built(operator: Operator, case: Case, device: torch.device, seed: int, like: dict[str, Any]) -> dict[str, Any]:
    number = zlib.crc32(f"{case.key}:{seed}".encode())
    make = Make(device=device, seed=number)
    # What inputs() makes without `make`, the weights of an nn.Linear say, is the same in every process as well.
    with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=True):
        # Not torch.manual_seed, which takes a millisecond: it notes down for each kind of device that is not there who asked.
        torch.default_generator.manual_seed(number)
        if device.type == "cuda":
            torch.cuda.manual_seed_all(number)
        random.seed(number)
        np.random.seed(number)  # noqa: NPY002 (the generator that a suite's own code would use)
        inputs = operator.inputs(make, **case.axes_for(operator.inputs, ["direction"] if operator.gradients else []))
    if isinstance(inputs, tuple):  # arguments by position, see `calls.bound`
        inputs = {str(place): value for place, value in enumerate(inputs)}
    if not isinstance(inputs, dict) or not all(isinstance(name, str) for name in inputs):
        expected = "expected a dict of keyword arguments, or a tuple of arguments by position"
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
