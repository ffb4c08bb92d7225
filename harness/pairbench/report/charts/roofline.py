"""The values of a roofline chart, whatever draws it: what series reach, below the device's measured ceilings.

The ceilings are those of a large copy and of large matrix products by the library, so a series can lie above one: by
other instructions than the product had, or with what it moves still in a cache.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pairbench.model.site import SeriesFacts
from pairbench.report import units
from pairbench.report.comparison.words import shorten
from pairbench.report.labels import case_labels

_COPY = "copy_gbps"
_RATE = "_tflops"
_ROOM = 2.0
"""Free room around the points, as a factor: both axes are logarithmic."""


@dataclass(frozen=True, kw_only=True)
class Roof:
    """A ceiling as a line from its first to its last corner: `x` in FLOP a byte, `y` in TFLOP/s."""

    name: str
    """Name of the ceiling: `copy`, or the dtype of the matrix product."""
    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class RooflinePoint:
    """The point of one series."""

    series_index: int
    """Index of the point's series among those that were given."""
    label: str
    """Label of the series' case, with the mode where there are several."""
    implementation: str
    dtype: str
    """The dtype of the case; empty where the case has no such axis."""
    intensity: float
    """Arithmetic intensity that the case demands, in FLOP a byte."""
    tflops: float
    gbps: float
    fraction: float
    """Part of the roof above the point; NaN where that is not known, as for arithmetic in a dtype that no axis names."""


@dataclass(frozen=True, kw_only=True)
class RooflineChart:
    """Points below roofs; both axes are logarithmic."""

    title: str
    subtitle: str
    roofs: tuple[Roof, ...]
    points: tuple[RooflinePoint, ...]
    implementations: tuple[str, ...]
    """Implementations of all series that were given; the position of a name decides its colour in all charts."""
    x: tuple[float, float]
    """Ends of the axis of intensity, in FLOP a byte."""
    y: tuple[float, float]
    """Ends of the axis of arithmetic rates, in TFLOP/s."""
    left_out: int
    """Number of measured series without a point, because their cost is not declared or has no arithmetic."""


def roofline_chart(series: Sequence[SeriesFacts], ceilings: Mapping[str, float]) -> RooflineChart:
    """Return what to draw of one operator's series on one device model.

    Args:
        series: their newest records.
        ceilings: copy_gbps, float32_tflops, bfloat16_tflops and so on; a roof is drawn for what is there.
    """
    labels = {one.case: one.label for one in case_labels(series)}
    several = len({one.series.mode for one in series}) > 1
    points = []
    for index, one in enumerate(series):
        label = labels[one.series.case]
        point = _point(index, one, f"{label}, {one.series.mode}" if several else label, ceilings)
        points += [point] if point else []
    measured = sum("p50_ns" in one.numbers for one in series)
    roofs, x, y = _roofs(points, ceilings)
    return RooflineChart(
        title=shorten(f"{series[0].series.operator}: roofline" if series else "roofline", 115),
        subtitle=shorten(_subtitle(series, points, ceilings), 140),
        roofs=roofs,
        points=tuple(points),
        implementations=tuple(dict.fromkeys(one.series.implementation for one in series)),
        x=x,
        y=y,
        left_out=max(measured - len(points), 0),
    )


def roof_fraction(one: SeriesFacts, ceilings: Mapping[str, float]) -> float:
    """Return the part of its roof that a series reaches, NaN where that is not known.

    Which ceiling holds for a case without an axis `dtype` is not known, unless memory limits it in every dtype: then it
    has the same roof in all of them.
    """
    if one.dtype:
        return one.numbers.get("roofline_fraction", math.nan)
    copy, intensity = ceilings.get(_COPY, 0.0), intensity_of(one)
    ridges = [ridge(ceilings, name.removesuffix(_RATE)) for name in ceilings if name.endswith(_RATE)]
    below = bool(ridges) and intensity < min(ridges)
    return one.numbers["gbps"] / copy if below and copy > 0 and "gbps" in one.numbers else math.nan


def intensity_of(one: SeriesFacts) -> float:
    """Return the FLOP a byte that a case demands; NaN where its cost is not declared."""
    flops, moved = (one.numbers.get(name, math.nan) for name in ("flops", "bytes_moved"))
    return flops / moved if moved > 0 else math.nan


def ridge(ceilings: Mapping[str, float], dtype: str) -> float:
    """Return the intensity in FLOP a byte above which arithmetic limits, and not memory; NaN where it is not known."""
    copy, rate = ceilings.get(_COPY), ceilings.get(f"{dtype}{_RATE}")
    return rate * 1e3 / copy if rate and copy else math.nan


def roofline_summary(chart: RooflineChart) -> str:
    """Return in a sentence what the chart shows, for those who do not see it."""
    if not chart.points:
        return "No series has a declared cost of arithmetic and bytes, so none has a place on a roofline."
    known = [point for point in chart.points if not math.isnan(point.fraction)]
    if not known:
        why = "what roof is theirs is not known" if chart.roofs else "no ceiling of the device was measured"
        return f"{len(chart.points)} series; {why}."
    best = max(known, key=lambda point: point.fraction)
    above = sum(point.fraction > 1 for point in known)
    text = (
        f"{len(chart.points)} series. Nearest to its roof, or highest above it: {shorten(best.implementation, 40)} at "
    )
    text += f"{units.percent(best.fraction)} ({best.label}, {units.significant(best.tflops)} TFLOP/s)."
    if above:
        text += f" {above} above a roof: the roofs are measured with a copy and with library matrix products."
    return text


def _point(index: int, one: SeriesFacts, label: str, ceilings: Mapping[str, float]) -> RooflinePoint | None:
    flops, moved, tflops = (one.numbers.get(name, 0.0) for name in ("flops", "bytes_moved", "tflops"))
    if not all(0 < value < math.inf for value in (flops, moved, tflops)):
        return None
    return RooflinePoint(
        series_index=index,
        label=label,
        implementation=one.series.implementation,
        dtype=one.dtype,
        intensity=flops / moved,
        tflops=tflops,
        gbps=one.numbers.get("gbps", math.nan),
        fraction=roof_fraction(one, ceilings),
    )


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


def _subtitle(series: Sequence[SeriesFacts], points: Sequence[RooflinePoint], ceilings: Mapping[str, float]) -> str:
    parts = [series[0].series.device_name] if series else []
    parts.append("ceilings measured beside the run" if _COPY in ceilings else "no ceilings were measured")
    parts += ["cases without a dtype: all roofs are shown"] if any(not point.dtype for point in points) else []
    return ", ".join(parts)
