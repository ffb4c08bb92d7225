"""The rows of an overview: for each operator, device model, dtype, tier and mode the best variant and what it gains."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from pairbench.analyze.history.trend import Trend
from pairbench.model.latency import CALL
from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE
from pairbench.model.site import OverviewRow, SeriesFacts
from pairbench.site.judging.status import worst
from pairbench.stats import Interval

_SPARK = 30
"""The number of newest runs that a sparkline shows."""
_Pairs = Sequence[tuple[SeriesFacts, Trend]]


def overview_rows(series: Iterable[tuple[SeriesFacts, Trend]]) -> tuple[OverviewRow, ...]:
    """Return the rows of one operator on one device model, by dtype, tier and mode.

    Args:
        series: all series of it.
    """
    groups: defaultdict[tuple[str, str, str], list[tuple[SeriesFacts, Trend]]] = defaultdict(list)
    for facts, trend in series:
        groups[facts.dtype, facts.tier, facts.series.mode].append((facts, trend))
    return tuple(_row(key, groups[key]) for key in sorted(groups))


def _row(key: tuple[str, str, str], group: _Pairs) -> OverviewRow:
    dtype, tier, mode = key
    first = group[0][0].series
    baselines = [facts for facts, _ in group if facts.series.implementation == BASELINE]
    speedups = _speedups(group)
    # What works in few cases is no answer to which variant to take.
    best = max(speedups, key=lambda name: (len(speedups[name]), _mean(speedups[name]).estimate), default=None)
    intervals = speedups[best] if best is not None else {}
    chosen = [(facts, trend) for facts, trend in group if facts.series.implementation == best]
    shown = [facts for facts, _ in chosen if facts.series.case in intervals]
    margins = [facts.numbers["margin"] for facts, _ in group if "margin" in facts.numbers]
    return OverviewRow(
        device_name=first.device_name,
        suite=first.suite,
        operator=first.operator,
        dtype=dtype,
        tier=tier,
        mode=mode,
        cases=len({facts.series.case for facts, _ in group}),
        variant=best,
        speedup=_mean(intervals) if intervals else None,
        least=min((one.estimate for one in intervals.values()), default=None),
        most=max((one.estimate for one in intervals.values()), default=None),
        latency=" and ".join(
            sorted({one.texts.get("speedup_of", CALL.name) for one in shown}, key=("device", "call").index)
        )
        or CALL.name,
        host_bound=tuple(sorted(one.series.case for one in shown if one.texts.get("bound") == "host")),
        losing=tuple(sorted(case for case, one in intervals.items() if one.high < 1)),
        statuses=Counter(facts.status for facts, _ in group),
        margin=min(margins, default=None),
        launches_before=_launches([facts for facts in baselines if facts.series.case in intervals]),
        launches_after=_launches(shown),
        spark=_spark(chosen),
        state=worst([facts.gate_status.state for facts, _ in group]),
        newest_run=max(facts.run_id for facts, _ in group),
    )


def _speedups(group: _Pairs) -> dict[str, dict[str, Interval]]:
    """Return the speedup of each variant in each case in which its newest run has one."""
    by_variant: dict[str, dict[str, Interval]] = {}
    for facts, _ in group:
        numbers, name = facts.numbers, facts.series.implementation
        value = numbers.get("speedup", 0.0)
        if name == BASELINE or facts.status != Status.MEASURED or not 0 < value < math.inf:
            continue
        low, high = (numbers.get(f"speedup_{end}", math.nan) for end in ("low", "high"))
        by_variant.setdefault(name, {})[facts.series.case] = Interval(value, low, high)
    return by_variant


def _mean(several: Mapping[str, Interval]) -> Interval:
    """Return the geometric mean; the variances of the logarithms of independent cases add up."""
    logs = [math.log(one.estimate) for one in several.values()]
    halves = [(math.log(one.high) - math.log(one.low)) / 2 if one.low > 0 else math.nan for one in several.values()]
    middle, reach = sum(logs) / len(logs), math.hypot(*halves) / len(logs)
    return Interval(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))


def _launches(facts: Sequence[SeriesFacts]) -> tuple[int, int] | None:
    counts = [int(one.numbers["launches_per_call"]) for one in facts if "launches_per_call" in one.numbers]
    return (min(counts), max(counts)) if counts else None


def _spark(chosen: _Pairs) -> tuple[float | None, ...]:
    """Return the geometric mean of the speedups in each of the newest runs that has any."""
    logs: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for _, trend in chosen:
        for point in trend.points:
            if point.speedup:
                logs[point.record.started_at, point.record.run_id].append(math.log(point.speedup))
    # A run of a few of the cases only has another mean, which would look like a move.
    most = max(map(len, logs.values()), default=0)
    whole = [logs[key] for key in sorted(logs) if len(logs[key]) == most]
    return tuple(math.exp(sum(values) / len(values)) for values in whole[-_SPARK:])
