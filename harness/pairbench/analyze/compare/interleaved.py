"""Two commits that were measured interleaved: the changes of their series, what they compute among them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pairbench.analyze.compare.change import SEVERITY
from pairbench.analyze.compare.confirm import suspects
from pairbench.analyze.compare.latency import suspicious
from pairbench.analyze.compare.runs import compare
from pairbench.model.agreement import Agreement, OutputsCompared
from pairbench.model.comparison import Attribution, Change, GateOutcome, Judgement, Verdict
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record
from pairbench.model.series import Series

_OUTCOMES = {
    Agreement.EQUAL: GateOutcome.UNCHANGED,
    Agreement.WITHIN: GateOutcome.UNCHANGED,
    Agreement.DIFFERENT: GateOutcome.FAILED,
    Agreement.UNKNOWN: GateOutcome.UNDECIDED,
}


def compare_interleaved(
    reference: Sequence[Record],
    current: Sequence[Record],
    *,
    outputs: Mapping[Series, OutputsCompared] | None = None,
    policy: Policy = DEFAULT,
) -> tuple[Change, ...]:
    """Return what became of each series.

    Args:
        reference: Records of the one commit.
        current: Records of the other; the same round of both is a pair.
        outputs: Whether both compute the same, where both are right by themselves.
        policy: The thresholds.
    """
    changes = compare(reference, current, policy=policy, interleaved=True)
    return tuple(_with_outputs(change, (outputs or {}).get(change.series)) for change in changes)


def to_measure_again(changes: Sequence[Change], policy: Policy = DEFAULT) -> frozenset[Series]:
    """Return the series that are slower, or look slower where chance is not ruled out: further rounds tell.

    Counts need none, for they are exact.

    Args:
        changes: What the first rounds say.
        policy: The thresholds.
    """
    worse = set(suspects(changes))
    return frozenset(
        change.series
        for change in changes
        if any(
            (item.verdict is Verdict.SLOWER and change.series in worse) or suspicious(item, policy)
            for item in change.judgements
        )
    )


def _with_outputs(change: Change, compared: OutputsCompared | None) -> Change:
    if compared is None or change.outcome is GateOutcome.INCOMPARABLE:
        return change
    judgement = Judgement(
        metric="outputs",
        outcome=_OUTCOMES[compared.agreement],
        current=compared.agreement.value,
        reason=_reason(compared),
    )
    if SEVERITY.index(judgement.outcome) >= SEVERITY.index(change.outcome):
        return replace(change, judgements=(*change.judgements, judgement))
    # What it computes comes first: a latency of something else is no news of this.
    failed = judgement.outcome is GateOutcome.FAILED
    return replace(
        change,
        outcome=judgement.outcome,
        reason=judgement.reason if failed else f"{judgement.reason}; {change.reason}",
        attribution=Attribution.CODE if failed else change.attribution,
        judgements=(judgement, *change.judgements),
    )


def _reason(compared: OutputsCompared) -> str:
    correctness = compared.correctness
    match compared.agreement:
        case Agreement.EQUAL:
            return "computes the same to the bit"
        case Agreement.WITHIN:
            left = f", with {100 * correctness.margin:.0f} % of it left" if correctness else ""
            return f"computes the same within the tolerance{left}"
        case Agreement.DIFFERENT:
            return f"right by itself, and not the same as before for the same inputs: {compared.reason}"
        case Agreement.UNKNOWN:
            return f"nobody knows whether it computes the same: {compared.reason}"
