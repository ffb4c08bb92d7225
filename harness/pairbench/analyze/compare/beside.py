"""What a machine that moved hides: changes of variants beside their baselines.

A variant and its baseline are measured in the same blocks, so what the machine does to one it does to the other. Where the
machine became 0.7 % faster between two sides and the variant 1.9 % slower, the variant's own latency shows +1.2 %: a change,
and smaller than what counts. Beside the baseline all of it shows.

This can only add to what is found, and raises no alarm by itself: the variant's own latency must have moved too, in the same
direction and not by chance. A baseline that moved alone (its kernel was chosen anew, say) says nothing of the variant.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from pairbench.analyze.compare.effect import Effects, Verdicts, decide
from pairbench.analyze.compare.rounds import (
    Floats,
    LogRounds,
    MeasuredSides,
    Runs,
    as_runs,
    mean_log,
    round_values,
    setting_of,
    summed,
)
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record


def beside_baselines(all_measured: Sequence[MeasuredSides], metric: str) -> Runs:
    """Return the rounds that each variant would have had if its baseline had always been as it was on average.

    A run is left out where the baseline lacks a round of the variant's. A series is left out where its baseline's source
    changed, or nobody knows whether it did, or where the two are judged by different latencies.

    Args:
        all_measured: All series of a comparison, the baselines among them.
        metric: The median latency by which they are judged.
    """
    baselines = {setting_of(one.series): one for one in all_measured if one.is_baseline}
    known = []
    for index, variant in enumerate(all_measured):
        baseline = baselines.get(setting_of(variant.series))
        if baseline is None or variant.is_baseline or not _same_source(baseline):
            continue
        if {baseline.latency.p50, variant.latency.p50} != {metric}:
            continue
        records = {(one.run_id, one.device_uuid): one for one in (*baseline.reference, *baseline.current)}
        level = mean_log(metric, list(records.values()))
        for side in (False, True):
            for record in variant.current if side else variant.reference:
                control = records.get((record.run_id, record.device_uuid))
                if control is not None and (rounds := _beside(record, control, metric, level)) is not None:
                    known.append((index, side, rounds))
    return as_runs(known)


def with_hidden(own: Effects, said: Verdicts, beside: Effects, floor: Floats, policy: Policy = DEFAULT) -> Verdicts:
    """Return verdicts with the changes that the machine hid a part of.

    Args:
        own: The changes of the series' own latency.
        said: The verdicts on these.
        beside: The changes beside the baselines; NaN where there is none.
        floor: The noise floors of the series in log units; NaN where there is none.
        policy: The thresholds.
    """
    (there,) = decide([beside], [floor], policy)
    moved = said.adjusted <= policy.false_discovery_rate
    hidden_slower = there.slower & moved & (own.change > 0) & ~said.slower
    hidden_faster = there.faster & moved & (own.change < 0) & ~said.faster
    hidden = hidden_slower | hidden_faster
    return replace(
        said,
        slower=said.slower | hidden_slower,
        faster=said.faster | hidden_faster,
        same=said.same & ~hidden,
        hidden=hidden,
    )


def _same_source(baseline: MeasuredSides) -> bool:
    sources = {record.implementation_hash for record in (*baseline.reference, *baseline.current)}
    return len(sources) == 1 and None not in sources


def _beside(variant: Record, baseline: Record, metric: str, level: float) -> LogRounds | None:
    mine, its = round_values(variant, metric), round_values(baseline, metric)
    if not mine or len(mine) != len(its):
        return None
    return summed([math.log(value / other) + level for value, other in zip(mine, its, strict=True)])
