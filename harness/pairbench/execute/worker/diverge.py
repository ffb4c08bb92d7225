"""Baseline and variant in lockstep: the outputs of modules of one name, compared call by call.

All outputs at once may exceed memory. So they are compared a stretch at a time: the float64 oracle, the baseline and the variant run in this order, and of the
first two only this stretch's outputs are kept.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from pairbench.execute.protocol import DivergeCase, Heartbeat, WorkerConfig
from pairbench.execute.worker.calls import SEEDS, Call, build_inputs, make_call, synchronize, torch_device, why_invalid
from pairbench.execute.worker.guard import each_entry, explain
from pairbench.execute.worker.modules import names_of, roots, watching
from pairbench.execute.worker.trees import copy_inputs, copy_tree, dtype_name, leaves, restore, upcast_inputs
from pairbench.execute.worker.verify.case import without_casts
from pairbench.execute.worker.verify.distance import distance, find_beyond, resolve_tolerance
from pairbench.execute.worker.verify.judge import judge
from pairbench.model.breakdown import Divergence, Gap, Layer, NotInspected
from pairbench.model.operator import Operator
from pairbench.model.plan import Entry

Tensors = list[tuple[str, Tensor]]
_PART = 0.25  # part of the free memory for outputs that wait to be compared

Key = tuple[str, int]
Outputs = dict[Key, Tensors]
T = TypeVar("T")
Take = Callable[[Key, torch.nn.Module, Tensors], T]


def tensors_of(tree: Any) -> Tensors:
    return [(path, leaf.detach()) for path, leaf in leaves(tree) if isinstance(leaf, Tensor)]


def incomparable(mine: Tensors, theirs: Tensors) -> str | None:
    if [path for path, _ in mine] != [path for path, _ in theirs]:
        return f"{len(mine)} tensors, the baseline's has {len(theirs)}"
    if not mine:
        return "no tensor"
    for (path, value), (_, expected) in zip(mine, theirs, strict=True):
        if value.shape != expected.shape:
            where = f" {path}" if path else ""
            return f"shape{where} {list(value.shape)}, the baseline's is {list(expected.shape)}"
    return None


def gap_of(operator: Operator, mine: Tensors, theirs: Tensors, truth: Tensors | None = None) -> Gap:
    """Return the distance of comparable tensors to the baseline's, by the rule for outputs; of two precisions the lower one's tolerance holds."""
    count, outside, largest, square, reference, within = 0, 0, 0.0, 0.0, 0.0, True
    exact = [leaf for _, leaf in truth] if truth and not incomparable(truth, theirs) else [None] * len(mine)
    for (_, value), (_, expected), oracle in zip(mine, theirs, exact, strict=True):
        if not expected.numel():
            continue
        coarse = expected.to(value.dtype) if _eps(value) > _eps(expected) else expected
        tolerance = operator.tolerance_for(dtype_name(coarse))
        beyond = find_beyond(value, expected, oracle, resolve_tolerance(coarse, tolerance))
        apart = distance(value, expected)
        within &= not beyond.wrong
        if tolerance.rel_l2 is not None:
            within &= math.sqrt(apart.sum_square) <= tolerance.rel_l2 * math.sqrt(apart.sum_square_reference)
        count, outside = count + value.numel(), outside + beyond.count
        largest = max(largest, apart.max_abs)
        square, reference = square + apart.sum_square, reference + apart.sum_square_reference
    relative = math.sqrt(square / reference) if reference else None
    return Gap(max_abs=largest, rel_l2=relative, beyond=outside / max(1, count), within=within)


def error_of(mine: Tensors, truth: Tensors) -> float | None:
    """Return the relative L2 error against an oracle; None where the tensors cannot be compared."""
    if incomparable(mine, truth):
        return None
    distances = [distance(value, exact) for (_, value), (_, exact) in zip(mine, truth, strict=True) if exact.numel()]
    reference = sum(item.sum_square_reference for item in distances)
    return math.sqrt(sum(item.sum_square for item in distances) / reference) if reference else None


def is_worse(operator: Operator, baseline: float | None, variant: float | None, outputs: Tensors) -> bool:
    """Return whether a variant's error is clearly larger than the baseline's: the oracle rule, for a whole output."""
    if baseline is None or variant is None:
        return False
    spacings = (max(_eps(leaf), operator.tolerance_for(dtype_name(leaf)).spacing) for _, leaf in outputs)
    return variant > 2 * baseline + max(spacings, default=0.0) / 2


def _eps(tensor: Tensor) -> float:
    return float(torch.finfo(tensor.dtype).eps) if tensor.is_floating_point() or tensor.is_complex() else 0.0


@dataclass
class _Side:
    call: Call
    names: dict[torch.nn.Module, str]
    device: torch.device

    def run(self) -> Any:
        """Run once from the declared state, and return the observed outputs."""
        operator = self.call.operator
        restore(self.call.kwargs, {name: self.call.shared[name] for name in operator.state})
        outputs = self.call.observe()
        synchronize(self.device)
        return outputs

    def visit(self, take: Take[T], wanted: Container[Key] | None = None, *, of_inputs: bool = False) -> dict[Key, T]:
        """Run once, and return what `take` gives of the outputs, or of the inputs, of each wanted call of a module (None: of all), in the order in which they end.

        The key of a call is the module's name, and the number of calls of that name before.
        """
        begun, found = Counter[str](), dict[Key, T]()

        def around(name: str, module: torch.nn.Module, inputs: Any, call: Callable[[], Any]) -> Any:
            key = (name, begun[name])
            begun[name] += 1
            looks = wanted is None or key in wanted
            if looks and of_inputs:
                found[key] = take(key, module, tensors_of(inputs))
            outputs = call()
            if looks and not of_inputs:
                found[key] = take(key, module, tensors_of(outputs))
            return outputs

        with watching(self.names, around):
            self.run()
        return found


def _cloned(_key: Key, _module: torch.nn.Module, tensors: Tensors) -> Tensors:
    return [(path, leaf.clone()) for path, leaf in tensors]  # whoever comes next may write into them


def _size(_key: Key, _module: torch.nn.Module, tensors: Tensors) -> tuple[int, int]:
    """Return the number of elements and of bytes."""
    return sum(leaf.numel() for _, leaf in tensors), sum(leaf.nbytes for _, leaf in tensors)


def diverge(job: DivergeCase, operator: Operator, config: WorkerConfig, heartbeat: Heartbeat) -> Iterator[Any]:
    device = torch_device(config.device)
    inputs = build_inputs(operator, job.case, device, SEEDS[0])

    def step(entry: Entry) -> Divergence | NotInspected:
        variant = operator.implementations[entry.implementation]
        if why := why_invalid(variant, inputs):
            return NotInspected(entry=entry, reason=f"{entry.implementation} is {why}", bad=False)
        baseline = make_call(operator, operator.baseline, "eager", copy_inputs(inputs))
        call = make_call(operator, variant, "eager", copy_inputs(inputs))
        ours, theirs = roots(call.given), roots(baseline.given)
        if bare := [name for name, found in (("the baseline", theirs), (entry.implementation, ours)) if not found]:
            who = f"{' and '.join(bare)} {'gets' if len(bare) == 1 else 'get'} no torch.nn.Module"
            advice = "so both implementations have to be given theirs as an argument"
            why = f"{who}: neither among the inputs nor from prepare(). Outputs are compared module by module, {advice}"
            return NotInspected(entry=entry, reason=why, bad=False)
        if len(ours) == len(theirs) == 1:  # one tree each, whatever the arguments are called
            ours = dict(zip(theirs, ours.values(), strict=True))
        sides = (_Side(baseline, names_of(theirs), device), _Side(call, names_of(ours), device))
        return _Lockstep(operator, inputs, *sides, config.memory_bytes).divergence(entry)

    yield from each_entry(job, heartbeat, step)


@dataclass
class _Lockstep:
    _operator: Operator
    _inputs: dict[str, Any]
    _baseline: _Side
    _variant: _Side
    _memory_bytes: int

    def divergence(self, entry: Entry) -> Divergence:
        # Unwatched first: what is compiled is compiled as it always is.
        expected, outputs = copy_tree(self._baseline.run()), copy_tree(self._variant.run())
        oracle, truth, oracle_missing = self._oracle()
        verdict = judge(outputs, expected, truth, self._operator.tolerance_for)
        del outputs, expected, truth
        sizes, known = self._baseline.visit(_size), self._variant.visit(_size)
        theirs, mine = (Counter(name for name, _ in calls) for calls in (sizes, known))
        common = {key: size for key, size in sizes.items() if key in known}
        layers: list[Layer] = []
        for stretch in stretches(common, self._room(), with_oracle=oracle is not None):
            layers += self._compare(stretch, oracle)
        layers = mark_contained(layers)
        first = next((layer for layer in layers if layer.off and not layer.contained), None)
        in_baseline, in_variant = set(self._baseline.names.values()), set(self._variant.names.values())
        in_both = [name for name in self._baseline.names.values() if name in in_variant]
        return Divergence(
            entry=entry,
            layers=tuple(layers),
            inputs=self._compare_inputs((first.module, first.call)) if first else None,
            only_baseline=tuple(name for name in self._baseline.names.values() if name not in in_variant),
            only_variant=tuple(name for name in self._variant.names.values() if name not in in_baseline),
            uncalled=tuple((name, theirs[name], mine[name]) for name in in_both if theirs[name] != mine[name]),
            oracle_missing=oracle_missing,
            output_mismatch=verdict.mismatch,
        )

    def _oracle(self) -> tuple[_Side | None, Any, str | None]:
        try:
            call = make_call(self._operator, self._operator.baseline, "eager", upcast_inputs(self._inputs))
            oracle = _Side(call, names_of(roots(call.given)), self._baseline.device)
            return oracle, copy_tree(without_casts(oracle.run)), None
        except BaseException as error:
            return None, None, f"the baseline does not run in float64: {explain(error)[1]}"

    def _room(self) -> int:
        if self._baseline.device.type != "cuda":
            return int(self._memory_bytes * _PART)
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self._baseline.device)[0] * 2 * _PART)

    def _compare(self, stretch: set[Key], oracle: _Side | None) -> list[Layer]:
        truth = without_casts(functools.partial(oracle.visit, _cloned, stretch)) if oracle else {}
        expected = self._baseline.visit(_cloned, stretch)
        layers = self._variant.visit(functools.partial(self._layer, expected, truth), stretch)
        # In the baseline's order: the variant may call them in another.
        return [layers[key] for key in expected if key in layers]

    def _layer(self, expected: Outputs, oracle: Outputs, key: Key, module: torch.nn.Module, mine: Tensors) -> Layer:
        theirs, truth = expected[key], oracle.get(key)
        why = incomparable(mine, theirs)
        against = (error_of(theirs, truth), error_of(mine, truth)) if truth and not why else (None, None)
        return Layer(
            module=key[0],
            class_name=type(module).__name__,
            call=key[1],
            dtypes=(_dtypes(theirs), _dtypes(mine)),
            gap=None if why else gap_of(self._operator, mine, theirs, truth),
            incomparable=why,
            baseline_oracle=against[0],
            variant_oracle=against[1],
            worse=is_worse(self._operator, *against, [*mine, *theirs]),
        )

    def _compare_inputs(self, wanted: Key) -> Gap | None:
        sides = self._baseline, self._variant
        theirs, mine = (side.visit(_cloned, (wanted,), of_inputs=True)[wanted] for side in sides)
        return None if incomparable(mine, theirs) else gap_of(self._operator, mine, theirs)


def _dtypes(tensors: Tensors) -> str:
    return ", ".join(dict.fromkeys(dtype_name(leaf) for _, leaf in tensors))


def mark_contained(layers: list[Layer]) -> list[Layer]:
    """Mark the calls that are off inside of a module which is not."""
    marked = []
    for index, layer in enumerate(layers):
        # Compared calls of modules around this one come later, the innermost first.
        around = (one for one in layers[index + 1 :] if one.gap and layer.module.startswith(f"{one.module}."))
        inside = layer.off and (innermost := next(around, None)) is not None and not innermost.off
        marked.append(replace(layer, contained=inside))
    return marked


def stretches(sizes: dict[Key, tuple[int, int]], room: int, *, with_oracle: bool) -> Iterator[set[Key]]:
    """Yield calls whose outputs fit into `room` bytes together, in order; a larger one goes alone."""
    stretch: set[Key] = set()
    held = 0
    for key, (elements, size) in sizes.items():
        needed = size + (8 * elements if with_oracle else 0)
        if stretch and held + needed > room:
            yield stretch
            stretch, held = set(), 0
        stretch.add(key)
        held += needed
    if stretch:
        yield stretch
