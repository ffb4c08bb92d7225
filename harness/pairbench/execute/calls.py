"""An implementation made ready to be called in one mode: its own state, its prepared weights, compiled or captured."""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pairbench.errors import DeclarationError
from pairbench.execute.faults import where
from pairbench.execute.trees import copy_tree, refill
from pairbench.model.operator import Operator, Variant

_CAPTURE_WARM_UP = 3
_CAPTURES = 7
"""Odd, because the calls made for each sample are a power of two, and all captures are to be timed."""
_SHORT_US = 100
"""One capture against another was still 1 % off at 52 us, and 0.2 % at 98 us."""


class CaptureError(Exception):
    """A call cannot be captured as a CUDA graph."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call with all its arguments; calling it runs the implementation once and returns its outputs."""

    operator: Operator
    variant: Variant
    mode: str
    shared: dict[str, Any]
    """The case's inputs, the same objects for every implementation."""
    kwargs: dict[str, Any]
    """What the implementation is given: the shared inputs, its own copies of state, what it prepared."""
    run: Callable[[], Any]

    def refill(self, fresh: dict[str, Any]) -> bool:
        """Put fresh values into what only this call uses, at the same addresses; the shared inputs are the caller's."""
        own = {name: value for name, value in self.kwargs.items() if value is not self.shared.get(name)}
        replacement = {**_own_state(self.operator, fresh), **_prepared(self.operator, self.variant, fresh)}
        return refill(own, {name: replacement[name] for name in own})

    @property
    def captures(self) -> int:
        """How many runs it takes to have seen all that takes turns."""
        return len(self.run.replays) if isinstance(self.run, Rotation) else 1

    def observe(self) -> Any:
        """Run once and return all that is judged: the outputs, and what the call left in its state."""
        outputs = self.run()
        if not self.operator.state:
            return outputs
        return {"output": outputs, "state": {name: self.kwargs[name] for name in self.operator.state}}


def why_invalid(variant: Variant, inputs: dict[str, Any]) -> str | None:
    """Return why an implementation computes something else for these inputs, or None where it does not."""
    if variant.valid is None or (valid := variant.valid(**copy_tree(inputs))) is True:
        return None
    return f"not valid here: {valid or 'its `valid` says that it computes something else'}"


def make_call(operator: Operator, variant: Variant, mode: str, inputs: dict[str, Any]) -> Call:
    """Make an implementation ready; compiling happens at the first call, capturing here.

    Raises:
        CaptureError: the mode is graph, and the call cannot be captured.
    """
    kwargs = {**inputs, **_own_state(operator, inputs), **_prepared(operator, variant, inputs)}
    function = torch.compile(variant.function, dynamic=False) if mode == "compile" else variant.function
    eager = functools.partial(function, **kwargs)
    run = capture(eager) if mode == "graph" else eager
    return Call(operator=operator, variant=variant, mode=mode, shared=inputs, kwargs=kwargs, run=run)


@dataclass(frozen=True)
class Replay:
    """A captured call; calling it replays the graph and returns the same output tensors every time."""

    call: Callable[[], Any]
    graph: torch.cuda.CUDAGraph
    outputs: Any

    def __call__(self) -> Any:
        """Replay."""
        self.graph.replay()
        return self.outputs


def capture(call: Callable[[], Any]) -> Replay:
    """Capture a call as a CUDA graph.

    Raises:
        CaptureError: it cannot be captured, with the call that forbids it.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_CAPTURE_WARM_UP):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            outputs = call()
    except Exception as error:
        raise CaptureError(_first_line(error)) from error
    return Replay(call, graph, outputs)


@dataclass(frozen=True)
class Rotation:
    """Several captures of one call that take turns.

    Where a graph happens to lie on the device moves its latency for as long as it lives: six captures of one 6.7 us
    addition had medians 2.9 % apart on an H200, time and again the same, while one of them replayed six times over
    showed 0.5 %. That is chance and says nothing of the call, so it is averaged where it matters.
    """

    replays: tuple[Replay, ...]
    turns: Iterator[Replay]

    def __call__(self) -> Any:
        """Replay the next one."""
        return next(self.turns)()


def rotate(replay: Replay) -> Replay | Rotation:
    """Return a replay that takes turns with more captures of its call, if it is short enough for that to matter."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    replay()
    start.record()
    for _ in range(_CAPTURE_WARM_UP):
        replay()
    end.record()
    end.synchronize()
    if start.elapsed_time(end) * 1e3 / _CAPTURE_WARM_UP > _SHORT_US:
        return replay
    replays = (replay, *(capture(replay.call) for _ in range(_CAPTURES - 1)))
    return Rotation(replays, itertools.cycle(replays))


def _first_line(error: BaseException) -> str:
    # The error at the end of a capture only says that it was invalidated; the one before it names the forbidden call.
    root = error
    while root.__context__ is not None:
        root = root.__context__
    return f"{where(root)}{type(root).__name__}: {str(root).strip().partition(chr(10))[0]}"


def _own_state(operator: Operator, inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: copy_tree(inputs[name]) for name in operator.state}


def _prepared(operator: Operator, variant: Variant, inputs: dict[str, Any]) -> dict[str, Any]:
    if variant.prepare is None:
        return {}
    prepared = variant.prepare(**{name: inputs[name] for name in operator.constants})
    if not isinstance(prepared, dict):
        raise DeclarationError(f"prepare() returned {type(prepared).__name__}, expected a dict of keyword arguments")
    return prepared


_RECOMPILES = 64
"""Of one function in one case: helpers that all implementations share are compiled once for each of them and each shape."""


def reset_compiler() -> None:
    """Forget what was compiled for earlier cases, and refuse to fall back to eager when recompiling too often."""
    torch._dynamo.reset()
    if hasattr(torch._dynamo.config, "recompile_limit"):
        torch._dynamo.config.recompile_limit = _RECOMPILES
    if hasattr(torch._dynamo.config, "fail_on_recompile_limit_hit"):
        torch._dynamo.config.fail_on_recompile_limit_hit = True
