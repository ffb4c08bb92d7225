"""Metrics that are counted, not timed: any increase is a regression, any decrease an improvement, without statistics."""

import math
from collections.abc import Iterator, Sequence

from pairbench.model.comparison import GateOutcome, Judgement
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record

LAUNCHES = {
    "launches_per_call": "launches",
    "kernels_per_call": "kernels",
    "graph_launches_per_call": "graph launches",
    "memcpys_per_call": "memory copies",
    "memcpy_bytes_per_call": "bytes copied",
    "memsets_per_call": "memsets",
    "syncs_per_call": "synchronisations",
}
"""Known only where `launch_status` is exact."""

COUNTS = {"ops_per_call": "dispatched operators", "allocations_per_call": "allocations"}

METRICS = (*LAUNCHES, *COUNTS, "peak_bytes")


def judge_exact(reference: Record, current: Record, policy: Policy = DEFAULT) -> list[Judgement]:
    """Return what the counts of two measured records say."""
    return [
        *_launches(reference, current),
        *(_count(reference, current, metric, words) for metric, words in COUNTS.items() if _stated(reference, metric)),
        *_memory(reference, current, policy),
    ]


def worsened(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Return the regressions among some judgements."""
    return [item for item in judgements if item.outcome is GateOutcome.REGRESSION]


def number(record: Record, metric: str) -> float | None:
    """Return a count of a record; None where there is none, or NaN was stored."""
    value: float | None = getattr(record, metric)
    return None if value is None or not math.isfinite(value) else value


def _stated(record: Record, metric: str) -> bool:
    return number(record, metric) is not None


def _launches(reference: Record, current: Record) -> Iterator[Judgement]:
    before, now = reference.launch_status, current.launch_status
    if before == now == "exact":
        for metric, words in LAUNCHES.items():
            if _stated(reference, metric):
                yield _count(reference, current, metric, words)
    elif before == "exact" or "unreliable" in (before, now):
        yield Judgement(
            metric="launch_status",
            outcome=GateOutcome.UNDECIDED,
            reference=before,
            current=now,
            reason=f"launches cannot be judged: {before or 'not counted'} in the reference, {now or 'not counted'} now",
        )


def _count(reference: Record, current: Record, metric: str, words: str) -> Judgement:
    before, now = number(reference, metric), number(current, metric)
    if now is None or before is None:
        outcome, reason = GateOutcome.UNDECIDED, f"{words} a call were {_plain(before)} and are not known now"
    elif now > before:
        outcome, reason = (
            GateOutcome.REGRESSION,
            f"{_plain(now - before)} more {words} a call, {_plain(before)} -> {_plain(now)}",
        )
    elif now < before:
        outcome, reason = (
            GateOutcome.IMPROVEMENT,
            f"{_plain(before - now)} fewer {words} a call, {_plain(before)} -> {_plain(now)}",
        )
    else:
        outcome, reason = GateOutcome.UNCHANGED, f"{now} {words} a call, as before"
    return Judgement(metric=metric, outcome=outcome, reference=before, current=now, reason=reason)


def _memory(reference: Record, current: Record, policy: Policy) -> Iterator[Judgement]:
    before, now = number(reference, "peak_bytes"), number(current, "peak_bytes")
    if before is None:
        return
    if now is None:
        outcome, reason = GateOutcome.UNDECIDED, "peak memory is not known now"
    else:
        allowed = max(policy.memory_part * before, policy.memory_bytes)
        change = f"{before / 2**20:.4g} -> {now / 2**20:.4g} MiB"
        if now - before > allowed:
            outcome, reason = GateOutcome.REGRESSION, f"more peak memory, {change}"
        elif before - now > allowed:
            outcome, reason = GateOutcome.IMPROVEMENT, f"less peak memory, {change}"
        else:
            outcome, reason = GateOutcome.UNCHANGED, "peak memory as before"
    yield Judgement(metric="peak_bytes", outcome=outcome, reference=before, current=now, reason=reason)


def _plain(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"
