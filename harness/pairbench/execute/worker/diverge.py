"""Baseline and variant in lockstep: the outputs of modules of one name, compared call by call.

All outputs at once may exceed memory. So they are compared a stretch at a time: the float64 oracle, the baseline and the variant run in this order, and of the
first two only this stretch's outputs are kept.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import DivergeCase, WorkerConfig
from pairbench.execute.worker.calls import Call, make_call, why_invalid
from pairbench.execute.worker.devices import SEEDS, synchronize
from pairbench.execute.worker.faults import explain
from pairbench.execute.worker.guard import each_entry
from pairbench.execute.worker.inputs import build_inputs
from pairbench.execute.worker.modules import names_of, roots, watching
from pairbench.execute.worker.trees import copy_inputs, copy_tree, dtype_name, leaves, restore, upcast_inputs
from pairbench.execute.worker.verify.distance import distance, find_beyond, resolve_tolerance
from pairbench.execute.worker.verify.judge import judge
from pairbench.model.breakdown import Divergence, Gap, Layer, NoDivergence
from pairbench.model.operator import Operator
from pairbench.model.plan import Entry

Tensors = list[tuple[str, torch.Tensor]]


def tensors_of(tree: Any) -> Tensors:
    return [(path, leaf.detach()) for path, leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


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


def _eps(tensor: torch.Tensor) -> float:
    return float(torch.finfo(tensor.dtype).eps) if tensor.is_floating_point() or tensor.is_complex() else 0.0


_PART = 0.25  # part of the free memory for outputs that wait to be compared

Key = tuple[str, int]


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

    def visit(
        self,
        left: Callable[[Key, torch.nn.Module, Any], None] = lambda *_: None,
        entered: Callable[[Key, Any], None] = lambda *_: None,
    ) -> Counter[str]:
        """Run once, with each call of a module by a key (its name, and the number of calls of that name before), and return the number of calls by name."""
        begun = Counter[str]()

        def around(name: str, module: torch.nn.Module, inputs: Any, call: Callable[[], Any]) -> Any:
            key = (name, begun[name])
            begun[name] += 1
            entered(key, inputs)
            outputs = call()
            left(key, module, outputs)
            return outputs

        with watching(self.names, around):
            self.run()
        return begun


def diverge(
    job: DivergeCase, operator: Operator, config: WorkerConfig, heartbeat: Heartbeat, device: torch.device
) -> Iterator[Any]:
    inputs = build_inputs(operator, job.case, device, SEEDS[0])

    def step(entry: Entry) -> Divergence | NoDivergence:
        variant = operator.implementations[entry.implementation]
        if why := why_invalid(variant, inputs):
            return NoDivergence(entry=entry, reason=f"{entry.implementation} is {why}", bad=False)
        baseline = make_call(operator, operator.baseline, "eager", copy_inputs(inputs))
        call = make_call(operator, variant, "eager", copy_inputs(inputs))
        ours, theirs = roots(call.given), roots(baseline.given)
        if bare := [name for name, found in (("the baseline", theirs), (entry.implementation, ours)) if not found]:
            who = f"{' and '.join(bare)} {'gets' if len(bare) == 1 else 'get'} no torch.nn.Module"
            advice = "so both implementations have to be given theirs as an argument"
            why = f"{who}: neither among the inputs nor from prepare(). Outputs are compared module by module, {advice}"
            return NoDivergence(entry=entry, reason=why, bad=False)
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
        sizes, theirs = self._sizes(self._baseline)
        known, mine = self._sizes(self._variant)
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
            return oracle, copy_tree(oracle.run()), None
        except BaseException as error:
            return None, None, f"the baseline does not run in float64: {explain(error)[1]}"

    def _sizes(self, side: _Side) -> tuple[dict[Key, tuple[int, int]], Counter[str]]:
        """Return elements and bytes of each call's outputs, in the order in which the calls end, and the number of calls by module."""
        sizes: dict[Key, tuple[int, int]] = {}

        def left(key: Key, _module: torch.nn.Module, outputs: Any) -> None:
            tensors = [leaf for _, leaf in tensors_of(outputs)]
            sizes[key] = sum(leaf.numel() for leaf in tensors), sum(leaf.nbytes for leaf in tensors)

        calls = side.visit(left)
        return sizes, calls

    def _room(self) -> int:
        if self._baseline.device.type != "cuda":
            return int(self._memory_bytes * _PART)
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self._baseline.device)[0] * 2 * _PART)

    def _compare(self, stretch: set[Key], oracle: _Side | None) -> list[Layer]:
        truth = self._outputs(oracle, stretch) if oracle else {}
        expected = self._outputs(self._baseline, stretch)
        layers: dict[Key, Layer] = {}

        def left(key: Key, module: torch.nn.Module, outputs: Any) -> None:
            if key in stretch:
                layers[key] = self._layer(key, module, tensors_of(outputs), expected[key], truth.get(key))

        self._variant.visit(left)
        # In the baseline's order: the variant may call them in another.
        return [layers[key] for key in expected if key in layers]

    def _outputs(self, side: _Side, stretch: set[Key]) -> dict[Key, Tensors]:
        kept: dict[Key, Tensors] = {}

        def left(key: Key, _module: torch.nn.Module, outputs: Any) -> None:
            if key in stretch:
                # Whoever comes next may write into it.
                kept[key] = [(path, leaf.clone()) for path, leaf in tensors_of(outputs)]

        side.visit(left)
        return kept

    def _layer(self, key: Key, module: torch.nn.Module, mine: Tensors, theirs: Tensors, truth: Tensors | None) -> Layer:
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
        given: list[Tensors] = []

        def entered(key: Key, inputs: Any) -> None:
            if key == wanted:
                given.append([(path, leaf.clone()) for path, leaf in tensors_of(inputs)])

        self._baseline.visit(entered=entered)
        self._variant.visit(entered=entered)
        theirs, mine = given
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
