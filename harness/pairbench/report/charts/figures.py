"""What all figures share: colours, style, the empty figure, and a colour and a shape for each implementation.

The picture of an operator's roofline, drawn by matplotlib from the values of `roofline_chart`.

The picture of an operator's speedups over its cases, drawn by matplotlib from the values of `speedup_chart`.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from pairbench.model.plan import BASELINE
from pairbench.model.site import SeriesFacts
from pairbench.report.charts.roofline import Roof, RooflineChart, roofline_chart
from pairbench.report.charts.speedup import SpeedupChart, SpeedupPoint, speedup_chart
from pairbench.report.comparison.words import shorten

# Okabe and Ito 2008: told apart by colour-blind readers and in print.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
NAVY, DARK_GREEN, GREY = "#00304D", "#00402F", "#6E6E6E"
STYLE = {
    "axes.edgecolor": "#444444",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "font.size": 9,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "pairbench",
    # Names come from anywhere; a dollar in one starts no formula.
    "text.parse_math": False,
}

COLORS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY)
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
"""Shapes of points. Their number has no common divisor with that of the colours, so 42 implementations differ."""


def color_of(implementation: str, variants: Sequence[str]) -> str:
    """Return the colour of an implementation; the baseline's is grey."""
    return GREY if implementation == BASELINE else COLORS[list(variants).index(implementation) % len(COLORS)]


def marker_of(implementation: str, variants: Sequence[str]) -> str:
    """Return the shape of an implementation where shapes tell them apart."""
    return "o" if implementation == BASELINE else MARKERS[list(variants).index(implementation) % len(MARKERS)]


def open_figure(width: float, height: float, title: str) -> Figure:
    """Return an empty figure, sizes in inches; to be called, like all that draws on it, within `STYLE`."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11 if len(title) <= 85 else 8.5, fontweight="bold")
    return figure


def roofline_figure(series: Sequence[SeriesFacts], ceilings: Mapping[str, float]) -> Figure:
    """Return the picture of one operator's series on one device model; for `ceilings` see `roofline_chart`."""
    return draw_roofline(roofline_chart(series, ceilings))


def draw_roofline(chart: RooflineChart) -> Figure:
    """Return the picture of prepared values."""
    variants = [name for name in chart.implementations if name != BASELINE]
    with mpl.rc_context(STYLE):
        figure = open_figure(9, 5.6, chart.title)
        axes = figure.subplots()
        axes.set_title(chart.subtitle, loc="left", fontsize=9, color="#444444")
        axes.grid(visible=True, axis="both")
        axes.set(xscale="log", yscale="log", xlim=chart.x, ylim=chart.y)
        for axis, (low, high) in ((axes.xaxis, chart.x), (axes.yaxis, chart.y)):
            axis.set_major_locator(LogLocator(subs=(1,) if high / low > 50 else (1, 2, 5)))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        for roof in chart.roofs:
            _roof(axes, roof)
        _columns(axes, chart)
        for point in chart.points:
            color = color_of(point.implementation, variants)
            axes.plot(
                [point.intensity],
                [point.tflops],
                marker=marker_of(point.implementation, variants),
                color=color,
                mfc="white" if point.implementation == BASELINE else color,
                ms=5,
                ls="none",
                zorder=3,
                gid="point",
            )
        axes.set_xlabel("arithmetic intensity (FLOP a byte that the case demands)")
        axes.set_ylabel("achieved (TFLOP/s)")
        handles = [
            Line2D(
                [],
                [],
                color=color_of(name, variants),
                marker=marker_of(name, variants),
                mfc="white" if name == BASELINE else color_of(name, variants),
                lw=0,
                ms=5,
                label=shorten(name, 24),
            )
            for name in chart.implementations
            if any(point.implementation == name for point in chart.points)
        ]
        if handles:
            figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    return figure


def _roof(axes: Axes, roof: Roof) -> None:
    slope = roof.name == "copy"
    axes.plot(roof.x, roof.y, color="#333333", lw=1.4, ls="-" if slope else "--", zorder=1, gid="roof")
    if not slope:
        axes.annotate(
            roof.label,
            (roof.x[1], roof.y[1]),
            xytext=(-4, 3),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8,
            color="#333333",
        )
        return
    # Where the line begins, turned as it is on the picture, whatever the axes are.
    low, high = axes.get_ylim()
    axes.text(
        roof.x[0] * 1.1,
        roof.y[0] * 1.1 * (high / low) ** 0.015,
        roof.label,
        ha="left",
        va="bottom",
        rotation=math.degrees(math.atan2(roof.y[1] - roof.y[0], roof.x[1] - roof.x[0])),
        rotation_mode="anchor",
        transform_rotates_text=True,
        fontsize=8,
        color="#333333",
    )


def _columns(axes: Axes, chart: RooflineChart) -> None:
    """Join what belongs to one case: its implementations stand one above the other."""
    ordered = sorted(chart.points, key=lambda point: (point.label, point.tflops))
    for _, points in groupby(ordered, key=lambda point: point.label):
        column = list(points)
        axes.plot(
            [column[0].intensity, column[-1].intensity],
            [column[0].tflops, column[-1].tflops],
            color=GREY,
            lw=0.7,
            alpha=0.6,
            zorder=2,
            gid="case",
        )


SPEEDUP_MARKERS = {"faster": "o", "slower": "v", "open": "D"}
_WORDS = {"faster": "faster", "slower": "slower than the baseline", "open": "not proven either way"}
_ROW = 0.2
"""Height of a row, in inches."""
_MANY = 60
"""Number of rows from which they stand closer, and the axis has labels at both ends."""
_CLOSE = 0.16


def speedup_figure(series: Sequence[SeriesFacts]) -> Figure:
    """Return the picture of the speedups of one operator's series on one device model."""
    return draw_speedups(speedup_chart(series))


def draw_speedups(chart: SpeedupChart) -> Figure:
    """Return the picture of prepared values."""
    with mpl.rc_context(STYLE):
        figure = open_figure(9, 1.7 + (_CLOSE if chart.rows > _MANY else _ROW) * max(chart.rows, 3), chart.title)
        axes = figure.subplots()
        axes.set_title(chart.subtitle, loc="left", fontsize=9, color="#444444")
        axes.grid(visible=True, axis="x")
        axes.grid(visible=False, axis="y")
        _scale(axes, chart)
        for point in chart.points:
            _dot(axes, point, chart)
        _names(axes, chart)
        axes.set_ylim(max(chart.rows, 1) - 0.4, -0.6)
        _line_at_one(axes)
        axes.set_xlabel("speedup over the baseline, 95 % interval")
        axes.tick_params(axis="x", labeltop=chart.rows > _MANY)
        _legend(figure, chart)
    return figure


def _scale(axes: Axes, chart: SpeedupChart) -> None:
    ends = [end for point in chart.points for end in (point.speedup, point.low, point.high) if end > 0]
    least, most = min([*ends, 1.0]), max([*ends, 1.0])
    if chart.log:
        axes.set_xscale("log")
        room = (most / least) ** 0.04
        axes.set_xlim(least / room, most * room)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most / least < 200 else (1,)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        room = max(0.06 * (most - least), 0.02)
        axes.set_xlim(max(least - room, 0.0), most + room)
        axes.xaxis.set_major_locator(MaxNLocator(8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))


def _dot(axes: Axes, point: SpeedupPoint, chart: SpeedupChart) -> None:
    if point.state == "none" and chart.shared:
        return  # in a row with others its note could belong to any of them
    if point.state == "none":
        axes.annotate(
            point.note,
            (0, point.row),
            xycoords=axes.get_yaxis_transform(),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=RED,
        )
        return
    color = color_of(point.variant, chart.variants)
    low, high = (end if end > 0 else point.speedup for end in (point.low, point.high))
    axes.plot([low, high], [point.row] * 2, color=color, lw=1.4, zorder=2, gid="interval")
    axes.plot(
        [point.speedup],
        [point.row],
        marker=SPEEDUP_MARKERS[point.state],
        color=color,
        mfc="white" if point.state == "open" else color,
        ms=6 if point.state == "slower" else 5,
        ls="none",
        zorder=3,
        gid=point.state,
    )


def _names(axes: Axes, chart: SpeedupChart) -> None:
    """Name the rows by their variants and the groups above them, or the rows by their groups."""
    if chart.shared:
        axes.set_yticks(chart.heads, [shorten(group, 40) for group in chart.groups])
    else:
        axes.set_yticks([point.row for point in chart.points], [shorten(point.variant, 24) for point in chart.points])
        for head, group in zip(chart.heads, chart.groups, strict=True):
            axes.annotate(
                group,
                (0, head),
                xycoords=axes.get_yaxis_transform(),
                xytext=(4, -1),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                fontweight="bold",
                color="#222222",
                bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 0.8},
                zorder=4,
            )
    axes.tick_params(axis="y", length=0, labelsize=8)


def _line_at_one(axes: Axes) -> None:
    axes.axvline(1, color="black", lw=1, zorder=1, gid="one")
    left, _ = axes.get_xlim()
    if left < 1:
        axes.axvspan(left, 1, color=RED, alpha=0.06, lw=0, zorder=0)


def _legend(figure: Figure, chart: SpeedupChart) -> None:
    states = dict.fromkeys(point.state for point in chart.points if point.state != "none")
    handles = [
        Line2D(
            [],
            [],
            color=GREY,
            marker=SPEEDUP_MARKERS[state],
            mfc="white" if state == "open" else GREY,
            lw=0,
            ms=5,
            label=_WORDS[state],
        )
        for state in SPEEDUP_MARKERS
        if state in states
    ]
    if chart.shared:
        handles += [
            Line2D([], [], color=color_of(name, chart.variants), lw=2, label=shorten(name, 24))
            for name in chart.variants
        ]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
