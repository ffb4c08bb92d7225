"""Changes between two sides that took turns: round for round a pair of processes, measured block by block in one place.

The ratio of a round has lost what both sides share, the machine's mood of that minute above all. Rounds are the
independent unit; their ratios spread by what two fresh processes differ.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from pairbench.analyze.compare.effect import Effects
from pairbench.analyze.compare.latency import judgements, spread_groups, with_shown
from pairbench.analyze.compare.relative import baselines_of
from pairbench.analyze.compare.rounds import Bools, Floats, Ints, MeasuredSides, round_values
from pairbench.analyze.compare.spread import groups_of, prior
from pairbench.model.comparison import Judgement
from pairbench.model.latency import CALL, DEVICE, HOST
from pairbench.model.policy import DEFAULT, Policy


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
