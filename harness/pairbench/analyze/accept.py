"""Levels that were accepted on purpose: a worsening up to there is no news."""

import math
from collections.abc import Sequence
from dataclasses import replace

from pairbench.analyze.rounds import P50, P95, mean_level
from pairbench.model.acceptance import Acceptance
from pairbench.model.comparison import GateOutcome, Judgement, Verdict
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record


def accepted(
    judgement: Judgement, acceptance: Acceptance, current: Sequence[Record], policy: Policy = DEFAULT
) -> Judgement | None:
    """Return a worsening as unchanged where it stays within the accepted level; None where it goes beyond, or is none."""
    worse = judgement.outcome is GateOutcome.REGRESSION or judgement.verdict is Verdict.SLOWER
    margin = judgement.metric == "margin" and judgement.outcome is GateOutcome.UNDECIDED
    if not (worse or margin) or acceptance.definition_hash != current[-1].definition_hash:
        return None
    if not _within(judgement, acceptance, current, policy):
        return None
    reason = f"{judgement.reason}; accepted in {acceptance.run_id}: {acceptance.reason}"
    return replace(judgement, outcome=GateOutcome.UNCHANGED, reason=reason)


def _within(judgement: Judgement, acceptance: Acceptance, current: Sequence[Record], policy: Policy) -> bool:
    if judgement.metric in (P50, P95):
        limit = acceptance.p50_ns if judgement.metric == P50 else acceptance.p95_ns
        now = mean_level(judgement.metric, current)
        minimum = judgement.minimum_effect or policy.minimum_effect
        return limit is not None and now <= math.log(limit) + math.log1p(minimum)
    limit = acceptance.exact.get(judgement.metric)
    if limit is None or not isinstance(judgement.current, int | float):
        return False
    if judgement.metric == "margin":
        return judgement.current >= limit
    slack = max(policy.memory_part * limit, policy.memory_bytes) if judgement.metric == "peak_bytes" else 0
    return judgement.current <= limit + slack
