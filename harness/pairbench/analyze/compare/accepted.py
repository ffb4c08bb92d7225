"""Levels that were accepted on purpose: what is accepted of a series, and whether a later value is still within it.

`compare`, `trend` and the site ask here, so that one acceptance has one meaning.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pairbench.analyze.compare.exact import METRICS, number
from pairbench.analyze.compare.rounds import damage, latency_of_runs, usable
from pairbench.errors import UsageError
from pairbench.model.comparison import DEFAULT, Acceptance, GateOutcome, Judgement, Policy, Verdict
from pairbench.model.latency import CALL, DEVICE, HOST
from pairbench.model.record import Record, Series


@dataclass(frozen=True, kw_only=True)
class AcceptedLevel:
    """An acceptance, and how far above its latencies a latency still counts as the accepted one."""

    acceptance: Acceptance
    minimum_effect: float
    """The smallest relative change of this series' latency that counts: 0.08 is 8 %."""

    def covers(self, metric: str, value: float | None, definition_hash: str | None, policy: Policy = DEFAULT) -> bool:
        """Return whether a value is no worse than what was accepted.

        Args:
            metric: Column of the record that the value is of.
            value: The present value, in the unit of the column; None where there is none.
            definition_hash: The definition that it was measured with; another one was not accepted.
            policy: By how much peak memory may exceed the accepted one.
        """
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
    if not worse and not margin:
        return None
    level = AcceptedLevel(acceptance=acceptance, minimum_effect=judgement.minimum_effect or policy.minimum_effect)
    value = judgement.current if isinstance(judgement.current, int | float) else None
    if not level.covers(judgement.metric, value, definition_hash, policy):
        return None
    reason = f"{judgement.reason}; accepted in {acceptance.run_id}: {acceptance.reason}"
    return replace(judgement, outcome=GateOutcome.UNCHANGED, reason=reason)


def acceptance_of(series: Series, records: Sequence[Record], *, run_id: str, at: str, reason: str) -> Acceptance:
    """Return an acceptance of what a series has in some runs: its latencies as `show` prints them, and its counts.

    Args:
        series: Whose level is accepted.
        records: The records of the series in a run and in the run that confirms it.
        run_id: The run that is named in the acceptance.
        at: When it is accepted, ISO 8601, UTC.
        reason: Why the level is right.

    Raises:
        UsageError: none of the records has a latency.
    """
    sound = [record for record in records if usable(record) and damage(record) is None]
    if not sound:
        last = records[-1]
        why = damage(last) if usable(last) else f"{last.status}: {last.reason or 'no reason was stored'}"
        raise UsageError(f"{series.name} has no level to accept in run {run_id}: {why}")
    last = sound[-1]
    known = {
        metric: latency_of_runs(sound, metric) for metric in (CALL.p50, CALL.p95, DEVICE.p50, DEVICE.p95, HOST.p50)
    }
    latencies = {metric: value for metric, value in known.items() if math.isfinite(value)}
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
