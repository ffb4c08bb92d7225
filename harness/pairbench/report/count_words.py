"""Names and values of what is counted, in the words of sentences, tables and charts."""

from pairbench.analyze.compare.exact import COUNTS, LAUNCHES
from pairbench.report import units

NAMES = {
    **LAUNCHES,
    **COUNTS,
    "peak_bytes": "peak memory",
    "margin": "tolerance left",
    "oracle_ratio": "error beside the baseline's",
    "status": "status",
}
"""Names by the column of the record."""
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
        return units.size(value)
    if metric == "margin":
        return units.percent(value)
    return f"{value:.3g}" if metric == "oracle_ratio" else f"{value:,.0f}"
