"""What latencies say, in verdicts and sentences: all series of a comparison at once.

A judgement's `reference` and `current` are latencies as `show` prints them, of several runs the median. Its `change` is
what was tested: the geometric mean of the current rounds over that of the reference rounds. Where the two tell another
story, the reason gives both.

Where the host's time is judged: relative to the baseline's where that repeats, by itself where the whole host is quiet.

On many hosts a core has two speeds and changes between them every few seconds. It does so for baseline and variant alike, so
the ratio of the two repeats far better than either. Its floor tells how far, and as with every latency no change below twice the
floor counts. The floor of a host's own time tells less, for a few runs may all have had one speed.
"""

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pairbench.analyze.compare.effect import Effects, Verdicts, decide, estimate
from pairbench.analyze.compare.reasons import WORDS, Moved, Shown, micros, percent, reason_of
from pairbench.analyze.compare.relative import (
    own_moves,
    relative_or_own,
    relative_to_baselines,
    with_own,
    with_relative,
)
from pairbench.analyze.compare.rounds import (
    Bools,
    Floats,
    Ints,
    MeasuredSides,
    Runs,
    collect,
    is_median,
    latency_of_runs,
)
from pairbench.model.comparison import DEFAULT, Floor, GateOutcome, Judgement, Policy, Verdict
from pairbench.model.latency import CALL, DEVICE, HOST, HOST_JUDGED
from pairbench.model.record import Series
from pairbench.stats import Interval


def own_host_floors(floors: Mapping[Series, Floor], policy: Policy = DEFAULT) -> dict[Series, float]:
    """Return the floors of the host's time by itself, in log units, where it repeats, as it does in most series of the device model.

    One series alone does not tell: that few runs of it agree may be chance.
    """
    by_device: dict[str, dict[Series, float]] = {}
    for series, floor in floors.items():
        if floor.host is not None:
            by_device.setdefault(series.device_name, {})[series] = floor.host
    quiet = [known for known in by_device.values() if statistics.median(known.values()) <= policy.host_floor]
    return {series: floor for known in quiet for series, floor in known.items() if floor <= policy.host_floor}


def relative_host_floors(floors: Mapping[Series, Floor], policy: Policy = DEFAULT) -> dict[Series, float]:
    """Return the floors of the host's time relative to the baseline's, in log units, where that repeats."""
    known = {series: floor.host_relative for series, floor in floors.items() if floor.host_relative is not None}
    return {series: floor for series, floor in known.items() if floor <= policy.host_relative_floor}


def judged_hosts(floors: Mapping[Series, Floor], policy: Policy = DEFAULT) -> frozenset[Series]:
    """Return the series whose host time is judged, as long as their baseline's source stays the same."""
    return frozenset(relative_host_floors(floors, policy).keys() | own_host_floors(floors, policy).keys())


_LARGEST = 100.0
"""The largest logarithm of a change that is turned into a ratio."""

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
    none = np.zeros(len(all_measured), dtype=np.bool_)
    null = np.array([measured.is_baseline for measured in all_measured], dtype=np.bool_)
    floor_of = _floors_of(all_measured, floors, policy)
    known = [floors.get(one.series) for one in all_measured]
    estimated = functools.partial(
        estimate,
        groups=spread_groups(all_measured),
        floor_runs=np.array([floor.runs if floor else 0 for floor in known], dtype=np.float64),
        policy=policy,
    )
    effects = {}
    for metric, limits in floor_of.items():
        # A series is in the columns of the latency by which it is judged; the host's is judged where it is known to repeat.
        chosen = [
            (one.reference, one.current) if _is_judged(one, metric, limit) else ((), ())
            for one, limit in zip(all_measured, limits.tolist(), strict=True)
        ]
        # The host's time is that of the quietest round; how far it moves is known by its floor alone.
        collected = collect(chosen, metric, pooled=metric == HOST.p50)
        effects[metric] = estimated(collected, null=null, floor=limits)
    relative = {}
    for metric in (DEVICE.p50, CALL.p50):
        rounds = relative_to_baselines(all_measured, metric, [one.latency.p50 == metric for one in all_measured])
        relative[metric] = estimated(rounds, null=none, floor=floor_of[metric])
    of_ratios = relative_host_floors(floors, policy)
    ratio_floors = np.array([of_ratios.get(one.series, math.nan) for one in all_measured], dtype=np.float64)
    of_host = estimated(_host_ratios(all_measured, ratio_floors), null=none, floor=ratio_floors)
    host_relative = np.isfinite(of_host.change)
    effects[HOST.p50] = relative_or_own(of_host, effects[HOST.p50])
    floor_of[HOST.p50] = np.where(host_relative, ratio_floors, floor_of[HOST.p50])
    judged = judgements(all_measured, effects, floor_of, policy, relative=relative, host_relative=host_relative)
    return [with_shown(one, of_one) for one, of_one in zip(all_measured, judged, strict=True)]


def _host_ratios(all_measured: Sequence[MeasuredSides], floors: Floats) -> Runs:
    """Return the host's rounds of variants relative to their baselines', where their ratio is known to repeat."""
    chosen = [
        _is_judged(one, HOST.p50, floor) and _has_rounds(one, HOST_JUDGED)
        for one, floor in zip(all_measured, floors.tolist(), strict=True)
    ]
    return relative_to_baselines(all_measured, HOST.p50, chosen)


def _floors_of(
    all_measured: Sequence[MeasuredSides], floors: Mapping[Series, Floor], policy: Policy
) -> dict[str, Floats]:
    """Return for each metric the floor of each series in log units; NaN where there is none."""
    own_hosts = own_host_floors(floors, policy)

    def floor_of(measured: MeasuredSides, metric: str) -> float:
        floor = floors.get(measured.series)
        if floor is None:
            return math.nan
        if metric == HOST.p50:
            return own_hosts.get(measured.series, math.nan)
        if floor.latency != measured.latency.name:  # calibrated when the call was the result
            return math.nan
        return floor.p50 if is_median(metric) else floor.p95

    metrics = (DEVICE.p50, DEVICE.p95, CALL.p50, CALL.p95, HOST.p50)
    return {
        metric: np.array([floor_of(measured, metric) for measured in all_measured], dtype=np.float64)
        for metric in metrics
    }


def _is_judged(measured: MeasuredSides, metric: str, limit: float) -> bool:
    if metric == HOST.p50:
        # Files of schema versions before 4 have no rounds of the host, for they took its time in another way.
        return not math.isnan(limit) and measured.latency is DEVICE and _has_rounds(measured, HOST.rounds[0])
    return metric in (measured.latency.p50, measured.latency.p95)


def _has_rounds(measured: MeasuredSides, column: str) -> bool:
    return all(getattr(record, column) for side in (measured.reference, measured.current) for record in side)


def with_shown(measured: MeasuredSides, judged: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """Return a series' judgements with what it has beside the latencies that are judged: on a GPU the host's and the call's."""
    if measured.latency is not DEVICE:
        return dict(judged)
    why = {
        HOST.p50: (
            "no calibration has found that the host's time repeats in this series; `pairbench calibrate` tells"
            if _has_rounds(measured, HOST_JUDGED)
            else "a run of an earlier version of pairbench lacks the figure by which the host's time is judged"
        ),
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
            reason=f"{WORDS[metric]} {micros(before)} -> {micros(now)}, not judged: {reason}",
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
    host_relative: Bools | None = None,
) -> list[dict[str, Judgement]]:
    """Return for each series the judgement of each latency, all of them decided together.

    Args:
        all_measured: The series.
        effects: Of each latency, a value for each series.
        floor_of: Noise floors in log units, likewise; NaN where there is none.
        policy: The thresholds.
        relative: Changes relative to the baselines, of the latencies for which there are any.
        host_relative: In which series the change of the host's time is relative to the baseline; None for in none.
    """
    verdicts = decide(list(effects.values()), list(floor_of.values()), policy)
    by_series: list[dict[str, Judgement]] = [{} for _ in all_measured]
    for (metric, effect), verdict in zip(effects.items(), verdicts, strict=True):
        of_pairs = (relative or {}).get(metric)
        said = verdict if of_pairs is None else with_relative(effect, verdict, of_pairs, floor_of[metric], policy)
        only_relative = (said.slower & ~verdict.slower) | (said.faster & ~verdict.faster)
        is_relative = host_relative if metric == HOST.p50 and host_relative is not None else np.zeros_like(said.same)
        if is_relative.any():
            said = with_own(said, own_moves(all_measured, metric, is_relative), is_relative, policy)
        column = _Column.of(
            metric,
            effect,
            said,
            floor_of[metric],
            relative=_intervals(of_pairs or effect, only_relative),
            relative_to_baseline=is_relative.tolist(),
        )
        for index, measured in enumerate(all_measured):
            if not math.isnan(column.change[index]):
                by_series[index][metric] = _judge(measured, column, index)
    return by_series


def unjudged(judgements: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """Return the latencies of a series as what was measured and not judged, for its machine is not known to be quiet."""
    return {metric: _unjudged(judgement) for metric, judgement in judgements.items()}


def _unjudged(judgement: Judgement) -> Judgement:
    ratio = judgement.change.estimate if judgement.change else judgement.shown_ratio
    assert ratio is not None
    moved = f"{WORDS[judgement.metric]} {percent(ratio)}"
    return replace(
        judgement,
        outcome=GateOutcome.UNDECIDED,
        verdict=Verdict.UNDECIDED,
        minimum_effect=None,
        reason=f"{moved}, not judged: `pairbench calibrate` has not found this CPU quiet",
    )


def suspicious(judgement: Judgement, policy: Policy = DEFAULT) -> bool:
    """Return whether an undecided latency looks slower by itself, if not beside all the others."""
    if judgement.verdict is not Verdict.UNDECIDED or judgement.change is None or judgement.minimum_effect is None:
        return False
    least = (1 + judgement.minimum_effect) ** policy.least_estimate
    itself = not judgement.relative_to_baseline or (judgement.shown_ratio or 1.0) >= least
    return judgement.change.low > 1 and judgement.change.estimate >= least and itself


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
    relative_to_baseline: list[bool]
    """Whether the change itself is relative to the baseline."""
    beyond: list[bool]
    """Whether the whole interval of a series is beyond the minimum effect; among many series that happens by chance."""
    verdicts: list[Verdict] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        metric: str,
        effects: Effects,
        verdicts: Verdicts,
        floor: Floats,
        *,
        relative: list[Interval | None],
        relative_to_baseline: list[bool],
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
            relative_to_baseline=relative_to_baseline,
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
    shown = Shown.of(measured, column.metric)
    moved = Moved(
        metric=column.metric,
        verdict=verdict,
        ratio=ratio,
        interval=interval,
        minimum=minimum,
        chance=column.adjusted[index] if column.beyond[index] else None,
        relative=column.relative[index],
        relative_to_baseline=column.relative_to_baseline[index],
    )
    return Judgement(
        metric=column.metric,
        outcome=_OUTCOMES[verdict],
        verdict=verdict,
        reference=shown.reference,
        current=shown.current,
        change=interval,
        relative_to_baseline=moved.relative_to_baseline,
        minimum_effect=minimum,
        floor=None if math.isnan(floor) else floor,
        p_value=None if math.isnan(column.adjusted[index]) else column.adjusted[index],
        reason=reason_of(moved, shown),
    )
