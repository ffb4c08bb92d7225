"""What the first screen shows: where a series stands, the best variant of each group of cases, and what operators and device models come to."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from operator import itemgetter
from pathlib import PurePosixPath
from types import SimpleNamespace

from pairbench.analyze.history.trend import Latest, Trend
from pairbench.model.case import TIERS
from pairbench.model.comparison import Change, GateOutcome, Verdict
from pairbench.model.environment import MODES
from pairbench.model.outcome import Status
from pairbench.model.plain import grouped
from pairbench.model.plan import BASELINE
from pairbench.model.record import CALL
from pairbench.model.site import STATES, GpuSpread, Moved, OverviewRow, SeriesFacts, SeriesStatus
from pairbench.stats import Interval, percentiles

_STATES = {outcome: outcome.value if outcome.value in STATES else "undecided" for outcome in GateOutcome}


def gate_status_of(status: str, reason: str | None, change: Change | None, newest: Latest | None) -> SeriesStatus:
    """Return the state of a series: by its newest record, the comparison of its newest run, or the history where there is none."""
    if status == Status.SKIPPED:
        return SeriesStatus(state="skipped", reason=reason or "")
    if status != Status.MEASURED:
        return SeriesStatus(state="failed", reason=f"{status}: {reason or 'no reason was stored'}")
    # A comparison of few runs may decide nothing where the history shows the newest run on its level.
    same = newest is not None and (newest.outcome, newest.verdict) == (GateOutcome.UNCHANGED, Verdict.SAME)
    open_ = change is not None and (change.outcome, change.verdict) == (GateOutcome.UNDECIDED, Verdict.UNDECIDED)
    if change is not None and not (same and open_):
        told = {name: getattr(change, name) for name in ("attribution", "reason", "confirmed", "accepted")}
        return SeriesStatus(state=_STATES[change.outcome], change=change.p50.change if change.p50 else None, **told)
    if newest is None:
        return SeriesStatus(state="new")
    moved = Interval(newest.change, newest.change, newest.change) if newest.change is not None else None
    state, cause = _STATES[newest.outcome], newest.attribution
    return SeriesStatus(state=state, change=moved, attribution=cause, reason=newest.reason)


def with_open(status: SeriesStatus, lasting: Moved, since: str) -> SeriesStatus:
    """Return the status of a series with its worst move that lasts, since a moment, taken into account."""
    # A gain of earlier runs is no news; a loss stays until it is mended or accepted.
    own = _STATES[lasting.outcome]
    skip = lasting.outcome is GateOutcome.IMPROVEMENT or status.state == "skipped"
    if skip or worst([status.state, own]) != own:
        return status
    if own != status.state:
        status = replace(status, state=own, attribution=lasting.attribution, reason=f"still there: {lasting.reason}")
    return replace(status, lasting=lasting, since=since)


def worst_series(series: Iterable[SeriesFacts]) -> SeriesFacts | None:
    """Return the series in the worst state with the largest open move; None where none has an open move."""

    def rank(one: SeriesFacts) -> tuple[int, float]:
        size = one.gate_status.lasting and one.gate_status.lasting.size
        return STATES.index(one.gate_status.state), -abs(size - 1) if size else -math.inf

    return min((one for one in series if one.gate_status.lasting), key=rank, default=None)


def implementations(series: Iterable[SeriesFacts]) -> list[str]:
    """Return the names of implementations in the order that decides their colours, the baseline first."""
    return sorted(dict.fromkeys(one.series.implementation for one in series), key=lambda name: name != BASELINE)


def worst(states: Iterable[str]) -> str:
    """Return the state that asks for attention first; skipped where there is none."""
    return min(states, key=STATES.index, default="skipped")


_SPARK = 30  # the number of newest runs that a sparkline shows


def overview_rows(series: Iterable[tuple[SeriesFacts, Trend]]) -> tuple[OverviewRow, ...]:
    """Return the rows of one operator on one device model, by dtype, tier and mode."""
    groups = grouped(((facts.dtype, facts.tier, facts.series.mode), (facts, trend)) for facts, trend in series)
    return tuple(_overview_row(groups[key]) for key in sorted(groups))


def _overview_row(pairs: Sequence[tuple[SeriesFacts, Trend]]) -> OverviewRow:
    group = [facts for facts, _ in pairs]
    one, speedups = group[0].series, _speedups(group)
    # What works in few cases is no answer to which variant to take.
    best = max(speedups, key=lambda name: (len(speedups[name]), _mean(speedups[name]).estimate), default=None)
    intervals = speedups[best] if best is not None else {}
    inside = [facts for facts in group if facts.series.case in intervals]
    shown = [facts for facts in inside if facts.series.implementation == best]
    margins = [facts.numbers["margin"] for facts in group if "margin" in facts.numbers]
    estimates = [interval.estimate for interval in intervals.values()]
    latencies = {facts.texts.get("speedup_of", CALL.name) for facts in shown}
    row = partial(OverviewRow, device_name=one.device_name, suite=one.suite, operator=one.operator, mode=one.mode)
    row = partial(row, dtype=group[0].dtype, tier=group[0].tier, cases=len({facts.series.case for facts in group}))
    return row(
        variant=best,
        speedup=_mean(intervals) if intervals else None,
        least=min(estimates, default=None),
        most=max(estimates, default=None),
        latency=" and ".join(sorted(latencies, key=("device", "call").index)) or CALL.name,
        host_bound=tuple(sorted(facts.series.case for facts in shown if facts.texts.get("bound") == "host")),
        losing=tuple(sorted(case for case, interval in intervals.items() if interval.high < 1)),
        statuses=Counter(facts.status for facts in group),
        margin=min(margins, default=None),
        launches_before=_launches(facts for facts in inside if facts.series.implementation == BASELINE),
        launches_after=_launches(shown),
        spark=_spark(trend for facts, trend in pairs if facts.series.implementation == best),
        state=worst(facts.gate_status.state for facts in group),
        newest_run=max(facts.run_id for facts in group),
    )


def _speedups(group: Iterable[SeriesFacts]) -> dict[str, dict[str, Interval]]:
    """Return the speedup of each variant in each case in which its newest run has one."""
    by_variant: dict[str, dict[str, Interval]] = {}
    for facts in group:
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


def _launches(facts: Iterable[SeriesFacts]) -> tuple[int, int] | None:
    counts = [int(one.numbers["launches_per_call"]) for one in facts if "launches_per_call" in one.numbers]
    return (min(counts), max(counts)) if counts else None


def _spark(trends: Iterable[Trend]) -> tuple[float | None, ...]:
    """Return the geometric mean of the speedups in each of the newest runs that has any."""
    logs: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for points in (trend.points for trend in trends):
        runs = zip(points.values("started_at"), points.values("run_id"), strict=True)
        for run, speedup in zip(runs, points.speedup.tolist(), strict=True):
            if speedup > 0:
                logs[run].append(math.log(speedup))
    # A run of a few of the cases only has another mean, which would look like a move.
    most = max(map(len, logs.values()), default=0)
    whole = [logs[key] for key in sorted(logs) if len(logs[key]) == most]
    return tuple(math.exp(sum(values) / len(values)) for values in whole[-_SPARK:])


_NAMED = 5  # number of wins, losses and thin margins that are named
_THIN = 0.05  # the part of the tolerance below which what is left is thin
MAIN = ("headline", "real")  # the tiers that count: of smaller ones the sizes are not those that anybody runs


def tier_rank(tier: str) -> int:
    return TIERS.index(tier) if tier in TIERS else -1


def family_of(suite: str) -> str:
    """Return the family that a suite belongs to: the folder that its file is in, or the file's name where there is none."""
    path = PurePosixPath(suite)
    return path.parent.name or path.stem


def operator_summaries(rows: Iterable[OverviewRow]) -> tuple[SimpleNamespace, ...]:
    ranked = sorted(rows, key=_rank)
    groups = grouped(((family_of(row.suite), row.operator, row.suite), row) for row in ranked)
    summaries = []
    for (family, operator, suite), group in sorted(groups.items(), key=itemgetter(0)):
        leading = {row.device_name: row for row in reversed(group)}
        names = {"family": family, "suite": suite, "operator": operator, "state": worst(row.state for row in group)}
        first = tuple(leading[device] for device in sorted(leading))
        summaries.append(SimpleNamespace(**names, rows=tuple(group), leading=first))
    return tuple(summaries)


def device_summaries(rows: Sequence[OverviewRow], self_tests: Collection[str] = ()) -> tuple[SimpleNamespace, ...]:
    """Return for each device model what all operators come to, and behind it the same for each family, if there are several."""
    counted = [row for row in rows if not is_self_test(row.suite, self_tests)]
    found: list[SimpleNamespace] = []
    for device in sorted({row.device_name for row in counted}):
        here = [row for row in counted if row.device_name == device]
        families = sorted({family_of(row.suite) for row in here})
        names = ("", *families) if len(families) > 1 else ("",)
        found += [_device(device, name, [one for one in here if name in ("", family_of(one.suite))]) for name in names]
    return tuple(found)


def is_self_test(suite: str, self_tests: Collection[str]) -> bool:
    return any(fnmatch(suite, pattern) for pattern in self_tests)


def _rank(row: OverviewRow) -> tuple[bool, int, int, int, str, str]:
    """Return the place of a group among those of an operator: what has a speedup, is largest, eager, and has most cases first."""
    mode = MODES.index(row.mode) if row.mode in MODES else len(MODES)
    return row.speedup is None, -tier_rank(row.tier), mode, -row.cases, row.dtype, row.device_name


def _device(device: str, family: str, rows: Sequence[OverviewRow]) -> SimpleNamespace:
    main = [row for row in rows if row.tier in MAIN] or list(rows)
    groups = sorted((row for row in main if row.speedup), key=lambda row: -_speedup(row))
    tier = next((tier for tier in MAIN if any(row.tier == tier for row in groups)), "")
    over = [row for row in groups if row.tier == tier] or groups
    latencies = [word for word in ("device", "call") if any(word in row.latency.split() for row in over)]
    thin = [(row.margin, place) for place, row in enumerate(main) if row.margin is not None and row.margin < _THIN]
    operators = len({(row.suite, row.operator) for row in rows})
    middle = statistics.median(map(_speedup, over)) if over else None
    of = ", ".join(filter(None, [" or ".join(latencies), f"{tier} tier" if tier else ""]))
    said = {"device_name": device, "family": family, "operators": operators, "median": middle, "of": of}
    return SimpleNamespace(
        **said,
        groups=tuple(groups),
        faster=sum(row.speedup is not None and row.speedup.low > 1 for row in groups),
        slower=sum(row.speedup is not None and row.speedup.high < 1 for row in groups),
        wins=tuple(row for row in groups if _speedup(row) > 1)[:_NAMED],
        losses=tuple(row for row in reversed(groups) if _speedup(row) < 1)[:_NAMED],
        thin=tuple(main[place] for _, place in sorted(thin)[:_NAMED]),
    )


def _speedup(row: OverviewRow) -> float:
    return row.speedup.estimate if row.speedup is not None else math.nan


def operator_verdict(rows: Sequence[OverviewRow], series: Sequence[SeriesFacts]) -> SimpleNamespace | None:
    found = next(iter(operator_summaries(rows)), None)
    row = found.leading[0] if found is not None else None
    if row is None or row.variant is None or row.speedup is None:
        return None
    best = row.variant, row.mode
    known = [one for one in series if (one.series.implementation, one.series.mode) == best and "speedup" in one.numbers]
    tiers = {one.tier for one in known}
    losses = []
    for tier in [tier for tier in MAIN if tier in tiers] or sorted(tiers):
        won, lost = list[Mapping[str, object]](), list[Mapping[str, object]]()
        for one in (one for one in known if one.tier == tier):
            (lost if one.numbers.get("speedup_high", 1.0) < 1 else won).append(one.axes)
        losses.append((tier, len(lost), len(won) + len(lost), where(lost, won)))
    return SimpleNamespace(variant=row.variant, speedup=row.speedup, row=row, losses=tuple(losses))


def where(some: Sequence[Mapping[str, object]], others: Sequence[Mapping[str, object]]) -> str:
    """Return a condition on one axis that holds for some cases and no others, like `t = 1` or `tokens ≤ 128`; else empty."""
    if not some or not others:
        return ""
    axes = Counter(axis for case in (*some, *others) for axis in case)
    for axis in (axis for axis, count in axes.items() if count == len(some) + len(others)):
        inside, outside = [case[axis] for case in some], [case[axis] for case in others]
        if any(value in outside for value in inside):
            continue
        if len({str(value) for value in inside}) == 1:
            return f"{axis} = {inside[0]}"
        numbers = [value for value in (*inside, *outside) if isinstance(value, int | float)]
        if len(numbers) == len(inside) + len(outside):
            own, rest = numbers[: len(inside)], numbers[len(inside) :]
            if max(own) < min(rest):
                return f"{axis} ≤ {max(own)}"
            if min(own) > max(rest):
                return f"{axis} ≥ {min(own)}"
        return f"{axis} is {', '.join(sorted({str(value) for value in inside}))}"
    return ""


_NEWEST = 5  # runs of a series on a GPU that count, the newest


def gpu_ratios(trend: Trend) -> dict[str, float]:
    """Return for each GPU that has a series its latency over the median GPU's; nothing where one GPU has it alone."""
    # Only what the newest run can be compared with counts: the same source, definition and environment.
    points, gpus = trend.points, trend.points.values("device_uuid")
    if len(set(gpus)) < 2:
        return {}
    hashes = (points.values(name) for name in ("implementation_hash", "environment_hash"))
    asked = list(zip(points.parts.tolist(), *hashes, strict=True))
    measured = points.measured.tolist()
    places = (place for place in measured if gpus[place] and asked[place] == asked[measured[-1]])
    of_gpu = grouped((gpus[place], float(points.p50[place])) for place in places)
    if len(of_gpu) < 2:
        return {}
    levels = {gpu: statistics.median(values[-_NEWEST:]) for gpu, values in of_gpu.items()}
    middle = statistics.median(levels.values())
    return {gpu: level / middle for gpu, level in levels.items()}


def spreads(ratios: Iterable[tuple[str, Mapping[str, float]]]) -> tuple[GpuSpread, ...]:
    """Return a row for each GPU, the models by name and the slowest of each first."""
    of_gpu = grouped(((device_name, gpu), ratio) for device_name, several in ratios for gpu, ratio in several.items())
    rows = []
    for (device_name, gpu), values in of_gpu.items():
        ratio, (low, high) = statistics.median(values), percentiles(values, (10, 90))
        rows.append(GpuSpread(device_name=device_name, gpu=gpu, series=len(values), ratio=ratio, low=low, high=high))
    return tuple(sorted(rows, key=lambda row: (row.device_name, -row.ratio, row.gpu)))
