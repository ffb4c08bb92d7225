"""The values that the template of an operator's page shows, derived from its series."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE
from pairbench.model.site import STATES, RunHead, SeriesFacts, SiteFacts
from pairbench.report import latency_words
from pairbench.report.case_labels import case_labels
from pairbench.report.charts.roofline import roof_fraction
from pairbench.report.charts.speedup import state_of
from pairbench.report.latency_words import both_speedups, overwrites
from pairbench.report.limits import LIMITS, Limit, limit_of
from pairbench.report.site.operator_payload import implementations, series_id
from pairbench.report.site.values import OperatorFacts
from pairbench.stats import Interval

_FEW = 6
"""Number of runs below which no change of level can be found: it takes some on both sides."""


@dataclass(frozen=True, kw_only=True)
class OperatorRow:
    """The row of a series in the table of all series."""

    id: str
    facts: SeriesFacts
    case: str
    """Label of the case, as in the charts."""
    order: int
    """Position of the row in the default order, counted from 0."""
    proven: str
    """State of the speedup: faster, slower, open or none."""
    limit: Limit
    fraction: float | None
    """Part of its roof that the series reaches; None where that is not known."""
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Limited:
    """The limits of an implementation, counted over the cases and modes in which it was measured."""

    implementation: str
    counts: Mapping[str, int]
    """Number of series by the words of LIMITS; the empty word counts those whose numbers do not tell."""


def rows(operator: OperatorFacts) -> tuple[OperatorRow, ...]:
    """Return the table's rows: cases as the charts have them, the baseline of each first."""
    labels = {one.case: (index, one.label) for index, one in enumerate(case_labels(operator.series))}
    ordered = sorted(
        operator.series,
        key=lambda one: (
            *(labels[one.series.case][0], one.series.mode),
            *(one.series.implementation != BASELINE, one.series.implementation),
        ),
    )
    return tuple(_row(one, order, labels[one.series.case][1], operator) for order, one in enumerate(ordered))


def choices(table: tuple[OperatorRow, ...]) -> dict[str, tuple[str, ...]]:
    """Return the table's filters: the values of each by its name, where there are several."""
    series = [row.facts for row in table]
    states = {one.gate_status.state for one in series}
    values = {
        "implementation": tuple(implementations(series)),
        "dtype": tuple(sorted({one.dtype for one in series})),
        "tier": tuple(sorted({one.tier for one in series})),
        "mode": tuple(sorted({one.series.mode for one in series})),
        "state": tuple(state for state in STATES if state in states),
        "limit": tuple(word for word in LIMITS if any(row.limit.word == word for row in table)),
    }
    return {name: several for name, several in values.items() if len(several) > 1}


def limited(table: tuple[OperatorRow, ...]) -> tuple[Limited, ...]:
    """Return the limits of each implementation, the baseline first; empty where the numbers do not tell."""
    measured = [row for row in table if row.facts.status == Status.MEASURED]
    if not any(row.limit.word for row in measured):
        return ()
    names = implementations([row.facts for row in measured])
    return tuple(
        Limited(
            implementation=name,
            counts=Counter(row.limit.word for row in measured if row.facts.series.implementation == name),
        )
        for name in names
    )


def newest(facts: SiteFacts, operator: OperatorFacts) -> RunHead | None:
    """Return the newest run that measured the operator."""
    runs = {one.run_id for one in operator.series}
    candidates = [run for run in facts.runs if run.run_id in runs and run.device_name == operator.device_name]
    return max(candidates, key=lambda run: (run.started_at, run.run_id), default=None)


def no_change(operator: OperatorFacts) -> str:
    """Return a sentence on why no event is shown."""
    runs = max((len(trend.points) for trend in operator.trends), default=0)
    text = f"{runs} run{'' if runs == 1 else 's'} of a series at most"
    return f"{text}: too few to find a change of level." if runs < _FEW else f"None found; {text}."


def _row(one: SeriesFacts, order: int, case: str, operator: OperatorFacts) -> OperatorRow:
    speedup = _interval(one)
    fraction = roof_fraction(one, operator.ceilings)
    return OperatorRow(
        id=series_id(one),
        facts=one,
        case=case,
        order=order,
        proven=state_of(*speedup) if speedup else "none",
        limit=limit_of(one, operator.ceilings),
        fraction=None if math.isnan(fraction) else fraction,
        remarks=_remarks(one),
    )


def _interval(one: SeriesFacts) -> Interval | None:
    ends = [one.numbers.get(name, math.nan) for name in ("speedup", "speedup_low", "speedup_high")]
    return None if math.isnan(ends[0]) else Interval(*ends)


def _remarks(one: SeriesFacts) -> tuple[str, ...]:
    """Return remarks beside the numbers."""
    throttled, counted = one.texts.get("throttle_reasons"), one.texts.get("launch_status")
    stop = one.texts.get("stop_reason")
    again = one.numbers.get("remeasured_blocks", 0.0)
    of_call = "speedup" in one.numbers and one.texts.get("latency") != one.texts.get(
        "speedup_of", one.texts.get("latency")
    )
    by_replays = one.texts.get("device_timer") == "graph_replay" and not of_call
    remarks = [
        one.reason or "",
        overwrites(consumes.split(", ")) if (consumes := one.texts.get("consumes")) else "",
        both_speedups(
            one.numbers.get("speedup") if by_replays else None, one.numbers.get("stream_speedup"), one.series.mode
        ),
        "the speedup is of the call: the baseline has no latency on the device" if of_call else "",
        f"speedup withheld: {busy}" if (busy := one.texts.get("withheld")) else "",
        f"throttled: {throttled}" if throttled else "",
        f"{again:.0f} blocks measured again" if again else "",
        f"stopped by {stop}" if stop and stop != "precise" else "",
        f"launches {counted}" if counted in {"unreliable", "unavailable"} else "",
        latency_words.SAME_MEMORY if "reuses_output" in one.texts else "",
        f"accepted: {one.gate_status.accepted}" if one.gate_status.accepted else "",
    ]
    return tuple(filter(None, remarks))
