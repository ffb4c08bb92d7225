"""Metrics that are counted, not timed: any increase is a regression, any decrease an improvement, without statistics."""

import math
from collections.abc import Iterator, Sequence

from pairbench.analyze.compare.match import representative
from pairbench.analyze.compare.rounds import usable
from pairbench.model.comparison import DEFAULT, GateOutcome, Judgement, Policy
from pairbench.model.outcome import OUT_OF_BUDGET, Status
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
"""The counts of launches with their names in sentences; they are known only where `launch_status` is exact."""

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


_RATIO_LIMIT = 2.0
"""The oracle rule allows an error of at most this multiple of the baseline's."""


def judge_margin(reference: Record, current: Record, policy: Policy = DEFAULT) -> list[Judgement]:
    """Return what the correctness of two measured records says; nothing where the reference's is not known."""
    found = [
        _judge_part_left(
            "margin", "tolerance", reference.margin, current.margin, reference.margin, current.margin, policy
        ),
        _judge_part_left(
            "oracle_ratio",
            "oracle rule",
            reference.oracle_ratio,
            current.oracle_ratio,
            _left(reference.oracle_ratio),
            _left(current.oracle_ratio),
            policy,
        ),
    ]
    return [item for item in found if item is not None]


def _left(ratio: float | None) -> float | None:
    return None if ratio is None else 1 - ratio / _RATIO_LIMIT


def _judge_part_left(
    metric: str,
    words: str,
    reference: float | None,
    current: float | None,
    before: float | None,
    now: float | None,
    policy: Policy,
) -> Judgement | None:
    if before is None or not math.isfinite(before):
        return None
    if now is None or not math.isfinite(now):
        outcome, reason = GateOutcome.UNDECIDED, f"how much of the {words} is left is not known now"
    elif (
        before > 0 and now < policy.margin_safe and now <= policy.margin_part * before
    ):  # else nothing was left to lose
        outcome = GateOutcome.UNDECIDED
        reason = f"still right, but only {100 * now:.0f} % of the {words} is left, before {100 * before:.0f} %"
    else:
        outcome, reason = GateOutcome.UNCHANGED, f"{100 * now:.0f} % of the {words} is left"
    return Judgement(metric=metric, outcome=outcome, reference=reference, current=current, reason=reason)


_BAD = frozenset(status.value for status in Status if status.bad)


def bad(record: Record) -> bool:
    """Return whether a record says that its implementation did not do what it promises; unknown words count as bad."""
    return record.status in _BAD or record.status not in {status.value for status in Status}


def judge_status(reference: Sequence[Record], current: Sequence[Record]) -> Judgement:
    """Return what the status says; `unchanged` where both sides were measured, or both skipped.

    Of several current runs the newest of its own speaks, not one that measured suspects again: what fails and then
    works is not known to work.
    """
    before = representative(reference)
    own = [record for record in current if record.confirms is None] or list(current)
    now = own[-1]
    again = [record for record in current if record.confirms is not None]
    outcome, reason = _judge_ending(before, now)
    if outcome is GateOutcome.FAILED and again and not any(bad(record) for record in again):
        outcome, reason = GateOutcome.UNDECIDED, f"{reason}; it worked when it was measured again"
    elif outcome is not GateOutcome.FAILED and (wrong := [record for record in current if bad(record)]):
        outcome = GateOutcome.FAILED
        reason = f"{wrong[-1].status} in {len(wrong)} of {len(current)} current runs: {_why(wrong[-1])}"
    return Judgement(metric="status", outcome=outcome, reference=before.status, current=now.status, reason=reason)


def _judge_ending(before: Record, now: Record) -> tuple[GateOutcome, str]:
    graph = now.mode == "graph" and before.reason != OUT_OF_BUDGET
    if bad(now):
        also = f"; it was {before.status} before as well" if bad(before) else ""
        return GateOutcome.FAILED, f"{now.status}: {_why(now)}{also}"
    if usable(now):
        if usable(before):
            return GateOutcome.UNCHANGED, "measured, as before"
        if bad(before):
            return GateOutcome.IMPROVEMENT, f"works again; before: {before.status}: {_why(before)}"
        outcome = GateOutcome.IMPROVEMENT if graph else GateOutcome.NEW
        return outcome, f"measured for the first time; before: {before.status}: {_why(before)}"
    if usable(before):
        if graph:
            return GateOutcome.REGRESSION, f"no longer works as a CUDA graph: {_why(now)}"
        return GateOutcome.MISSING, f"no longer measured: {now.status}: {_why(now)}"
    if bad(before):
        return GateOutcome.MISSING, f"{now.status} now: {_why(now)}; it was {before.status} before"
    return GateOutcome.UNCHANGED, f"{now.status}, as before: {_why(now)}"


def _why(record: Record) -> str:
    return record.reason or "no reason was stored"
