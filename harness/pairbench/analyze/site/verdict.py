"""One sentence on an operator, in values: how much its best variant gains, and where that variant loses."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pairbench.analyze.site.summary import MAIN, operator_summaries
from pairbench.model.site import OverviewRow, SeriesFacts
from pairbench.stats import Interval


@dataclass(frozen=True, kw_only=True)
class OperatorVerdict:
    """What a reader wants to know first."""

    variant: str
    speedup: Interval
    """Geometric mean over the cases of the group that counts most."""
    row: OverviewRow
    """The group that counts most."""
    losses: tuple[tuple[str, int, int, str], ...]
    """Name of each tier, the cases in which the variant is shown to be slower, all cases, and in words where it loses."""


def operator_verdict(rows: Sequence[OverviewRow], series: Sequence[SeriesFacts]) -> OperatorVerdict | None:
    """Return the verdict on an operator on one device model; None where no variant has a speedup.

    Args:
        rows: its groups.
        series: all its series on that device model.
    """
    found = next(iter(operator_summaries(rows)), None)
    row = found.leading[0] if found is not None else None
    if row is None or row.variant is None or row.speedup is None:
        return None
    own = [one for one in series if one.series.implementation == row.variant and one.series.mode == row.mode]
    known = [one for one in own if "speedup" in one.numbers]
    tiers = [tier for tier in MAIN if any(one.tier == tier for one in known)] or sorted({one.tier for one in known})
    losses = []
    for tier in tiers:
        here = [one for one in known if one.tier == tier]
        losing = [one for one in here if one.numbers.get("speedup_high", 1.0) < 1]
        rest = [one for one in here if one not in losing]
        losses.append((tier, len(losing), len(here), where([one.axes for one in losing], [one.axes for one in rest])))
    return OperatorVerdict(variant=row.variant, speedup=row.speedup, row=row, losses=tuple(losses))


def where(some: Sequence[Mapping[str, object]], others: Sequence[Mapping[str, object]]) -> str:
    """Return what one axis says of some cases and of no others, like `t = 1` or `tokens ≤ 128`; empty where none does."""
    if not some or not others:
        return ""
    axes = Counter(axis for case in (*some, *others) for axis in case)
    for axis in (axis for axis, count in axes.items() if count == len(some) + len(others)):
        inside, outside = [case[axis] for case in some], [case[axis] for case in others]
        if any(value in outside for value in inside):
            continue
        if len({str(value) for value in inside}) == 1:
            return f"{axis} = {inside[0]}"
        numbers = [value for value in (*inside, *outside) if isinstance(value, int | float)]
        if len(numbers) == len(inside) + len(outside):
            own, rest = numbers[: len(inside)], numbers[len(inside) :]
            if max(own) < min(rest):
                return f"{axis} ≤ {max(own)}"
            if min(own) > max(rest):
                return f"{axis} ≥ {min(own)}"
        return f"{axis} is {', '.join(sorted({str(value) for value in inside}))}"
    return ""
