"""What all figures share: colours, style, the empty figure, and a colour and a shape for each implementation."""

from collections.abc import Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pairbench.model.plan import BASELINE

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
