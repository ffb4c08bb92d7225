"""What the figures of an operator share: style, and a colour and a shape for each of its implementations."""

from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pairbench.model.plan import BASELINE
from pairbench.report.charts.series_figure import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY

COLORS = (BLUE, RED, GREEN, PURPLE, ORANGE, SKY)
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
"""As many as have no common divisor with the colours, so that 42 implementations differ."""


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
