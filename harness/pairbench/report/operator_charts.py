"""The charts of one operator as values, whatever draws them: speedups over its cases, and its roofline.

The ceilings of a roofline are those of a large copy and of large matrix products by the library, so a series can lie above
one: by other instructions than the product had, or with what it moves still in a cache.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pairbench.model.outcome import Status
from pairbench.model.plain import Value
from pairbench.model.plan import BASELINE
from pairbench.model.site import SeriesFacts
from pairbench.report import units
from pairbench.report.render import shorten
from pairbench.report.units import case_labels, shared_names

_LOG_FROM = 4.0  # ratio of the largest to the smallest speedup from which the axis is logarithmic
_ROWS = 400  # number of rows up to which each has a label; with more, the variants of a case share its row


class SpeedupPoint(NamedTuple):
    series_index: int  # index of the point's series among those that were given
    group: int  # index of the point's group, a case in a mode
    row: float  # distance of the point from the top, in rows
    variant: str
    speedup: float  # the speedup over the baseline; NaN where there is none
    low: float  # lower end of the 95 % interval; NaN where it is not known, as `high`
    high: float
    state: str  # what `state_of` says
    note: str  # why there is no speedup; empty where there is one


class SpeedupChart(Value):
    """Points in the order in which they are to be read, a group of rows for each case in each mode."""

    groups: tuple[str, ...]
    heads: tuple[float, ...]  # row of each group's name: a row of its own, or that of its points where they share one
    rows: int  # number of rows from top to bottom
    shared: bool  # whether the variants of a case share a row
    points: tuple[SpeedupPoint, ...]
    log: bool  # whether the axis of speedups is logarithmic
    left_out: int  # number of pairs of a variant and a case that were skipped, and so have no point


def speedup_chart(series: Sequence[SeriesFacts]) -> SpeedupChart:
    labels = case_labels(series)
    order = list(labels)
    pairs = [(index, one) for index, one in enumerate(series) if one.series.implementation != BASELINE]
    shown = [(index, one) for index, one in pairs if one.status != Status.SKIPPED]
    modes = {one.series.mode for _, one in shown}

    def key_of(one: SeriesFacts) -> tuple[str, str]:
        return one.series.case, one.series.mode

    keys = sorted({key_of(one) for _, one in shown}, key=lambda key: (order.index(key[0]), key[1]))
    variants = list(dict.fromkeys(one.series.implementation for _, one in pairs))
    shown.sort(key=lambda pair: (keys.index(key_of(pair[1])), variants.index(pair[1].series.implementation)))
    shared = len(shown) + len(keys) > _ROWS
    heads: list[float] = []
    points: list[SpeedupPoint] = []
    for index, one in shown:
        group = keys.index(key_of(one))
        if group == len(heads):
            heads.append(float(group if shared else group + len(points)))
        row = heads[group] if shared else float(group + 1 + len(points))
        numbers = (one.numbers.get(name) or math.nan for name in ("speedup", "speedup_low", "speedup_high"))
        speedup, low, high = (value if 0 < value < math.inf else math.nan for value in numbers)
        note = ""
        if math.isnan(speedup):
            low = high = math.nan
            note = shorten(one.status, 20) if one.status != Status.MEASURED else "no baseline to compare with"
        state, variant = state_of(speedup, low, high), one.series.implementation
        points.append(SpeedupPoint(index, group, row, variant, speedup, low, high, state, note))
    values = [point.speedup for point in points if point.speedup > 0]
    groups = tuple(f"{labels[case]}, {mode}" if len(modes) > 1 else labels[case] for case, mode in keys)
    log = bool(values) and max(*values, 1.0) / min(*values, 1.0) >= _LOG_FROM
    chart = partial(SpeedupChart, groups=groups, heads=tuple(heads), points=tuple(points), shared=shared, log=log)
    return chart(rows=len(keys) if shared else len(keys) + len(points), left_out=len(pairs) - len(shown))


def state_of(speedup: float, low: float, high: float) -> str:
    """Return the state of a speedup: its interval lies above 1, below 1, or neither; `none` where there is no speedup."""
    if math.isnan(speedup):
        return "none"
    return "faster" if low > 1 else "slower" if high < 1 else "open"


def speedup_summary(chart: SpeedupChart) -> str:
    known = [point for point in chart.points if point.state != "none"]
    skipped = f" Skipped and not shown: {chart.left_out}." if chart.left_out else ""
    if not known:
        return f"No variant has a speedup yet.{skipped}"
    best = max(known, key=lambda point: point.speedup)
    worst = min(known, key=lambda point: point.speedup)
    counts = Counter(point.state for point in chart.points)
    words = {"faster": "proven faster", "slower": "proven slower", "open": "not proven either way", "none": "no value"}
    counted = ", ".join(f"{counts[state]} {text}" for state, text in words.items() if counts[state])
    return (
        f"{len(chart.points)} pairs of a variant and a case: {counted}. "
        f"Highest {units.ratio(best.speedup)} ({shorten(best.variant, 40)}, {chart.groups[best.group]}), "
        f"lowest {units.ratio(worst.speedup)} ({shorten(worst.variant, 40)}, {chart.groups[worst.group]}).{skipped}"
    )


_COPY = "copy_gbps"
_RATE = "_tflops"
_ROOM = 2.0  # free room around the points, as a factor: both axes are logarithmic


class Roof(Value):
    """A ceiling as a line from its first to its last corner: `x` in FLOP a byte, `y` in TFLOP/s."""

    name: str  # name of the ceiling: `copy`, or the dtype of the matrix product
    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


class RooflinePoint(Value):
    series_index: int  # index of the point's series among those that were given
    label: str  # label of the series' case, with the mode where there are several
    implementation: str
    dtype: str  # the dtype of the case; empty where the case has no such axis
    intensity: float  # arithmetic intensity that the case demands, in FLOP a byte
    tflops: float
    gbps: float
    fraction: float  # part of the roof above the point; NaN where that is not known, as in a dtype that no axis names


class RooflineChart(Value):
    """Points below roofs; both axes are logarithmic."""

    subtitle: str
    roofs: tuple[Roof, ...]
    points: tuple[RooflinePoint, ...]
    x: tuple[float, float]  # ends of the axis of intensity, in FLOP a byte
    y: tuple[float, float]  # ends of the axis of arithmetic rates, in TFLOP/s
    left_out: int  # number of measured series without a point, because their cost is not declared or has no arithmetic


def roofline_chart(series: Sequence[SeriesFacts], ceilings: Mapping[str, float]) -> RooflineChart:
    """Return what to draw of one operator's series on one device model; `ceilings` are copy_gbps, float32_tflops and so on."""
    labels = case_labels(series)
    several = len({one.series.mode for one in series}) > 1
    points = []
    for index, one in enumerate(series):
        flops, moved, tflops = (one.numbers.get(name, 0.0) for name in ("flops", "bytes_moved", "tflops"))
        if not all(0 < value < math.inf for value in (flops, moved, tflops)):
            continue
        label = labels[one.series.case] + (f", {one.series.mode}" if several else "")
        named = partial(RooflinePoint, series_index=index, label=label, implementation=one.series.implementation)
        placed = partial(named, dtype=one.dtype, intensity=flops / moved, tflops=tflops)
        points.append(placed(gbps=one.numbers.get("gbps", math.nan), fraction=roof_fraction(one, ceilings)))
    parts = shared_names((one.series.device_name, one.dtype, one.series.mode) for one in series)
    parts.append("ceilings measured beside the run" if _COPY in ceilings else "no ceilings were measured")
    parts += ["cases without a dtype: all roofs are shown"] if any(not point.dtype for point in points) else []
    roofs, x, y = _roofs(points, ceilings)
    chart = partial(RooflineChart, subtitle=shorten(", ".join(parts), 140), roofs=roofs, points=tuple(points))
    return chart(x=x, y=y, left_out=max(sum("p50_ns" in one.numbers for one in series) - len(points), 0))


def roof_fraction(one: SeriesFacts, ceilings: Mapping[str, float]) -> float:
    if one.dtype:
        return one.numbers.get("roofline_fraction", math.nan)
    # Without a dtype the roof is known only where memory limits the case in every dtype.
    copy, intensity = ceilings.get(_COPY, 0.0), intensity_of(one)
    ridges = [ridge(ceilings, name.removesuffix(_RATE)) for name in ceilings if name.endswith(_RATE)]
    below = bool(ridges) and intensity < min(ridges)
    return one.numbers["gbps"] / copy if below and copy > 0 and "gbps" in one.numbers else math.nan


def intensity_of(one: SeriesFacts) -> float:
    flops, moved = (one.numbers.get(name, math.nan) for name in ("flops", "bytes_moved"))
    return flops / moved if moved > 0 else math.nan


def ridge(ceilings: Mapping[str, float], dtype: str) -> float:
    """Return the intensity in FLOP a byte above which arithmetic limits, and not memory; NaN where it is not known."""
    copy, rate = ceilings.get(_COPY), ceilings.get(f"{dtype}{_RATE}")
    return rate * 1e3 / copy if rate and copy else math.nan


def roofline_summary(chart: RooflineChart) -> str:
    if not chart.points:
        return "No series has a declared cost of arithmetic and bytes, so none has a place on a roofline."
    if not (known := [point for point in chart.points if not math.isnan(point.fraction)]):
        why = "what roof is theirs is not known" if chart.roofs else "no ceiling of the device was measured"
        return f"{len(chart.points)} series; {why}."
    best = max(known, key=lambda point: point.fraction)
    above = sum(point.fraction > 1 for point in known)
    measured = "the roofs are measured with a copy and with library matrix products"
    why = f" {above} above a roof: {measured}." if above else ""
    nearest = f"{shorten(best.implementation, 40)} at {units.percent(best.fraction)}"
    place = f"{best.label}, {units.significant(best.tflops)} TFLOP/s"
    return f"{len(chart.points)} series. Nearest to its roof, or highest above it: {nearest} ({place}).{why}"


def _roofs(
    points: Sequence[RooflinePoint], ceilings: Mapping[str, float]
) -> tuple[tuple[Roof, ...], tuple[float, float], tuple[float, float]]:
    """Return the roofs of the dtypes that have points, and the ends of axes that hold both."""
    copy = ceilings.get(_COPY, 0.0)
    dtypes = {point.dtype for point in points}
    if "" in dtypes:  # any of them may be meant
        dtypes = {name.removesuffix(_RATE) for name in ceilings if name.endswith(_RATE)}
    rates = {dtype: ceilings.get(f"{dtype}{_RATE}", 0.0) for dtype in sorted(dtypes)}
    rates = {dtype: rate for dtype, rate in rates.items() if 0 < rate < math.inf}
    ridges = [rate * 1e3 / copy for rate in rates.values()] if 0 < copy < math.inf else []
    across = [*(point.intensity for point in points), *ridges] or [1.0]
    left, right = min(across) / _ROOM, max(across) * _ROOM
    top = max([*(point.tflops for point in points), *rates.values()], default=1.0)
    bottom = min((point.tflops for point in points), default=top / 100)
    roofs = []
    if 0 < copy < math.inf:
        # The slope ends at the highest of the flat roofs; without any it crosses the chart.
        end = max(ridges, default=right)
        corners = (left, max(end, left))
        label = f"copy {units.significant(copy)} GB/s"
        roofs.append(Roof(name="copy", label=label, x=corners, y=(corners[0] * copy / 1e3, corners[1] * copy / 1e3)))
        bottom = min(bottom, left * copy / 1e3)
    for dtype, rate in rates.items():
        start = rate * 1e3 / copy if ridges else left
        label = f"{shorten(dtype, 20)} {units.significant(rate)} TFLOP/s"
        roofs.append(Roof(name=shorten(dtype, 20), label=label, x=(start, right), y=(rate, rate)))
    return tuple(roofs), (left, right), (bottom / _ROOM, top * _ROOM)
