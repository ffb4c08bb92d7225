"""Random outputs: how undeclared ones are detected, and how those of `Tolerance(random=...)` are judged, by mean and variance over calls."""

import math
import re
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import torch

from pairbench.execute.worker.modules import TransparentMode

Draws = Sequence[torch.Tensor]
_Value = Callable[[torch.Tensor], torch.Tensor]

DRAW = "draw"
_PREFIX = re.compile(rf"{DRAW} \d+\.?")
_ALPHA = 1e-7  # chance that right outputs of one entry are refused on the inputs of one seed
_FEW, _PART = 3, 0.01
"""Number and part of the elements of a single draw that may be far outside of the baseline's range."""


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
    tests: list[tuple[str, Callable[[Draws], _Value], torch.Tensor]] = [
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


def _moments(draws: Draws, value_of: _Value) -> tuple[torch.Tensor, torch.Tensor]:
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


def _out_of_range(mine: torch.Tensor, theirs: Draws) -> str | None:
    low = high = theirs[0].detach().double()
    for draw in theirs[1:]:
        low, high = low.minimum(draw.detach()), high.maximum(draw.detach())
    reach = (high - low) / 2
    outside = int((~((mine >= low - reach) & (mine <= high + reach)) & ~(mine.isnan() & low.isnan())).sum())
    if outside <= max(_FEW, _PART * mine.numel()):
        return None
    return f"is far outside of what {len(theirs)} calls of the baseline give in {outside} of {mine.numel()} elements"
