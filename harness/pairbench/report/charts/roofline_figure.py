"""The picture of an operator's roofline, drawn by matplotlib from the values of `roofline_chart`."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from pairbench.model.plan import BASELINE
from pairbench.model.site import SeriesFacts
from pairbench.report.charts.kit import GREY, STYLE, color_of, marker_of, open_figure
from pairbench.report.charts.roofline import Roof, RooflineChart, roofline_chart
from pairbench.report.comparison.words import shorten


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
