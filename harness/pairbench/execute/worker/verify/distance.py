"""Distances between tensors, element by element and as a whole, in float64 and without a copy of the whole; and random outputs, judged by mean and variance over calls."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pairbench.execute.worker.modules import TransparentMode
from pairbench.model.case import Tolerance
from pairbench.model.plain import Value

_DEFAULTS = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    **dict.fromkeys((torch.float32, torch.complex64), (1.3e-6, 1e-5)),
    **dict.fromkeys((torch.float64, torch.complex128), (1e-7, 1e-7)),
}
"""Defaults of rtol and atol by dtype, as in `torch.testing.assert_close`; outputs of other dtypes must be equal."""
FLOAT32_LIMITS = _DEFAULTS[torch.float32]

AS_EXACT_AS_THE_ORACLE = (torch.float64, torch.complex128)
"""Dtypes of outputs that the oracle rule cannot judge: the oracle rounds as much as they do."""

_STRAY = 1e-4
"""The largest share of an output's elements that may exceed the tolerance to the baseline where the float64 oracle finds them right; one element always may.

Where both sides round on the way, their difference has a tail of elements that lie three spacings apart: 5 of 350 million behind a block of convolutions, 26 of a
million behind a norm that rounds twice.
"""

_FURTHEST = 2.0
"""How many times the tolerance a stray may be off the oracle, and then only as far as the baseline's worst element is.

Roundings of two large values in a small one (a rotation) put one element of a bfloat16 baseline in 200,000 up to 1.9 times beyond it. Twice is what the oracle rule allows.
"""

_CHUNK = 1 << 24  # number of elements compared at once; it bounds the float64 temporaries to a few hundred megabytes


_WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}
_ROUGH = (torch.bfloat16, torch.float16, torch.float32)
"""Dtypes of outputs whose element nearest to its limit is found in float32."""
_ALMOST = 1 - 1e-4
"""An error below this part of the limit is below the limit for certain, when it is computed in a dtype wider than the output's."""
Draws = Sequence[Tensor]
_Value = Callable[[Tensor], Tensor]

DRAW = "draw"
_PREFIX = re.compile(rf"{DRAW} \d+\.?")
_ALPHA = 1e-7  # chance that right outputs of one entry are refused on the inputs of one seed
_FEW, _PART = 3, 0.01  # number and part of a single draw's elements that may be far outside of the baseline's range


class Beyond(Value):
    """The elements of one output that are beyond the tolerance to the baseline."""

    count: int
    strays: int  # how many of these elements are let through, being right by the oracle
    used: float
    """The largest part of the tolerance that any element uses, those let through left out; above 1 is a mismatch."""
    where: int  # flat index of the element that uses the largest part
    equal: bool  # whether each element equals that of the baseline; a NaN equals none

    @property
    def wrong(self) -> int:
        return self.count - self.strays


class Distance(NamedTuple):
    """The distances of one output tensor to another, in the outputs' own unit."""

    max_abs: float
    max_reference: float
    sum_abs: float
    sum_square: float
    sum_square_reference: float


class Limits(NamedTuple):
    """A tolerance resolved for one output: each element may be off by `atol + rtol * |expected|`."""

    rtol: float
    atol: float | Tensor  # one value for the whole output, or one for each row where the tolerance is by row

    def atol_of(self, start: int, stop: int, elements: int) -> float | Tensor:
        """Return the absolute part for the flat indices from `start` to `stop` of an output with so many elements."""
        if not isinstance(self.atol, Tensor):
            return self.atol
        indices = torch.arange(start, stop, device=self.atol.device)
        return self.atol[indices * len(self.atol) // elements]

    def at_least(self, atol: float) -> "Limits":
        wider = self.atol.clamp(min=atol) if isinstance(self.atol, Tensor) else max(self.atol, atol)
        return self._replace(atol=wider)


def resolve_tolerance(expected: Tensor, tolerance: Tolerance) -> Limits:
    """Return the rtol and atol to apply to an output, the RMS part resolved against the baseline's values."""
    default_rtol, default_atol = _DEFAULTS.get(expected.dtype, (0.0, 0.0))
    rtol = default_rtol if tolerance.rtol is None else tolerance.rtol
    atol = default_atol if tolerance.atol is None else tolerance.atol
    if not (tolerance.atol_rms and expected.numel()):
        return Limits(rtol, atol)
    if tolerance.rms_by_row and expected.dim() > 1:
        return Limits(rtol, atol + tolerance.atol_rms * _mean_square_of_rows(expected).sqrt())
    square = math.inf
    if expected.is_floating_point():
        norms = [torch.linalg.vector_norm(piece, dtype=torch.float64) for (piece,) in _pieces(expected)]
        square = sum(norm * norm for norm in _read(*norms))
    if not math.isfinite(square):  # a value that is not finite counts as 0, which takes fifteen passes and not one
        square = sum(_read(*[_square(chunk).sum() for (chunk,) in _chunks(expected)]))
    return Limits(rtol, atol + tolerance.atol_rms * math.sqrt(square / expected.numel()))


def _square(chunk: Tensor) -> Tensor:
    return chunk.abs().nan_to_num(0, 0, 0).square()


def _mean_square_of_rows(expected: Tensor) -> Tensor:
    rows = expected.detach().flatten(end_dim=-2)
    some = max(1, _CHUNK // rows.shape[1])
    device = _judging_device(rows)
    pieces = (rows[start : start + some].to(device) for start in range(0, len(rows), some))
    return torch.cat([_square(_widened(piece)).mean(1) for piece in pieces])


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield aligned pieces in float64 (or complex128), so that no comparison rounds and none needs twice the memory."""
    for pieces in _pieces(*tensors):
        yield tuple(map(_widened, pieces))


def _pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield aligned pieces on the device that compares them, each in its own dtype."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    device = _judging_device(flat[0])
    for start in range(0, flat[0].numel(), _CHUNK):
        yield tuple(tensor[start : start + _CHUNK].to(device) for tensor in flat)


def _judging_device(tensor: Tensor) -> torch.device:
    """Return where to compare: outputs on the host go to the GPU, where this process has one; a host takes minutes for a video."""
    on_host = tensor.device.type == "cpu" and torch.cuda.is_initialized()
    return torch.device("cuda") if on_host else tensor.device


def _widened(piece: Tensor) -> Tensor:
    return piece.to(torch.complex128 if piece.is_complex() else torch.float64)


Own = Callable[[], Beyond]  # returns the count of the baseline's own elements that are beyond the limit to the truth


def find_beyond(
    value: Tensor, expected: Tensor, truth: Tensor | None, allowed: Limits, *, own: Own | None = None, elements: int = 0
) -> Beyond:
    """Count the elements beyond the limit to the baseline, and the strays among them: few, and within the limit to the truth, or beyond it no further and no more often than the baseline's.

    `own` returns the count of the baseline's elements beyond the limit to the truth, if it is known. `elements` is the size of the output if the tensors are a part of it.
    """
    if truth is None or not _strays_possible(value, truth):
        return tally(value, expected, None, allowed)
    beyond = tally(value, expected, truth, allowed)
    if beyond.count > max(1, _STRAY * (elements or value.numel())):
        return tally(value, expected, None, allowed) if beyond.strays else beyond
    if not beyond.wrong:
        return beyond
    theirs = own() if own else tally(expected, truth, None, allowed)
    if not theirs.count:
        return beyond
    as_exact = tally(value, expected, truth, allowed, reach=min(theirs.used, _FURTHEST))
    return as_exact if as_exact.strays - beyond.strays <= theirs.count else beyond


def wrong_at_the_end(value: Tensor, expected: Tensor, allowed: Limits) -> tuple[int, int] | None:
    """Return how many of how many last elements of a large tensor are beyond their limit, if these alone are more than strays may be in all of it; None says nothing."""
    mine, theirs = (tensor.detach().reshape(-1)[-_CHUNK:] for tensor in (value, expected))
    if value.numel() <= len(mine) or isinstance(allowed.atol, Tensor):
        return None
    count = tally(mine, theirs, None, allowed).count
    return (count, len(mine)) if count > _STRAY * value.numel() else None


def clearly_within(value: Tensor, expected: Tensor, allowed: Limits) -> bool:
    """Return whether each element of two plain tensors of one form is so far within its limit that no rounding can pretend it; False says nothing.

    Ten times as quick as `find_beyond`: nothing is counted, and only pieces with an element beyond half its limit are widened.
    """
    return next(_doubtful(value, expected, allowed), None) is None


def within_but_strays(value: Tensor, expected: Tensor, truth: Tensor, allowed: Limits, own: Own) -> bool:
    """Return whether `find_beyond` finds nothing wrong in two plain tensors of one form; False says nothing. As quick as `clearly_within`, where few elements are not clearly within their limit."""
    if not _strays_possible(value, truth):
        return False
    elements, found = value.numel(), list[Tensor]()
    for places in _doubtful(value, expected, allowed):
        found.append(places)
        if sum(map(len, found)) > max(1, _STRAY * elements):
            return False
    if not found:
        return True
    at = torch.cat(found)
    if isinstance(allowed.atol, Tensor):
        allowed = allowed._replace(atol=allowed.atol[at * len(allowed.atol) // elements])
    mine, theirs, exact = (tensor.detach().reshape(-1)[at] for tensor in (value, expected, truth))
    return not find_beyond(mine, theirs, exact, allowed, own=own, elements=elements).wrong


def _doubtful(value: Tensor, expected: Tensor, allowed: Limits) -> Iterator[Tensor]:
    """Yield the flat indices of each piece's elements that are not clearly within their limit; nothing of pieces without."""
    mine, theirs = value.detach().reshape(-1), expected.detach().reshape(-1)
    wider = _WIDER.get(value.dtype)
    if mine.numel() > _CHUNK and wider is not None and not isinstance(allowed.atol, Tensor):
        # Mostly no element is off by half of the absolute limit, which takes a third of the time and one wait. A NaN is less than nothing.
        pieces = zip(mine.split(_CHUNK), theirs.split(_CHUNK), strict=True)
        furthest = torch.stack([torch.linalg.vector_norm(one - other, math.inf) for one, other in pieces])
        if float(furthest.amax()) < allowed.atol / 2:
            return
    for start in range(0, mine.numel(), _CHUNK):
        left, right = mine[start : start + _CHUNK], theirs[start : start + _CHUNK]
        near = left == right
        if value.is_floating_point():
            atol = allowed.atol_of(start, start + left.numel(), mine.numel())
            # Less, not equal: the limit of an infinity is infinite, and so is its difference to any number.
            near |= (left - right).abs_() < right.abs().mul_(allowed.rtol / 2).add_(atol / 2)
        if bool(near.all()):
            continue
        if wider is not None:
            left, right = left.to(wider), right.to(wider)
            limit = right.abs().mul_(allowed.rtol).add_(atol).mul_(_ALMOST)
            near |= left.sub_(right).abs_() < limit
        if len(places := near.logical_not_().nonzero()):
            yield start + places.squeeze(1)


def _strays_possible(value: Tensor, truth: Tensor) -> bool:
    rounds = value.is_floating_point() and value.dtype not in AS_EXACT_AS_THE_ORACLE
    return rounds and truth.shape == value.shape


def tally(value: Tensor, expected: Tensor, truth: Tensor | None, allowed: Limits, reach: float = 1.0) -> Beyond:
    """Count the elements beyond the limit to what is expected; those within `reach` limits of the truth, where it is given, as strays."""
    count, strays, used, where, start, equal = 0, 0, 0.0, 0, 0, True
    against = (value, expected) if truth is None else (value, expected, truth)
    for pieces in _pieces(*against):
        first, start = start, start + len(pieces[0])
        mine, theirs = pieces[:2]
        # One pass, where comparing within limits takes ten.
        if mine.dtype == theirs.dtype and torch.equal(mine, theirs):
            continue
        equal = False
        atol = allowed.atol_of(first, start, value.numel())
        if (largest := _largest_part(mine, theirs, allowed.rtol, atol)) is None:
            mine, theirs, *true = map(_widened, pieces)
            # Equal infinities and NaNs differ by nothing; unequal ones by infinity.
            same = (mine == theirs) | (mine.isnan() & theirs.isnan())
            difference = torch.where(same, 0.0, (mine - theirs).abs()).nan_to_num(math.inf, math.inf)
            if value.dtype == torch.int64:
                # float64 holds 53 of its bits; where the others differ, it is by one at least.
                difference = torch.where(pieces[0] != pieces[1], difference.clamp(min=1.0), 0.0)
            limit = atol + allowed.rtol * theirs.abs().nan_to_num(0, 0, 0)
            part = torch.where(difference == 0, 0.0, difference / limit)
            beyond = difference > limit
            here, *largest = _read(beyond.sum(), *part.max(0))
            count += int(here)
            for exact in true if here else ():
                stray = beyond & ((mine - exact).abs() <= reach * (atol + allowed.rtol * exact.abs()))
                let_through, *largest = _read(stray.sum(), *torch.where(stray, 0.0, part).max(0))
                strays += int(let_through)
        if largest[0] > used:
            used, where = largest[0], first + int(largest[1])
    return Beyond(count=count, strays=strays, used=used, where=where, equal=equal)


def _largest_part(mine: Tensor, theirs: Tensor, rtol: float, atol: float | Tensor) -> list[float] | None:
    """Return the largest part of its limit that any element of a piece uses, and its place; None where one may be beyond, which float64 has to tell."""
    if mine.dtype not in _ROUGH or theirs.dtype != mine.dtype:
        return None
    left, right = mine.float(), theirs.float()
    most, at = (left - right).abs_().div_(right.abs().mul_(rtol).add_(atol)).max(0)
    one, other = mine[at].double(), theirs[at].double()
    exactly = (one - other).abs() / ((atol[at] if isinstance(atol, Tensor) else atol) + rtol * other.abs())
    roughly, part, place = _read(most, exactly, at)
    return [part, place] if roughly < _ALMOST else None  # of a NaN or an infinity no part is less


def _read(*values: Tensor) -> list[float]:
    """Return single values with one wait for the device: where several processes share a GPU, each wait is for the others' work too."""
    return torch.stack([value.double() for value in values]).tolist()


def distance(value: Tensor, truth: Tensor) -> Distance:
    """Return the distances of a tensor to a reference in float64; elements that are not finite in both are left out."""
    if not value.numel():
        return Distance(0.0, 0.0, 0.0, 0.0, 0.0)
    found = _distance(value, truth)
    return found if all(map(math.isfinite, found[:2])) else _distance(value, truth, finite=True)


def _distance(value: Tensor, truth: Tensor, *, finite: bool = False) -> Distance:
    """Return the distances of elements `finite` in both alone, which takes twice as long, or of all."""
    found = list[Tensor]()
    for mine, reference in _chunks(value, truth):
        difference, magnitude = (mine - reference).abs(), reference.abs()
        if finite:
            kept = mine.isfinite() & reference.isfinite()
            difference, magnitude = (torch.where(kept, one, 0.0) for one in (difference, magnitude))
        squares = [torch.dot(one, one) for one in (difference, magnitude)]
        found.append(torch.stack([difference.max(), magnitude.max(), difference.sum(), *squares]))
    columns = torch.stack(found)
    return Distance(*_read(*columns[:, :2].amax(0), *columns[:, 2:].sum(0)))


def output_spacing(magnitude: float, dtype: torch.dtype, least: float = 0.0) -> float:
    """Return the gap between neighbouring numbers of a dtype at a magnitude, no less than a part of it (a power of two)."""
    info = torch.finfo(dtype)
    if magnitude < info.tiny:
        return info.tiny * info.eps
    return float(max(info.eps, least) * 2.0 ** math.floor(math.log2(magnitude)))


def is_drawn(paths: Sequence[str]) -> bool:
    """Return whether these are the paths of outputs of several calls."""
    return bool(paths) and all(_PREFIX.match(path) for path in paths)


def by_output(found: Sequence[tuple[str, Any]]) -> dict[str, list[Any]]:
    """Return the leaves of several calls' outputs, or those of one call, by the path within one."""
    drawn = is_drawn([path for path, _ in found])
    grouped = dict[str, list[Any]]()
    for path, leaf in found:
        grouped.setdefault(_PREFIX.sub("", path, count=1) if drawn else path, []).append(leaf)
    return grouped


class SeenRandom(TransparentMode):
    """Keeps the name of the first operator of torch's that draws random numbers."""

    name = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.name and torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            self.name = func.overloadpacket.__name__
        return func(*args, **(kwargs or {}))


def off_the_distribution(mine: Draws, theirs: Draws, rtol: float, atol: float) -> str | None:
    """Return how draws differ from the baseline's, in words that follow the output's name, or None.

    Welch's tests compare mean and variance of each element over the calls, and of the mean of all elements; together they refuse right outputs once in ten million
    times. A single draw is held to the baseline's range alone.
    """
    if len(mine) == 1:
        return _out_of_range(mine[0].detach().double(), theirs)
    center, variance = _moments(theirs, lambda x: x)
    slack = atol + rtol * center.abs()
    width = 2 * slack * variance.sqrt() + slack**2
    tests: list[tuple[str, Callable[[Draws], _Value], Tensor]] = [
        ("mean", lambda _: lambda x: x, slack),
        ("variance", lambda draws: _squared(draws, lambda x: x), width),
        ("mean of all elements", lambda _: torch.mean, slack.mean()),
        ("variance of all elements", lambda draws: _squared(draws, lambda x: x, torch.mean), width.mean()),
        ("variance of the mean of all elements", lambda draws: _squared(draws, torch.mean), width.mean()),
    ]
    limit = _students(_ALPHA / (2 * center.numel() + 3), len(mine) + len(theirs) - 2)
    for what, value_of, allowed in tests:
        (ours, our_variance), (right, variance) = (_moments(draws, value_of(draws)) for draws in (mine, theirs))
        off = (ours - right).abs()
        most = limit * (our_variance / len(mine) + variance / len(theirs)).sqrt() + allowed
        wrong = ~((off <= most) | (ours == right) | (ours.isnan() & right.isnan()))
        if bool(wrong.any()):
            where = int(torch.where(wrong, (off / most.clamp(min=1e-300)).nan_to_num(math.inf), -1.0).argmax())
            place = f", the worst at {[int(i) for i in np.unravel_index(where, ours.shape)]}" if ours.dim() else ""
            some = f" in {int(wrong.sum())} of {wrong.numel()} elements" if ours.dim() else ""
            got, wanted = (f"{one.reshape(-1)[where].item():.6g}" for one in (ours, right))
            over = f"than the baseline's over {len(mine)} calls"
            return f"has another {what} {over}{some}{place}: {got} instead of {wanted}"
    return None


def _squared(draws: Draws, value_of: _Value, reduce: _Value = lambda x: x) -> _Value:
    """Return the squared distance of a value from its mean over these draws, reduced, so that its own mean over them is their variance."""
    center, part = _moments(draws, value_of)[0], len(draws) / (len(draws) - 1)
    return lambda x: reduce((value_of(x) - center) ** 2 * part)


def _moments(draws: Draws, value_of: _Value) -> tuple[Tensor, Tensor]:
    origin = value_of(draws[0].detach().double())
    total, square = torch.zeros_like(origin), torch.zeros_like(origin)
    for draw in draws:
        apart = value_of(draw.detach().double()) - origin
        total += apart
        square += apart * apart
    mean = total / len(draws)
    return origin + mean, ((square / len(draws) - mean**2) * len(draws) / (len(draws) - 1)).clamp(min=0)


def _students(chance: float, freedom: int) -> float:
    """Return the two-sided quantile of Student's t, by the first terms of its expansion around the normal one."""
    z = -NormalDist().inv_cdf(chance / 2)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _out_of_range(mine: Tensor, theirs: Draws) -> str | None:
    low = high = theirs[0].detach().double()
    for draw in theirs[1:]:
        low, high = low.minimum(draw.detach()), high.maximum(draw.detach())
    reach = (high - low) / 2
    outside = int((~((mine >= low - reach) & (mine <= high + reach)) & ~(mine.isnan() & low.isnan())).sum())
    if outside <= max(_FEW, _PART * mine.numel()):
        return None
    return f"is far outside of what {len(theirs)} calls of the baseline give in {outside} of {mine.numel()} elements"
