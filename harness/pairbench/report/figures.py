"""Pictures of charts, drawn by matplotlib from the values that `axis_chart` and `trend` prepare.

Figure objects without pyplot: no state is shared, nothing needs a display, and equal charts give equal bytes.
"""

import io
import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

from pairbench.analyze.history.trend import Trend
from pairbench.model.plan import BASELINE
from pairbench.report import units
from pairbench.report.axis_chart import AxisChart, AxisPanel, chart_rows, crossover_sentences
from pairbench.report.render import shorten
from pairbench.report.trend import LevelStep, SeriesChart, series_chart

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
    "pdf.fonttype": 42,  # TrueType: text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "pairbench",
    # Names come from anywhere; a dollar in one starts no formula.
    "text.parse_math": False,
}
COLORS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY)
MARKERS = ("o", "s", "D", "^", "v", "P", "X")  # as many as have no common divisor with the colours: 42 pairs differ
_METADATA: dict[str, dict[str, None]] = {  # what matplotlib would write of itself and the time
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_BOX = {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 0.8}


def to_bytes(figure: Figure, suffix: str) -> bytes:
    if suffix not in _METADATA:
        raise ValueError(f"suffix {suffix!r} is unknown, expected one of {', '.join(_METADATA)}")
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE), _any_glyph():
        figure.savefig(buffer, format=suffix[1:], dpi=150, metadata=_METADATA[suffix])
    return buffer.getvalue()


@contextmanager
def _any_glyph() -> Iterator[None]:
    """Let glyphs pass that matplotlib's font lacks: each is a box in a PNG, and itself in an SVG."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def look_of(implementation: str, variants: Sequence[str]) -> dict[str, str]:
    """Return the colour and the marker of an implementation."""
    if implementation == BASELINE:
        return {"color": GREY, "marker": "o"}
    place = list(variants).index(implementation)
    return {"color": COLORS[place % len(COLORS)], "marker": MARKERS[place % len(MARKERS)]}


class ShownFigure(Figure):
    def _repr_png_(self) -> bytes:
        return to_bytes(self, ".png")


def _open_figure(width: float, height: float, title: str, size: float = 0) -> ShownFigure:
    """Return an empty figure, sizes in inches and of letters in points; to be called, like all that draws on it, within `STYLE`."""
    figure = ShownFigure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    size = size or (11 if len(title) <= 85 else 8.5)
    figure.suptitle(_wrapped(title, width, size), x=0.01, ha="left", fontsize=size, fontweight="bold")
    return figure


def _wrapped(text: str, width: float, size: float) -> str:
    # In a width in inches: bold letters of a size in points are about two thirds as wide.
    return textwrap.fill(text, max(int(width * 110 / size), 1))


def _add_note(axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any) -> None:
    """Write small text at an offset in points from a place."""
    axes.annotate(text, at, xytext=offset, textcoords="offset points", **{"fontsize": 8, **style})


def _make_key(label: str, color: str, **style: Any) -> Line2D:
    return Line2D([], [], color=color, label=label, **style)


def _set_log_ticks(axis: Axis, subs: Sequence[float]) -> None:
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:.12g}")


def _add_legend(figure: Figure, handles: Sequence[Line2D], columns: int = 4) -> None:
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)


_CHANGES = {  # colour, line and words of each kind of mark
    "code": (RED, "--", "moved: code"),
    "machine": (ORANGE, "--", "moved: machine"),
    "environment": (PURPLE, "--", "moved: environment"),
    "control": (GREY, "--", "moved: only the control"),
    "era": (GREY, ":", "environment changed"),
    "definition": ("black", "-", "new definition"),
}


def trend_figure(trend: Trend) -> Figure:
    values = series_chart(trend)
    lines, runs = values.lines, range(len(trend.points))
    speedups = any(not math.isnan(value) for value in lines["speedup"])
    panels = 1 + bool(values.control_name) + speedups
    dot = 2.5 if len(runs) > 150 else 4.0
    with mpl.rc_context(STYLE):
        figure = _open_figure(10, 4.6 + 1.2 * (panels - 1), values.title)
        axes = list(figure.subplots(panels, 1, sharex=True, squeeze=False, height_ratios=[3.2, 1, 1][:panels])[:, 0])
        top, bottom = axes[0], axes[-1]
        top.set_title(values.subtitle, loc="left", fontsize=9, color="#444444")
        top.plot(runs, lines["p95"], color=SKY, ls="none", marker="v", ms=dot * 0.7, gid="p95")
        _intervals(top, lines, ("p50", "low", "high"), BLUE, dot)
        _steps(top, values.levels, NAVY)
        if values.log:
            top.set_yscale("log")
            _set_log_ticks(top.yaxis, (1, 1.5, 2, 3, 5, 7))
            top.yaxis.set_major_formatter(ScalarFormatter())
        top.set_ylabel(f"{values.latency} ({values.unit})")
        if values.control_name:
            # On an axis of its own: beside a control that takes twice as long, 2 % could not be seen.
            axes[1].plot(runs, lines["control"], color=GREY, marker="o", ms=dot * 0.8, ls="none", gid="control")
            axes[1].set_ylabel(f"{values.control_name}\nP50 ({values.unit})")
        if speedups:
            _intervals(bottom, lines, ("speedup", "speedup_low", "speedup_high"), GREEN, dot)
            _steps(bottom, values.speedup_levels, DARK_GREEN)
            bottom.set_ylabel("speedup (x)")
        for panel in axes[1:] if values.log else axes:
            panel.ticklabel_format(axis="y", useOffset=False)
        _marks(axes, values)
        bottom.set_xticks([at for at, _ in values.ticks], [label.replace(" ", "\n") for _, label in values.ticks])
        bottom.tick_params(axis="x", labelsize=8)
        bottom.set_xlim(-0.6, max(len(runs) - 0.4, 0.6))
        bottom.set_xlabel("run, oldest first")
        figure.align_ylabels(axes)
        _add_legend(figure, _trend_keys(values))
    return figure


def _intervals(
    axes: Axes, lines: Mapping[str, Sequence[float]], names: tuple[str, str, str], color: str, dot: float
) -> None:
    middle, low, high = (np.array(lines[name]) for name in names)
    style: dict[str, Any] = {"color": color, "fmt": "o", "ms": dot, "elinewidth": 0.8, "capsize": 0, "zorder": 3}
    axes.errorbar(range(len(middle)), middle, yerr=_reach(middle, low, high), gid=names[0], **style)


def _reach(middle: Any, low: Any, high: Any) -> Any:
    return np.nan_to_num(np.maximum([middle - low, high - middle], 0.0))


def _steps(axes: Axes, steps: Sequence[LevelStep], color: str) -> None:
    for step in steps:
        ends = ([step.start - 0.5, step.stop + 0.5], [step.value, step.end])
        axes.plot(*ends, color=color, lw=1.5, zorder=4, gid="level")


def _marks(panels: Sequence[Axes], values: SeriesChart) -> None:
    top = panels[0]
    texts = []
    for mark in values.marks:
        if mark.kind == "gap":
            top.plot([mark.at], [0.03], transform=top.get_xaxis_transform(), marker="x", color=RED, ms=6, gid="gap")
            continue
        color, style, _ = _CHANGES[mark.kind]
        for panel in panels:
            panel.axvline(mark.at - 0.5, color=color, lw=1.0, ls=style, gid=mark.kind, zorder=1)
        if mark.label:
            texts.append((mark.at - 0.5, mark.label))
    if not texts:
        return
    # Room above the data, a line for each label that would run into the one before it.
    reach = max(len(values.lines["p50"]), 2)
    ends: list[float] = []
    rows = []
    for at, label in sorted(texts):
        width = reach * len(label) / 130
        left = at > 0.6 * reach
        start, stop = (at - width, at) if left else (at, at + width)
        row = next((number for number, end in enumerate(ends) if end < start), len(ends))
        ends[row:] = [stop, *ends[row + 1 :]]
        rows.append((at, label, row, left))
    low, high = top.get_ylim()
    part = min(0.055 * len(ends), 0.5) / (1 - min(0.055 * len(ends), 0.5))
    top.set_ylim(low, high * (high / low) ** part if values.log else high + (high - low) * part)
    text_style: dict[str, Any] = {"xycoords": top.get_xaxis_transform(), "va": "top", "color": "#222222", "bbox": _BOX}
    for at, label, row, left in rows:
        _add_note(top, label, (at, 1), (-3 if left else 3, -3 - 11 * row), ha="right" if left else "left", **text_style)


def _trend_keys(values: SeriesChart) -> list[Line2D]:
    keys = [_make_key("P50, 95 % interval", BLUE, marker="o", lw=0, ms=4), _make_key("level", NAVY, lw=1.6)]
    if not all(map(math.isnan, values.lines["p95"])):
        keys.append(_make_key("P95", SKY, marker="v", lw=0, ms=3))
    for kind in dict.fromkeys(mark.kind for mark in values.marks):
        if kind == "gap":
            keys.append(_make_key("run without a value", RED, marker="x", lw=0, ms=5))
        else:
            color, style, words = _CHANGES[kind]
            keys.append(_make_key(words, color, ls=style, lw=1))
    return keys


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
    size, high, more = (_PAPER, 2.1, 0.7) if paper else (0, 3.0, 0.8)
    with mpl.rc_context({**STYLE, **({"font.size": _PAPER} if paper else {})}):
        figure = _open_figure(width, high * rows + more, chart.title, size)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        panels = list(grid.flat)
        for axes, panel in zip(panels, chart.panels, strict=False):
            _axis_panel(axes, panel, chart, variants)
            axes.set_title(_wrapped(panel.title, width / columns - 0.6, 9), loc="left", fontsize=9, color="#444444")
            axes.set_xlabel(shorten(chart.x, 40))
            axes.tick_params(labelbottom=True)
        for axes in panels[len(chart.panels) :]:
            axes.set_axis_off()
        for row in grid:
            row[0].set_ylabel(_wrapped(chart.y, high - 0.6, 9))
        keys = [_make_key(shorten(name, 30), ms=4, **look_of(name, variants)) for name in chart.names]
        if any(panel.crossovers for panel in chart.panels) and not chart.words:
            keys.append(_make_key("crossover with the baseline", GREY, ls=":", lw=0.9))
        # A key's line takes as much room as about eight letters.
        longest = max(len(str(key.get_label())) for key in keys) + 8
        _add_legend(figure, keys, max(min(4, int(15 * width / longest)), 1))
        if paper:
            for text in figure.findobj(Text):
                text.set_fontsize(_PAPER)
        _thin(figure, panels[len(chart.panels) - 1], words=bool(chart.words))
    return figure


def _thin(figure: Figure, axes: Axes, *, words: bool) -> None:
    """Turn words below an axis that run into one another; of sizes name the last, and from the first on all that have room."""
    with _any_glyph():
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
        look = look_of(line.name, variants)
        if chart.quantity == "speedup" and line.implementation == BASELINE:
            axes.axhline(1, color=look["color"], lw=1.4, zorder=1)
            continue
        x, y, low, high = np.array([(point.x, point.y, point.low, point.high) for point in line.points]).T
        style: dict[str, Any] = {**look, "gid": f"line-{line.name}"}
        style |= {"ls": "none" if chart.words else "-", "lw": 1.4, "elinewidth": 0.9, "capsize": 2, "ms": 4}
        axes.errorbar(x, y, yerr=_reach(y, low, high), zorder=3, **style)
    for crossover in panel.crossovers if not chart.words else ():
        x, color = crossover.x, look_of(crossover.name, variants)["color"]
        axes.axvline(x, color=color, lw=0.9, ls=":", zorder=2, gid="crossover")
        axes.plot([x], [crossover.y], marker="o", ms=9, mfc="none", mec=color, ls="none", zorder=4)
        _add_note(axes, units.significant(x, 3), (x, 1), (3, -9), xycoords=axes.get_xaxis_transform(), color=color)
    if chart.log_y:
        axes.set_yscale("log")
        heights = [point.y for shown in chart.panels for line in shown.lines for point in line.points]
        _set_log_ticks(axes.yaxis, (1, 2, 5) if max(heights) < 200 * min(heights) else (1,))
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
    factors = [next((factor for factor in (2**30, 2**20, 2**10) if place % factor == 0), 1) for place in places]
    names = {2**30: "Gi", 2**20: "Mi", 2**10: "Ki", 1: ""}
    return [f"{place / factor:.15g}{names[factor]}" for place, factor in zip(places, factors, strict=True)]


def axis_bytes(chart: AxisChart, suffix: str, *, paper: bool = False) -> bytes:
    if suffix != ".html":
        return to_bytes(draw_axis(chart, paper=paper), suffix)
    import pandas as pd

    table = pd.DataFrame(chart_rows(chart)).to_html(index=False, border=0, na_rep="", float_format=units.significant)
    sentences = "".join(f"<p>{escape(sentence)}.</p>\n" for sentence in crossover_sentences(chart))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(chart.title)}</title>\n'
        f"<style>body {{ font: 14px sans-serif; margin: 2em; }} {_TABLE_STYLE}</style>\n</head>\n<body>\n"
        f"{svg_element(chart)}\n{sentences}<p>{escape(chart.y)}</p>\n{table}\n</body>\n</html>\n"
    ).encode()


def svg_element(chart: AxisChart) -> str:
    """Return a chart as an element for a page, without the head of a file."""
    text = to_bytes(draw_axis(chart), ".svg").decode()
    return text[text.index("<svg") :]
