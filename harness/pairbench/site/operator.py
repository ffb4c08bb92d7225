"""The page of an operator on a device model, and the script with what its charts show."""

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace

from pairbench.model.environment import about_precision
from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE
from pairbench.model.site import STATES, SeriesFacts, SiteFacts
from pairbench.report import operator_charts, units
from pairbench.report.render import shorten
from pairbench.report.units import both_speedups, case_labels, issuing, overwrites
from pairbench.site import paths
from pairbench.site.event_pages import changes, headline
from pairbench.site.marks import heat_map
from pairbench.site.paths import File, OperatorFacts, series_anchor
from pairbench.site.payload import beside_result, operator_payload, script
from pairbench.site.summary import implementations, operator_verdict, worst_series
from pairbench.site.templates import render

LIMITS = {  # what limits a series, each with its condition
    "host": "issuing the call takes the host longer than its work takes the device: a stream of calls waits for the host",
    "launches": "kernels take less than 10 us each on the device, much of which is starting and ending",
    "memory": "at least 60 % of the bandwidth of a copy",
    "compute": "at least 60 % of the rate of a library matrix product in its dtype",
    "none of these": "below 60 % of its roof, with longer kernels and a host that keeps up: room for another kernel",
}
_SHORT_NS = 10_000.0  # time of a kernel below which launching limits: adding 64 Ki elements takes 4.4 us on an H200
_NEAR = 0.6


def limit_of(one: SeriesFacts, ceilings: Mapping[str, float]) -> SimpleNamespace:
    """Return what limits a series; of what applies, what comes first in `LIMITS`."""
    host, device = one.numbers.get("host_p50_ns"), one.numbers.get("device_p50_ns", math.nan)
    kernels = one.numbers.get("kernels_per_call", 0.0)
    if one.texts.get("bound") == "host":
        return SimpleNamespace(word="host", detail=issuing(host, device))
    if kernels >= 1 and device / kernels < _SHORT_NS:
        number = f"{units.count(kernels)} kernel{'' if kernels == 1 else 's'}"
        return SimpleNamespace(word="launches", detail=f"{number} of {units.duration(device / kernels)}")
    fraction = operator_charts.roof_fraction(one, ceilings)
    if math.isnan(fraction):
        return SimpleNamespace(word="", detail="")
    detail = f"{units.percent(fraction)} of its roof"
    if fraction < _NEAR:
        return SimpleNamespace(word="none of these", detail=detail)
    # Where the dtype is not known there is a fraction only where memory limits.
    arithmetic = bool(one.dtype) and operator_charts.intensity_of(one) >= operator_charts.ridge(ceilings, one.dtype)
    return SimpleNamespace(word="compute" if arithmetic else "memory", detail=detail)


_FEW = 6  # number of runs below which no change of level can be found: it takes some on both sides


def implementation_rows(operator: OperatorFacts) -> tuple[SimpleNamespace, ...]:
    """Return the table's rows: cases as the charts have them, the baseline of each first."""
    labels = case_labels(operator.series)
    places = {case: place for place, case in enumerate(labels)}

    def rank(one: SeriesFacts) -> tuple[int, str, bool, str]:
        name = one.series.implementation
        return places[one.series.case], one.series.mode, name != BASELINE, name

    rows = []
    for one in sorted(operator.series, key=rank):
        ends = (one.numbers.get(name, math.nan) for name in ("speedup", "speedup_low", "speedup_high"))
        fraction = operator_charts.roof_fraction(one, operator.ceilings)
        row = {"id": series_anchor(one.series), "facts": one, "case": labels[one.series.case], "remarks": _remarks(one)}
        row |= {"proven": operator_charts.state_of(*ends), "limit": limit_of(one, operator.ceilings)}
        rows.append(SimpleNamespace(**row, fraction=None if math.isnan(fraction) else fraction))
    return tuple(rows)


def choices(table: tuple[SimpleNamespace, ...]) -> dict[str, tuple[str, ...]]:
    """Return the table's filters: the values of each by its name, where there are several."""
    series = [row.facts for row in table]
    values: dict[str, Iterable[str]] = {
        "implementation": implementations(series),
        "dtype": sorted({one.dtype for one in series}),
        "tier": sorted({one.tier for one in series}),
        "mode": sorted({one.series.mode for one in series}),
        "state": sorted({one.gate_status.state for one in series}, key=STATES.index),
        "limit": [word for word in LIMITS if any(row.limit.word == word for row in table)],
    }
    return {name: several for name, chosen in values.items() if len(several := tuple(chosen)) > 1}


def limited(table: tuple[SimpleNamespace, ...]) -> tuple[SimpleNamespace, ...]:
    """Return the limits of each implementation, the baseline first; empty where the numbers do not tell."""
    measured = [row for row in table if row.facts.status == Status.MEASURED]
    if not any(row.limit.word for row in measured):
        return ()
    counts: dict[str, Counter[str]] = {name: Counter() for name in implementations([row.facts for row in measured])}
    for row in measured:
        counts[row.facts.series.implementation][row.limit.word] += 1
    return tuple(SimpleNamespace(implementation=name, counts=words) for name, words in counts.items())


def _remarks(one: SeriesFacts) -> tuple[str, ...]:
    texts = one.texts
    throttled, counted, stop = (texts.get(name) for name in ("throttle_reasons", "launch_status", "stop_reason"))
    again = one.numbers.get("remeasured_blocks", 0.0)
    latency = texts.get("latency")
    of_call = "speedup" in one.numbers and latency != texts.get("speedup_of", latency)
    by_replays = one.numbers.get("speedup") if texts.get("device_timer") == "graph_replay" and not of_call else None
    best = None if "withheld" in texts else one.numbers.get("speedup_over_best")
    over_best = units.over(best, texts.get("best_alternative"), one.series.mode)
    remarks = [
        one.reason or "",
        f"{over_best}, the best alternative" if over_best else "",
        overwrites(consumes.split(", ")) if (consumes := texts.get("consumes")) else "",
        both_speedups(by_replays, one.numbers.get("stream_speedup"), one.series.mode),
        "the speedup is of the call: the baseline has no latency on the device" if of_call else "",
        f"speedup withheld: {busy}" if (busy := texts.get("withheld")) else "",
        f"throttled: {throttled}" if throttled else "",
        f"{again:.0f} blocks measured again" if again else "",
        f"stopped by {stop}" if stop and stop != "precise" else "",
        f"launches {counted}" if counted in {"unreliable", "unavailable"} else "",
        units.SAME_MEMORY if "reuses_output" in texts else "",
        f"accepted: {one.gate_status.accepted}" if one.gate_status.accepted else "",
    ]
    return tuple(filter(None, remarks))


def operator(facts: SiteFacts, operator: OperatorFacts) -> Iterator[File]:
    key = (operator.device_name, operator.suite, operator.operator)
    page = paths.operator_page(*key)
    data, name = paths.data_of(page), page.removesuffix(".html")
    speedups = operator_charts.speedup_chart(operator.series)
    roofline = operator_charts.roofline_chart(operator.series, operator.ceilings)
    known = any(point.state != "none" for point in speedups.points)
    rows, worst = implementation_rows(operator), worst_series(operator.series)
    run_ids, texts = {one.run_id for one in operator.series}, [one.texts for one in operator.series]
    heads = [run for run in facts.runs if run.run_id in run_ids and run.device_name == operator.device_name]
    runs = max((len(trend.points) for trend in operator.trends), default=0)
    at_most = f"{runs} run{'' if runs == 1 else 's'} of a series at most"
    dtypes, modes = {one.dtype for one in operator.series}, {one.series.mode for one in operator.series}
    shown: dict[str, object] = {"operator": operator, "data": data, "name": name, "rows": rows, "known": known}
    shown |= {"changes": changes, "headline": headline, "LIMITS": LIMITS, "limited": limited(rows)}
    shown |= {"newest": max(heads, key=lambda run: (run.started_at, run.run_id), default=None)}
    shown |= {"summaries": operator.contribution.rows, "heat": heat_map(operator.series)}
    shown |= {"worst": next((row for row in rows if row.facts is worst), None)}
    shown |= {"wrong": sum(1 for one in operator.series if one.gate_status.lasting)}
    shown |= {"verdict": operator_verdict(operator.contribution.rows, operator.series)}
    few = f"{at_most}: too few to find a change of level." if runs < _FEW else f"None found; {at_most}."
    of_gpu = (one.get("float32_precision") for one in texts if one.get("device_uuid"))
    shown |= {"no_change": few, "precision": about_precision(of_gpu), "beside": beside_result(operator.series)}
    kept = [one for one in facts.breakdowns if (one.device_name, one.suite, one.operator) == key]
    command = ["pairbench", "verify" if rows else "run", shorten(f"{key[1]}::{key[2]}", 300)]
    shown |= {"breakdowns": kept, "measured": any(row.facts.status == Status.MEASURED for row in rows)}
    shown |= {"next": shlex.join(command), "choices": choices(rows)}
    shown |= {"shared": {"dtype": list(dtypes), "Mode": list(modes)}, "speedup": speedups, "roofline": roofline}
    shown |= {"speedup_summary": operator_charts.speedup_summary(speedups)}
    shown |= {"roofline_summary": operator_charts.roofline_summary(roofline)}
    yield render(page, facts, "operator.html.j2", **shown)
    yield File(path=data, content=script(name, operator_payload(facts, operator, speedups, roofline)))
