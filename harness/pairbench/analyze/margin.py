"""Correctness that still holds but holds less well: flagged before the tolerance is reached.

An error close to its tolerance fails on the next seed, shape or driver. It is no regression yet, for nothing that was
promised is broken, and no gate should fail on it; it is `undecided`, so that it is listed, counted, and fails where
--strict asks for certainty.
"""

import math

from pairbench.model.comparison import GateOutcome, Judgement
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record

_RATIO_LIMIT = 2.0
"""Of the oracle rule: the most that an error may be of the baseline's."""


def judge_margin(reference: Record, current: Record, policy: Policy = DEFAULT) -> list[Judgement]:
    """Return what the correctness of two measured records says; nothing where the reference's is not known."""
    found = [
        _judge("margin", "tolerance", reference.margin, current.margin, reference.margin, current.margin, policy),
        _judge(
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


def _judge(
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
    elif now < policy.margin_safe and now <= policy.margin_part * before:
        outcome = GateOutcome.UNDECIDED
        reason = f"still right, but only {100 * now:.0f} % of the {words} is left, before {100 * before:.0f} %"
    else:
        outcome, reason = GateOutcome.UNCHANGED, f"{100 * now:.0f} % of the {words} is left"
    return Judgement(metric=metric, outcome=outcome, reference=reference, current=current, reason=reason)
