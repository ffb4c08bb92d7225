"""Where a series stands: the state that its newest run leaves it in."""

from collections.abc import Sequence
from dataclasses import replace

from pairbench.analyze.history.trend import Latest
from pairbench.model.comparison import Change, GateOutcome, Verdict
from pairbench.model.outcome import Status
from pairbench.model.site import STATES, Moved, SeriesStatus
from pairbench.stats import Interval

_STATES = {
    GateOutcome.FAILED: "failed",
    GateOutcome.REGRESSION: "regression",
    GateOutcome.IMPROVEMENT: "improvement",
    GateOutcome.UNCHANGED: "unchanged",
    GateOutcome.UNDECIDED: "undecided",
    GateOutcome.NEW: "new",
    GateOutcome.MISSING: "undecided",
    GateOutcome.INCOMPARABLE: "undecided",
}


def gate_status_of(status: str, reason: str | None, change: Change | None, newest: Latest | None) -> SeriesStatus:
    """Return where a series stands.

    Args:
        status: of its newest record.
        reason: of that record.
        change: what the comparison of its newest run with the reference says; None where that run was not compared.
        newest: what its history says, which stands in for a comparison.
    """
    if status == Status.SKIPPED:
        return SeriesStatus(state="skipped", reason=reason or "")
    if status != Status.MEASURED:
        return SeriesStatus(state="failed", reason=f"{status}: {reason or 'no reason was stored'}")
    if change is not None and not _clearer(change, newest):
        return SeriesStatus(
            state=_STATES[change.outcome],
            change=change.p50.change if change.p50 else None,
            attribution=change.attribution,
            reason=change.reason,
            confirmed=change.confirmed,
            accepted=change.accepted,
        )
    if newest is None:
        return SeriesStatus(state="new")
    moved = Interval(newest.change, newest.change, newest.change) if newest.change is not None else None
    return SeriesStatus(
        state=_STATES[newest.outcome], change=moved, attribution=newest.attribution, reason=newest.reason
    )


def _clearer(change: Change, newest: Latest | None) -> bool:
    """Return whether a comparison of few runs leaves open what the whole history shows: that the newest run is on its level."""
    same = newest is not None and newest.outcome is GateOutcome.UNCHANGED and newest.verdict is Verdict.SAME
    return same and change.outcome is GateOutcome.UNDECIDED and change.verdict is Verdict.UNDECIDED


def with_open(status: SeriesStatus, lasting: Moved | None) -> SeriesStatus:
    """Return where a series stands when what happened to it earlier and is still there is known, too.

    A gain of earlier runs is no news; what is worse stays until it is mended or accepted.

    Args:
        status: what its newest run says.
        lasting: its move in the worst event that is still there; None where there is none.
    """
    if lasting is None or lasting.outcome is GateOutcome.IMPROVEMENT or status.state == "skipped":
        return status
    state = worst([status.state, _STATES[lasting.outcome]])
    if state == status.state:
        return status
    return replace(status, state=state, attribution=lasting.attribution, reason=f"still there: {lasting.reason}")


def worst(states: Sequence[str]) -> str:
    """Return the state that asks for attention first; skipped where there is none."""
    return min(states, key=STATES.index, default="skipped")
