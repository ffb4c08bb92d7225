"""Current runs against reference runs: one change for every series that either side has, each with its reason.

Changes between two sides that took turns: round for round a pair of processes, measured block by block in one place.

The ratio of a round has lost what both sides share, the machine's mood of that minute above all. Rounds are the
independent unit; their ratios spread by what two fresh processes differ.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from scipy import special

from pairbench.analyze.compare.change import Control, Evidence, change_of
from pairbench.analyze.compare.effect import Effects, groups_of, prior
from pairbench.analyze.compare.latency import judge_latencies, judgements, spread_groups, unjudged, with_shown
from pairbench.analyze.compare.match import Matched, match
from pairbench.analyze.compare.relative import baselines_of
from pairbench.analyze.compare.rounds import (
    Bools,
    Floats,
    Ints,
    MeasuredSides,
    Pair,
    damage,
    pair_of,
    round_values,
    usable,
)
from pairbench.model.comparison import DEFAULT, Acceptance, Change, Floor, Judgement, Policy
from pairbench.model.latency import CALL, DEVICE, HOST
from pairbench.model.record import Record, Series


def judge_interleaved(all_measured: Sequence[MeasuredSides], policy: Policy = DEFAULT) -> list[dict[str, Judgement]]:
    """Return for each series the judgement of each latency.

    Args:
        all_measured: Both sides have the same runs in the same order, and each run the same rounds.
        policy: The thresholds.
    """
    if not all_measured:
        return []
    groups = spread_groups(all_measured)
    metrics = (DEVICE.p50, DEVICE.p95, CALL.p50, CALL.p95, HOST.p50)
    found = {metric: _ratios(all_measured, metric) for metric in metrics}
    ratios, latency = found[HOST.p50]
    divided, host_relative = _relative_to_baselines(all_measured, ratios)
    found[HOST.p50] = divided, latency
    effects = {metric: estimate_paired(*of_metric, groups, policy) for metric, of_metric in found.items()}
    none = np.full(len(all_measured), np.nan)
    judged = judgements(all_measured, effects, dict.fromkeys(effects, none), policy, host_relative=host_relative)
    return [with_shown(one, of_one) for one, of_one in zip(all_measured, judged, strict=True)]


def _ratios(all_measured: Sequence[MeasuredSides], metric: str) -> tuple[list[Floats], Floats]:
    """Return the log ratios of each series' rounds, and its log latency."""
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


def _relative_to_baselines(
    all_measured: Sequence[MeasuredSides], ratios: Sequence[Floats]
) -> tuple[list[Floats], Bools]:
    """Return the rounds' log ratios, those of variants less those of their baselines, and which series these are."""
    beside = [
        place if place is not None and len(ratios[place]) == len(own) > 0 else None
        for own, place in zip(ratios, baselines_of(all_measured), strict=True)
    ]
    relative = [own if place is None else own - ratios[place] for own, place in zip(ratios, beside, strict=True)]
    return relative, np.array([place is not None for place in beside])


def estimate_paired(ratios: Sequence[Floats], latency: Floats, groups: Ints, policy: Policy = DEFAULT) -> Effects:
    """Return the change of each series: the mean of its rounds' log ratios, with a moderated t interval.

    Args:
        ratios: For each series its rounds' log ratios, current over reference.
        latency: For each series its latency, log of ns: those of similar latency lend each other what they know of spread.
        groups: For each series a label; only those with the same lend.
        policy: The thresholds.
    """
    rounds = np.array([len(values) for values in ratios], dtype=np.float64)
    known = rounds > 0
    change = np.array([values.mean() if len(values) else math.nan for values in ratios])
    within = np.maximum(rounds - 1, 0)
    square = np.array([((values - values.mean()) ** 2).sum() if len(values) else 0.0 for values in ratios])
    # A ratio has the least spread of two processes, and the steps of two clocks. Every round reads the same step, so
    # more rounds tell no more of where within it a median lies.
    variance = np.maximum(square / np.maximum(within, 1), 2 * policy.least_spread**2)
    step = 2 * (policy.tick_ns * np.exp(-latency)) ** 2 / 12
    lent_variance, lent = np.ones(len(ratios)), np.zeros(len(ratios))
    for group in groups_of(groups):
        chosen = group[known[group]]
        if len(chosen):
            lent_variance[chosen], lent[chosen] = prior(
                latency[chosen], variance[chosen], within[chosen], policy.most_prior_rounds
            )
    freedom = lent + within
    told = known & (freedom > 0)
    total = (lent * lent_variance + within * variance) / np.maximum(freedom, 1e-9) / np.maximum(rounds, 1) + step
    error = np.where(told, np.sqrt(total), np.nan)
    reach = special.stdtrit(np.maximum(freedom, 1), 0.975) * error
    return Effects(
        change=change,
        error=error,
        freedom=np.where(told, freedom, np.nan),
        p_value=2 * special.stdtr(np.maximum(freedom, 1), -np.abs(change) / error),
        low=change - reach,
        high=change + reach,
    )


_Latencies = Mapping[Series, Mapping[str, Judgement]]


def compare(
    reference: Sequence[Record],
    current: Sequence[Record],
    *,
    floors: Mapping[Series, Floor] | None = None,
    policy: Policy = DEFAULT,
    accepted: Mapping[Series, Acceptance] | None = None,
    interleaved: bool = False,
    trusted: Collection[Series] | None = None,
) -> tuple[Change, ...]:
    """Return what became of each series.

    Args:
        reference: Records of the reference runs.
        current: Records of the current runs, those that measured suspects again among them.
        floors: How far series move between runs of the same code, as far as that is known.
        policy: The thresholds.
        accepted: Levels that were accepted on purpose.
        trusted: Series whose machine is quiet enough for their latencies to be judged; None for all.
        interleaved: Both sides were measured interleaved, so their rounds are pairs; there are no floors to such changes.
    """
    matched = match(reference, current)
    all_measured = [measured for item in matched if (measured := _measured_sides(item)) is not None]
    judged = (
        judge_interleaved(all_measured, policy) if interleaved else judge_latencies(all_measured, floors or {}, policy)
    )
    latencies = {
        measured.series: judgements if trusted is None or measured.series in trusted else unjudged(judgements)
        for measured, judgements in zip(all_measured, judged, strict=True)
    }
    beside: defaultdict[Pair, list[MeasuredSides]] = defaultdict(list)
    for measured in all_measured:
        beside[pair_of(measured.series)].append(measured)
    return tuple(
        change_of(
            Evidence(
                matched=item,
                measured=measured,
                latencies=latencies.get(item.series, {}),
                control=_control(measured, beside[pair_of(item.series)], latencies) if measured else None,
                acceptance=(accepted or {}).get(item.series),
                interleaved=interleaved,
                policy=policy,
            )
        )
        for item in matched
        for measured in [_find(item, beside)]
    )


def _measured_sides(item: Matched) -> MeasuredSides | None:
    """Return the records whose latencies can be judged; None where a side has none."""
    if item.outcome is not None:
        return None
    sides = [
        tuple(record for record in records if usable(record) and not damage(record))
        for records in (item.reference, item.current)
    ]
    return MeasuredSides(series=item.series, reference=sides[0], current=sides[1]) if all(sides) else None


def _find(item: Matched, beside: Mapping[Pair, Sequence[MeasuredSides]]) -> MeasuredSides | None:
    several = beside.get(pair_of(item.series), ())
    return next((measured for measured in several if measured.series == item.series), None)


def _control(measured: MeasuredSides, beside: Sequence[MeasuredSides], latencies: _Latencies) -> Control | None:
    """Return the baseline for a variant, and for a baseline the variant in the middle."""
    p50 = measured.latency.p50
    others = [
        other
        for other in beside
        if other.is_baseline is not measured.is_baseline
        and (judgement := latencies[other.series].get(p50))
        and judgement.change
    ]
    if not others:
        return None
    others.sort(key=lambda other: _estimate(latencies[other.series][p50]))
    middle = others[(len(others) - 1) // 2]
    changes = {
        metric: judgement.change
        for metric, judgement in latencies[middle.series].items()
        if judgement.change is not None and not judgement.relative_to_baseline
    }
    return Control(changes=changes, measured=middle)


def _estimate(judgement: Judgement) -> float:
    return judgement.change.estimate if judgement.change else 1.0
