"""The picture of implementations along an axis of the cases, drawn by matplotlib from the values of `axis_chart`."""

import math
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from pairbench.model.plan import BASELINE
from pairbench.report import units
from pairbench.report.charts.axis import AxisChart, AxisPanel, chart_rows, crossover_sentences
from pairbench.report.charts.figures import GREY, STYLE, color_of, marker_of
from pairbench.report.charts.series_figure import to_bytes
from pairbench.report.comparison.words import shorten

_TICKS = 10
"""Values of the axis up to which each is named."""


class AxisFigure(Figure):
    """A figure that notebooks show by themselves; `savefig` and all else are matplotlib's."""

    def _repr_png_(self) -> bytes:
        """Return the picture as notebooks ask for it."""
        return to_bytes(self, ".png")


def draw_axis(chart: AxisChart) -> AxisFigure:
    """Return the picture of prepared values."""
    columns = min(len(chart.panels), 3)
    rows = math.ceil(len(chart.panels) / columns)
    with mpl.rc_context(STYLE):
        figure = AxisFigure(
            figsize=(max(3.9 * columns, 5.6), 3.0 * rows + 0.8), layout="constrained", facecolor="white"
        )
        FigureCanvasAgg(figure)
        figure.suptitle(chart.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        panels = list(grid.flat)
        for axes, panel in zip(panels, chart.panels, strict=False):
            _panel(axes, panel, chart)
        for axes in panels[len(chart.panels) :]:
            axes.set_axis_off()
        for row in grid:
            row[0].set_ylabel(chart.y)
        for number in range(len(chart.panels)):
            if number + columns >= len(chart.panels):  # nothing below it
                panels[number].set_xlabel(chart.x)
                panels[number].tick_params(labelbottom=True)
        figure.legend(handles=_legend(chart), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def axis_bytes(chart: AxisChart, suffix: str) -> bytes:
    """Return a chart as a file.

    Args:
        chart: The values.
        suffix: One of SUFFIXES.
    """
    if suffix != ".html":
        return to_bytes(draw_axis(chart), suffix)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(chart.title)}</title>\n'
        f"<style>body {{ font: 14px sans-serif; margin: 2em; }} {TABLE_STYLE}</style>\n</head>\n<body>\n"
        f"{svg_element(chart)}\n{_table(chart)}\n</body>\n</html>\n"
    ).encode()


TABLE_STYLE = "table { border-collapse: collapse; } th, td { padding: 0.2em 0.8em; text-align: right; } th { border-bottom: 1px solid #444; }"


def svg_element(chart: AxisChart) -> str:
    """Return a chart as an element for a page, without the head of a file."""
    text = to_bytes(draw_axis(chart), ".svg").decode()
    return text[text.index("<svg") :]


def _table(chart: AxisChart) -> str:
    rows = chart_rows(chart)
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_cell(row.get(name)))}</td>' for name in names)}</tr>\n" for row in rows
    )
    said = "".join(f"<p>{escape(sentence)}.</p>\n" for sentence in crossover_sentences(chart))
    return f"{said}<p>{escape(chart.y)}</p>\n<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def _cell(value: Any) -> str:
    return "" if value is None else units.significant(value) if isinstance(value, float) else str(value)


def _panel(axes: Axes, panel: AxisPanel, chart: AxisChart) -> None:
    axes.set_title(panel.title, loc="left", fontsize=9, color="#444444")
    variants = [name for name in chart.names if name != BASELINE]
    for line in panel.lines:
        color = color_of(line.name, variants)
        x, y, low, high = (np.array([getattr(one, name) for one in line.points]) for name in ("x", "y", "low", "high"))
        if chart.quantity == "speedup" and line.implementation == BASELINE:
            axes.axhline(1, color=color, lw=1.4, zorder=1)
            continue
        axes.errorbar(
            x,
            y,
            yerr=np.nan_to_num(np.maximum([y - low, high - y], 0.0)),
            color=color,
            marker=marker_of(line.name, variants),
            ms=4,
            lw=1.4,
            ls="none" if chart.words else "-",
            elinewidth=0.9,
            capsize=2,
            zorder=3,
            gid=f"line-{line.name}",
        )
    for one in panel.crossovers if not chart.words else ():
        color = color_of(one.name, variants)
        axes.axvline(one.x, color=color, lw=0.9, ls=":", zorder=2, gid="crossover")
        axes.plot([one.x], [one.y], marker="o", ms=9, mfc="none", mec=color, ls="none", zorder=4)
        axes.annotate(
            f"{one.x:.3g}",
            (one.x, 1),
            xycoords=axes.get_xaxis_transform(),
            xytext=(3, -9),
            textcoords="offset points",
            fontsize=8,
            color=color,
        )
    _scales(axes, chart)


def _scales(axes: Axes, chart: AxisChart) -> None:
    if chart.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    elif chart.quantity != "speedup":
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if chart.words:
        axes.set_xticks(range(len(chart.words)), [shorten(word, 20) for word in chart.words])
        axes.set_xlim(-0.5, len(chart.words) - 0.5)
        return
    places = sorted({point.x for panel in chart.panels for line in panel.lines for point in line.points})
    if chart.log_x:
        axes.set_xscale("log", base=2)
    if len(places) <= _TICKS:
        axes.set_xticks(places, [_short(place) for place in places])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.tick_params(axis="x", labelsize=8, labelrotation=30 if len(places) > 5 else 0)
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def _short(value: float) -> str:
    """Return a number as people write sizes: 65536 as 64Ki."""
    for unit, name in ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if value >= unit and value % unit == 0:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def _legend(chart: AxisChart) -> list[Line2D]:
    variants = [name for name in chart.names if name != BASELINE]
    handles = [
        Line2D([], [], color=color_of(name, variants), marker=marker_of(name, variants), ms=4, label=shorten(name, 30))
        for name in chart.names
    ]
    if any(panel.crossovers for panel in chart.panels) and not chart.words:
        handles.append(Line2D([], [], color=GREY, ls=":", lw=0.9, label="crossover with the baseline"))
    return handles
