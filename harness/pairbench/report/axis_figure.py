"""A chart along an axis of the cases as a picture, or as a page with its table."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import NullLocator

from pairbench.model.plan import BASELINE
from pairbench.report import units
from pairbench.report.axis_chart import AxisChart, AxisPanel, chart_rows, crossover_sentences
from pairbench.report.figures import (
    GREY,
    STYLE,
    ShownFigure,
    add_caption,
    add_legend,
    add_note,
    any_glyph,
    color_of,
    make_key,
    marker_of,
    open_figure,
    reach,
    set_log_ticks,
    to_bytes,
    wrapped,
)
from pairbench.report.render import shorten

_APART = 4.0  # pixels between two labels of an axis
PAPER_WIDTH = 3.3  # width of a column of a paper in inches
_PAPER = 8  # size of its letters in points
_TABLE_STYLE = "table { border-collapse: collapse; } th, td { padding: 0.2em 0.8em; text-align: right; } th { border-bottom: 1px solid #444; }"


def draw_axis(chart: AxisChart, *, paper: bool = False) -> ShownFigure:
    """Return implementations along an axis of the cases; for a paper one column wide, all letters of one size."""
    columns = 1 if paper else min(len(chart.panels), 3)
    rows = math.ceil(len(chart.panels) / columns)
    width = PAPER_WIDTH if paper else max(3.9 * columns, 5.6)
    variants = [name for name in chart.names if name != BASELINE]
    with mpl.rc_context({**STYLE, **({"font.size": _PAPER} if paper else {})}):
        size, high, more = (_PAPER, 2.1, 0.7) if paper else (0, 3.0, 0.8)
        figure = open_figure(width, high * rows + more, chart.title, size)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        panels = list(grid.flat)
        for axes, panel in zip(panels, chart.panels, strict=False):
            _axis_panel(axes, panel, chart, variants)
            add_caption(axes, wrapped(panel.title, width / columns - 0.6, 9))
            axes.set_xlabel(shorten(chart.x, 40))
            axes.tick_params(labelbottom=True)
        for axes in panels[len(chart.panels) :]:
            axes.set_axis_off()
        for row in grid:
            row[0].set_ylabel(wrapped(chart.y, high - 0.6, 9))
        keys = [
            make_key(shorten(name, 30), color_of(name, variants), marker=marker_of(name, variants), ms=4)
            for name in chart.names
        ]
        if any(panel.crossovers for panel in chart.panels) and not chart.words:
            keys.append(make_key("crossover with the baseline", GREY, ls=":", lw=0.9))
        # A key's line takes as much room as about eight letters.
        longest = max(len(str(key.get_label())) for key in keys) + 8
        add_legend(figure, keys, max(min(4, int(15 * width / longest)), 1))
        if paper:
            for text in figure.findobj(Text):
                text.set_fontsize(_PAPER)
        _thin(figure, panels[len(chart.panels) - 1], words=bool(chart.words))
    return figure


def _thin(figure: Figure, axes: Axes, *, words: bool) -> None:
    """Turn words below an axis that run into one another; of sizes name the last, and from the first on all that have room."""
    with any_glyph():
        figure.draw_without_rendering()
        labels = axes.get_xticklabels()
        ends = [(box.x0, box.x1 + _APART) for box in (label.get_window_extent() for label in labels)]
    free, kept = -math.inf, []
    for number, (left, right) in enumerate(ends):
        last = number == len(ends) - 1
        if last or (left > free and right < ends[-1][0]):
            kept.append(number)
            free = right
    if len(kept) == len(labels):
        return
    if words:
        for panel in figure.axes:
            panel.tick_params(axis="x", labelrotation=30)
    else:
        texts = [label.get_text() if number in kept else "" for number, label in enumerate(labels)]
        axes.set_xticks(axes.get_xticks(), texts)


def _axis_panel(axes: Axes, panel: AxisPanel, chart: AxisChart, variants: Sequence[str]) -> None:
    for line in panel.lines:
        color = color_of(line.name, variants)
        if chart.quantity == "speedup" and line.implementation == BASELINE:
            axes.axhline(1, color=color, lw=1.4, zorder=1)
            continue
        x, y, low, high = np.array([(point.x, point.y, point.low, point.high) for point in line.points]).T
        style: dict[str, Any] = {
            "color": color,
            "marker": marker_of(line.name, variants),
            "ms": 4,
            "lw": 1.4,
            "zorder": 3,
        }
        style |= {"ls": "none" if chart.words else "-", "elinewidth": 0.9, "capsize": 2, "gid": f"line-{line.name}"}
        axes.errorbar(x, y, yerr=reach(y, low, high), **style)
    for crossover in panel.crossovers if not chart.words else ():
        x, color = crossover.x, color_of(crossover.name, variants)
        axes.axvline(x, color=color, lw=0.9, ls=":", zorder=2, gid="crossover")
        axes.plot([x], [crossover.y], marker="o", ms=9, mfc="none", mec=color, ls="none", zorder=4)
        add_note(axes, units.significant(x, 3), (x, 1), (3, -9), xycoords=axes.get_xaxis_transform(), color=color)
    if chart.log_y:
        axes.set_yscale("log")
        heights = [point.y for shown in chart.panels for line in shown.lines for point in line.points]
        set_log_ticks(axes.yaxis, (1, 2, 5) if max(heights) < 200 * min(heights) else (1,))
    elif chart.quantity != "speedup":
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.12g}")
    if chart.words:
        axes.set_xticks(range(len(chart.words)), [shorten(word, 20) for word in chart.words])
        axes.set_xlim(-0.5, len(chart.words) - 0.5)
        return
    places = sorted({point.x for panel in chart.panels for line in panel.lines for point in line.points})
    if chart.log_x:
        axes.set_xscale("log", base=2)
    axes.set_xticks(places, _sizes(places))
    axes.xaxis.set_minor_locator(NullLocator())


def _sizes(places: Sequence[float]) -> list[str]:
    """Return sizes in one notation: of 100,000 and more, where all from 1024 on are multiples of it, as 64Ki; else as they are."""
    if max(places) < 1e5 or any(place % 2**10 for place in places if place >= 2**10):
        return [f"{place:.15g}" for place in places]
    units = ((2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"), (1, ""))
    return [
        next((f"{place / unit:.15g}{name}" for unit, name in units if place % unit == 0), f"{place:.15g}")
        for place in places
    ]


def axis_bytes(chart: AxisChart, suffix: str, *, paper: bool = False) -> bytes:
    """Return a chart as a file of one of `axis_chart.SUFFIXES`."""
    if suffix != ".html":
        return to_bytes(draw_axis(chart, paper=paper), suffix)
    rows = chart_rows(chart)
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_cell(row.get(name)))}</td>' for name in names)}</tr>\n" for row in rows
    )
    sentences = "".join(f"<p>{escape(sentence)}.</p>\n" for sentence in crossover_sentences(chart))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(chart.title)}</title>\n'
        f"<style>body {{ font: 14px sans-serif; margin: 2em; }} {_TABLE_STYLE}</style>\n</head>\n<body>\n"
        f"{svg_element(chart)}\n{sentences}<p>{escape(chart.y)}</p>\n<table>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}</tbody>\n</table>\n</body>\n</html>\n"
    ).encode()


def svg_element(chart: AxisChart) -> str:
    """Return a chart as an element for a page, without the head of a file."""
    text = to_bytes(draw_axis(chart), ".svg").decode()
    return text[text.index("<svg") :]


def _cell(value: object) -> str:
    return "" if value is None else units.significant(value) if isinstance(value, float) else str(value)
