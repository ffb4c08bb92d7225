"""Changes of variants relative to their baselines, which a machine that got faster or slower cannot hide.

A variant and its baseline are measured in the same blocks, so what the machine does to one it does to the other. Where the
machine got 0.7 % faster between two sides and the variant 1.9 % slower, the variant's own latency shows +1.2 %, which is less than
counts. Relative to the baseline all of it shows.

A relative change counts only where the variant's own latency moved in the same direction, and not by chance. So nothing is blamed
where a baseline moved alone, for example because another kernel was chosen for it. The host's time by itself says little on most
machines, so that of a variant is judged by its relative change alone, as long as it moved as far by itself.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

import numpy as np

from pairbench.analyze.compare.effect import Effects, Verdicts, decide
from pairbench.analyze.compare.rounds import (
    Bools,
    Floats,
    LogRounds,
    MeasuredSides,
    Runs,
    as_runs,
    latency_of_runs,
    mean_log,
    pair_of,
    round_values,
)
from pairbench.model.comparison import DEFAULT, Policy
from pairbench.model.record import Record


def relative_to_baselines(all_measured: Sequence[MeasuredSides], metric: str, chosen: Sequence[bool]) -> Runs:
    """Return the rounds of each variant, divided by those of its baseline and multiplied by the baseline's mean over all runs.

    A run is left out where variant and baseline have not the same number of rounds. A variant is left out where its baseline's
    source changed or is not known, or where the two are judged by different latencies.

    Args:
        all_measured: All series of a comparison, the baselines among them.
        metric: A median latency.
        chosen: Which series to take; baselines are left out anyway.
    """
    known: list[tuple[int, bool, LogRounds]] = []
    for index, place in enumerate(baselines_of(all_measured)):
        if place is None or not chosen[index]:
            continue
        variant, baseline = all_measured[index], all_measured[place]
        controls = by_run((*baseline.reference, *baseline.current))
        level = mean_log(metric, list(controls.values()))
        for current, side in enumerate((variant.reference, variant.current)):
            known += [
                (index, bool(current), rounds._replace(mean=rounds.mean + level))
                for record in side
                if (rounds := relative_rounds(record, controls.get(run_of(record)), metric)) is not None
            ]
    return as_runs(known)


def baselines_of(all_measured: Sequence[MeasuredSides]) -> list[int | None]:
    """Return for each variant the place of its baseline, if the two can be divided; None for others, and for baselines."""
    places = {
        (pair_of(one.series), one.latency): place
        for place, one in enumerate(all_measured)
        if one.is_baseline and _same_source(one)
    }
    return [None if one.is_baseline else places.get((pair_of(one.series), one.latency)) for one in all_measured]


def run_of(record: Record) -> tuple[str, str | None]:
    """Return what a variant's record and its baseline's share: the run and the device."""
    return record.run_id, record.device_uuid


def by_run(records: Iterable[Record]) -> dict[tuple[str, str | None], Record]:
    """Return the records of one series by run and device."""
    return {run_of(record): record for record in records}


def relative_rounds(variant: Record, baseline: Record | None, metric: str) -> LogRounds | None:
    """Return the rounds of a variant's record divided by those of its baseline's; None where these are not as many, or none.

    Args:
        variant: A record of the variant.
        baseline: That of its baseline in the same run; None where there is none.
        metric: A median latency.
    """
    mine, its = round_values(variant, metric), round_values(baseline, metric) if baseline is not None else ()
    if not mine or len(mine) != len(its):
        return None
    return LogRounds.of([math.log(value / other) for value, other in zip(mine, its, strict=True)])


def mean_relative(metric: str, records: Iterable[Record], baselines: Iterable[Record]) -> float:
    """Return the mean of a variant's runs relative to its baseline's, in log units; NaN where no run has both."""
    of_run = by_run(baselines)
    pairs = [relative_rounds(record, of_run.get(run_of(record)), metric) for record in records]
    means = [rounds.mean for rounds in pairs if rounds is not None]
    return math.fsum(means) / len(means) if means else math.nan


def relative_or_own(relative: Effects, own: Effects) -> Effects:
    """Return the changes relative to the baselines where they are known, and those of the series' own latency elsewhere."""
    known = np.isfinite(relative.change)
    return Effects(
        **{one.name: np.where(known, getattr(relative, one.name), getattr(own, one.name)) for one in fields(Effects)}
    )


def own_moves(all_measured: Sequence[MeasuredSides], metric: str, chosen: Bools) -> Floats:
    """Return how far the latency that is shown of some series moved, in log units; NaN for the others."""

    def moved(one: MeasuredSides) -> float:
        return math.log(latency_of_runs(one.current, metric) / latency_of_runs(one.reference, metric))

    wanted = zip(all_measured, chosen.tolist(), strict=True)
    return np.array([moved(one) if is_chosen else math.nan for one, is_chosen in wanted], dtype=np.float64)


def with_own(said: Verdicts, own: Floats, relative: Bools, policy: Policy = DEFAULT) -> Verdicts:
    """Return verdicts in which a change relative to the baseline counts only where the series itself moved as far.

    Args:
        said: The verdicts on the changes relative to the baselines, among others.
        own: How far each series moved by itself, in log units.
        relative: Which changes are relative to the baselines.
        policy: The thresholds.
    """
    least = policy.least_estimate * said.minimum
    return replace(
        said, slower=said.slower & (~relative | (own >= least)), faster=said.faster & (~relative | (own <= -least))
    )


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
