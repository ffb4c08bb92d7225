"""Judges whether outputs are within tolerance of the baseline's and the oracle's. Tensors in, numbers out."""

import functools
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairbench.errors import DeclarationError
from pairbench.execute.worker.judge.plain import output_name, refused
from pairbench.execute.worker.trees import dtype_name, leaves, same_bits, tensors
from pairbench.execute.worker.verify import distance as distances
from pairbench.execute.worker.verify.distance import by_output, distance, is_drawn, off_the_distribution
from pairbench.model.case import EXACT, Tolerance
from pairbench.model.outcome import Correctness
from pairbench.model.plain import Value

_LARGE, _DRAWN = 1 << 22, 1 << 18  # elements beyond which an output is large, and elements that are drawn of it
_PLAIN = (Tensor, torch.nn.Parameter)
_PLAIN_VALUES = (bool, int, float, complex, str)
ToleranceFor = Callable[[str, str], Tolerance]  # of an output, by dtype and path
_PLAIN_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ROUNDINGS, _ZERO = 16, 4096
"""Roundings of the largest input that may be left of an output whose exact value is 0, and roundings in float64 up to which the oracle's value counts as 0."""


class OutputVerdict(Value):
    """The verdict on one implementation's outputs: distances to baseline and oracle, and the mismatch if there is one."""

    mismatch: str | None
    correctness: Correctness | None
    strays: int = 0  # elements beyond the tolerance to the baseline that were let through, being right by the oracle


class Known:
    """Results on a baseline's outputs, computed once for all that are judged by them. The outputs must not change meanwhile."""

    def __init__(self, inputs: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None) -> None:
        self.resolve = functools.cache(distances.resolve_tolerance)
        self.distance = functools.cache(distance)
        # The baseline's elements that are beyond the limit to the oracle.
        self.own = functools.cache(lambda expected, truth, allowed: distances.tally(expected, truth, None, allowed))
        self._made = inputs

    @functools.cached_property
    def inputs(self) -> Mapping[str, Any]:
        return (self._made() if callable(self._made) else self._made) or {}

    @functools.cached_property
    def _terms(self) -> float:
        floats = [tensor for tensor in tensors(self.inputs) if tensor.is_floating_point() and tensor.numel()]
        return max((float(tensor.detach().abs().max()) for tensor in floats), default=0.0)

    def left_by_rounding(self, expected: Tensor, truth: Tensor | None, tolerance: Tolerance) -> float:
        """Return how far an output may be off that rounding alone or mostly leaves: its exact values are 0, or less than a declared `atol`. 0.0 for all others."""
        if truth is None or tolerance == EXACT or not expected.is_floating_point() or truth.shape != expected.shape:
            return 0.0
        apart = self.distance(expected, truth)
        spacing = max(torch.finfo(expected.dtype).eps, tolerance.spacing)
        if apart.sum_square <= spacing * apart.sum_square_reference:
            return 0.0
        if tolerance.atol and tolerance.has_atol:
            return tolerance.atol if apart.max_reference <= tolerance.atol else 0.0
        is_zero = apart.max_reference <= _ZERO * torch.finfo(torch.float64).eps * self._terms
        return _ROUNDINGS * spacing * self._terms if is_zero else 0.0

    def with_ties(self, value: Tensor, expected: Tensor, tolerance: Tolerance) -> Tensor:
        """Return indices as the baseline gives them wherever both point at equal values of the input that `ties` names; unchanged where one is out of range, or repeats as none of the baseline's does."""
        if tolerance.ties is None or expected.is_floating_point() or expected.is_complex() or value.dtype == torch.bool:
            return value
        name, *along = (tolerance.ties,) if isinstance(tolerance.ties, str) else tolerance.ties
        pointed = self.inputs.get(name)
        if not isinstance(pointed, Tensor):
            known = ", ".join(self.inputs)
            raise DeclarationError(f"ties names {name!r}, expected a tensor among the inputs ({known})")
        axis = _axis_of(expected, pointed, *along)
        if axis is None:
            indices = f"indices of the shape {list(expected.shape)} do not point along one axis"
            what = f"{name!r} of the shape {list(pointed.shape)}, into which {indices}"
            raise DeclarationError(f"ties names {what}; ties=({name!r}, axis) says along which")
        pointed = pointed.detach() if expected.dim() else pointed.detach().reshape(-1)
        both = (value.long(), expected.long())
        mine, theirs = (one if one.dim() == pointed.dim() else one.unsqueeze(axis) for one in both)
        if bool(((mine < 0) | (mine >= pointed.shape[axis])).any()) or _repeats(mine, axis) > _repeats(theirs, axis):
            return value
        ours, wanted = pointed.gather(axis, mine), pointed.gather(axis, theirs)
        tied = (ours == wanted) | (ours.isnan() & wanted.isnan())
        return torch.where(tied.reshape(value.shape), expected, value)


def _axis_of(indices: Tensor, pointed: Tensor, along: int | None = None) -> int | None:
    """Return the axis of a tensor along which indices point into it, the last of those that fit; None where none does."""
    if not indices.dim():
        return 0
    shape, axes = list(pointed.shape), range(pointed.dim())
    fits = [
        axis
        for axis in (axes if along is None else [along % max(1, pointed.dim())])
        if list(indices.shape)
        in (shape[:axis] + shape[axis + 1 :], shape[:axis] + list(indices.shape[axis : axis + 1]) + shape[axis + 1 :])
    ]
    return fits[-1] if fits else None


def _repeats(indices: Tensor, axis: int) -> bool:
    return bool((indices.sort(axis).values.diff(dim=axis) == 0).any())


def judge(
    outputs: Any, baseline: Any, oracle: Any | None, tolerance_for: ToleranceFor, known: Known | None = None
) -> OutputVerdict:
    """Judge outputs by the baseline's, element by element, and by the oracle's in float64, as a whole; None leaves the oracle rule out."""
    known = known or Known()
    if why := refused(outputs):
        return _mismatch(why)
    theirs = list(leaves(baseline))
    if is_drawn([path for path, _ in theirs]):
        return _judge_draws(by_output(list(leaves(outputs))), by_output(theirs), tolerance_for, known)
    mine = aligned(theirs, outputs)
    if [path for path, _ in mine] != [path for path, _ in theirs]:
        return _mismatch(f"returns {_structure(mine)}, the baseline returns {_structure(theirs)}")
    truths = [leaf for _, leaf in aligned(theirs, oracle)] if oracle is not None else [None] * len(mine)
    verdicts = list[OutputVerdict]()
    for (path, value), (_, expected), truth in zip(mine, theirs, truths, strict=True):
        name = output_name(path)
        if isinstance(value, Tensor) and isinstance(expected, Tensor):
            if why := _not_plain(value, expected):
                return _mismatch(f"{name} is {why}")
            verdict = _judge_tensor(name, value, expected, truth, tolerance_for(dtype_name(expected), path), known)
        elif type(value) is type(expected) and isinstance(value, float | complex):
            verdict = _judge_number(name, value, expected, tolerance_for("float32", path), known)
        elif type(value) is not type(expected) or value != expected:
            return _mismatch(f"{name} is {_short(value)}, the baseline's is {_short(expected)}")
        else:
            continue
        verdicts.append(verdict)
        if verdict.mismatch:
            return OutputVerdict(mismatch=verdict.mismatch, correctness=worst(verdicts))
    return OutputVerdict(mismatch=None, correctness=worst(verdicts), strays=sum(one.strays for one in verdicts))


def _judge_draws(
    mine: dict[str, list[Any]], theirs: dict[str, list[Any]], tolerance_for: ToleranceFor, known: Known
) -> OutputVerdict:
    """Judge outputs of several calls, or of one: random ones by their distribution, and all others as ever, call by call."""
    if list(mine) != list(theirs):
        return _mismatch(f"returns {', '.join(mine)[:80]}, the baseline returns {', '.join(theirs)[:80]}")
    for path, right in theirs.items():
        first = right[0]
        tolerance = tolerance_for(dtype_name(first), path) if isinstance(first, Tensor) else Tolerance()
        for value in mine[path]:
            if not tolerance.random:
                verdict = judge({path: value}, {path: first}, None, tolerance_for, known)
                if verdict.mismatch:
                    return verdict
            elif not _alike(value, first):
                forms = [
                    f"{_short(one)} of the shape {list(one.shape)}" if isinstance(one, Tensor) else _short(one)
                    for one in (value, first)
                ]
                return _mismatch(f"{output_name(path)} is {forms[0]}, the baseline's is {forms[1]}")
        if tolerance.random:
            allowed = known.resolve(first, tolerance)
            atol = float(allowed.atol_of(0, 1, first.numel()))
            if why := off_the_distribution(mine[path], right, allowed.rtol, atol):
                return _mismatch(f"{output_name(path)} {why}")
    return OutputVerdict(mismatch=None, correctness=None)


def aligned(theirs: list[tuple[str, Any]], outputs: Any) -> list[tuple[str, Any]]:
    """Return the leaves of outputs in the order of others with the same paths: dicts whose keys come in another order are the same."""
    places = {path: place for place, (path, _) in enumerate(theirs)}
    found = list(leaves(outputs))
    if len(found) != len(places) or any(path not in places for path, _ in found):
        return found
    return sorted(found, key=lambda item: places[item[0]])


def clearly_right(outputs: Any, baseline: Any, tolerance_for: ToleranceFor, known: Known) -> bool:
    """Return whether outputs are so near to the baseline's that `judge` without an oracle cannot find anything wrong; False says nothing."""
    return _each(functools.partial(_is_clear, known=known), outputs, baseline, tolerance_for)


def clearly_wrong(outputs: Any, baseline: Any, tolerance_for: ToleranceFor, known: Known) -> str | None:
    """Return why large outputs are wrong by their last elements alone, whatever an oracle says; None says nothing."""
    for path, value, expected in _paired(outputs, baseline) or ():
        if _alike(value, expected) and value.is_floating_point():
            tolerance = tolerance_for(dtype_name(expected), path)
            allowed = known.resolve(expected, tolerance)
            if not tolerance.random and (found := distances.wrong_at_the_end(value, expected, allowed)):
                return f"{output_name(path)} differs from the baseline's in {found[0]} of its last {found[1]} elements"
    return None


def strays_right(outputs: Any, baseline: Any, oracle: Any, tolerance_for: ToleranceFor, known: Known) -> bool:
    """Return whether each element is within the tolerance to the baseline, or a stray that the oracle shows to be right; False says nothing. The oracle rule is left out."""
    pairs, truths = _paired(outputs, baseline), _paired(oracle, baseline)
    if pairs is None or truths is None:
        return False
    for (path, value, expected), (_, truth, _) in zip(pairs, truths, strict=True):
        if not _alike(value, expected) or not isinstance(truth, Tensor):
            return False
        tolerance = tolerance_for(dtype_name(expected), path)
        allowed = known.resolve(expected, tolerance)
        own = functools.partial(known.own, expected, truth, allowed)
        if tolerance.rel_l2 is not None or not distances.within_but_strays(value, expected, truth, allowed, own):
            return False
    return True


def _paired(outputs: Any, baseline: Any) -> list[tuple[str, Any, Any]] | None:
    """Return path and both values of each leaf of two calls' outputs; None where their paths differ."""
    theirs = list(leaves(baseline))
    mine = aligned(theirs, outputs)
    if [path for path, _ in mine] != [path for path, _ in theirs]:
        return None
    return [(path, value, expected) for (path, value), (_, expected) in zip(mine, theirs, strict=True)]


def clear_by_draw(outputs: Any, baseline: Any, tolerance_for: ToleranceFor) -> bool:
    """Return whether outputs are near to the baseline's in randomly drawn elements: 26 are wrong if a call leaves out a ten-thousandth. False means that `judge` has to compare all, which takes long."""
    return _each(_is_clear_by_draw, outputs, baseline, tolerance_for)


def _each(is_clear: Callable[..., bool], outputs: Any, baseline: Any, tolerance_for: ToleranceFor) -> bool:
    """Return whether outputs are of the baseline's form, and each is clear by its tolerance."""
    pairs = _paired(outputs, baseline)
    return pairs is not None and all(
        _alike(value, expected) and is_clear(value, expected, tolerance_for(dtype_name(expected), path))
        for path, value, expected in pairs
    )


def _is_clear_by_draw(value: Tensor, expected: Tensor, tolerance: Tolerance) -> bool:
    if tolerance.rel_l2 is not None or value.dtype not in _PLAIN_FLOATS:
        return False
    if value.numel() > _LARGE:
        generator = torch.Generator(value.device).manual_seed(secrets.randbits(63))
        index = torch.randint(value.numel(), (_DRAWN,), generator=generator, device=value.device)
        value, expected = (tensor.detach().reshape(-1)[index] for tensor in (value, expected))
    rtol, atol = distances.resolve_tolerance(expected, replace(tolerance, atol_rms=0.0, rms_by_row=False))
    limit = expected.abs() * rtol + atol
    if tolerance.atol_rms and not tolerance.rms_by_row:
        limit += tolerance.atol_rms * expected.float().nan_to_num(0, 0, 0).square().mean().sqrt()
    # Half of the limit, so that neither rounding nor the RMS of a part can pretend it; in the output's own precision, for the kernels of another
    # one take 50 ms to load in each process. An infinite limit says nothing.
    near = (value == expected) | (((value - expected).abs() < limit / 2) & limit.isfinite())
    return bool(near.all())


def same_outputs(one: Any, other: Any) -> bool:
    """Return whether two calls' outputs are equal to the bit; False for tensors that are not dense, and for objects that are neither tensors nor plain values."""
    pairs = _paired(one, other)
    return pairs is not None and all(
        (_alike(value, like) and same_bits(value, like)) or _same_plain(value, like) for _, value, like in pairs
    )


def furthest(one: Any, other: Any) -> float:
    """Return the largest difference between elements of two calls' outputs; infinity where they are not of one form."""
    found = [
        distance(value, like).max_abs
        if isinstance(value, Tensor) and isinstance(like, Tensor) and value.shape == like.shape
        else 0.0
        if _same_plain(value, like)
        else math.inf
        for _, value, like in _paired(one, other) or ()
    ]
    return max(found, default=math.inf)


def _same_plain(value: Any, like: Any) -> bool:
    return type(value) is type(like) and (value is None or isinstance(value, _PLAIN_VALUES)) and value == like


def _is_clear(value: Tensor, expected: Tensor, tolerance: Tolerance, known: Known) -> bool:
    # The part of the limit that depends on all of the output takes a pass over it in float64, and most are clear without.
    alone = replace(tolerance, atol_rms=0.0, rms_by_row=False)
    near = distances.clearly_within(value, expected, known.resolve(expected, alone)) or (
        tolerance.atol_rms > 0 and distances.clearly_within(value, expected, known.resolve(expected, tolerance))
    )
    return near and (tolerance.rel_l2 is None or _off_as_a_whole(value, expected, tolerance.rel_l2) is None)


def _alike(value: Any, expected: Any) -> bool:
    """Return whether both are plain dense tensors of one shape, dtype and device."""
    if not (type(value) in _PLAIN and type(expected) in _PLAIN) or _not_plain(value, expected):
        return False
    kinds = [(one.shape, one.dtype, one.device, one.layout) for one in (value, expected)]
    return kinds[0] == kinds[1] and value.layout is torch.strided


def _not_plain(value: Tensor, expected: Tensor) -> str | None:
    """Return what an output is besides a tensor that holds its values, or None: a lazy computation would be timed as nothing."""
    kind = type(value)
    if kind not in _PLAIN and not (kind is type(expected) and kind.__module__.startswith("torch.")):
        return f"a {kind.__qualname__}, expected a plain torch.Tensor: one of another kind may compute when it is read, or lie about itself"
    for lazy, word in (("is_conj", "conjugated"), ("is_neg", "negated")):
        if getattr(value, lazy)() and not getattr(expected, lazy)():
            return f"a view that is {word} only when it is read, where the baseline's holds its values; use resolve_{lazy[3:]}()"
    return None


def _mismatch(reason: str) -> OutputVerdict:
    return OutputVerdict(mismatch=reason, correctness=None)


def _short(value: Any) -> str:
    return f"a {dtype_name(value)} tensor" if isinstance(value, Tensor) else repr(value)[:80]


def _structure(outputs: list[tuple[str, Any]]) -> str:
    return "nothing" if not outputs else ", ".join(path or "one value" for path, _ in outputs[:6])


def _judge_tensor(
    name: str, value: Tensor, expected: Tensor, truth: Tensor | None, tolerance: Tolerance, known: Known
) -> OutputVerdict:
    if value.shape != expected.shape:
        return _mismatch(f"{name} has the shape {list(value.shape)}, the baseline's has {list(expected.shape)}")
    if value.dtype != expected.dtype:
        return _mismatch(f"{name} is {dtype_name(value)}, the baseline's is {dtype_name(expected)}")
    if value.device != expected.device:
        return _mismatch(f"{name} is on {value.device}, the baseline's is on {expected.device}")
    value = known.with_ties(value, expected, tolerance)
    allowed, left = known.resolve(expected, tolerance), known.left_by_rounding(expected, truth, tolerance)
    if left:
        allowed = allowed.at_least(left)
    own = functools.partial(known.own, expected, truth, allowed)
    beyond = distances.find_beyond(value, expected, truth, allowed, own=own)
    # A NaN in one of both is beyond every limit, and right by no oracle.
    if beyond.wrong and (nans := _nan_difference(value, expected)) is not None:
        return _mismatch(f"{name} {nans}")
    rtol, atol = allowed.rtol, float(allowed.atol_of(beyond.where, beyond.where + 1, value.numel()))
    ratio, errors = _oracle_ratio(value, expected, truth, tolerance, known, left, beyond.equal)
    fraction = beyond.count / max(1, value.numel())
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
        margin=1.0 - beyond.used,
    )
    if beyond.wrong:
        where = beyond.where
        # Not torch's function of the same name, which imports SymPy: 1.3 s for every worker that verifies.
        index = [int(place) for place in np.unravel_index(where, tuple(value.shape))]
        got, wanted = value.flatten()[where].item(), expected.flatten()[where].item()
        part = f"{beyond.count} of {value.numel()} elements ({fraction:.2%}) beyond rtol {rtol:.3g} and atol {atol:.3g}"
        form = ".6g" if f"{got:.6g}" != f"{wanted:.6g}" else ""
        farthest = f"the worst, at {index}, is {got:{form}} instead of {wanted:{form}}"
        mismatch = f"{name} differs from the baseline's in {part}; {farthest}"
        return OutputVerdict(mismatch=mismatch, correctness=correctness)
    limit = tolerance.rel_l2
    wrong = _off_the_oracle(ratio) if limit is None else _off_as_a_whole(value, expected, limit)
    why = wrong and f"{name} is within the tolerance, but {wrong}"
    return OutputVerdict(mismatch=why, correctness=correctness, strays=beyond.strays)


def _judge_number(name: str, value: Any, expected: Any, tolerance: Tolerance, known: Known) -> OutputVerdict:
    """Judge a number of Python's by the tolerance of float32: it came out of some tensor, whose dtype nobody knows."""
    if tolerance.rtol is None:
        tolerance = replace(tolerance, rtol=distances.FLOAT32_LIMITS[0], atol=distances.FLOAT32_LIMITS[1])
    wide = torch.complex128 if isinstance(value, complex) else torch.float64
    mine, theirs = (torch.tensor(one, dtype=wide) for one in (value, expected))
    return _judge_tensor(name, mine, theirs, None, tolerance, known)


def _off_as_a_whole(value: Tensor, expected: Tensor, limit: float) -> str | None:
    apart = distance(value, expected)
    square, reference = apart.sum_square, apart.sum_square_reference
    relative = math.sqrt(square / reference) if reference else math.inf if square else 0.0
    if relative <= limit:
        return None
    return f"off the baseline's by {relative:.3g} as a whole (relative L2), where {limit:.3g} is allowed"


def _off_the_oracle(ratio: float | None) -> str | None:
    if ratio is None or ratio <= 2:
        return None
    off = f"is {ratio:.3g} times the baseline's (half an output spacing added)"
    rule = "the oracle rule allows 2 (where less precision is meant, Tolerance(rel_l2=...) says how much)"
    return f"its largest error against the float64 oracle {off}; {rule}"


def _nan_difference(value: Tensor, expected: Tensor) -> str | None:
    if not (value.is_floating_point() or value.is_complex()):
        return None
    split = (tensor.detach().reshape(-1).split(_LARGE) for tensor in (value, expected))
    pieces = ((one.isnan(), other.isnan()) for one, other in zip(*split, strict=True))
    # One wait for the device, not one for each piece.
    counts = [torch.stack([one.sum(), other.sum(), (one ^ other).sum()]) for one, other in pieces]
    mine, theirs, apart = torch.stack(counts).sum(0).tolist()
    if not apart:
        return None
    return f"has NaN in {mine} of {value.numel()} elements, the baseline's in {theirs}, {apart} of them in other places"


def _oracle_ratio(
    value: Tensor, expected: Tensor, truth: Tensor | None, tolerance: Tolerance, known: Known, left: float, equal: bool
) -> tuple[float | None, distances.Distance | None]:
    if truth is None or value.numel() == 0:
        return None, None
    mine = known.distance(expected, truth) if equal else distance(value, truth)
    if not (value.is_floating_point() or value.is_complex()) or value.dtype in distances.AS_EXACT_AS_THE_ORACLE:
        return None, mine
    theirs = known.distance(expected, truth)
    spacing = distances.output_spacing(mine.max_reference, value.dtype, tolerance.spacing)
    return mine.max_abs / (theirs.max_abs + max(spacing / 2, left)), mine


def worst(verdicts: Iterable[OutputVerdict]) -> Correctness | None:
    """Return the worst of each number over several outputs, seeds or runs, with the tolerance of the least margin; None without any."""
    several = [verdict.correctness for verdict in verdicts if verdict.correctness]
    if not several:
        return None
    names = ("max_abs_error", "mean_abs_error", "rel_l2_error", "oracle_ratio", "mismatched_fraction")
    known = {name: [value for item in several if (value := getattr(item, name)) is not None] for name in names}
    largest: dict[str, Any] = {name: max(values, default=None) for name, values in known.items()}
    return replace(min(several, key=lambda item: item.margin), **largest)
