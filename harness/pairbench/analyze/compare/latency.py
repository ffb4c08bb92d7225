"""Verdicts and sentences about latencies, for all series of a comparison at once.

Which latencies are shown and which change is judged is said in `rounds.py`. Where the two differ, the reason gives both.

A change relative to the baseline counts only where the variant's own latency moved in the same direction, and not by chance. So
nothing is blamed where a baseline moved alone, for example because another kernel was chosen for it.

The host's time is judged relative to the baseline's where that repeats, and by itself where the whole host is quiet. On many hosts a
core has two speeds and changes between them every few seconds, for baseline and variant alike, so the ratio of the two repeats far better
than either. Its floor tells how far, and as with every latency no change below twice the floor counts. The floor of a host's own time
tells less, for a few runs may all have had one speed.
"""

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pairbench.analyze.compare import rounds
from pairbench.analyze.compare.attribute import WORDS, Moved, micros, percent, reason_of
from pairbench.analyze.compare.effect import Effects, Verdicts, decide, estimate, estimate_paired
from pairbench.analyze.compare.rounds import Floats, Ints, MeasuredSides, is_median, latency_of_runs, round_values
from pairbench.model.comparison import DEFAULT, Floor, GateOutcome, Judgement, Policy, Verdict
from pairbench.model.plain import grouped
from pairbench.model.record import CALL, DEVICE, HOST, HOST_JUDGED, Series
from pairbench.stats import Interval


def own_host_floors(floors: Mapping[Series, Floor]) -> dict[Series, float]:
    """Return the floors of the host's time by itself, in log units, where it repeats, as it does in most series of the device model."""
    # One series alone does not tell: that few runs of it agree may be chance.
    known = [(series, floor.host) for series, floor in floors.items() if floor.host is not None]
    by_device = grouped((series.device_name, host) for series, host in known)
    quiet = {device for device, hosts in by_device.items() if statistics.median(hosts) <= DEFAULT.host_floor}
    return {series: host for series, host in known if series.device_name in quiet and host <= DEFAULT.host_floor}


def relative_host_floors(floors: Mapping[Series, Floor]) -> dict[Series, float]:
    known = {series: floor.host_relative for series, floor in floors.items() if floor.host_relative is not None}
    return {series: floor for series, floor in known.items() if floor <= DEFAULT.host_relative_floor}


def judged_hosts(floors: Mapping[Series, Floor]) -> frozenset[Series]:
    """Return the series whose host time is judged, as long as their baseline's source stays the same."""
    return frozenset(relative_host_floors(floors).keys() | own_host_floors(floors).keys())


_JUDGED = (DEVICE.p50, DEVICE.p95, CALL.p50, CALL.p95, HOST.p50)
_LARGEST = 100.0  # the largest logarithm of a change that is turned into a ratio

undecided = functools.partial(Judgement, outcome=GateOutcome.UNDECIDED, verdict=Verdict.UNDECIDED)
_OUTCOMES = {
    Verdict.SLOWER: GateOutcome.REGRESSION,
    Verdict.FASTER: GateOutcome.IMPROVEMENT,
    Verdict.SAME: GateOutcome.UNCHANGED,
    Verdict.UNDECIDED: GateOutcome.UNDECIDED,
}


def judge_latencies(
    all_measured: Sequence[MeasuredSides], floors: Mapping[Series, Floor], policy: Policy = DEFAULT
) -> list[dict[str, Judgement]]:
    if not all_measured:
        return []
    none = np.zeros(len(all_measured), dtype=np.bool_)
    null = np.array([measured.is_baseline for measured in all_measured], dtype=np.bool_)
    floor_of = _floors_of(all_measured, floors)
    known = [floors.get(measured.series) for measured in all_measured]
    floor_runs = np.array([floor.runs if floor else 0 for floor in known], dtype=np.float64)
    estimated = functools.partial(estimate, groups=spread_groups(all_measured), floor_runs=floor_runs, policy=policy)
    effects = {}
    for metric, limits in floor_of.items():
        # A series is in the columns of the latency by which it is judged; the host's is judged where it is known to repeat.
        chosen = [
            (measured.reference, measured.current) if _is_judged(measured, metric, limit) else ((), ())
            for measured, limit in zip(all_measured, limits.tolist(), strict=True)
        ]
        # The host's time is that of the quietest round; how far it moves is known by its floor alone.
        effects[metric] = estimated(rounds.collect(chosen, metric, pooled=metric == HOST.p50), null=null, floor=limits)
    relative = {}
    for metric in (DEVICE.p50, CALL.p50):
        by_it = [measured.latency.p50 == metric for measured in all_measured]
        divided = rounds.relative_to_baselines(all_measured, metric, by_it)
        relative[metric] = estimated(divided, null=none, floor=floor_of[metric])
    of_ratios = relative_host_floors(floors)
    ratio_floors = np.array([of_ratios.get(measured.series, math.nan) for measured in all_measured], dtype=np.float64)
    divisible = [
        _is_judged(measured, HOST.p50, floor) and _has_rounds(measured, HOST_JUDGED)
        for measured, floor in zip(all_measured, ratio_floors.tolist(), strict=True)
    ]
    of_host = rounds.relative_to_baselines(all_measured, HOST.p50, divisible)
    by_host = estimated(of_host, null=none, floor=ratio_floors)
    host_relative, own = np.isfinite(by_host.change), vars(effects[HOST.p50])
    both = {name: np.where(host_relative, values, own[name]) for name, values in vars(by_host).items()}
    effects[HOST.p50] = Effects(**both)
    floor_of[HOST.p50] = np.where(host_relative, ratio_floors, floor_of[HOST.p50])
    return judgements(all_measured, effects, floor_of, policy, relative=relative, host_relative=host_relative)


def _floors_of(all_measured: Sequence[MeasuredSides], floors: Mapping[Series, Floor]) -> dict[str, Floats]:
    own_hosts = own_host_floors(floors)

    def floor_of(measured: MeasuredSides, metric: str) -> float:
        floor = floors.get(measured.series)
        if floor is None:
            return math.nan
        if metric == HOST.p50:
            return own_hosts.get(measured.series, math.nan)
        if floor.latency != measured.latency.name:  # calibrated when the call was the result
            return math.nan
        return floor.p50 if is_median(metric) else floor.p95

    return {metric: np.array([floor_of(item, metric) for item in all_measured], dtype=np.float64) for metric in _JUDGED}


def _is_judged(measured: MeasuredSides, metric: str, limit: float) -> bool:
    if metric == HOST.p50:
        # Files of schema versions before 4 have no rounds of the host, for they took its time in another way.
        return not math.isnan(limit) and measured.latency is DEVICE and _has_rounds(measured, HOST.rounds[0])
    return metric in (measured.latency.p50, measured.latency.p95)


def _has_rounds(measured: MeasuredSides, column: str) -> bool:
    return all(getattr(record, column) for side in (measured.reference, measured.current) for record in side)


def _with_shown(measured: MeasuredSides, judged: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """Return a series' judgements with its latencies that are not judged: on a GPU the host's and the call's."""
    if measured.latency is not DEVICE:
        return dict(judged)
    host = "a run of an earlier version of pairbench lacks the figure by which the host's time is judged"
    if _has_rounds(measured, HOST_JUDGED):
        host = "no calibration has found that the host's time repeats in this series; `pairbench calibrate` tells"
    shown = dict(judged)
    for metric, why in ((HOST.p50, host), (CALL.p50, "the device's latency is the result")):
        before, now = (latency_of_runs(side, metric) for side in (measured.reference, measured.current))
        if metric not in judged and before > 0 and now > 0:
            reason = f"{WORDS[metric]} {micros(before)} -> {micros(now)}, not judged: {why}"
            shown[metric] = undecided(metric=metric, reference=before, current=now, reason=reason)
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
    host_relative: rounds.Bools,
    relative: Mapping[str, Effects] | None = None,
) -> list[dict[str, Judgement]]:
    """Return for each series the judgement of each latency, all of them decided together."""
    verdicts = decide(list(effects.values()), list(floor_of.values()), policy)
    by_series: list[dict[str, Judgement]] = [{} for _ in all_measured]
    for (metric, effect), verdict in zip(effects.items(), verdicts, strict=True):
        of_pairs = (relative or {}).get(metric)
        decided = verdict if of_pairs is None else with_relative(effect, verdict, of_pairs, floor_of[metric], policy)
        only_relative = (decided.slower & ~verdict.slower) | (decided.faster & ~verdict.faster)
        is_relative = host_relative if metric == HOST.p50 else np.zeros_like(decided.same)
        if is_relative.any():
            # Such a change counts only where the latency that is shown moved as far.
            least, own = policy.least_estimate * decided.minimum, np.zeros(len(all_measured))
            for place in np.flatnonzero(is_relative).tolist():
                sides = all_measured[place].current, all_measured[place].reference
                own[place] = math.log(latency_of_runs(sides[0], metric) / latency_of_runs(sides[1], metric))
            slower, faster = (~is_relative | (sign * own >= least) for sign in (1, -1))
            decided = replace(decided, slower=decided.slower & slower, faster=decided.faster & faster)
        beyond = (effect.low > decided.minimum) | (effect.high < -decided.minimum)
        words = np.select([decided.slower, decided.faster, decided.same], ["slower", "faster", "same"], "undecided")
        columns = (words, beyond, is_relative, decided.adjusted, np.expm1(decided.minimum), np.expm1(floor_of[metric]))
        ratios = (_ratio(ends) for ends in (effect.change, effect.low, effect.high))
        pairs = of_pairs or effect
        relatives = zip(only_relative.tolist(), *map(_ratio, (pairs.change, pairs.low, pairs.high)), strict=True)
        # Lists are faster to read value by value than arrays.
        rows = zip(*(column.tolist() for column in columns), *ratios, relatives, strict=True)
        for measured, judged, row in zip(all_measured, by_series, rows, strict=True):
            word, far, is_divided, p_value, minimum, floor, ratio, low, high, of_pair = row
            if math.isnan(ratio):
                continue
            before, now = (latency_of_runs(side, metric) for side in (measured.reference, measured.current))
            change, said = None if math.isnan(low) else Interval(ratio, low, high), Verdict(word)
            named = functools.partial(Judgement, metric=metric, verdict=said, outcome=_OUTCOMES[said], reason="")
            named = functools.partial(named, reference=before, current=now, relative_to_baseline=is_divided)
            floor, chance = (None if math.isnan(one) else one for one in (floor, p_value))
            judgement = named(change=change, minimum_effect=minimum, floor=floor, p_value=chance)
            own_pair = Interval(*of_pair[1:]) if of_pair[0] else None
            moved = Moved(judgement, measured, (before, now), ratio, minimum, p_value if far else None, own_pair)
            judged[metric] = replace(judgement, reason=reason_of(moved))
    return [_with_shown(measured, judged) for measured, judged in zip(all_measured, by_series, strict=True)]


def with_relative(own: Effects, decided: Verdicts, relative: Effects, floor: Floats, policy: Policy) -> Verdicts:
    """Return verdicts in which changes count that are large enough only relative to the baseline; `relative` has NaN where there is no such change."""
    (found,) = decide([relative], [floor], policy)
    moved = decided.adjusted <= policy.false_discovery_rate
    slower = decided.slower | (found.slower & moved & (own.change > 0))
    faster = decided.faster | (found.faster & moved & (own.change < 0))
    return replace(decided, slower=slower, faster=faster, same=decided.same & ~slower & ~faster)


def judge_interleaved(all_measured: Sequence[MeasuredSides], policy: Policy = DEFAULT) -> list[dict[str, Judgement]]:
    """Return the judgements of series whose sides took turns: both have the same runs in the same order, and each run the same rounds."""
    if not all_measured:
        return []
    groups = spread_groups(all_measured)
    found = {metric: _ratios(all_measured, metric) for metric in _JUDGED}
    ratios, latency = found[HOST.p50]
    # The rounds of variants less those of their baselines, where these have as many.
    beside = [
        index if index is not None and len(ratios[index]) == len(own) > 0 else None
        for own, index in zip(ratios, rounds.baselines_of(all_measured), strict=True)
    ]
    divided = [own if index is None else own - ratios[index] for own, index in zip(ratios, beside, strict=True)]
    found[HOST.p50] = divided, latency
    effects = {metric: estimate_paired(*of_metric, groups, policy) for metric, of_metric in found.items()}
    floors = dict.fromkeys(effects, np.full(len(all_measured), np.nan))
    host_relative = np.array([index is not None for index in beside])
    return judgements(all_measured, effects, floors, policy, host_relative=host_relative)


def _ratios(all_measured: Sequence[MeasuredSides], metric: str) -> tuple[list[Floats], Floats]:
    ratios, latency = [], []
    for measured in all_measured:
        # Both sides were on one machine at one time, so no calibration has to say that the host's time repeats.
        wanted = (measured.latency.p50, measured.latency.p95, *([HOST.p50] if measured.latency is DEVICE else []))
        sides = (measured.reference, measured.current) if metric in wanted else ((), ())
        before, now = (
            np.log(np.array([value for record in side for value in round_values(record, metric)], dtype=np.float64))
            for side in sides
        )
        if len(before) != len(now):
            raise ValueError(f"{measured.series.name}: {len(before)} rounds against {len(now)}, expected pairs")
        ratios.append(now - before)
        latency.append(float((before.mean() + now.mean()) / 2) if len(now) else math.nan)
    return ratios, np.array(latency)


def unjudged(judgements: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """Return the judgements of a series as undecided, for its machine is not known to be quiet."""
    doubted = {}
    for metric, judgement in judgements.items():
        ratio = judgement.change.estimate if judgement.change else judgement.shown_ratio
        assert ratio is not None
        reason = f"{WORDS[metric]} {percent(ratio)}, not judged: `pairbench calibrate` has not found this CPU quiet"
        doubted[metric] = replace(
            judgement, outcome=GateOutcome.UNDECIDED, verdict=Verdict.UNDECIDED, minimum_effect=None, reason=reason
        )
    return doubted


def suspicious(judgement: Judgement) -> bool:
    """Return whether an undecided latency looks slower by itself, if not beside all the others."""
    if judgement.verdict is not Verdict.UNDECIDED or judgement.change is None or judgement.minimum_effect is None:
        return False
    least = (1 + judgement.minimum_effect) ** DEFAULT.least_estimate
    itself = not judgement.relative_to_baseline or (judgement.shown_ratio or 1.0) >= least
    return judgement.change.low > 1 and judgement.change.estimate >= least and itself


def _ratio(logs: Floats) -> list[float]:
    # A clock that went mad may leave rounds so far apart that the end of their interval is no number any more.
    ratios: list[float] = np.exp(np.clip(logs, -_LARGEST, _LARGEST)).tolist()
    return ratios
