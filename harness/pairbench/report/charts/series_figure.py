"""Pictures of a trend, drawn by matplotlib from the values of `series_chart`.

Figure objects without pyplot: no state is shared, nothing needs a display, and what is drawn twice is equal to the byte.
"""

import io
import math
import warnings
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

from pairbench.analyze.history.trend import Trend
from pairbench.report.charts.figures import (
    BLUE,
    DARK_GREEN,
    GREEN,
    GREY,
    NAVY,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    STYLE,
    open_figure,
)
from pairbench.report.charts.series import LevelStep, SeriesChart, series_chart

SUFFIXES = (".svg", ".png")
_MOVE = {"code": RED, "machine": ORANGE, "environment": PURPLE, "control": GREY}


def trend_figure(trend: Trend) -> Figure:
    """Return the picture of a trend: latencies over runs, the control beside them, and the speedup below."""
    return draw_trend(series_chart(trend))


def draw_trend(values: SeriesChart) -> Figure:
    """Return the picture of prepared values."""
    panels = 1 + bool(values.control_name) + any(not math.isnan(value) for value in values.speedup)
    with mpl.rc_context(STYLE):
        figure = open_figure(10, 4.6 + 1.2 * (panels - 1), values.title)
        axes = list(figure.subplots(panels, 1, sharex=True, squeeze=False, height_ratios=[3.2, 1, 1][:panels])[:, 0])
        axes[0].set_title(values.subtitle, loc="left", fontsize=9, color="#444444")
        _latency(axes[0], values)
        if values.control_name:
            _control(axes[1], values)
        if panels > 1 + bool(values.control_name):
            _speedup(axes[-1], values)
        _marks(axes, values)
        bottom = axes[-1]
        bottom.set_xticks(
            [position for position, _ in values.ticks], [label.replace(" ", "\n") for _, label in values.ticks]
        )
        bottom.tick_params(axis="x", labelsize=8)
        bottom.set_xlim(-0.6, max(len(values.p50) - 0.4, 0.6))
        bottom.set_xlabel("run, oldest first")
        figure.align_ylabels(axes)
        _legend(figure, values)
    return figure


def to_bytes(figure: Figure, suffix: str) -> bytes:
    """Return a picture as SVG or PNG; equal pictures are equal bytes.

    Args:
        figure: to be saved.
        suffix: one of `SUFFIXES`.
    """
    if suffix not in SUFFIXES:
        raise ValueError(f"suffix {suffix!r} is unknown, expected one of {', '.join(SUFFIXES)}")
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # A glyph that matplotlib's font lacks is a box in a PNG, and itself in an SVG.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        metadata = {"Date": None, "Creator": None} if suffix == ".svg" else {"Software": None}
        figure.savefig(buffer, format=suffix[1:], dpi=150, metadata=metadata)
    return buffer.getvalue()


def _latency(axes: Axes, values: SeriesChart) -> None:
    small = _dot(values) * 0.7
    axes.plot(range(len(values.p95)), values.p95, color=SKY, ls="none", marker="v", ms=small, gid="p95")
    _dots(axes, values, (values.p50, values.low, values.high), BLUE, "p50")
    _steps(axes, values.levels, NAVY)
    if values.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_ylabel(f"{values.latency} ({values.unit})")


def _control(axes: Axes, values: SeriesChart) -> None:
    # On an axis of its own: beside a control that takes twice as long, 2 % could not be seen.
    axes.plot(
        range(len(values.control)),
        values.control,
        color=GREY,
        marker="o",
        ms=_dot(values) * 0.8,
        ls="none",
        gid="control",
    )
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_ylabel(f"{values.control_name}\nP50 ({values.unit})")


def _speedup(axes: Axes, values: SeriesChart) -> None:
    _dots(axes, values, (values.speedup, values.speedup_low, values.speedup_high), GREEN, "speedup")
    _steps(axes, values.speedup_levels, DARK_GREEN)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_ylabel("speedup (x)")


def _dots(axes: Axes, values: SeriesChart, line: tuple[Sequence[float], ...], color: str, gid: str) -> None:
    """Draw estimates with their intervals; an end that is not known is drawn as none."""
    middle, low, high = (np.array(one) for one in line)
    reach = np.nan_to_num(np.maximum([middle - low, high - middle], 0.0))
    axes.errorbar(
        range(len(middle)),
        middle,
        yerr=reach,
        color=color,
        fmt="o",
        ms=_dot(values),
        elinewidth=0.8,
        capsize=0,
        zorder=3,
        gid=gid,
    )


def _dot(values: SeriesChart) -> float:
    return 2.5 if len(values.p50) > 150 else 4.0


def _steps(axes: Axes, steps: Sequence[LevelStep], color: str) -> None:
    for step in steps:
        axes.plot([step.start - 0.5, step.stop + 0.5], [step.value] * 2, color=color, lw=1.5, zorder=4, gid="level")


def _marks(panels: Sequence[Axes], values: SeriesChart) -> None:
    top = panels[0]
    texts = []
    for mark in values.marks:
        if mark.kind == "gap":
            top.plot([mark.at], [0.03], transform=top.get_xaxis_transform(), marker="x", color=RED, ms=6, gid="gap")
            continue
        color = _MOVE.get(mark.kind, "black" if mark.kind == "definition" else GREY)
        style = {"era": ":", "definition": "-"}.get(mark.kind, "--")
        for panel in panels:
            panel.axvline(mark.at - 0.5, color=color, lw=1.0, ls=style, gid=mark.kind, zorder=1)
        if mark.label:
            texts.append((mark.at - 0.5, mark.label))
    if not texts:
        return
    # Room above the data, a line for each label that would run into the one before it.
    reach = max(len(values.p50), 2)
    ends: list[float] = []
    rows = []
    for at, label in sorted(texts):
        width = reach * len(label) / 130
        left = at > 0.6 * reach
        start, stop = (at - width, at) if left else (at, at + width)
        row = next((number for number, end in enumerate(ends) if end < start), len(ends))
        ends[row:] = [stop, *ends[row + 1 :]]
        rows.append((at, label, row, left))
    _room(top, len(ends), log=values.log)
    for at, label, row, left in rows:
        top.annotate(
            label,
            (at, 1),
            xycoords=top.get_xaxis_transform(),
            xytext=(-3 if left else 3, -3 - 11 * row),
            textcoords="offset points",
            ha="right" if left else "left",
            va="top",
            fontsize=8,
            color="#222222",
            bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 0.8},
        )


def _room(axes: Axes, rows: int, *, log: bool) -> None:
    """Raise the upper end of an axis by the height of so many labels."""
    low, high = axes.get_ylim()
    part = min(0.055 * rows, 0.5) / (1 - min(0.055 * rows, 0.5))
    axes.set_ylim(low, high * (high / low) ** part if log else high + (high - low) * part)


def _legend(figure: Figure, values: SeriesChart) -> None:
    handles = [
        Line2D([], [], color=BLUE, marker="o", lw=0, ms=4, label="P50, 95 % interval"),
        Line2D([], [], color=NAVY, lw=1.6, label="level"),
    ]
    if any(value == value for value in values.p95):  # noqa: PLR0124 (not NaN)
        handles.append(Line2D([], [], color=SKY, marker="v", lw=0, ms=3, label="P95"))
    kinds = dict.fromkeys(mark.kind for mark in values.marks)
    for kind in kinds:
        if kind == "gap":
            handles.append(Line2D([], [], color=RED, marker="x", lw=0, ms=5, label="run without a value"))
        elif kind == "era":
            handles.append(Line2D([], [], color=GREY, ls=":", lw=1, label="environment changed"))
        elif kind == "definition":
            handles.append(Line2D([], [], color="black", lw=1, label="new definition"))
        else:
            handles.append(
                Line2D(
                    [],
                    [],
                    color=_MOVE[kind],
                    ls="--",
                    lw=1,
                    label=f"moved: {'only the control' if kind == 'control' else kind}",
                )
            )
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
