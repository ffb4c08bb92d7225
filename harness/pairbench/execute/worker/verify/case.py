"""Verifies that an entry's outputs are within tolerance of the baseline's, before it may be timed."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from pairbench.execute.worker.calls import Call, bound, make_call
from pairbench.execute.worker.devices import synchronize
from pairbench.execute.worker.dispatch import TransparentMode
from pairbench.execute.worker.faults import SuiteFaultError, explain, is_out_of_memory
from pairbench.execute.worker.flags import changed_flags, restore_flags, watched_flags
from pairbench.execute.worker.graphs import CaptureError, Replay, memory_of_graphs
from pairbench.execute.worker.training import accumulated
from pairbench.execute.worker.trees import (
    about_changed_inputs,
    changed_inputs,
    copy_tree,
    distinct,
    has_room,
    leaves,
    refill,
    tensors,
    upcast_tree,
)
from pairbench.execute.worker.verify.compiled import compilations, forget_compilations
from pairbench.execute.worker.verify.judge import Known, OutputVerdict, dtype_name, judge, same_outputs, worst
from pairbench.model.case import SAVED, Case
from pairbench.model.operator import Operator, Variant
from pairbench.model.outcome import Correctness, Status, Verification
from pairbench.model.plan import Entry
from pairbench.model.tolerance import Tolerance

_EMPTY = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}
_SMALL = 1024
"""Elements up to which outputs may be the same for two seeds by chance, as the index of the largest of a few."""
_HANDED_BACK = 32 << 20
"""Size in bytes above which freed blocks of the host's memory go back to the kernel; those that come next are zero."""


@dataclass(frozen=True, kw_only=True)
class ExpectedOutputs:
    """The expected outputs of one case for one seed."""

    inputs: dict[str, Any]
    """The inputs by name. They are never given to an implementation; implementations get copies."""
    outputs: Any
    oracle: Any | None
    oracle_missing: str | None
    """Why there is no oracle; None where there is one."""
    known: Known = field(default_factory=Known)
    """What was found of the outputs by themselves, and of how far they are off the oracle."""

    def judge(self, outputs: Any, tolerance_for: Callable[[str, str], Tolerance]) -> OutputVerdict:
        """Judge what was computed of these inputs."""
        return judge(outputs, self.outputs, self.oracle, tolerance_for, self.known)


def make_expected(operator: Operator, inputs: dict[str, Any]) -> ExpectedOutputs:
    """Compute the expected outputs for these inputs: the baseline's and the oracle's."""
    outputs = copy_tree(make_call(operator, operator.baseline, "eager", copy_tree(inputs)).observe())
    _synchronize_all()
    oracle, missing = oracle_or_why(operator, inputs)
    return ExpectedOutputs(inputs=inputs, outputs=outputs, oracle=oracle, oracle_missing=missing)


def oracle_or_why(operator: Operator, inputs: dict[str, Any]) -> tuple[Any | None, str | None]:
    """Return the float64 outputs to judge by, or why there are none.

    Raises:
        BaseException: what the operator's own oracle raised, memory apart: the suite is at fault.
    """
    try:
        oracle = _oracle_outputs(operator, inputs)
        _synchronize_all()
    except BaseException as error:
        if not is_out_of_memory(error) and operator.oracle is not None:
            raise
        return None, f"no oracle: {explain(error)[1]}"
    return oracle, None


def _oracle_outputs(operator: Operator, inputs: dict[str, Any]) -> Any:
    exact = upcast_tree(inputs)
    if operator.oracle is None or operator.direction:
        judge_by = Variant(operator.oracle) if operator.oracle else operator.baseline
        return make_call(operator, judge_by, "eager", exact).observe()
    if callable(operator.reset):
        bound(operator.reset, {name: exact[name] for name in operator.state})()
    outputs = bound(operator.oracle, exact)()
    return {"output": outputs, "state": {name: exact[name] for name in operator.state}} if operator.state else outputs


def why_anything_passes(
    operator: Operator, case: Case, references: tuple[ExpectedOutputs, ...], more: Iterable[dict[str, Any]]
) -> str | None:
    """Return why the outputs cannot tell right from wrong, or None: there are none, or they are the same whatever the inputs are.

    Args:
        operator: At the case.
        case: One in the tier `edge` may be so small that there is one answer.
        references: For each seed.
        more: Further inputs, for small outputs may be the same by chance.
    """
    first, second = references
    outputs = [leaf for _, leaf in leaves(first.outputs) if leaf is not None]
    if not outputs:
        return (
            "returns nothing to compare, and no state is declared, so anything passes: return the outputs, or name the inputs that a call "
            "writes its results into: state=['out']"
        )
    sizes = [leaf.numel() if isinstance(leaf, torch.Tensor) else 1 for leaf in outputs]
    if operator.accepts_constant or case.tier == "edge" or not any(sizes):
        return None
    if same_outputs(first.inputs, second.inputs) or not same_outputs(first.outputs, second.outputs):
        return None
    if sum(sizes) <= _SMALL:
        for inputs in more:
            if not same_outputs(first.outputs, make_call(operator, operator.baseline, "eager", inputs).observe()):
                return None
    return (
        "the output is the same for all inputs, so anything passes that returns it: have inputs() make inputs on which it depends, or declare "
        "accepts_constant=True if that is meant"
    )


def check_baseline(reference: ExpectedOutputs, tolerance_for: Callable[[str, str], Tolerance]) -> str | None:
    """Return why the baseline itself is wrong by the oracle, or None.

    Its tolerance is for telling variants from it, so it is held to less here: an error of the square root of its
    dtype's epsilon, or of the spacing of TF32 where that is allowed, is far more than rounding leaves, and far less than a broken kernel makes.
    """
    if reference.oracle is None:
        return None
    mine, theirs = tensors(reference.outputs), tensors(reference.oracle)
    if [value.shape for value in mine] != [value.shape for value in theirs]:
        return (
            f"the oracle returns shapes {[list(t.shape) for t in theirs]}, the baseline {[list(t.shape) for t in mine]}"
        )
    for value, truth in zip(mine, theirs, strict=True):
        if not value.is_floating_point() or not value.numel():
            continue
        apart = reference.known.distance(value, truth)
        error = (apart.sum_square / apart.sum_square_reference) ** 0.5 if apart.sum_square_reference else apart.max_abs
        spacing = tolerance_for(dtype_name(value), "").spacing
        allowed = float(max(torch.finfo(value.dtype).eps, spacing) ** 0.5)
        if error > allowed:
            return (
                f"the baseline is wrong: it is off the float64 oracle by {error:.3g} (relative L2), "
                f"where rounding explains less than {allowed:.3g}"
            )
    return None


def verify_entry(
    operator: Operator, variant: Variant, entry: Entry, references: tuple[ExpectedOutputs, ...], device: torch.device
) -> Verification:
    """Run one implementation in one mode and verify what it returns against the baseline and the oracle."""
    flags = watched_flags()
    try:
        verification = _verify(operator, variant, entry, references, device)
        changed = changed_flags(flags)
    finally:  # after what raises too: the next implementation is judged under the same flags
        if changed_flags(flags):
            restore_flags(flags)
    if changed:
        reason = f"changes global flags, which are pinned alike for all: {changed}"
        return Verification(entry=entry, status=Status.FAILED, reason=reason)
    return verification


def _verify(
    operator: Operator, variant: Variant, entry: Entry, references: tuple[ExpectedOutputs, ...], device: torch.device
) -> Verification:
    inputs = copy_tree(references[0].inputs)
    if entry.mode == "compile":
        forget_compilations()
    started = time.perf_counter_ns()
    try:
        call = make_call(operator, variant, entry.mode, inputs)
        outputs = call.observe()
    except CaptureError as error:
        reason = f"cannot be captured as a CUDA graph: {error}"
        return Verification(
            entry=entry, status=Status.SKIPPED, reason=reason, capturable=False, uncapturable=str(error)
        )
    synchronize(device)
    first_call_ns = time.perf_counter_ns() - started
    if paths := changed_inputs(_without(references[0].inputs, operator.state), _without(inputs, operator.state)):
        return _mismatched(entry, about_changed_inputs(paths))
    written = call.overwritten()
    reused = _Reused(call, outputs)
    verdicts = list(_verdicts(operator, call, outputs, references, device, reused))
    written |= call.overwritten()
    del outputs  # what comes needs the memory
    compilation = compilations() if entry.mode == "compile" else None
    correctnesses = [item.correctness for item in verdicts if item.correctness]
    correctness = worst(correctnesses) if correctnesses else None
    if wrong := next((item.mismatch for item in verdicts if item.mismatch), None):
        unasked = f" ({references[0].oracle_missing})" if references[0].oracle_missing else ""
        return _mismatched(entry, wrong + unasked + accumulated(call.shared), correctness)
    tried = device.type == "cuda"
    uncapturable = _uncapturable(call) if tried and entry.mode != "graph" else None
    return Verification(
        entry=entry,
        status=Status.VERIFIED,
        reason="; ".join(
            filter(None, [references[0].oracle_missing or _strays(verdicts), _unwritten(operator, call, written)])
        )
        or None,
        correctness=correctness,
        first_call_ns=float(first_call_ns),
        uncapturable=uncapturable,
        capturable=uncapturable is None if tried else None,
        compilation=compilation,
        reuses_output=reused.found if entry.mode != "graph" else None,
    )


class _Reused:
    """Whether calls return memory that the first one returned, whose outputs are held meanwhile.

    Memory of arguments and what is prepared of them may be returned by each call: it is the caller's. So may nothing at all.
    """

    def __init__(self, call: Call, outputs: Any) -> None:
        self._of_state = bool(call.operator.state)
        given = tensors([call.shared, call.kwargs, call.given])
        arguments = [_whole(tensor) for tensor in given if _has_address(tensor)]
        self._held = [extent for extent in self._extents(outputs) if not _overlap(extent, arguments)]
        self.found = False

    def look(self, outputs: Any) -> None:
        """Look at the outputs of a later call."""
        self.found |= any(_overlap(extent, self._held) for extent in self._extents(outputs))

    def _extents(self, observed: Any) -> list[tuple[int, int]]:
        returned = tensors(observed["output"] if self._of_state and observed is not None else observed)
        return [_extent(tensor) for tensor in returned if _has_address(tensor) and tensor.numel()]


def _has_address(tensor: torch.Tensor) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_meta


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return a tensor's address range: the address of its first byte, and the address after its last byte."""
    length = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + length * tensor.element_size()


def _whole(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the address range of a tensor's whole storage."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _overlap(extent: tuple[int, int], others: list[tuple[int, int]]) -> bool:
    begin, end = extent
    return any(begin < other_end and other_begin < end for other_begin, other_end in others)


def _verdicts(
    operator: Operator,
    call: Call,
    outputs: Any,
    references: tuple[ExpectedOutputs, ...],
    device: torch.device,
    reused: "_Reused",
) -> Iterator[OutputVerdict]:
    """Yield verdicts on runs in the orders that expose unwritten memory, reused buffers and cached outputs.

    Args:
        outputs: Of the first call, with the first reference's inputs.
        reused: Is shown the outputs of the others.
    """
    first, second = references

    def run(reference: ExpectedOutputs) -> Any:
        """Run on poisoned memory, from the reference's own state."""
        poison_freed(reference.outputs)
        if isinstance(call.run, Replay):
            for tensor in filter(memory_of_graphs(), tensors(call.run.outputs)):
                poison(tensor)
        if not (refill(call.shared, reference.inputs) and call.refill(reference.inputs)):
            raise SuiteFaultError(
                Status.FAILED, "inputs() gives other shapes or dtypes for another seed; a case is one shape"
            )
        # Read by a copy behind the call in its own stream: what another stream has yet to write is not in it.
        observed = call.observe()
        reused.look(observed)
        outputs = _copied(observed)
        synchronize(device)
        return outputs

    again = make_call(operator, operator.baseline, "eager", call.shared).observe()
    del again  # the next call might be given this memory, with the right outputs in it, and leave it unwritten
    once = _copied(outputs)
    of_first = first.judge(once, operator.tolerance_for)
    yield of_first

    def judged(outputs: Any) -> OutputVerdict:
        """Judge another call on the first inputs; most give the same to the bit, and need not be judged anew."""
        # Outputs that could not be copied may be what later calls write to.
        alike = once is not outputs and same_outputs(outputs, once)
        return of_first if alike else first.judge(outputs, operator.tolerance_for)

    yield judged(run(first))
    if call.training and operator.direction == "bwd" and not call.training.once:
        if call.consumed:
            call.reset()
        verdict = judged(_copied(call.run()))
        again_why = (
            f"its second backward over one graph, which is retained, gives something else; it leaves what was saved alone, or declares "
            f"consumes=({SAVED!r},) if its caller goes through a graph once: "
        )
        yield replace(verdict, mismatch=again_why + verdict.mismatch) if verdict.mismatch else verdict
    if call.mode == "eager":
        with PoisonEmpty():
            outputs = run(first)
        yield judged(outputs)
    yield second.judge(run(second), operator.tolerance_for)


def _copied(outputs: Any) -> Any:
    plain = all(type(tensor) in (torch.Tensor, torch.nn.Parameter) for tensor in tensors(outputs))
    return copy_tree(outputs) if plain and has_room(outputs) else outputs


def _strays(verdicts: list[OutputVerdict]) -> str | None:
    most = max(item.strays for item in verdicts)
    if not most:
        return None
    return f"elements beyond the tolerance to the baseline that the float64 oracle finds right: {most}"


def _unwritten(operator: Operator, call: Call, written: set[str]) -> str | None:
    """Return a sentence on inputs that no call overwrites although that is declared; a backward may, which `fwd` has not."""
    names = ", ".join(repr(name) for name in call.consumed if name not in written)
    return f"consumes names {names}, which no call writes" if names and operator.direction != "fwd" else None


def _uncapturable(call: Call) -> str | None:
    try:
        replay = call.capture()
        replay.before()
        replay()
        torch.cuda.synchronize()
    except CaptureError as error:
        return str(error)
    return None


def _without(inputs: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if name not in names}


def _mismatched(entry: Entry, reason: str, correctness: Correctness | None = None) -> Verification:
    return Verification(entry=entry, status=Status.MISMATCHED, reason=reason, correctness=correctness)


def _synchronize_all() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


class PoisonEmpty(TransparentMode):
    """Fills every tensor from `torch.empty` and its kin with NaN, or the largest integer, while it is active."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _EMPTY and isinstance(result, torch.Tensor) and result.device.type != "meta":
            poison(result)
        return result


def poison(tensor: torch.Tensor) -> None:
    """Overwrite a tensor with NaN, True, or the largest integer of its dtype; elements that share memory once."""
    with torch.no_grad():
        tensor = distinct(tensor)
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.fill_(float("nan"))
        elif tensor.dtype == torch.bool:
            tensor.fill_(True)
        else:
            tensor.fill_(torch.iinfo(tensor.dtype).max)


def poison_freed(like: Any, copies: int = 3) -> None:
    """Leave freed blocks of the outputs' sizes full of 0xFF behind, which the allocator hands to the next call."""
    blocks = [
        torch.full((max(1, tensor.nbytes),), 0xFF, dtype=torch.uint8, device=tensor.device)
        for tensor in tensors(like)
        if tensor.device.type != "cpu" or tensor.nbytes <= _HANDED_BACK
        for _ in range(copies)
    ]
    del blocks
