"""Prepares an implementation to be called in one mode: its own state and prepared weights, compiled or captured."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker import trees
from pairbench.execute.worker.faults import charged
from pairbench.execute.worker.graphs import Replay, capture
from pairbench.execute.worker.judge.plain import readable
from pairbench.execute.worker.training import Training, arguments
from pairbench.execute.worker.verify.draws import DRAW
from pairbench.model.case import OUTPUT_GRADIENTS
from pairbench.model.operator import Operator, Variant
from pairbench.model.plain import Value


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
    initial: dict[str, Any]
    """The state that `reset` restores; empty where it restores no values."""
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

    def capture(self, shared_pool: tuple[int, int] | None = None) -> Replay:
        return (
            self.training.capture(shared_pool) if self.training else capture(self.run, shared_pool, before=self.reset)
        )


def bound(function: Callable[..., Any], inputs: dict[str, Any]) -> Callable[[], Any]:
    """Bind arguments to a function: by name, but those with numbers for names, from an `inputs` that returns a tuple, by position."""
    places = sorted(filter(str.isdecimal, inputs), key=int)
    if not places:
        return functools.partial(function, **inputs)
    named = {name: value for name, value in inputs.items() if name not in places}
    return functools.partial(function, *(inputs[place] for place in places), **named)


def why_invalid(variant: Variant, inputs: dict[str, Any]) -> str | None:
    if variant.valid is None or (valid := bound(variant.valid, trees.copy_inputs(arguments(inputs)))()) is True:
        return None
    return f"not valid here: {valid or 'its `valid` says that it computes something else'}"


def make_call(operator: Operator, variant: Variant, mode: str, inputs: dict[str, Any]) -> Call:
    """Prepare an implementation; compiling happens at the first call, capturing here."""
    names = trees.together_with(inputs, (*operator.state, *variant.consumes))
    own = trees.copy_inputs({name: inputs[name] for name in names})
    state = {name: own[name] for name in operator.state}
    initial = trees.copy_inputs(state) if operator.reset is True else {}
    consumed = {name: value for name, value in own.items() if name not in state}
    given = {**inputs, **consumed}
    reset: Callable[[], None] = functools.partial(_reset, operator, state, initial, consumed, inputs)
    kwargs = {**arguments(given), **state, **_prepared(operator, variant, inputs)}
    function = torch.compile(variant.function, dynamic=False) if mode == "compile" else variant.function
    if operator.direction and any(map(str.isdecimal, kwargs)):
        by_name = function
        function = lambda **given: bound(by_name, given)()  # noqa: E731 (as long as what it replaces)
    training, run = None, bound(function, kwargs)
    if operator.direction:
        once = bool(set(variant.consumes) - {OUTPUT_GRADIENTS})
        training = Training(operator, function, kwargs, given, reset, once=once)
        run = training.run
    if mode == "graph":
        with charged():
            run = training.capture() if training else capture(run, before=reset)
        trees.restore(state, {name: inputs[name] for name in state})  # capturing has called it some times
    if training:
        reset = run.before if isinstance(run, Replay) else training.ready
    return Call(
        operator=operator,
        variant=variant,
        mode=mode,
        shared=inputs,
        kwargs=kwargs,
        run=run,
        reset=reset,
        initial=initial,
        consumed=consumed,
        training=training,
    )


def _reset(
    operator: Operator, state: dict[str, Any], initial: dict[str, Any], consumed: dict[str, Any], inputs: dict[str, Any]
) -> None:
    if callable(operator.reset):
        bound(operator.reset, state)()
    elif operator.reset:
        trees.restore(state, initial)
    if consumed and not trees.refill(consumed, {name: inputs[name] for name in consumed}):
        what = f"the shape or the structure of an input that it consumes ({', '.join(consumed)})"
        raise DeclarationError(f"changes {what}; consumes= lets it overwrite values alone")


def _check_names(function: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled code without a signature
        return
    try:
        bound(signature.bind, kwargs)()
    except TypeError as error:
        expected = f"the names that inputs() and prepare() return, {', '.join(kwargs)}"
        advice = "wrap it in a function of these names"
        raise DeclarationError(f"takes {signature}, expected {expected}: {error}; {advice}") from None


def _prepared(operator: Operator, variant: Variant, inputs: dict[str, Any]) -> dict[str, Any]:
    if variant.prepare is None:
        return {}
    with charged():
        prepared = bound(variant.prepare, {name: inputs[name] for name in operator.constants})()
    if not isinstance(prepared, dict):
        raise DeclarationError(f"prepare() returned {type(prepared).__name__}, expected a dict of keyword arguments")
    return prepared
