"""What latencies say, in verdicts and sentences: all series of a comparison at once.

A judgement's `reference` and `current` are latencies as `show` prints them, of several runs the median. Its `change` is
what was tested: the geometric mean of the current rounds over that of the reference rounds. Where the two tell another
story, the reason gives both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pairbench.analyze.compare.effect import Effects, Verdicts, decide, estimate
from pairbench.analyze.compare.relative import relative_to_baselines, with_relative
from pairbench.analyze.compare.rounds import (
    Bools,
    Floats,
    Ints,
    MeasuredSides,
    collect,
    is_median,
    latency_of_runs,
    mean_log,
)
from pairbench.model.comparison import Floor, GateOutcome, Judgement, Verdict
from pairbench.model.latency import CALL, DEVICE, HOST
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.series import Series
from pairbench.stats import Interval

_LARGEST = 100.0
"""The largest logarithm of a change that is turned into a ratio."""

WORDS = {
    DEVICE.p50: "median device latency",
    DEVICE.p95: "95th percentile on the device",
    CALL.p50: "median latency",
    CALL.p95: "95th percentile",
    HOST.p50: "median host time",
}

_OUTCOMES = {
    Verdict.SLOWER: GateOutcome.REGRESSION,
    Verdict.FASTER: GateOutcome.IMPROVEMENT,
    Verdict.SAME: GateOutcome.UNCHANGED,
    Verdict.UNDECIDED: GateOutcome.UNDECIDED,
}


def judge_latencies(
    all_measured: Sequence[MeasuredSides], floors: Mapping[Series, Floor], policy: Policy = DEFAULT
) -> list[dict[str, Judgement]]:
    """Return for each series the judgement of each latency that both sides have."""
    if not all_measured:
        return []
    groups = spread_groups(all_measured)
    null = np.array([measured.is_baseline for measured in all_measured], dtype=np.bool_)
    floor_of = _floors_of(all_measured, floors)
    known = [floors.get(one.series) for one in all_measured]
    runs = np.array([floor.runs if floor else 0 for floor in known], dtype=np.float64)
    effects = {}
    for metric, limits in floor_of.items():
        # A series is in the columns of the latency by which it is judged; the host's is judged where it is known to repeat.
        chosen = [
            (one.reference, one.current) if _is_judged(one, metric, limit, policy) else ((), ())
            for one, limit in zip(all_measured, limits.tolist(), strict=True)
        ]
        # The host's time is that of the quietest round; how far it moves is known by its floor alone.
        collected = collect(chosen, metric, pooled=metric == HOST.p50)
        effects[metric] = estimate(collected, groups=groups, null=null, floor=limits, floor_runs=runs, policy=policy)
    relative = {
        metric: estimate(
            relative_to_baselines(all_measured, metric),
            groups=groups,
            null=np.zeros(len(all_measured), dtype=np.bool_),
            floor=floor_of[metric],
            floor_runs=runs,
            policy=policy,
        )
        for metric in (DEVICE.p50, CALL.p50)
    }
    judged = judgements(all_measured, effects, floor_of, policy, relative=relative)
    return [with_shown(one, of_one) for one, of_one in zip(all_measured, judged, strict=True)]


def _floors_of(all_measured: Sequence[MeasuredSides], floors: Mapping[Series, Floor]) -> dict[str, Floats]:
    """Return for each metric the floor of each series in log units; NaN where there is none."""

    def floor_of(measured: MeasuredSides, metric: str) -> float:
        floor = floors.get(measured.series)
        if floor is None:
            return math.nan
        if metric == HOST.p50:
            return math.nan if floor.host is None else floor.host
        if floor.latency != measured.latency.name:  # calibrated when the call was the result
            return math.nan
        return floor.p50 if is_median(metric) else floor.p95

    metrics = (DEVICE.p50, DEVICE.p95, CALL.p50, CALL.p95, HOST.p50)
    return {
        metric: np.array([floor_of(measured, metric) for measured in all_measured], dtype=np.float64)
        for metric in metrics
    }


def _is_judged(measured: MeasuredSides, metric: str, limit: float, policy: Policy) -> bool:
    if metric == HOST.p50:
        # Files of earlier versions have no rounds of the host, for they took its time in another way.
        known = all(record.host_round_p50_ns for side in (measured.reference, measured.current) for record in side)
        return measured.latency is DEVICE and known and limit <= policy.host_floor
    return metric in (measured.latency.p50, measured.latency.p95)


def with_shown(measured: MeasuredSides, judged: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """Return a series' judgements with what it has beside the latencies that are judged: on a GPU the host's and the call's."""
    if measured.latency is not DEVICE:
        return dict(judged)
    why = {
        HOST.p50: "no calibration has found that the host's time repeats in this series; `pairbench calibrate` tells",
        CALL.p50: "the device's latency is the result",
    }
    shown = dict(judged)
    for metric, reason in why.items():
        before, now = (latency_of_runs(side, metric) for side in (measured.reference, measured.current))
        if metric in judged or not before > 0 or not now > 0:
            continue
        shown[metric] = Judgement(
            metric=metric,
            outcome=GateOutcome.UNDECIDED,
            verdict=Verdict.UNDECIDED,
            reference=before,
            current=now,
            reason=f"{WORDS[metric]} {_micros(before)} -> {_micros(now)}, not judged: {reason}",
        )
    return shown


def spread_groups(all_measured: Sequence[MeasuredSides]) -> Ints:
    """Return for each series a label; those with the same are alike in how far they spread."""
    kinds = [(measured.series.device_name, measured.series.mode) for measured in all_measured]
    labels = {kind: index for index, kind in enumerate(dict.fromkeys(kinds))}
    return np.array([labels[kind] for kind in kinds], dtype=np.int64)


def judgements(
    all_measured: Sequence[MeasuredSides],
    effects: Mapping[str, Effects],
    floor_of: Mapping[str, Floats],
    policy: Policy = DEFAULT,
    *,
    relative: Mapping[str, Effects] | None = None,
) -> list[dict[str, Judgement]]:
    """Return for each series the judgement of each latency, all of them decided together.

    Args:
        all_measured: The series.
        effects: Of each latency, a value for each series.
        floor_of: Noise floors in log units, likewise; NaN where there is none.
        policy: The thresholds.
        relative: Changes relative to the baselines, of the latencies for which there are any.
    """
    verdicts = decide(list(effects.values()), list(floor_of.values()), policy)
    by_series: list[dict[str, Judgement]] = [{} for _ in all_measured]
    for (metric, effect), verdict in zip(effects.items(), verdicts, strict=True):
        of_pairs = (relative or {}).get(metric)
        said = verdict if of_pairs is None else with_relative(effect, verdict, of_pairs, floor_of[metric], policy)
        only_relative = (said.slower & ~verdict.slower) | (said.faster & ~verdict.faster)
        column = _Column.of(metric, effect, said, floor_of[metric], _intervals(of_pairs or effect, only_relative))
        for index, measured in enumerate(all_measured):
            if not math.isnan(column.change[index]):
                by_series[index][metric] = _judge(measured, column, index)
    return by_series


def unjudged(judgements: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """Return the latencies of a series as what was measured and not judged, for its machine is not known to be quiet."""
    return {metric: _unjudged(judgement) for metric, judgement in judgements.items()}


def _unjudged(judgement: Judgement) -> Judgement:
    assert isinstance(judgement.current, float) and isinstance(judgement.reference, float)
    ratio = judgement.change.estimate if judgement.change else judgement.current / judgement.reference
    moved = f"{WORDS[judgement.metric]} {percent(ratio)}"
    return replace(
        judgement,
        outcome=GateOutcome.UNDECIDED,
        verdict=Verdict.UNDECIDED,
        minimum_effect=None,
        reason=f"{moved}, not judged: `pairbench calibrate` has not found this CPU quiet",
    )


def levels_differ(shown: float, judged: float, minimum_effect: float) -> bool:
    """Return whether the ratio of the latencies that are shown differs from the judged change by as much as counts."""
    return abs(math.log(shown / judged)) >= math.log1p(minimum_effect)


def suspicious(judgement: Judgement, policy: Policy = DEFAULT) -> bool:
    """Return whether an undecided latency looks slower by itself, if not beside all the others."""
    if judgement.verdict is not Verdict.UNDECIDED or judgement.change is None or judgement.minimum_effect is None:
        return False
    estimate_, low, _ = judgement.change
    return low > 1 and estimate_ >= (1 + judgement.minimum_effect) ** policy.least_estimate


@dataclass(frozen=True, kw_only=True)
class _Column:
    """One latency of all series as plain lists, which are faster to read one by one than arrays."""

    metric: str
    change: list[float]
    low: list[float]
    high: list[float]
    ratio: list[float]
    adjusted: list[float]
    minimum: list[float]
    floor: list[float]
    relative: list[Interval | None]
    """The change relative to the baseline, of the series in which only that one is large enough to count; else None."""
    beyond: list[bool]
    """Whether the whole interval of a series is beyond the minimum effect; among many series that happens by chance."""
    verdicts: list[Verdict] = field(default_factory=list)

    @classmethod
    def of(
        cls, metric: str, effects: Effects, verdicts: Verdicts, floor: Floats, relative: list[Interval | None]
    ) -> "_Column":
        beyond = (effects.low > verdicts.minimum) | (effects.high < -verdicts.minimum)
        words = np.select(
            [verdicts.slower, verdicts.faster, verdicts.same],
            [Verdict.SLOWER.value, Verdict.FASTER.value, Verdict.SAME.value],
            Verdict.UNDECIDED.value,
        )
        return cls(
            metric=metric,
            change=effects.change.tolist(),
            low=_ratio(effects.low),
            high=_ratio(effects.high),
            ratio=_ratio(effects.change),
            adjusted=verdicts.adjusted.tolist(),
            minimum=np.expm1(verdicts.minimum).tolist(),
            floor=np.expm1(floor).tolist(),
            relative=relative,
            beyond=beyond.tolist(),
            verdicts=[Verdict(word) for word in words.tolist()],
        )


def _ratio(logs: Floats) -> list[float]:
    # A clock that went mad may leave rounds so far apart that the end of their interval is no number any more.
    ratios: list[float] = np.exp(np.clip(logs, -_LARGEST, _LARGEST)).tolist()
    return ratios


def _intervals(effects: Effects, chosen: Bools) -> list[Interval | None]:
    rows = zip(chosen.tolist(), *(_ratio(end) for end in (effects.change, effects.low, effects.high)), strict=True)
    return [Interval(*ends) if wanted else None for wanted, *ends in rows]


def _judge(measured: MeasuredSides, column: _Column, index: int) -> Judgement:
    verdict, ratio, minimum = column.verdicts[index], column.ratio[index], column.minimum[index]
    known = not math.isnan(column.low[index])
    interval = Interval(ratio, column.low[index], column.high[index]) if known else None
    floor = column.floor[index]
    shown = _Shown.of(measured, column.metric)
    chance = column.adjusted[index] if column.beyond[index] else None
    reason = _reason(WORDS[column.metric], verdict, ratio, interval, minimum, chance)
    if (relative := column.relative[index]) is not None and interval is not None:
        own = f"{WORDS[column.metric]} {percent(ratio)} ({_span(interval)})"
        reason = f"{own}, and {_moved(relative, verdict)} relative to its baseline"
    if column.metric == HOST.p50 and verdict in (Verdict.SLOWER, Verdict.FASTER) and interval is not None:
        more = "more" if verdict is Verdict.SLOWER else "less"
        span = f"{percent(ratio)}, {_span(interval)}"
        reason = f"issuing the call takes {_micros(abs(shown.current - shown.reference))} {more} ({span})"
    return Judgement(
        metric=column.metric,
        outcome=_OUTCOMES[verdict],
        verdict=verdict,
        reference=shown.reference,
        current=shown.current,
        change=interval,
        minimum_effect=minimum,
        floor=None if math.isnan(floor) else floor,
        p_value=None if math.isnan(column.adjusted[index]) else column.adjusted[index],
        reason="; ".join(filter(None, [reason, shown.unlike(ratio, minimum)])),
    )


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """The latencies of both sides of a series in ns: as they are shown, and as means of the rounds, which were judged."""

    reference: float
    current: float
    reference_rounds: float
    current_rounds: float

    @classmethod
    def of(cls, measured: MeasuredSides, metric: str) -> "_Shown":
        sides = (measured.reference, measured.current)
        reference, current = (latency_of_runs(records, metric) for records in sides)
        of_rounds = [math.exp(mean_log(metric, records)) for records in sides]
        return cls(reference=reference, current=current, reference_rounds=of_rounds[0], current_rounds=of_rounds[1])

    def unlike(self, ratio: float, minimum: float) -> str:
        """Return a sentence where the shown latencies differ from the change by as much as counts; else nothing."""
        if not levels_differ(self.current / self.reference, ratio, minimum):
            return ""
        return (
            f"the rounds of a side disagree: the change is that of their geometric mean, {_micros(self.reference_rounds)} "
            f"-> {_micros(self.current_rounds)}, and the latencies are medians of all samples, "
            f"{_micros(self.reference)} -> {_micros(self.current)}"
        )


def _micros(value_ns: float) -> str:
    return f"{value_ns / 1e3:.4g} us"


def _reason(
    words: str, verdict: Verdict, ratio: float, interval: Interval | None, minimum: float, chance: float | None
) -> str:
    if interval is None:
        return (
            f"{words} {percent(ratio)}, but one round a side tells nothing of how far rounds spread, and neither does "
            "anything else; measure three rounds or more"
        )
    if verdict in (Verdict.SLOWER, Verdict.FASTER):
        return f"{words} {_moved(interval, verdict)}"
    span = _span(interval)
    if verdict is Verdict.SAME:
        return f"{words} the same: {percent(ratio)} ({span}), within the {_part(minimum)} that count"
    if chance is not None:
        unproven = f"it looks changed, but chance is not ruled out (p = {chance:.2g} among all latencies compared)"
    else:
        unproven = f"neither a change nor its absence is proven at {_part(minimum)}"
    return f"{words} {percent(ratio)} ({span}): {unproven}"


def _moved(change: Interval, verdict: Verdict) -> str:
    return f"{_part(abs(change.estimate - 1))} {verdict.value} ({_span(change)})"


def _span(change: Interval) -> str:
    return f"{percent(change.low)} to {percent(change.high)}"


def percent(ratio: float) -> str:
    """Return a change like `+2.1 %`."""
    part = 100 * (ratio - 1)
    return f"{part:+.1f} %" if abs(part) >= 0.05 else "0.0 %"


def _part(part: float) -> str:
    return f"{100 * part:.1f} %"
