"""Numbers as people read them: four significant digits and a unit that fits; an empty string for None.

Names and values of what is counted, in the words of sentences, tables and charts.
"""

import math
from collections.abc import Callable

from pairbench.analyze.compare.exact import COUNTS, LAUNCHES
from pairbench.stats import Interval

_TIMES = ((1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s"))
_SIZES = ((1, "B"), (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB"), (2**40, "TiB"))
_WIDEST = 10.0
_NARROWEST = 1e-4
"""Part below which an interval's width is given as a bound: no clock is that exact, and files of other tools give intervals of any width."""


def duration(ns: float | None, digits: int = 4) -> str:
    """Return nanoseconds like `12.35 us`."""
    return _scaled(ns, _TIMES, digits)


def size(n_bytes: float | None) -> str:
    """Return bytes like `1.5 GiB`; whole bytes are exact."""
    return f"{n_bytes:.0f} B" if n_bytes is not None and abs(n_bytes) < 2**10 else _scaled(n_bytes, _SIZES)


def ratio(value: float | None) -> str:
    """Return a speedup like `2.034x` or `0.507x`."""
    text = _ratio(value)
    return f"{text}x" if text else ""


def ratio_range(low: float | None, high: float | None) -> str:
    ends = (_ratio(low), _ratio(high))
    return "-".join(ends) if all(ends) else ""


def between(interval: Interval | None, text_of: Callable[[float | None], str] = ratio) -> str:
    """Return the ends of an interval like `2.468x to 2.494x`; empty where they are not known."""
    ends = (text_of(interval.low), text_of(interval.high)) if interval else ()
    return " to ".join(ends) if all(ends) else ""


def percent(part: float | None) -> str:
    return "" if part is None or not math.isfinite(part) else f"{significant(100 * part, 2)}%"


def change(ratio: float | None) -> str:
    """Return current over reference like `+2.03%`, or like `12.3x` where percent would be hard to read."""
    if ratio is None or not math.isfinite(ratio):
        return ""
    part = ratio - 1
    if part >= _WIDEST:
        return f"{significant(ratio, 3)}x"
    digits = 2 if abs(part) < 0.1 else 1 if abs(part) < 1 else 0
    # Adding zero takes the sign from -0.00.
    return f"{round(100 * part, digits) + 0.0:+.{digits}f}%"


def count(value: float | None) -> str:
    """Return a count, which may come as a float from a column that holds nulls."""
    return "" if value is None or not math.isfinite(value) else f"{value:.0f}"


def error(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.2g}"


def spread(estimate: float | None, low: float | None, high: float | None) -> str:
    """Return how far an interval reaches to its wider side, like `±0.21%`; beyond tenfold, and below 0.01 %, no figure says more."""
    if estimate is None or low is None or high is None or not estimate > 0:
        return ""
    sides = (estimate - low, high - estimate)
    if not all(map(math.isfinite, sides)):
        return ""
    part = max(sides) / estimate
    if 0 < part < _NARROWEST:
        return f"±<{percent(_NARROWEST)}"
    return f"±{percent(part)}" if part <= _WIDEST else f">±{percent(_WIDEST)}"


def significant(value: float | None, digits: int = 4) -> str:
    """Return a number with so many digits that count, never in exponent form: 1234.5 -> 1234, 0.5 -> 0.5000."""
    if value is None or math.isnan(value):
        return ""
    if math.isinf(value) or value == 0:
        return f"{value:g}"
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{rounded:.{max(0, digits - 1 - math.floor(math.log10(abs(rounded))))}f}"


def _scaled(value: float | None, units: tuple[tuple[float, str], ...], digits: int = 4) -> str:
    if value is None or math.isnan(value):
        return ""
    scale, unit = scale_of(value, units, digits)
    return f"{significant(value / scale, digits)} {unit}"


def scale_of(value: float, units: tuple[tuple[float, str], ...] = _TIMES, digits: int = 4) -> tuple[float, str]:
    """Return the unit that fits a quantity: how many nanoseconds or bytes it has, and its name."""
    # Chosen after rounding, so that 999.97 ns is 1.000 us and not 1000 ns.
    rounded = abs(float(f"{value:.{digits - 1}e}"))
    return next((entry for entry in reversed(units) if rounded >= entry[0]), units[0])


def _ratio(value: float | None) -> str:
    return significant(value, 4 if value is not None and value >= 1 else 3)


NAMES = {
    **LAUNCHES,
    **COUNTS,
    "peak_bytes": "peak memory",
    "margin": "tolerance left",
    "oracle_ratio": "error beside the baseline's",
    "status": "status",
}
_ORDER = list(NAMES)


def count_change(metric: str, before: float | str | None, after: float | str | None) -> str:
    """Return a change like `launches 1 → 3`."""
    return f"{NAMES.get(metric, metric)} {_value(metric, before)} → {_value(metric, after)}"


def axis(metric: str) -> str:
    """Return what the axis of a count says, like `launches a call`."""
    if metric == "peak_bytes":
        return "peak memory (MiB)"
    return f"{NAMES[metric]} a call" if metric in LAUNCHES or metric in COUNTS else NAMES.get(metric, metric)


def order(metric: str) -> int:
    """Return the place of a metric among all, the most telling first."""
    return _ORDER.index(metric) if metric in _ORDER else len(_ORDER)


def _value(metric: str, value: float | str | None) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return value
    if metric == "peak_bytes":
        return size(value)
    if metric == "margin":
        return percent(value)
    return f"{value:.3g}" if metric == "oracle_ratio" else f"{value:,.0f}"
