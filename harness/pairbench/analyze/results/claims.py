"""Published figures beside what was measured here."""

import math
from collections.abc import Collection, Iterator, Sequence

from pairbench.model.claim import Claim
from pairbench.model.latency import speedup_of
from pairbench.model.outcome import Status
from pairbench.model.plan import OperatorDescription
from pairbench.model.record import Record
from pairbench.model.results import CaseResults, ClaimState, JudgedClaim, ModeResults

COLUMN = {"launches": "launches_per_call", "syncs": "syncs_per_call", "peak_gib": "peak_bytes"}
"""The column that holds what a claim is about; a speedup is a column of its own, and a pair of latencies makes one."""


def judged(
    operator: OperatorDescription, cases: Sequence[CaseResults], tiers: Collection[str]
) -> tuple[JudgedClaim, ...]:
    """Return each claim beside each of its cases, in the order of declaration; one without a case beside none."""
    return tuple(one for claim in operator.claims for one in _of(claim, operator, cases, tiers))


def _of(
    claim: Claim, operator: OperatorDescription, cases: Sequence[CaseResults], tiers: Collection[str]
) -> Iterator[JudgedClaim]:
    own = [case for case in operator.cases if claim.belongs_to(case)]
    for case in own:
        if case.tier not in tiers:
            continue
        found = next((results for results in cases if results.case.key == case.key), None)
        mode = found.in_mode(claim.mode) if found else None
        variant = _variant(claim, mode) if mode else None
        baseline = mode.baselines.get(str(variant.implementation)) if mode and variant else None
        yield JudgedClaim(
            claim=claim, case=case, state=state_of(claim, baseline, variant), baseline=baseline, variant=variant
        )
    if not claim.cases:
        yield JudgedClaim(claim=claim, case=None, state=ClaimState.UNMEASURED)


def _variant(claim: Claim, mode: ModeResults) -> Record | None:
    if claim.implementation is None:
        return mode.best
    return next((record for record in mode.variants if record.implementation == claim.implementation), None)


def state_of(claim: Claim, baseline: Record | None, variant: Record | None) -> ClaimState:
    """Return how a measured pair stands beside a claim.

    Speedups are compared as ratios, whatever the devices; memory, too, for the sizes need not be the same. Launches and
    waits are counts: as few as claimed, or fewer, is reached.
    """
    if variant is None or variant.status != Status.MEASURED:
        return ClaimState.UNMEASURED
    if claim.quantity in ("launches", "syncs"):
        count = getattr(variant, COLUMN[claim.quantity])
        most = (claim.pair or (0, 0))[1]
        if count is None:
            return ClaimState.UNMEASURED
        return ClaimState.SAME if count == most else ClaimState.BETTER if count < most else ClaimState.WORSE
    least, most = claim.ratio
    if claim.quantity == "peak_gib":
        before = baseline.peak_bytes if baseline else None
        if not before or variant.peak_bytes is None:
            return ClaimState.UNMEASURED
        ratio = before / variant.peak_bytes if variant.peak_bytes else float("inf")
        low = high = ratio
    else:
        speedup = speedup_of(variant)
        if speedup is None:
            return ClaimState.UNMEASURED
        low, high = speedup.low, speedup.high
        if math.isnan(low) or math.isnan(high):
            return ClaimState.UNPROVEN
    return ClaimState.BETTER if low > most else ClaimState.WORSE if high < least else ClaimState.SAME
