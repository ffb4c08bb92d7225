"""The tolerance audit: deliberately wrong outputs must be rejected, or the tolerance is worth nothing."""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from pairbench.execute.worker.calls import bound, make_call, synchronize
from pairbench.execute.worker.guard import explain
from pairbench.execute.worker.training import arguments
from pairbench.execute.worker.trees import copy_inputs, copy_tree, dtype_name, leaves, refill
from pairbench.execute.worker.verify.case import ExpectedOutputs, References, baseline_outputs, is_small
from pairbench.execute.worker.verify.distance import by_output
from pairbench.execute.worker.verify.judge import aligned, clearly_wrong, judge, same_outputs
from pairbench.model.case import OUTPUT_GRADIENTS, Case, gradient_of
from pairbench.model.operator import Operator
from pairbench.model.outcome import ImpostorResult

_CHUNK = 1 << 24
_LEAST_TAIL = 8  # elements: a single one may be next to zero by chance, so that zero is right


def audit_automatic(operator: Operator, reference: ExpectedOutputs) -> list[ImpostorResult]:
    """Judge the baseline's own outputs, each spoilt in every way of a broken kernel, by the tolerance alone: the oracle rule would reject them too, and hide a loose tolerance."""
    right = {path: leaf for path, leaf in leaves(reference.outputs) if isinstance(leaf, torch.Tensor)}
    by, known, rounding = operator.tolerance_for, reference.known, _left_by_rounding(operator, reference)
    groups = by_output([(path, path) for path in right])
    spoilt = (
        (spoilt[0][0], path, dict(zip(places, (wrong for _, wrong in spoilt), strict=True)))
        for path, places in groups.items()
        if path not in rounding
        for spoilt in zip(*(_spoilt(right[place]) for place in places), strict=True)
        # Random elements, and indices of equal values, may be as right in another order.
        if not (spoilt[0][0].startswith("shifted") and (operator.draws or by(dtype_name(right[places[0]]), path).ties))
    )
    wrongs = ((name, path, {path: wrong}) for name, path, wrong in _wrong_gradients(operator, reference))
    results = []
    for name, path, wrong in itertools.chain(spoilt, wrongs):
        alone = {place: right[place] for place in wrong}  # the other outputs would be right
        why = clearly_wrong(wrong, alone, by, known) or judge(wrong, alone, None, by, known).mismatch
        if why or not same_outputs(wrong, alone):  # zeros for an output that is zero is no impostor
            results.append(_result(f"{name}{_where(list(groups), path)}", False, why))
    return results


def audit_other_inputs(
    operator: Operator, case: Case, references: References, more: Iterable[dict[str, Any]]
) -> ImpostorResult | None:
    """Judge the baseline's outputs for other inputs as those of the first reference: an implementation gives them that always returns the same.

    The oracle counts: the mean loss of many random rows hardly varies, and only its error tells. Small outputs may be alike by chance, so they are accepted only if those
    for `more` inputs are, too. None where these outputs are right.
    """
    first, second = references
    name = "the output for other inputs"
    meant = operator.draws or operator.accepts_constant or case.tier == "edge"
    if meant or second.outputs is None or same_outputs(first.inputs, second.inputs):
        return None
    paths, rounding = {path for path, _ in leaves(first.outputs)}, _left_by_rounding(operator, first)
    if same_outputs(first.outputs, second.outputs) or paths <= rounding:
        return None
    if not rounding and (why := clearly_wrong(second.outputs, first.outputs, operator.tolerance_for, first.known)):
        return _result(name, False, why)
    made = (baseline_outputs(operator, inputs) for inputs in more)
    others = itertools.chain([second.outputs], made if is_small(first.outputs) else ())
    by = first.oracle, operator.tolerance_for, first.known
    verdicts = (judge(wrong, first.outputs, *by).mismatch for wrong in others)
    return _result(name, False, next(filter(None, verdicts), None))


def _left_by_rounding(operator: Operator, reference: ExpectedOutputs) -> set[str]:
    """Return the paths of outputs that rounding alone leaves, of which zeros, any order and those for other inputs are right."""
    outputs = list(leaves(reference.outputs))
    truths = {} if reference.oracle is None else dict(aligned(outputs, reference.oracle))
    return {
        path
        for path, leaf in outputs
        if isinstance(leaf, torch.Tensor)
        and reference.known.left_by_rounding(leaf, truths.get(path), operator.tolerance_for(dtype_name(leaf), path))
    }


def _where(paths: list[str], path: str) -> str:
    if name := gradient_of(path):
        return f" as gradient of {name}"
    return f" of output {paths.index(path)}" if len(paths) > 1 else ""


def _wrong_gradients(operator: Operator, reference: ExpectedOutputs) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Yield the mistakes that only gradients have: that of another input, and one that the output's gradient does not scale."""
    if operator.direction not in ("bwd", "fwd_bwd"):
        return
    right = {path: leaf for path, leaf in leaves(reference.outputs) if gradient_of(path)}
    ones = {path: torch.ones_like(given) for path, given in reference.inputs[OUTPUT_GRADIENTS].items()}
    alike = copy_inputs({**reference.inputs, OUTPUT_GRADIENTS: ones})
    unscaled = dict(leaves(copy_tree(baseline_outputs(operator, alike))))
    for path in right:
        yield "not scaled by the output's gradient", path, unscaled[path]
    for path, other in itertools.permutations(right, 2):
        if right[other].shape == right[path].shape and right[other].dtype == right[path].dtype:
            yield f"the gradient of {gradient_of(other)}", path, right[other]


def _spoilt(right: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    if right.numel() == 0:
        return
    yield "zeros", torch.zeros_like(right)
    if right.is_floating_point():
        yield "mean", torch.full_like(right, _mean(right.detach()))
    for axis in range(right.dim()):
        if right.shape[axis] > 1:
            yield f"shifted by one along axis {axis}", right.roll(1, axis)
    tail = right.flatten().clone()
    tail[-max(1, min(_LEAST_TAIL, tail.numel() // 2), tail.numel() // 64) :] = 0
    yield "tail left unwritten", tail.reshape(right.shape)


def _mean(tensor: torch.Tensor) -> float:
    """Return the mean of the elements that are not NaN, in float64 without a copy of all."""
    pieces = tensor.reshape(-1).split(_CHUNK)
    count = sum(int((~piece.isnan()).sum()) for piece in pieces)
    return float(sum(piece.double().nansum() for piece in pieces)) / count if count else math.nan


def audit_declared(operator: Operator, name: str, references: References, device: torch.device) -> ImpostorResult:
    """Run a declared impostor on every seed, unless its `valid` calls it right in this case; one rejection is enough, for one that caches is right the first time."""
    if operator.direction in ("fwd", "bwd"):  # one that is wrong only the other way is right here
        elsewhere = "tried in the direction fwd_bwd, which judges outputs and gradients"
        return ImpostorResult(impostor=name, declared=True, rejected=False, reason=elsewhere, tried=False)
    impostor = operator.impostors[name]
    inputs = copy_inputs(references[0].inputs)
    try:
        valid = impostor.valid is None or bound(impostor.valid, arguments(inputs))() is True
    except BaseException as error:
        return _result(name, True, None, f"not tried: its `valid` fails: {explain(error)[1]}")
    if not valid:
        return ImpostorResult(impostor=name, declared=True, rejected=False, reason="not to be tried here", tried=False)
    reason = None
    try:
        call = make_call(operator, impostor, "eager", inputs)
        for reference in references:
            refill(call.shared, reference.inputs)
            call.refill(reference.inputs)
            outputs = call.observe()
            synchronize(device)
            reason = reason or reference.judge(outputs, operator.tolerance_for).mismatch
    except BaseException as error:
        reason = explain(error)[1]
    return _result(name, True, reason)


def _result(name: str, declared: bool, mismatch: str | None, otherwise: str = "") -> ImpostorResult:
    reason = mismatch or otherwise or "accepted: it is within the tolerance, which so cannot tell right from wrong"
    return ImpostorResult(impostor=name, declared=declared, rejected=mismatch is not None, reason=reason)
