"""The data of the charts on an operator's page, as the value of its data script: arrays, and each name once."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pairbench.analyze.history.trend import Trend
from pairbench.model.latency import CALL
from pairbench.model.plan import BASELINE
from pairbench.model.record import KernelCount, Record
from pairbench.model.series import Series
from pairbench.model.site import SeriesFacts, SiteFacts
from pairbench.report.case_labels import case_labels
from pairbench.report.charts.roofline import roofline_chart
from pairbench.report.charts.series import LevelStep, series_chart
from pairbench.report.charts.speedup import speedup_chart
from pairbench.report.comparison.words import kernel_name, short_commit, shorten
from pairbench.report.latency_words import AXES
from pairbench.report.site import links, paths
from pairbench.report.site.payload import figures
from pairbench.report.site.values import OperatorFacts

_DIGITS = 4
_KERNEL = 60
_NAME = 500
"""Number of letters of a name in a tooltip."""
_NUMBERS = (
    *("p50_ns", "p95_ns", "call_p50_ns", "device_p50_ns", "host_p50_ns"),
    *("kernels_per_call", "launches_per_call"),
    *("p50_ns_low", "p50_ns_high", "speedup", "speedup_low", "speedup_high"),
)


def operator_payload(facts: SiteFacts, operator: OperatorFacts) -> dict[str, Any]:
    """Return the value that the scripts of an operator's page draw from.

    Series, cases, implementations, runs and kernels are named by their indices in the lists of the same name.
    """
    page = paths.operator_page(operator.device_name, operator.suite, operator.operator)
    runs = _Runs(facts, page)
    kernels: dict[str, int] = {}
    labels = case_labels(operator.series)
    cases = {one.case: index for index, one in enumerate(labels)}
    axes = {one.series.case: one.axes for one in operator.series}
    names = implementations(operator.series)
    series = [
        {
            **_series(one, kernels),
            "case": cases[one.series.case],
            "implementation": names.index(one.series.implementation),
            "trend": _trend(trend, runs),
        }
        for one, trend in zip(operator.series, operator.trends, strict=True)
    ]
    return {
        "operator": shorten(operator.operator, _NAME),
        "device": shorten(operator.device_name, _NAME),
        "implementations": [shorten(name, _NAME) for name in names],
        "cases": [
            {"key": shorten(one.case, _NAME), "label": one.label, "axes": _axes(axes[one.case])} for one in labels
        ],
        "series": series,
        "speedup": _speedup(operator),
        "roofline": _roofline(operator),
        # Last, for they are known only now.
        "runs": runs.rows,
        "kernels": [{"name": kernel_name(name, _KERNEL), "whole": shorten(name, _NAME)} for name in kernels],
    }


def implementations(series: Sequence[SeriesFacts]) -> list[str]:
    """Return the names of implementations in the order that decides their colours, the baseline first."""
    return sorted(dict.fromkeys(one.series.implementation for one in series), key=lambda name: name != BASELINE)


def series_id(one: SeriesFacts) -> str:
    """Return the id of a series in the page's address."""
    return series_anchor(one.series)


def series_anchor(series: Series) -> str:
    """Return the id of a series in the address of its operator's page."""
    return paths.digest(f"{series.case}-{series.implementation}-{series.mode}")


class _Runs:
    """The runs that a page names, each once."""

    def __init__(self, facts: SiteFacts, page: str) -> None:
        self.rows: list[dict[str, Any]] = []
        self._facts, self._page = facts, page
        self._indices: dict[str, int] = {}

    def index_of(self, record: Record) -> int:
        if record.run_id not in self._indices:
            self._indices[record.run_id] = len(self.rows)
            self.rows.append(
                {
                    "id": record.run_id,
                    "at": shorten(record.started_at[:16].replace("T", " "), 16),
                    "commit": shorten(short_commit(record), 20),
                    "url": links.commit_url(self._facts.repository, record.commit),
                    "href": paths.relative(self._page, paths.run_page(record.run_id, record.device_name)),
                }
            )
        return self._indices[record.run_id]


def _series(one: SeriesFacts, kernels: dict[str, int]) -> dict[str, Any]:
    return {
        "id": series_id(one),
        "mode": shorten(one.series.mode, 20),
        "status": shorten(one.status, 20),
        "reason": shorten(one.reason or "", _NAME),
        "numbers": {name: figures(one.numbers.get(name), _DIGITS) for name in _NUMBERS if name in one.numbers},
        "latency": AXES[one.texts.get("latency", CALL.name)],
        "bound": one.texts.get("bound", ""),
        "launch_status": shorten(one.texts.get("launch_status", ""), 40),
        "kernels": None if one.kernels is None else [_kernel(kernel, kernels) for kernel in one.kernels],
        "quantiles": _cut(one.quantiles),
    }


def _axes(axes: Mapping[str, object]) -> dict[str, object]:
    """Return the axes of a case: numbers as they are, all else as text."""
    return {
        shorten(name, 40): figures(value, 9) if isinstance(value, int | float) else shorten(str(value), 40)
        for name, value in axes.items()
    }


def _kernel(kernel: KernelCount, kernels: dict[str, int]) -> list[float | int | None]:
    index = kernels.setdefault(kernel.name, len(kernels))
    return [index, kernel.count, figures(kernel.total_ns, _DIGITS)]


def _trend(trend: Trend, runs: _Runs) -> dict[str, Any]:
    values = series_chart(trend)
    lines = ("p50", "low", "high", "p95", "control", "speedup", "speedup_low", "speedup_high")
    arrays = {name: _cut(getattr(values, name)) for name in lines}
    return {
        "unit": values.unit,
        "latency": values.latency,
        "subtitle": values.subtitle,
        "control_name": values.control_name,
        "log": values.log,
        "runs": [runs.index_of(point.record) for point in trend.points],
        # A line without any value is none.
        **{name: line if any(value is not None for value in line) else [] for name, line in arrays.items()},
        "levels": _steps(values.levels),
        "speedup_levels": _steps(values.speedup_levels),
        "counts": [[line.label, _cut(line.values)] for line in values.counts],
        "marks": [[mark.at, mark.kind, mark.label] for mark in values.marks],
    }


def _steps(steps: Iterable[LevelStep]) -> list[list[float | int | None]]:
    return [[step.start, step.stop, figures(step.value, _DIGITS)] for step in steps]


def _speedup(operator: OperatorFacts) -> dict[str, Any]:
    chart = speedup_chart(operator.series)
    points = [
        [
            point.series_index,
            point.group,
            point.row,
            *_cut((point.speedup, point.low, point.high)),
            point.state,
            point.note,
        ]
        for point in chart.points
    ]
    return {
        "groups": chart.groups,
        "heads": chart.heads,
        "rows": chart.rows,
        "shared": chart.shared,
        "log": chart.log,
        "points": points,
    }


def _roofline(operator: OperatorFacts) -> dict[str, Any]:
    chart = roofline_chart(operator.series, operator.ceilings)
    points = [
        [
            *(point.series_index, point.label),
            *_cut((point.intensity, point.tflops, point.gbps, point.fraction)),
            shorten(point.dtype, 20),
        ]
        for point in chart.points
    ]
    return {
        "roofs": [{**dataclasses.asdict(roof), "x": _cut(roof.x), "y": _cut(roof.y)} for roof in chart.roofs],
        "x": _cut(chart.x),
        "y": _cut(chart.y),
        "points": points,
    }


def _cut(values: Iterable[float]) -> list[float | None]:
    return [figures(value, _DIGITS) for value in values]
