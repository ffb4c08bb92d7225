"""Changes of variants relative to their baselines, which a machine that got faster or slower cannot hide.

A variant and its baseline are measured in the same blocks, so what the machine does to one it does to the other. Where the
machine got 0.7 % faster between two sides and the variant 1.9 % slower, the variant's own latency shows +1.2 %, which is less than
counts. Relative to the baseline all of it shows.

A relative change counts only where the variant's own latency moved in the same direction, and not by chance. So nothing is blamed
where a baseline moved alone, for example because another kernel was chosen for it.
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
    pair_of,
    round_values,
)
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record


def relative_to_baselines(all_measured: Sequence[MeasuredSides], metric: str) -> Runs:
    """Return the rounds of each variant, divided by those of its baseline and multiplied by the baseline's mean over all runs.

    A run is left out where variant and baseline have not the same number of rounds. A variant is left out where its baseline's
    source changed or is not known, or where the two are judged by different latencies.

    Args:
        all_measured: All series of a comparison, the baselines among them.
        metric: The median latency by which they are judged.
    """
    baselines = {pair_of(one.series): one for one in all_measured if one.is_baseline}
    known = []
    for index, variant in enumerate(all_measured):
        baseline = baselines.get(pair_of(variant.series))
        if baseline is None or variant.is_baseline or not _same_source(baseline):
            continue
        if {baseline.latency.p50, variant.latency.p50} != {metric}:
            continue
        records = {(one.run_id, one.device_uuid): one for one in (*baseline.reference, *baseline.current)}
        level = mean_log(metric, list(records.values()))
        for current, side in enumerate((variant.reference, variant.current)):
            for record in side:
                control = records.get((record.run_id, record.device_uuid))
                if control is not None and (rounds := _relative(record, control, metric, level)) is not None:
                    known.append((index, bool(current), rounds))
    return as_runs(known)


def with_relative(own: Effects, said: Verdicts, relative: Effects, floor: Floats, policy: Policy = DEFAULT) -> Verdicts:
    """Return verdicts in which changes count that are large enough only relative to the baseline.

    Args:
        own: The changes of the series' own latency.
        said: The verdicts on these.
        relative: The changes relative to the baselines; NaN where there is none.
        floor: The noise floors of the series in log units; NaN where there is none.
        policy: The thresholds.
    """
    (found,) = decide([relative], [floor], policy)
    moved = said.adjusted <= policy.false_discovery_rate
    slower = said.slower | (found.slower & moved & (own.change > 0))
    faster = said.faster | (found.faster & moved & (own.change < 0))
    return replace(said, slower=slower, faster=faster, same=said.same & ~slower & ~faster)


def _same_source(baseline: MeasuredSides) -> bool:
    sources = {record.implementation_hash for record in (*baseline.reference, *baseline.current)}
    return len(sources) == 1 and None not in sources


def _relative(variant: Record, baseline: Record, metric: str, level: float) -> LogRounds | None:
    mine, its = round_values(variant, metric), round_values(baseline, metric)
    if not mine or len(mine) != len(its):
        return None
    return LogRounds.of([math.log(value / other) + level for value, other in zip(mine, its, strict=True)])
