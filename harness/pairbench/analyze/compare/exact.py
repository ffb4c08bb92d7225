"""Metrics that need no statistics: any increase of a count is a regression, any decrease an improvement. Levels that were accepted on purpose."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pairbench.analyze.compare.match import BAD, reason_of, representative
from pairbench.analyze.compare.rounds import damage, latency_of_runs, usable
from pairbench.errors import UsageError
from pairbench.model.comparison import DEFAULT, Acceptance, GateOutcome, Judgement, Policy, Verdict
from pairbench.model.latency import CALL, DEVICE, HOST
from pairbench.model.outcome import OUT_OF_BUDGET, Status
from pairbench.model.record import Record, Series

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
    before, now = reference.launch_status, current.launch_status
    judgements: list[Judgement] = []
    if before == now == "exact":
        judgements += _counts(reference, current, LAUNCHES)
    elif before == "exact" or "unreliable" in (before, now):
        judgement = Judgement(
            metric="launch_status",
            outcome=GateOutcome.UNDECIDED,
            reference=before,
            current=now,
            reason=f"launches cannot be judged: {before or 'not counted'} in the reference, {now or 'not counted'} now",
        )
        judgements.append(judgement)
    return [*judgements, *_counts(reference, current, COUNTS), *_memory(reference, current, policy)]


def number(record: Record, metric: str) -> float | None:
    """Return a count of a record; None where there is none, or NaN was stored."""
    value: float | None = getattr(record, metric)
    return None if value is None or not math.isfinite(value) else value


def _counts(reference: Record, current: Record, metrics: Mapping[str, str]) -> Iterator[Judgement]:
    for metric, words in metrics.items():
        before, now = number(reference, metric), number(current, metric)
        if before is None:
            continue
        if now is None:
            outcome, reason = GateOutcome.UNDECIDED, f"{words} a call were {before:.0f} and are not known now"
        elif now == before:
            outcome, reason = GateOutcome.UNCHANGED, f"{now} {words} a call, as before"
        else:
            outcome = GateOutcome.REGRESSION if now > before else GateOutcome.IMPROVEMENT
            moved = f"{abs(now - before):.0f} {'more' if now > before else 'fewer'}"
            reason = f"{moved} {words} a call, {before:.0f} -> {now:.0f}"
        yield Judgement(metric=metric, outcome=outcome, reference=before, current=now, reason=reason)


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


_RATIO_LIMIT = 2.0  # the oracle rule allows an error of at most this multiple of the baseline's


def judge_margin(reference: Record, current: Record, policy: Policy = DEFAULT) -> list[Judgement]:
    """Return the judgements of the correctness of two measured records; none where the reference's is not known."""
    ratios = (reference.oracle_ratio, current.oracle_ratio)
    left = [None if ratio is None else 1 - ratio / _RATIO_LIMIT for ratio in ratios]
    margins = [reference.margin, current.margin]
    judged = (("margin", "tolerance", margins, margins), ("oracle_ratio", "oracle rule", ratios, left))
    judgements = []
    for metric, words, stored, (before, now) in judged:
        if before is None or not math.isfinite(before):
            continue
        if now is None or not math.isfinite(now):
            outcome, reason = GateOutcome.UNDECIDED, f"how much of the {words} is left is not known now"
        elif before > 0 and now < policy.margin_safe and now <= policy.margin_part * before:
            outcome = GateOutcome.UNDECIDED
            reason = f"still right, but only {100 * now:.0f} % of the {words} is left, before {100 * before:.0f} %"
        else:  # where nothing was left before, nothing is lost
            outcome, reason = GateOutcome.UNCHANGED, f"{100 * now:.0f} % of the {words} is left"
        judgements.append(
            Judgement(metric=metric, outcome=outcome, reference=stored[0], current=stored[1], reason=reason)
        )
    return judgements


def bad(record: Record) -> bool:
    """Return whether an implementation went wrong by its record's status; unknown statuses count as wrong."""
    return record.status in BAD or record.status not in {status.value for status in Status}


def judge_status(reference: Sequence[Record], current: Sequence[Record]) -> Judgement:
    """Return the judgement of the status; `unchanged` where both sides were measured, or both skipped."""
    # Of several current runs the newest counts that did not measure suspects again: what fails and then works is not known to work.
    before = representative(reference)
    if bad(before):  # the first of those that went wrong since the last that did not
        *_, before = itertools.takewhile(bad, reversed(reference))
    again = [record for record in current if record.confirms is not None]
    now = next((record for record in reversed(current) if record.confirms is None), current[-1])
    outcome, reason = _judge_ending(before, now)
    if outcome is GateOutcome.FAILED and again and not any(bad(record) for record in again):
        outcome, reason = GateOutcome.UNDECIDED, f"{reason}; it worked when it was measured again"
    elif outcome is not GateOutcome.FAILED and (wrong := [record for record in current if bad(record)]):
        outcome = GateOutcome.FAILED
        reason = f"{wrong[-1].status} in {len(wrong)} of {len(current)} current runs: {reason_of(wrong[-1])}"
    return Judgement(metric="status", outcome=outcome, reference=before.status, current=now.status, reason=reason)


def failing_since(first: Record) -> str:
    """Return a phrase that names the first run of an unbroken row of failures."""
    names = ("commit", first.commit and first.commit[:10]), ("pull request", first.pull_request)
    known = ", ".join(f"{name} {value}" for name, value in names if value)
    return f"failing since run {first.run_id}" + (f" ({known})" if known else "")


def _judge_ending(before: Record, now: Record) -> tuple[GateOutcome, str]:
    graph = now.mode == "graph" and before.reason != OUT_OF_BUDGET
    if bad(now):
        also = f"; {failing_since(before)}" if bad(before) else ""
        return GateOutcome.FAILED, f"{now.status}: {reason_of(now)}{also}"
    if usable(now):
        if usable(before):
            return GateOutcome.UNCHANGED, "measured, as before"
        if bad(before):
            return GateOutcome.IMPROVEMENT, f"works again; before: {before.status}: {reason_of(before)}"
        outcome = GateOutcome.IMPROVEMENT if graph else GateOutcome.NEW
        return outcome, f"measured for the first time; before: {before.status}: {reason_of(before)}"
    if usable(before):
        if graph:
            return GateOutcome.REGRESSION, f"no longer works as a CUDA graph: {reason_of(now)}"
        return GateOutcome.MISSING, f"no longer measured: {now.status}: {reason_of(now)}"
    if bad(before):
        return GateOutcome.MISSING, f"{now.status} now: {reason_of(now)}; it was {before.status} before"
    return GateOutcome.UNCHANGED, f"{now.status}, as before: {reason_of(now)}"


@dataclass(frozen=True, kw_only=True)
class AcceptedLevel:
    """An acceptance, with the smallest relative change of its series' latencies that counts: 0.08 is 8 %."""

    acceptance: Acceptance
    minimum_effect: float

    def covers(self, metric: str, value: float | None, definition_hash: str | None, policy: Policy = DEFAULT) -> bool:
        """Return whether a value of a column, measured with a definition, is no worse than the accepted one."""
        accepted = self.acceptance
        limit = accepted.latencies.get(metric, accepted.exact.get(metric))
        if limit is None or value is None or accepted.definition_hash != definition_hash:
            return False
        if metric == "margin":
            return value >= limit
        if metric in accepted.latencies:
            return value <= limit * (1 + self.minimum_effect)
        slack = max(policy.memory_part * limit, policy.memory_bytes) if metric == "peak_bytes" else 0
        return value <= limit + slack


def accepted(
    judgement: Judgement, acceptance: Acceptance, definition_hash: str | None, policy: Policy = DEFAULT
) -> Judgement | None:
    """Return a worsening as unchanged where it stays within the accepted level; None where it goes beyond, or is none."""
    worse = judgement.outcome is GateOutcome.REGRESSION or judgement.verdict is Verdict.SLOWER
    margin = judgement.metric == "margin" and judgement.outcome is GateOutcome.UNDECIDED
    level = AcceptedLevel(acceptance=acceptance, minimum_effect=judgement.minimum_effect or policy.minimum_effect)
    value = judgement.current if isinstance(judgement.current, int | float) else None
    if not (worse or margin) or not level.covers(judgement.metric, value, definition_hash, policy):
        return None
    reason = f"{judgement.reason}; accepted in {acceptance.run_id}: {acceptance.reason}"
    return replace(judgement, outcome=GateOutcome.UNCHANGED, reason=reason)


def acceptance_of(series: Series, records: Sequence[Record], *, run_id: str, at: str, reason: str) -> Acceptance:
    """Return an acceptance of a series' latencies, as `show` prints them, and counts; UsageError where no record has a latency."""
    # The records are those of run `run_id` and of the run that confirms it; `at` is in ISO 8601, UTC.
    sound = [record for record in records if usable(record) and damage(record) is None]
    if not sound:
        last = records[-1]
        why = damage(last) if usable(last) else f"{last.status}: {reason_of(last)}"
        raise UsageError(f"{series.name} has no level to accept in run {run_id}: {why}")
    last = sound[-1]
    known = (
        (metric, latency_of_runs(sound, metric)) for metric in (CALL.p50, CALL.p95, DEVICE.p50, DEVICE.p95, HOST.p50)
    )
    latencies = {metric: value for metric, value in known if math.isfinite(value)}
    return Acceptance(
        series=series,
        definition_hash=last.definition_hash,
        p50_ns=latencies.get(CALL.p50),
        p95_ns=latencies.get(CALL.p95),
        device_p50_ns=latencies.get(DEVICE.p50),
        device_p95_ns=latencies.get(DEVICE.p95),
        host_p50_ns=latencies.get(HOST.p50),
        exact={name: value for name in (*METRICS, "margin") if (value := number(last, name)) is not None},
        run_id=run_id,
        at=at,
        reason=reason,
    )
