"""Verification where memory is short: nothing is held that can be made again, one seed is judged after the other, and the oracle is computed in slices.

The first seed's expected outputs and its oracle are held; inputs are made whenever they are put in place, and the second seed's outputs as they are judged. Where even
that leaves too little for an implementation's call, nothing is held.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from pairbench.errors import DeclarationError
from pairbench.execute.protocol import HARNESS_LACKED
from pairbench.execute.worker.calls import SEEDS, free_bytes, release_memory, why_invalid
from pairbench.execute.worker.guard import explain, is_charged, is_out_of_memory
from pairbench.execute.worker.trees import copy_inputs, copy_tree, leaves, named_tensors, tensors, with_replaced
from pairbench.execute.worker.verify.case import (
    ExpectedOutputs,
    References,
    baseline_outputs,
    oracle_or_why,
    oracle_outputs,
    verify_entry,
    why_useless,
)
from pairbench.execute.worker.verify.judge import same_outputs
from pairbench.model.case import Case
from pairbench.model.operator import Operator
from pairbench.model.outcome import Status, Verification
from pairbench.model.plan import Entry

_PLENTY = 20
"""Times the size of the inputs that verification may need: inputs and outputs of both seeds with their float64 copies, if outputs are as large as inputs."""

_LONG_S, _COPIES = 1.0, 4  # seconds from which made inputs are kept, if the host has free memory for so many copies
_COPIED_BYTES_A_S = 7e8  # bytes a second that are copied from a GPU to pinned host memory: 8.6 GB took 12 s on an H200

Make = Callable[[Case, int], dict[str, Any]]


def is_short(inputs: dict[str, Any], device: torch.device) -> bool:
    return _PLENTY * sum(tensor.nbytes for tensor in named_tensors(inputs).values()) > free_bytes(device)


def sparing_references(operator: Operator, case: Case, make: Make, *, bare: bool) -> tuple[References, str | None]:
    """Return the references of both seeds, and why the outputs cannot tell right from wrong, or None; if `bare`, nothing is held, and there is no oracle."""
    make = _remembered(make)

    def reference(seed: int, outputs: Any = None, oracle: Any = None) -> ExpectedOutputs:
        make_inputs = functools.partial(make, case, seed)
        expect = lambda: baseline_outputs(operator, make_inputs())  # noqa: E731
        return ExpectedOutputs(make=make_inputs, outputs=outputs, oracle=oracle, oracle_missing=missing, expect=expect)

    missing: str | None = "no oracle: out of memory beside what the implementation needs"
    oracle = useless = outputs = None
    if not bare:
        oracle, missing = _oracle(operator, case, make)
        outputs = baseline_outputs(operator, make(case, SEEDS[0]))
        other = baseline_outputs(operator, make(case, SEEDS[1]))
        if _extents(outputs) & _extents(other):  # the baseline gives the same memory each time
            outputs = copy_tree(baseline_outputs(operator, make(case, SEEDS[0])))
        elif same_outputs(outputs, other):
            both = reference(SEEDS[0], outputs), reference(SEEDS[1], other)
            useless = why_useless(operator, case, both, ())
    return (reference(SEEDS[0], outputs, oracle), reference(SEEDS[1])), useless


def less_held(operator: Operator, case: Case, make: Make, *, bare: bool) -> tuple[References, str | None]:
    """Return the result of `sparing_references`, bare where memory runs out otherwise."""
    try:
        return sparing_references(operator, case, make, bare=bare)
    except BaseException as error:
        if bare or not is_out_of_memory(error):
            raise
    release_memory()
    return sparing_references(operator, case, make, bare=True)


class Held:
    """The references of a case, of which less is held once memory has run out."""

    def __init__(self, operator: Operator, case: Case, device: torch.device, both: References, make: Make) -> None:
        self.references = both
        self._operator, self._device = operator, device
        self._less = functools.partial(less_held, operator, case, make)

    def verify(self, entry: Entry) -> Verification:
        """Verify an entry, or skip it where it is not valid, with as much held as leaves memory for it. Memory that the harness lacks is not charged to the entry."""
        variant = self._operator.implementations[entry.implementation]
        if variant.valid is not None and (why := why_invalid(variant, self.references[0].inputs)):
            return Verification(entry=entry, status=Status.SKIPPED, reason=why)
        while True:
            try:
                return verify_entry(self._operator, entry, self.references, self._device)
            except BaseException as error:
                nothing_held = self.references[0].outputs is None
                if not is_out_of_memory(error) or (nothing_held and is_charged(error)):
                    raise
                if nothing_held:
                    reason = f"{HARNESS_LACKED}: {explain(error)[1]}"
                    return Verification(entry=entry, status=Status.SKIPPED, reason=reason)
                bare = self.references[0].sparing
            self.references = ()
            release_memory()
            self.references = self._less(bare=bare)[0]


def _remembered(make: Make) -> Make:
    """Return a `Make` that keeps inputs which take long to make in the host's memory, where that has room."""
    kept = dict[tuple[Case, int], tuple[Any, dict[int, torch.device]]]()

    def made(case: Case, seed: int) -> dict[str, Any]:
        if (found := kept.get((case, seed))) is not None:
            held, devices = found
            copied: dict[str, Any] = copy_inputs(held, device=lambda tensor: devices.get(id(tensor), tensor.device))
            return copied
        began = time.perf_counter()
        inputs, host = make(case, seed), torch.device("cpu")
        took_s = time.perf_counter() - began
        size = sum(tensor.nbytes for tensor in named_tensors(inputs).values())
        if took_s >= max(_LONG_S, size / _COPIED_BYTES_A_S) and _COPIES * size < free_bytes(host):
            held = copy_inputs(inputs, device=lambda _: host)
            places = named_tensors(inputs)
            kept[case, seed] = held, {id(one): places[path].device for path, one in named_tensors(held).items()}
        return inputs

    return made


def _extents(outputs: Any) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors(outputs) if tensor.numel()}


def _oracle(operator: Operator, case: Case, make: Make) -> tuple[Any | None, str | None]:
    """Return the float64 outputs for the first seed, in slices where they do not fit as a whole, or why there are none."""
    oracle, missing = oracle_or_why(operator, make(case, SEEDS[0]))
    if oracle is not None or missing is None or "out of memory" not in missing:
        return oracle, missing
    if operator.batched is None:
        return None, f"{missing}; batched= names the axis along which it may be computed in slices"
    axes = dict(case.axes)
    size, slices = int(str(axes[operator.batched])), 1
    while slices < size:
        slices = min(2 * slices, size)
        try:
            return _in_slices(operator, case, make, size, slices), None
        except BaseException as error:
            if not is_out_of_memory(error):
                return None, f"no oracle: in slices along {operator.batched!r}: {explain(error)[1]}"
        release_memory()
    return None, f"{missing}, in slices of one along {operator.batched!r} as well"


def _in_slices(operator: Operator, case: Case, make: Make, size: int, slices: int) -> dict[str, Any]:
    """Return the float64 outputs by path, computed slice by slice; a DeclarationError says that inputs or outputs do not run along the axis as a batch does."""
    axes = [tuple({**dict(case.axes), operator.batched or "": count}.items()) for count in (1, 2)]
    few = [make(replace(case, axes=one), SEEDS[0]) for one in axes]
    of_inputs = _dimensions(*map(named_tensors, few))
    of_outputs = _dimensions(*(dict(leaves(oracle_outputs(operator, inputs))) for inputs in few))
    inputs, whole, step = make(case, SEEDS[0]), dict[str, Any](), -(-size // slices)
    found = named_tensors(inputs)
    for begin in range(0, size, step):
        length = min(step, size - begin)
        parts = {id(found[path]): found[path].detach().narrow(axis, begin, length) for path, axis in of_inputs.items()}
        part = with_replaced(inputs, parts)
        for path, piece in leaves(oracle_outputs(operator, part)):
            if (axis := of_outputs.get(path)) is None:
                raise DeclarationError(f"output {path!r} does not run along {operator.batched!r}")
            if path not in whole:
                shape = [*piece.shape[:axis], size, *piece.shape[axis + 1 :]]
                whole[path] = torch.empty(shape, dtype=piece.dtype, device=piece.device)
            whole[path].narrow(axis, begin, length).copy_(piece)
    return whole


def _dimensions(one: dict[str, Any], two: dict[str, Any]) -> dict[str, int]:
    """Return, by path, the dimension along which a tensor has size 1 for a batch of one, and 2 for a batch of two."""
    found = dict[str, int]()
    for path, tensor in one.items():
        shapes = (tuple(tensor.shape), tuple(two[path].shape)) if isinstance(tensor, torch.Tensor) else ((), ())
        axes = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if sizes[0] != sizes[1]]
        if len(axes) > 1 or any((shapes[0][axis], shapes[1][axis]) != (1, 2) for axis in axes):
            both = f"{list(shapes[0])} and {list(shapes[1])}"
            raise DeclarationError(f"{path!r} has the shapes {both} for one and two along it")
        found |= dict.fromkeys([path] if axes else [], *axes)
    return found
