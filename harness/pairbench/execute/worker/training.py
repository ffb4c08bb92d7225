"""Calls of an operator with gradients: forward, backward or both, of one implementation, and sentences on what goes wrong.

`fwd` is the forward pass as training runs it, with the graph for a backward. `bwd` is `torch.autograd.grad` over such a graph, which is built outside of the clock, and
again whenever the inputs have other values or a call may have overwritten what was saved; it is retained, for several passes. `fwd_bwd` is both in one call, after
which the graph is freed. Nothing is ever computed by subtraction.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker.graphs import Pool, Replay, Reset, capture, capture_behind
from pairbench.execute.worker.trees import leaves, map_tensors, named_tensors, tensors, with_replaced
from pairbench.model.case import OUTPUT_GRADIENTS, SAVED, gradient_path
from pairbench.model.operator import Operator

_NO_BACKWARD = (
    *("must implement either the backward", "no autograd formula was registered"),
    *("is not implemented", "not differentiable"),
)
"""Torch's messages for an operator without a backward; the next two are for a write to a leaf, and for an overwritten saved tensor."""
_IN_PLACE_ON_LEAF = "a leaf Variable that requires grad is being used in an in-place operation"
_OVERWRITTEN = "has been modified by an inplace operation"


def arguments(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if name != OUTPUT_GRADIENTS}


@dataclass(eq=False)
class Training:
    """One implementation in one direction, with leaves of its own: no two implementations share a node of a graph, or `.grad`."""

    operator: Operator
    function: Callable[..., Any]
    kwargs: dict[str, Any]
    output_gradients: dict[str, torch.Tensor]
    reset: Reset
    once: bool  # a call may overwrite what was saved, so that no graph is used twice

    def __post_init__(self) -> None:
        """Make leaves of the arguments."""
        named = named_tensors(self.kwargs)
        watched = {name: value for name, value in self.kwargs.items() if name not in self.operator.state}
        self._make_leaves(self.kwargs, {name: named[name] for name in self.operator.gradients})
        self.watched = list(named_tensors(watched).values())
        """The inputs that the graph depends on, whose values change only as they are refilled."""

    def _make_leaves(self, kwargs: dict[str, Any], targets: dict[str, torch.Tensor]) -> None:
        """Take arguments, with leaves of this object's own in the place of the targets, at the same addresses; all other tensors are shared."""
        own = {
            id(target): torch.nn.Parameter(target.detach())
            if isinstance(target, torch.nn.Parameter)
            else target.detach().requires_grad_()
            for target in targets.values()
        }
        held = {name: value for name, value in kwargs.items() if own.keys() & map(id, named_tensors(value).values())}
        self.kwargs = {**kwargs, **with_replaced(held, own)}
        found = named_tensors(self.kwargs)
        self.targets = {name: found[name] for name in targets}
        self._outputs: Any = None
        self._versions: list[int] | None = None

    def run(self) -> Any:
        match self.operator.direction:
            case "bwd":
                return self._differentiate(self._outputs, retain=True)
            case "fwd_bwd":
                outputs = self._forward()
                gradients = self._differentiate(outputs, retain=False)
                # Detached, or the outputs would keep what is left of the graph.
                return {"output": map_tensors(outputs, torch.Tensor.detach), **gradients}
        return self._forward()

    def build(self) -> None:
        self._outputs = None  # its memory may be needed
        self._versions = [tensor._version for tensor in self.watched]
        self._invert_gradients()
        try:
            self._outputs = self._forward()
        finally:
            self._invert_gradients()

    def _invert_gradients(self) -> None:
        """Invert the bits of the outputs' gradients, or put them back: a forward that has kept them would compute the backward outside of the clock."""
        for gradient in self.output_gradients.values():
            parts = torch.view_as_real(gradient.data) if gradient.is_complex() else gradient.data
            parts.view(getattr(torch, f"int{8 * parts.element_size()}")).bitwise_not_()

    def ready(self, build: Callable[[], Any] | None = None) -> None:
        """Restore the call's state, and build the graph of a backward again if it is of other values or may be overwritten; a replay gives its own function `build` to do so."""
        self.reset()
        if self.operator.direction != "bwd":
            return
        if self.once or self.operator.state or self._versions != [tensor._version for tensor in self.watched]:
            (build or self.build)()
            self._versions = [tensor._version for tensor in self.watched]

    def _forward(self) -> Any:
        with self._explained(None):
            return self.function(**self.kwargs)

    def _differentiate(self, outputs: Any, *, retain: bool) -> dict[str, Any]:
        with self._explained(outputs):
            found = {"": outputs} if isinstance(outputs, torch.Tensor) else dict(leaves(outputs))
            roots = [found[path] for path in self.output_gradients]
            given = [
                gradient if gradient.dtype == root.dtype else gradient.to(root.dtype)
                for gradient, root in zip(self.output_gradients.values(), roots, strict=True)
            ]
            gradients = torch.autograd.grad(
                roots, tuple(self.targets.values()), given, retain_graph=retain, allow_unused=True
            )
        return {gradient_path(name): gradient for name, gradient in zip(self.targets, gradients, strict=True)}

    @contextlib.contextmanager
    def _explained(self, outputs: Any) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if why := self._why_not(outputs, error):
                raise DeclarationError(why) from error
            raise

    def _why_not(self, outputs: Any, error: Exception) -> str | None:
        if why := self._own_backward():
            return why
        if _IN_PLACE_ON_LEAF in str(error):
            what = "writes in place to an input that needs a gradient, by an operator of torch's that autograd follows"
            advice = "write within a torch.autograd.Function, or return another tensor"
            return f"{what}, which is refused for inputs of a graph; {advice}"
        if _OVERWRITTEN in str(error) and self.operator.direction == "bwd" and not self.once:
            what = "overwrites what was saved for its backward, so that no graph is gone through twice"
            advice = f"declare consumes=({SAVED!r},), or the inputs that it overwrites"
            return f"{what}; {advice}, if its caller goes through a graph once"
        text = str(error).strip().partition("\n")[0]
        if isinstance(error, RuntimeError | NotImplementedError) and any(part in text for part in _NO_BACKWARD):
            return f"has no backward: {text}"
        if outputs is None:
            return None
        found = dict(leaves(outputs))
        for path in self.output_gradients:
            if path not in found:
                return f"returns {', '.join(path or 'one value' for path in found)}, the baseline {path or 'one value'}"
        detached = [path for path in self.output_gradients if not getattr(found[path], "requires_grad", False)]
        return self._detached(detached[0] if detached else "") if detached or not self.output_gradients else None

    def _detached(self, path: str) -> str:
        names = " or ".join(repr(name) for name in self.targets)
        why = f"is detached from {names}: it has no graph to go back through, so there is no backward"
        advice = "leave out detach(), .data and no_grad(), and wrap a kernel in a torch.autograd.Function that has one"
        return f"its output{f' {path}' if path else ''} {why}; {advice}"

    def _own_backward(self) -> str | None:
        name = next((name for name, target in self.targets.items() if target.grad is not None), None)
        advice = "return the outputs alone: gradients= has them differentiated"
        return name and f"calls backward() itself, which adds to {name}.grad from call to call; {advice}"

    def check(self, outputs: Any) -> None:
        """Raise a DeclarationError if a call differentiates itself, returns nothing that could be differentiated, or has no gradient of an input."""
        if why := self._own_backward():
            raise DeclarationError(why)
        if self.operator.direction == "fwd":
            if not any(output.requires_grad for output in tensors(outputs)):
                raise DeclarationError(self._detached(""))
            return
        for name in self.targets:
            if outputs[gradient_path(name)] is None:
                why = f"no output depends on {name!r}, or a Function's backward returns None for it"
                advice = f"gradients= names {', '.join(self.targets)}, and each needs one"
                raise DeclarationError(f"its gradient of {name!r} is None: {why}; {advice}")

    def saved_bytes(self) -> int:
        """Return the bytes that one forward keeps for backward: of distinct storages, those of its arguments left out."""
        given = {tensor.untyped_storage().data_ptr() for tensor in named_tensors(self.kwargs).values()}
        kept = dict[int, int]()

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in given:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        self.reset()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            outputs = self._forward()
        total = sum(kept.values())
        del outputs  # until here, so that no two storages had one address
        return total

    def capture(self, pool: Pool | None = None) -> Replay:
        """Capture the call as a CUDA graph with leaves of its own, as nodes remember their stream; a backward over a captured forward, whose replay comes before it, outside of the clock."""
        again = copy.copy(self)
        again._make_leaves(self.kwargs, self.targets)
        if self.operator.direction != "bwd":
            return capture(again.run, pool, before=self.reset)
        return capture_behind(again.build, again.run, pool, reset=self.reset, ready=again.ready, again=self.capture)


def accumulated(inputs: dict[str, Any]) -> str:
    for name, tensor in named_tensors(inputs).items():
        if tensor.is_leaf and tensor.grad is not None:
            advice = f"declare gradients=({name!r},) and return the outputs alone, or use torch.autograd.grad"
            return f"; calls leave a gradient in {name}.grad, to which each call adds: {advice}"
    return ""
