"""The values of a speedup chart, whatever draws it: a row for each variant of a case."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pairbench.model.latency import DEVICE
from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE
from pairbench.model.site import SeriesFacts
from pairbench.report import units
from pairbench.report.comparison.words import shorten
from pairbench.report.labels import case_labels
from pairbench.report.latency_words import AXES

NAN = math.nan
STATES = ("faster", "slower", "open", "none")
"""States of a speedup: its interval lies above 1, below 1, or neither; `none` where there is no speedup."""
_LOG_FROM = 4.0
"""Ratio of the largest to the smallest speedup from which the axis is logarithmic."""
_ROWS = 400
"""Number of rows up to which each has a label; with more, the variants of a case share its row."""


@dataclass(frozen=True, kw_only=True)
class SpeedupPoint:
    """The speedup of a variant in one case and mode."""

    series_index: int
    """Index of the point's series among those that were given."""
    group: int
    """Index of the point's group, a case in a mode."""
    row: float
    """Distance of the point from the top, in rows."""
    variant: str
    speedup: float
    """The speedup over the baseline; NaN where there is none."""
    low: float
    """Lower end of the 95 % interval; NaN where it is not known."""
    high: float
    """Upper end of the 95 % interval; NaN where it is not known."""
    state: str
    """State of the speedup, one of STATES."""
    note: str
    """Why there is no speedup; empty where there is one."""


@dataclass(frozen=True, kw_only=True)
class SpeedupChart:
    """Points in the order in which they are to be read, a group of rows for each case in each mode."""

    title: str
    subtitle: str
    groups: tuple[str, ...]
    cases: tuple[str, ...]
    """Key of the case of each group."""
    modes: tuple[str, ...]
    """The mode of each group."""
    heads: tuple[float, ...]
    """Row of each group's name: a row of its own, or that of its points where they share one."""
    rows: int
    """Number of rows from top to bottom."""
    shared: bool
    """Whether the variants of a case share a row."""
    variants: tuple[str, ...]
    """Names of the variants, in the order that decides their colours."""
    points: tuple[SpeedupPoint, ...]
    log: bool
    """Whether the axis of speedups is logarithmic."""
    left_out: int
    """Number of pairs of a variant and a case that were skipped, and so have no point."""


def speedup_chart(series: Sequence[SeriesFacts]) -> SpeedupChart:
    """Return what to draw of the speedups of one operator's series on one device model."""
    labels = {one.case: one.label for one in case_labels(series)}
    order = list(labels)
    pairs = [(index, one) for index, one in enumerate(series) if one.series.implementation != BASELINE]
    shown = [(index, one) for index, one in pairs if one.status != Status.SKIPPED]
    modes = sorted({one.series.mode for _, one in shown})
    keys = sorted(
        {(one.series.case, one.series.mode) for _, one in shown}, key=lambda key: (order.index(key[0]), key[1])
    )
    variants = list(dict.fromkeys(one.series.implementation for _, one in pairs))
    shown.sort(
        key=lambda pair: (
            keys.index((pair[1].series.case, pair[1].series.mode)),
            variants.index(pair[1].series.implementation),
        )
    )
    shared = len(shown) + len(keys) > _ROWS
    heads: list[float] = []
    points: list[SpeedupPoint] = []
    for index, one in shown:
        group = keys.index((one.series.case, one.series.mode))
        if group == len(heads):
            heads.append(float(group if shared else group + len(points)))
        row = heads[group] if shared else float(group + 1 + len(points))
        points.append(_point(index, one, group, row))
    values = [point.speedup for point in points if point.speedup > 0]
    return SpeedupChart(
        title=shorten(f"{series[0].series.operator}: speedup over the baseline" if series else "speedup", 115),
        subtitle=shorten(_subtitle(series, points), 140),
        groups=tuple(f"{labels[case]}, {mode}" if len(modes) > 1 else labels[case] for case, mode in keys),
        cases=tuple(case for case, _ in keys),
        modes=tuple(mode for _, mode in keys),
        heads=tuple(heads),
        rows=len(keys) if shared else len(keys) + len(points),
        shared=shared,
        variants=tuple(variants),
        points=tuple(points),
        left_out=len(pairs) - len(shown),
        log=bool(values) and max(*values, 1.0) / min(*values, 1.0) >= _LOG_FROM,
    )


def state_of(speedup: float, low: float, high: float) -> str:
    """Return which of STATES a speedup with its interval is in."""
    if math.isnan(speedup):
        return "none"
    return "faster" if low > 1 else "slower" if high < 1 else "open"


def speedup_summary(chart: SpeedupChart) -> str:
    """Return in a sentence what the chart shows, for those who do not see it."""
    known = [point for point in chart.points if point.state != "none"]
    skipped = f" Skipped and not shown: {chart.left_out}." if chart.left_out else ""
    if not known:
        return f"No variant has a speedup yet.{skipped}"
    best = max(known, key=lambda point: point.speedup)
    worst = min(known, key=lambda point: point.speedup)
    counts = [(state, sum(point.state == state for point in chart.points)) for state in STATES]
    words = {"faster": "proven faster", "slower": "proven slower", "open": "not proven either way", "none": "no value"}
    counted = ", ".join(f"{number} {words[state]}" for state, number in counts if number)
    return (
        f"{len(chart.points)} pairs of a variant and a case: {counted}. "
        f"Highest {units.ratio(best.speedup)} ({shorten(best.variant, 40)}, {chart.groups[best.group]}), "
        f"lowest {units.ratio(worst.speedup)} ({shorten(worst.variant, 40)}, {chart.groups[worst.group]}).{skipped}"
    )


def _point(index: int, one: SeriesFacts, group: int, row: float) -> SpeedupPoint:
    speedup, low, high = (_positive(one.numbers.get(name)) for name in ("speedup", "speedup_low", "speedup_high"))
    lacking = math.isnan(speedup)
    return SpeedupPoint(
        series_index=index,
        group=group,
        row=row,
        variant=one.series.implementation,
        speedup=speedup,
        low=NAN if lacking else low,
        high=NAN if lacking else high,
        state=state_of(speedup, low, high),
        note=(shorten(one.status, 20) if one.status != Status.MEASURED else "no baseline to compare with")
        if lacking
        else "",
    )


def _positive(value: float | None) -> float:
    return value if value is not None and 0 < value < math.inf else NAN


def _subtitle(series: Sequence[SeriesFacts], points: Sequence[SpeedupPoint]) -> str:
    losing = sum(point.state == "slower" for point in points)
    parts = [series[0].series.device_name] if series else []
    of_device = any(one.texts.get("latency") == DEVICE.name for one in series)
    parts += [AXES[DEVICE.name]] if of_device else []
    parts += [f"{len(points)} pairs", f"{losing} slower than the baseline" if losing else "none proven slower"]
    return ", ".join(parts)
