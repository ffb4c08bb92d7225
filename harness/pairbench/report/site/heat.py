"""The heat map of an operator: a row for each case in each mode, a column for each variant, and in a cell the speedup."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pairbench.model.case import TIERS
from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE
from pairbench.model.site import SeriesFacts
from pairbench.report import units
from pairbench.report.case_labels import case_labels
from pairbench.report.charts.speedup import state_of
from pairbench.report.site.operator_payload import implementations, series_id

_STEPS = 5
"""Number of shades on either side of 1x."""
_LARGEST = math.log(8)
"""The logarithm of the speedup from which the shade is the strongest."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One variant in one case and mode."""

    text: str
    """The speedup, a dash where the variant was skipped, or the status where it came to nothing."""
    shade: int
    """Shade from -5 for much slower over 0 for 1x to 5 for much faster; 0 where there is no speedup."""
    state: str
    """State of the speedup: faster, slower, open or none."""
    host_bound: bool
    id: str
    """Id of its series, which leads to its trend."""
    title: str
    """All that the cell says, for those who point at it or do not see colours."""


@dataclass(frozen=True, kw_only=True)
class HeatRow:
    """A case in a mode."""

    tier: str
    label: str
    mode: str
    case: str
    cells: tuple[Cell | None, ...]
    """A cell for each variant; None where it was never planned."""


@dataclass(frozen=True, kw_only=True)
class Heat:
    """The whole map, the cases that count most first."""

    variants: tuple[str, ...]
    rows: tuple[HeatRow, ...]
    modes: bool
    """Whether there are several modes."""
    tiers: bool
    """Whether there are several tiers."""


def heat_map(series: Sequence[SeriesFacts]) -> Heat | None:
    """Return the heat map of an operator on a device model; None where it has no variant."""
    variants = tuple(name for name in implementations(series) if name != BASELINE)
    if not variants:
        return None
    labels = {one.case: (place, one.label) for place, one in enumerate(case_labels(series))}
    groups: dict[tuple[str, str], dict[str, SeriesFacts]] = {}
    for one in series:
        if one.series.implementation != BASELINE:
            groups.setdefault((one.series.case, one.series.mode), {})[one.series.implementation] = one
    rows = [
        HeatRow(
            tier=next(iter(group.values())).tier,
            label=labels[case][1],
            mode=mode,
            case=case,
            cells=tuple(_cell(group[name]) if name in group else None for name in variants),
        )
        for (case, mode), group in groups.items()
    ]
    rows.sort(key=lambda row: (-_rank(row.tier), row.mode != "eager", row.mode, labels[row.case][0]))
    return Heat(
        variants=variants,
        rows=tuple(rows),
        modes=len({row.mode for row in rows}) > 1,
        tiers=len({row.tier for row in rows}) > 1,
    )


def _rank(tier: str) -> int:
    return TIERS.index(tier) if tier in TIERS else -1


def _cell(one: SeriesFacts) -> Cell:
    speedup, low, high = (one.numbers.get(name, math.nan) for name in ("speedup", "speedup_low", "speedup_high"))
    state = state_of(speedup, low, high)
    if one.status == Status.SKIPPED:
        text, title = "–", f"skipped: {one.reason or 'no reason was stored'}"  # noqa: RUF001
    elif one.status != Status.MEASURED:
        text, title = one.status, f"{one.status}: {one.reason or 'no reason was stored'}"
    elif state == "none":
        text, title = "?", one.texts.get("withheld") or "measured, but the baseline was not"
    else:
        text = units.ratio(speedup)
        ends = units.ratio_range(low, high)
        told = {"faster": "faster", "slower": "slower", "open": "not shown either way"}[state]
        title = f"{text}, {f'{ends}, ' if ends else ''}{told}"
    bound = one.texts.get("bound") == "host"
    return Cell(
        text=text,
        shade=0 if state == "none" else _shade(speedup),
        state=state,
        host_bound=bound,
        id=series_id(one),
        title=f"{title}; host-bound" if bound else title,
    )


def _shade(speedup: float) -> int:
    part = min(abs(math.log(speedup)) / _LARGEST, 1.0) if speedup > 0 else 1.0
    return int(math.copysign(math.ceil(part * _STEPS - 0.05) if part > 0.01 else 0, math.log(speedup)))
