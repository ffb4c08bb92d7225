"""The data of the pages' scripts: each a script that calls one function, for a page opened from disk can load nothing else.

Values are arrays, with each name once; a recorded environment, which is JSON of any shape, becomes plain fields.
"""

import base64
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pairbench.analyze.history.trend import Trend
from pairbench.model.plain import plain
from pairbench.model.record import CALL, DEVICE
from pairbench.model.site import SeriesFacts, SiteFacts
from pairbench.report.comparison_words import kernel_name, short_commit
from pairbench.report.operator_charts import RooflineChart, SpeedupChart
from pairbench.report.render import shorten
from pairbench.report.trend import LevelStep, series_chart
from pairbench.report.units import AXES, case_labels
from pairbench.site import paths
from pairbench.site.paths import OperatorFacts, RunFacts, series_anchor
from pairbench.site.summary import implementations, worst_series
from pairbench.site.templates import commit_url
from pairbench.stats import rounded

_DEEPEST = 6  # number of levels that get fields of their own; what lies deeper stays JSON


def fields(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield each value of a recorded environment under its path, like `flags.cudnn.benchmark`, in the order recorded."""
    if isinstance(value, Mapping) and value and len(path) < _DEEPEST:
        for name, item in value.items():
            yield from fields(item, (*path, str(name)))
    else:
        yield ".".join(path), _text(value)


def field_groups(environment: Mapping[str, object]) -> dict[str, list[tuple[str, str]]]:
    """Return the fields by the first part of their path; those that are in no group come first, under an empty name."""
    groups: dict[str, list[tuple[str, str]]] = {"": []}
    for name, value in environment.items():
        group = str(name) if isinstance(value, Mapping) and value else ""
        rows = [(path.removeprefix(f"{group}."), text) for path, text in fields({name: value})]
        groups.setdefault(group, []).extend(rows)
    return {name: rows for name, rows in groups.items() if rows}


def _text(value: object) -> str:
    if value is None or isinstance(value, str | bool):
        return value if isinstance(value, str) else {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, Sequence) and all(isinstance(item, str | int | float) for item in value):
        return ", ".join(map(str, value))
    return json.dumps(value, default=str)


_PAYLOAD_DIGITS = 5
_LEVEL = 6  # how hard zlib tries: a hundredth larger than at 8 in half the time
_PACKED = 4_000  # number of letters from which a script's value is packed
_WHOLE = 2**53  # the number from which on a float no longer holds every whole number
_REASON = 500  # number of letters of a reason that a table shows

_SERIES = ("suite", "case", "implementation", "mode")
NUMBERS = {"p50": "p50_ns", "low": "p50_ns_low", "high": "p50_ns_high", "p95": "p95_ns"}
NUMBERS |= {"call": "call_p50_ns", "host": "host_p50_ns"}
NUMBERS |= {name: name for name in ("speedup", "speedup_low", "speedup_high")}
NUMBERS |= {name: f"{name}_per_call" for name in ("launches", "kernels", "ops")}
NUMBERS |= {"peak": "peak_bytes", "margin": "margin", "rounds": "n_rounds", "remeasured": "remeasured_blocks"}
"""Names in `SeriesFacts.numbers` by their name in a run's data; the call and the host only of runs on a GPU. A column without any value is left out."""

# Names in `SeriesFacts.texts` by their name in a run's data.
_TEXTS = {"timer": "timer", "latency": "latency", "bound": "bound", "stop": "stop_reason"}
_TEXTS |= {"throttle": "throttle_reasons", "definition": "definition_hash", "source": "implementation_hash"}


def script(name: str, value: object) -> bytes:
    """Return a script that hands a value to the page under a name; NaN and infinities become null."""
    # It is plain ASCII and holds nothing that could end a script element or a line of one, wherever it is put. What is
    # large is packed, for a page opened from disk has nobody to do that on the way.
    try:
        text = _json(value)
    except ValueError:
        text = _json(plain(value))  # looked for only where there is one: most values are large and have none
    if len(text) > _PACKED:
        return b'pairbench.packed(%s, "%s");\n' % (_json(name).encode("ascii"), packed(text.encode("ascii")))
    return f"pairbench.data({_json(name)}, {text});\n".encode("ascii")


def packed(content: bytes) -> bytes:
    """Return content as a browser's `DecompressionStream('deflate')` takes it, in the letters of base64."""
    return base64.b64encode(zlib.compress(content, _LEVEL))


def figures(value: float | None, digits: int = _PAYLOAD_DIGITS) -> float | None:
    """Return a number with so many significant digits, whole ones as they are; None for what is no finite number."""
    if value is None or not math.isfinite(value):
        return None
    # A large store has millions of numbers, so this takes few calls; a number beyond 2**53 has lost its last digits already.
    whole = int(value)
    if value == whole and -_WHOLE < whole < _WHOLE:
        return whole
    rounded = float("%.*g" % (digits, value))  # noqa: UP031 (two thirds of the time of an f-string)
    if math.isinf(rounded):  # the largest numbers have nothing above them to be rounded to
        return float(value)
    whole = int(rounded)
    return whole if rounded == whole and -_WHOLE < whole < _WHOLE else rounded


def run_payload(run: RunFacts, beside: str | None = None) -> dict[str, object]:
    """Return the data that runs are compared by: an array for each column, with a value for each series."""
    # `pages` holds suite, operator and page of each operator that has one. `names` holds each text once, and the columns in `texts` hold
    # indices into it (-1 for none); `reasons` is by the series' index. The verdicts are shown where the run stands after the one `beside` it.
    head, series = run.head, run.series
    texts: dict[str, list[str | None]] = {name: [getattr(one.series, name) for one in series] for name in _SERIES}
    texts |= {"tier": [one.tier for one in series], "status": [one.status for one in series]}
    texts |= {name: [one.texts.get(key) for one in series] for name, key in _TEXTS.items()}
    shown = {name: key for name, key in NUMBERS.items() if name not in ("call", "host") or beside_result(series)}
    columns = {name: [figures(one.numbers.get(key)) for one in series] for name, key in shown.items()}
    names: dict[str, int] = {}
    indices = {
        name: [-1 if text is None else names.setdefault(text, len(names)) for text in column]
        for name, column in texts.items()
    }
    verdicts = None
    if run.verdicts is not None:
        outcomes = [run.verdicts.outcomes.get(one.series, "") for one in series]
        verdicts = {"run": beside, "outcomes": outcomes, "moves": run.verdicts.moves}
    # What describes this one run is left out.
    lasting = {name: text for name, text in fields(run.environment) if name.partition(".")[0] != "observed"}
    known = {name: column for name, column in columns.items() if any(value is not None for value in column)}
    pages = [
        [suite, operator, paths.operator_page(head.device_name, suite, operator)]
        for suite, operator in sorted({(one.series.suite, one.series.operator) for one in series})
        if (head.device_name, suite, operator) in run.pages
    ]
    reasons = {str(index): shorten(one.reason, _REASON) for index, one in enumerate(series) if one.reason}
    whole: dict[str, object] = {"run": head.run_id, "device": head.device_name, "started": head.started_at}
    whole |= {"commit": head.commit, "dirty": head.dirty, "branch": head.branch}
    whole |= {"environment": {**head.versions, "machine": head.hostname, **lasting}}
    whole |= {"texts": indices, "names": list(names), "numbers": known, "pages": pages}
    return whole | {"verdicts": verdicts, "reasons": reasons}


def beside_result(series: Iterable[SeriesFacts]) -> bool:
    """Return whether the call's latency stands beside the results of any series: those of a GPU are the device's."""
    return any(one.texts.get("latency") == DEVICE.name for one in series)


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")


_DIGITS = 4
_KERNEL = 60
_NAME = 500  # number of letters of a name in a tooltip
_NUMBERS = (
    *("p50_ns", "p95_ns", "call_p50_ns", "device_p50_ns", "host_p50_ns"),
    *("kernels_per_call", "launches_per_call", "peak_bytes"),
    *("p50_ns_low", "p50_ns_high", "speedup", "speedup_low", "speedup_high"),
)


def operator_payload(
    facts: SiteFacts, operator: OperatorFacts, speedup: SpeedupChart, roofline: RooflineChart
) -> dict[str, Any]:
    """Return the value that the scripts of an operator's page draw from."""
    # Series, cases, implementations, runs and kernels are named by their indices in the lists of the same name.
    page = paths.operator_page(operator.device_name, operator.suite, operator.operator)
    runs: dict[str, list[Any]] = {}
    for points in (trend.points for trend in operator.trends):
        for run_id, *row in zip(*map(points.values, ("run_id", "started_at", "commit", "dirty")), strict=True):
            runs.setdefault(run_id, row)
    places = {run_id: place for place, run_id in enumerate(runs)}
    kernels: dict[str, int] = {}
    labels = case_labels(operator.series)
    cases = list(labels)
    axes = {one.series.case: one.axes for one in operator.series}
    names, worst = implementations(operator.series), worst_series(operator.series)
    series = []
    for one, trend in zip(operator.series, operator.trends, strict=True):
        place = {"case": cases.index(one.series.case), "implementation": names.index(one.series.implementation)}
        series.append({**_series(one, kernels), **place, "trend": _trend(trend, places)})
    heads = []
    for run_id, (started_at, commit, dirty) in runs.items():
        head: dict[str, str | None] = {"id": run_id, "at": shorten(started_at[:16].replace("T", " "), 16)}
        head |= {"commit": shorten(short_commit(commit, dirty), 20), "url": commit_url(facts.repository, commit)}
        heads.append({**head, "href": paths.relative(page, paths.run_page(run_id, operator.device_name))})
    named = [{"key": shorten(case, _NAME), "label": label, "axes": _axes(axes[case])} for case, label in labels.items()]
    whole: dict[str, Any] = {"operator": shorten(operator.operator, _NAME)}
    whole |= {"device": shorten(operator.device_name, _NAME)}
    whole |= {"implementations": [shorten(name, _NAME) for name in names], "cases": named, "series": series}
    whole |= {"worst": operator.series.index(worst) if worst else None}
    whole |= {"speedup": _speedup(speedup), "roofline": _roofline(roofline), "runs": heads}
    whole["kernels"] = [{"name": kernel_name(name, _KERNEL), "whole": shorten(name, _NAME)} for name in kernels]
    return whole


def _series(one: SeriesFacts, kernels: dict[str, int]) -> dict[str, Any]:
    named = [
        [kernels.setdefault(kernel.name, len(kernels)), kernel.count, figures(kernel.total_ns, _DIGITS)]
        for kernel in one.kernels or ()
    ]
    numbers = {name: figures(one.numbers.get(name), _DIGITS) for name in _NUMBERS if name in one.numbers}
    shown: dict[str, Any] = {"id": series_anchor(one.series), "mode": shorten(one.series.mode, 20)}
    shown |= {"status": shorten(one.status, 20), "reason": shorten(one.reason or "", _NAME), "numbers": numbers}
    shown |= {"latency": AXES[one.texts.get("latency", CALL.name)], "bound": one.texts.get("bound", "")}
    shown |= {"launch_status": shorten(one.texts.get("launch_status", ""), 40)}
    return shown | {"kernels": None if one.kernels is None else named, "quantiles": _cut(one.quantiles)}


def _axes(axes: Mapping[str, object]) -> dict[str, object]:
    return {
        shorten(name, 40): figures(value, 9) if isinstance(value, int | float) else shorten(str(value), 40)
        for name, value in axes.items()
    }


def _trend(trend: Trend, places: Mapping[str, int]) -> dict[str, Any]:
    values = series_chart(trend)
    lines = zip(values.lines, rounded([*values.lines.values()], _DIGITS), strict=True)
    return {
        **{name: getattr(values, name) for name in ("unit", "latency", "subtitle", "control_name", "log")},
        "runs": [places[run_id] for run_id in trend.points.values("run_id")],
        # A line without any value is none.
        **{name: line if any(value is not None for value in line) else [] for name, line in lines},
        "levels": list(map(_level, values.levels)),
        "speedup_levels": list(map(_level, values.speedup_levels)),
        "counts": [[label, _cut(line)] for label, line in values.counts],
        "marks": [[mark.at, mark.kind, mark.label] for mark in values.marks],
    }


def _level(step: LevelStep) -> list[float | None]:
    """Return first run, last run and value of a level, and of the slope of a drift the value at its end, too."""
    return [step.start, step.stop, *_cut((step.value, step.end)[: 1 + (step.end != step.value)])]


def _speedup(chart: SpeedupChart) -> dict[str, Any]:
    points = [
        [index, group, row, *_cut((speedup, low, high)), state, note]
        for index, group, row, _, speedup, low, high, state, note in chart.points
    ]
    columns = ("groups", "heads", "rows", "shared", "log")
    return {**{name: getattr(chart, name) for name in columns}, "points": points}


def _roofline(chart: RooflineChart) -> dict[str, Any]:
    points = []
    for one in chart.points:
        numbers = _cut((one.intensity, one.tflops, one.gbps, one.fraction))
        points.append([one.series_index, one.label, *numbers, shorten(one.dtype, 20)])
    roofs = [{**vars(roof), "x": _cut(roof.x), "y": _cut(roof.y)} for roof in chart.roofs]
    return {"roofs": roofs, "x": _cut(chart.x), "y": _cut(chart.y), "points": points}


_FEW = 20  # number of values up to which an array saves no time


def _cut(values: Sequence[float]) -> list[float | None]:
    """Return each value to four digits, as `figures` does."""
    return [figures(value, _DIGITS) for value in values] if len(values) <= _FEW else rounded([values], _DIGITS)[0]
