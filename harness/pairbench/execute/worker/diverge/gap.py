"""How far two trees of tensors are apart, by an operator's tolerance: tensors in, numbers out."""

import math
from collections.abc import Iterable
from typing import Any

import torch

from pairbench.execute.worker.trees import leaves
from pairbench.execute.worker.verify.distance import distance, find_beyond, resolve_tolerance
from pairbench.execute.worker.verify.judge import dtype_name
from pairbench.model.divergence import Gap
from pairbench.model.operator import Operator

Tensors = list[tuple[str, torch.Tensor]]


def tensors_of(tree: Any) -> Tensors:
    """Return the tensors in what a module was given or has returned, by their path."""
    return [(path, leaf.detach()) for path, leaf in leaves(tree) if isinstance(leaf, torch.Tensor)]


def size_of(tensors: Tensors) -> tuple[int, int]:
    """Return how many elements and bytes some tensors have."""
    return sum(leaf.numel() for _, leaf in tensors), sum(leaf.numel() * leaf.element_size() for _, leaf in tensors)


def incomparable(mine: Tensors, theirs: Tensors) -> str | None:
    """Return why tensors of a variant cannot be compared with the baseline's, or None."""
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
    """Return how far comparable tensors are from the baseline's, by the rule that holds for outputs.

    Where the variant computes in a lower precision, as one does that leaves casts out, that precision's tolerance holds.
    """
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
    return Gap(
        max_abs=largest,
        rel_l2=math.sqrt(square / reference) if reference else None,
        beyond=outside / max(1, count),
        within=within,
    )


def error_of(mine: Tensors, truth: Tensors) -> float | None:
    """Return the relative L2 error against an oracle; None where the tensors cannot be compared."""
    if incomparable(mine, truth):
        return None
    distances = [distance(value, exact) for (_, value), (_, exact) in zip(mine, truth, strict=True) if exact.numel()]
    reference = sum(item.sum_square_reference for item in distances)
    return math.sqrt(sum(item.sum_square for item in distances) / reference) if reference else None


def is_worse(
    operator: Operator, baseline: float | None, variant: float | None, outputs: Iterable[tuple[str, torch.Tensor]]
) -> bool:
    """Return whether a variant's error is clearly more than the baseline's: the oracle rule, for a whole output."""
    if baseline is None or variant is None:
        return False
    spacings = (max(_eps(leaf), operator.tolerance_for(dtype_name(leaf)).spacing) for _, leaf in outputs)
    return variant > 2 * baseline + max(spacings, default=0.0) / 2


def _eps(tensor: torch.Tensor) -> float:
    return float(torch.finfo(tensor.dtype).eps) if tensor.is_floating_point() or tensor.is_complex() else 0.0
