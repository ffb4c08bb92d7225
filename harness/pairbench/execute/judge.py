"""Whether one implementation's outputs are another's, and how far off they are: tensors in, numbers out."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pairbench.execute.trees import leaves
from pairbench.model.outcome import Correctness
from pairbench.model.tolerance import Tolerance

_DEFAULTS = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
"""rtol and atol of `torch.testing.assert_close`; every other dtype must be equal. A test holds them to torch's."""

_AS_EXACT_AS_THE_ORACLE = (torch.float64, torch.complex128)
"""Outputs that the oracle rule cannot judge: the oracle rounds as much as they do."""

_CHUNK = 1 << 24
"""Elements compared at once: bounds the float64 temporaries to a few hundred megabytes."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How far outputs are from the baseline's and the oracle's, and why they are wrong, if they are."""

    mismatch: str | None
    correctness: Correctness | None


@dataclass(frozen=True, kw_only=True)
class _Distance:
    """Of one output tensor to another."""

    max_abs: float
    sum_abs: float
    sum_square: float
    sum_square_reference: float
    max_reference: float


def judge(
    outputs: Any,
    baseline: Any,
    oracle: Any | None,
    tolerance_for: Callable[[str], Tolerance],
) -> Judgement:
    """Judge outputs by the baseline's, element by element, and by the oracle's, as a whole.

    Args:
        outputs: What the implementation returned.
        baseline: What the baseline returned for the same inputs.
        oracle: The float64 outputs, or None to leave the oracle rule out.
        tolerance_for: The tolerance of an output dtype, by the dtype's name.
    """
    mine, theirs = list(leaves(outputs)), list(leaves(baseline))
    if [path for path, _ in mine] != [path for path, _ in theirs]:
        return _mismatch(f"returns {_structure(mine)}, the baseline returns {_structure(theirs)}")
    truths = [leaf for _, leaf in leaves(oracle)] if oracle is not None else [None] * len(mine)
    worst: Correctness | None = None
    for (path, value), (_, expected), truth in zip(mine, theirs, truths, strict=True):
        name = f"output {path}" if path else "output"
        if not isinstance(value, torch.Tensor) or not isinstance(expected, torch.Tensor):
            if type(value) is not type(expected) or value != expected:
                return _mismatch(f"{name} is {_short(value)}, the baseline's is {_short(expected)}")
            continue
        wrong, found = _judge_tensor(name, value, expected, truth, tolerance_for)
        worst = found if worst is None else _worse(worst, found)
        if wrong:
            return Judgement(mismatch=wrong, correctness=worst)
    return Judgement(mismatch=None, correctness=worst)


def _mismatch(reason: str) -> Judgement:
    return Judgement(mismatch=reason, correctness=None)


def _short(value: Any) -> str:
    return f"a {dtype_name(value)} tensor" if isinstance(value, torch.Tensor) else repr(value)[:80]


def _structure(found: list[tuple[str, Any]]) -> str:
    return "nothing" if not found else ", ".join(path or "one value" for path, _ in found[:6])


def _judge_tensor(
    name: str,
    value: torch.Tensor,
    expected: torch.Tensor,
    truth: torch.Tensor | None,
    tolerance_for: Callable[[str], Tolerance],
) -> tuple[str | None, Correctness | None]:
    if value.shape != expected.shape:
        return f"{name} has the shape {list(value.shape)}, the baseline's has {list(expected.shape)}", None
    if value.dtype != expected.dtype:
        return f"{name} is {dtype_name(value)}, the baseline's is {dtype_name(expected)}", None
    if value.device != expected.device:
        return f"{name} is on {value.device}, the baseline's is on {expected.device}", None
    if (nans := _nan_difference(value, expected)) is not None:
        return f"{name} {nans}", None
    tolerance = tolerance_for(dtype_name(expected))
    rtol, atol = limits(expected, tolerance)
    beyond, used, where = _beyond(value, expected, rtol, atol)
    ratio, errors = _oracle_ratio(value, expected, truth)
    fraction = beyond / max(1, value.numel())
    correctness = Correctness(
        max_abs_error=errors.max_abs if errors else None,
        mean_abs_error=errors.sum_abs / max(1, value.numel()) if errors else None,
        rel_l2_error=math.sqrt(errors.sum_square / errors.sum_square_reference)
        if errors and errors.sum_square_reference > 0
        else None,
        oracle_ratio=ratio,
        mismatched_fraction=fraction,
        rtol=rtol,
        atol=atol,
        margin=1.0 - used,
    )
    if beyond:
        index = [int(i) for i in torch.unravel_index(torch.tensor(where), value.shape)] if value.dim() else []
        got, wanted = value.flatten()[where].item(), expected.flatten()[where].item()
        return (
            f"{name} differs from the baseline's in {beyond} of {value.numel()} elements ({fraction:.2%}) beyond "
            f"rtol {rtol:.3g} and atol {atol:.3g}; the worst, at {index}, is {got:.6g} instead of {wanted:.6g}"
        ), correctness
    if tolerance.rel_l2 is not None:
        wrong = _off_as_a_whole(value, expected, tolerance.rel_l2)
    else:
        wrong = _off_the_oracle(ratio)
    if wrong is not None:
        return f"{name} is within the tolerance, but {wrong}", correctness
    return None, correctness


def dtype_name(tensor: torch.Tensor) -> str:
    """Return a tensor's dtype as suites write it, such as `bfloat16`."""
    return str(tensor.dtype).removeprefix("torch.")


def _off_as_a_whole(value: torch.Tensor, expected: torch.Tensor, limit: float) -> str | None:
    apart = distance(value, expected)
    square, reference = apart.sum_square, apart.sum_square_reference
    relative = math.sqrt(square / reference) if reference else math.inf if square else 0.0
    if relative <= limit:
        return None
    return f"off the baseline's by {relative:.3g} as a whole (relative L2), where {limit:.3g} is allowed"


def _off_the_oracle(ratio: float | None) -> str | None:
    if ratio is None or ratio <= 2:
        return None
    return (
        f"its largest error against the float64 oracle is {ratio:.3g} times the baseline's (half an output spacing added); the "
        "oracle rule allows 2"
    )


def limits(expected: torch.Tensor, tolerance: Tolerance) -> tuple[float, float]:
    """Return the rtol and atol to apply to an output, the RMS part resolved against the baseline's values."""
    default_rtol, default_atol = _DEFAULTS.get(expected.dtype, (0.0, 0.0))
    rtol = default_rtol if tolerance.rtol is None else tolerance.rtol
    atol = default_atol if tolerance.atol is None else tolerance.atol
    if tolerance.atol_rms and expected.numel():
        square = sum(float(chunk.abs().nan_to_num(0, 0, 0).square().sum()) for (chunk,) in _chunks(expected))
        atol += tolerance.atol_rms * math.sqrt(square / expected.numel())
    return rtol, atol


def _chunks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield aligned pieces in float64 (or complex128), so that no comparison rounds and none needs twice the memory."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), _CHUNK):
        pieces = [tensor[start : start + _CHUNK] for tensor in flat]
        yield tuple(piece.to(torch.complex128 if piece.is_complex() else torch.float64) for piece in pieces)


def _nan_difference(value: torch.Tensor, expected: torch.Tensor) -> str | None:
    if not (value.is_floating_point() or value.is_complex()):
        return None
    mine, theirs = value.isnan(), expected.isnan()
    if torch.equal(mine, theirs):
        return None
    return (
        f"has NaN in {int(mine.sum())} of {value.numel()} elements, the baseline's in {int(theirs.sum())}, "
        f"{int((mine ^ theirs).sum())} of them in other places"
    )


def _beyond(value: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> tuple[int, float, int]:
    """Return how many elements are beyond the limit, the largest part of the limit used, and where."""
    count, used, where, start = 0, 0.0, 0, 0
    for mine, theirs in _chunks(value, expected):
        # Equal infinities and NaNs differ by nothing; unequal ones by infinity.
        same = (mine == theirs) | (mine.isnan() & theirs.isnan())
        difference = torch.where(same, 0.0, (mine - theirs).abs()).nan_to_num(math.inf, math.inf)
        if not (value.is_floating_point() or value.is_complex()):
            # float64 holds 53 bits of an integer; where the others differ, it is by one at least.
            piece = slice(start, start + mine.numel())
            unequal = value.reshape(-1)[piece] != expected.reshape(-1)[piece]
            difference = torch.where(unequal, difference.clamp(min=1.0), 0.0)
        limit = atol + rtol * theirs.abs().nan_to_num(0, 0, 0)
        count += int((difference > limit).sum())
        part = torch.where(difference == 0, 0.0, difference / limit)
        at = int(part.argmax())
        if float(part[at]) > used:
            used, where = float(part[at]), start + at
        start += mine.numel()
    return count, used, where


def distance(value: torch.Tensor, truth: torch.Tensor) -> _Distance:
    """Return the distances of a tensor to a reference in float64; elements that are not finite in both are left out."""
    largest = total = square = square_reference = peak = 0.0
    for mine, reference in _chunks(value, truth):
        finite = mine.isfinite() & reference.isfinite()
        difference = torch.where(finite, (mine - reference).abs(), 0.0)
        magnitude = torch.where(finite, reference.abs(), 0.0)
        largest = max(largest, float(difference.max()))
        peak = max(peak, float(magnitude.max()))
        total += float(difference.sum())
        square += float(difference.square().sum())
        square_reference += float(magnitude.square().sum())
    return _Distance(
        max_abs=largest, sum_abs=total, sum_square=square, sum_square_reference=square_reference, max_reference=peak
    )


def _oracle_ratio(
    value: torch.Tensor, expected: torch.Tensor, truth: torch.Tensor | None
) -> tuple[float | None, _Distance | None]:
    if truth is None or value.numel() == 0:
        return None, None
    mine = distance(value, truth)
    if not (value.is_floating_point() or value.is_complex()) or value.dtype in _AS_EXACT_AS_THE_ORACLE:
        return None, mine
    theirs = distance(expected, truth)
    spacing = output_spacing(mine.max_reference, value.dtype)
    return mine.max_abs / (theirs.max_abs + spacing / 2), mine


def output_spacing(magnitude: float, dtype: torch.dtype) -> float:
    """Return the gap between neighbouring numbers of a dtype at a magnitude."""
    info = torch.finfo(dtype)
    if magnitude < info.tiny:
        return info.tiny * info.eps
    return float(info.eps * 2.0 ** math.floor(math.log2(magnitude)))


def _worse(left: Correctness, right: Correctness | None) -> Correctness:
    return left if right is None else worst([left, right])


def worst(found: list[Correctness]) -> Correctness:
    """Return the worst of each number over several outputs, seeds or runs; the tolerance is that of the least margin."""
    tightest = min(found, key=lambda item: item.margin)

    def largest(name: str) -> float | None:
        return max((value for item in found if (value := getattr(item, name)) is not None), default=None)

    return Correctness(
        max_abs_error=largest("max_abs_error"),
        mean_abs_error=largest("mean_abs_error"),
        rel_l2_error=largest("rel_l2_error"),
        oracle_ratio=largest("oracle_ratio"),
        mismatched_fraction=max(item.mismatched_fraction for item in found),
        rtol=tightest.rtol,
        atol=tightest.atol,
        margin=tightest.margin,
    )
