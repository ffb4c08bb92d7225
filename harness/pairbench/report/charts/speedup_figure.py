"""The picture of an operator's speedups over its cases, drawn by matplotlib from the values of `speedup_chart`."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from pairbench.model.site import SeriesFacts
from pairbench.report.charts.kit import GREY, RED, STYLE, color_of, open_figure
from pairbench.report.charts.speedup import SpeedupChart, SpeedupPoint, speedup_chart
from pairbench.report.comparison.words import shorten

MARKERS = {"faster": "o", "slower": "v", "open": "D"}
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
        marker=MARKERS[point.state],
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
            marker=MARKERS[state],
            mfc="white" if state == "open" else GREY,
            lw=0,
            ms=5,
            label=_WORDS[state],
        )
        for state in MARKERS
        if state in states
    ]
    if chart.shared:
        handles += [
            Line2D([], [], color=color_of(name, chart.variants), lw=2, label=shorten(name, 24))
            for name in chart.variants
        ]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
