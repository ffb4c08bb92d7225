"""What it means that an implementation ends otherwise than before: fails, is skipped, or works again."""

from collections.abc import Sequence

from pairbench.analyze.match import newest
from pairbench.analyze.rounds import usable
from pairbench.model.comparison import GateOutcome, Judgement
from pairbench.model.outcome import Status
from pairbench.model.record import Record

_BAD = frozenset(status.value for status in Status if status.bad)


def bad(record: Record) -> bool:
    """Return whether a record says that its implementation did not do what it promises; unknown words count as bad."""
    return record.status in _BAD or record.status not in {status.value for status in Status}


def judge_status(reference: Sequence[Record], current: Sequence[Record]) -> Judgement:
    """Return what the status says; `unchanged` where both sides were measured, or both skipped.

    Of several current runs the newest of its own speaks, not one that measured suspects again: what fails and then
    works is not known to work.
    """
    before = newest(reference)
    own = [record for record in current if record.confirms is None] or list(current)
    now = own[-1]
    again = [record for record in current if record.confirms is not None]
    outcome, reason = _judge(before, now)
    if outcome is GateOutcome.FAILED and again and not any(bad(record) for record in again):
        outcome, reason = GateOutcome.UNDECIDED, f"{reason}; it worked when it was measured again"
    elif outcome is not GateOutcome.FAILED and (wrong := [record for record in current if bad(record)]):
        outcome = GateOutcome.FAILED
        reason = f"{wrong[-1].status} in {len(wrong)} of {len(current)} current runs: {_why(wrong[-1])}"
    return Judgement(metric="status", outcome=outcome, reference=before.status, current=now.status, reason=reason)


def _judge(before: Record, now: Record) -> tuple[GateOutcome, str]:
    graph = now.mode == "graph"
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
