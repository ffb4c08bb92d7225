"""What each step of a ladder gains by itself: over the variant that it builds on, where one run timed both."""

import math
from collections.abc import Mapping, Sequence

from pairbench.model.record import Record
from pairbench.model.results import Step
from pairbench.stats import Interval, speedup_interval


def steps_of(variants: Sequence[Record], builds_on: Mapping[str, str]) -> dict[str, Step]:
    """Return the step of each variant that builds on another of the same run, by the variant's name.

    Args:
        variants: of one case in one mode, one record of each.
        builds_on: for each implementation the variant it builds on, if any.
    """
    timed = {str(record.implementation): record for record in variants if record.call_p50_ns}
    pairs = {name: (timed.get(builds_on.get(name, "")), record) for name, record in timed.items()}
    return {
        name: Step(over=builds_on[name], gain=_gain(before, record))
        for name, (before, record) in pairs.items()
        if before is not None and before.run_id == record.run_id
    }


def _gain(before: Record, record: Record) -> Interval:
    """Return how many times as fast a step is, by its rounds, each one process that timed both; of one round, without an interval."""
    ours, theirs = record.round_p50_ns or (), before.round_p50_ns or ()
    if len(ours) == len(theirs) > 1:
        return speedup_interval([[value] for value in theirs], [[value] for value in ours])
    return Interval((before.call_p50_ns or math.nan) / (record.call_p50_ns or math.nan), math.nan, math.nan)
