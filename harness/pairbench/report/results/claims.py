"""Published figures in words, and what was measured here beside them."""

from collections.abc import Sequence

from pairbench.model.claim import Claim
from pairbench.model.results import ClaimState, JudgedClaim
from pairbench.report import latency_words, rows, units
from pairbench.report.layout import Column
from pairbench.report.results.blocks import TableBlock, table_of

_NS_PER_MS = 1e6
_BYTES_PER_GIB = 2**30


def arrow(before: str, after: str) -> str:
    """Return `before -> after`, or the one of them that is known."""
    return f"{before} -> {after}" if before and after else before or after


def published(claim: Claim) -> str:
    """Return a claim's figure with its unit."""
    if claim.pair is None:
        return _ratio(claim)
    before, after = claim.pair
    match claim.quantity:
        case "latency_ms":
            pair = arrow(units.duration(before * _NS_PER_MS), units.duration(after * _NS_PER_MS))
            return f"{pair} ({_ratio(claim)})"
        case "peak_gib":
            return arrow(units.size(before * _BYTES_PER_GIB), units.size(after * _BYTES_PER_GIB))
        case quantity:
            return f"{arrow(units.count(before), units.count(after))} {quantity}"


def in_short(claim: Claim) -> str:
    """Return a claim without its latencies, whose ratio is enough in a table that has our latencies beside it."""
    return f"{_ratio(claim)}" if claim.quantity == "latency_ms" else published(claim)


def ours(one: JudgedClaim) -> str:
    """Return what was measured here of the quantity that a claim is about; empty where nothing was."""
    if one.variant is None or one.state is ClaimState.UNMEASURED:
        return ""
    by = f", {one.variant.implementation}"
    match one.claim.quantity:
        case "launches":
            return arrow(rows.launches(one.baseline) if one.baseline else "", rows.launches(one.variant)) + by
        case "syncs":
            before = units.count(one.baseline.syncs_per_call) if one.baseline else ""
            return arrow(before, units.count(one.variant.syncs_per_call)) + by
        case "peak_gib":
            before = units.size(one.baseline.peak_bytes) if one.baseline else ""
            return arrow(before, units.size(one.variant.peak_bytes)) + by
    speedup = ", ".join(filter(None, [latency_words.speedup(one.variant), latency_words.speedup_range(one.variant)]))
    latency = latency_words.common(one.baseline, one.variant)
    before, after = (latency_words.p50(record, latency) for record in (one.baseline, one.variant))
    return f"{arrow(before, after)} ({speedup}){by}"


def claims_table(claims: Sequence[JudgedClaim], labels: dict[str, str]) -> TableBlock:
    """Return all claims of an operator as a table.

    Args:
        claims: each judged in its case.
        labels: of the cases, by key.
    """

    def our_case(one: JudgedClaim) -> str:
        return labels.get(one.case.key, one.case.key) if one.case else "none here"

    columns: tuple[Column[JudgedClaim], ...] = (
        Column(header="published", text=lambda one: published(one.claim), right=False),
        Column(header="about", text=lambda one: _about(one.claim), right=False),
        Column(header="on", text=lambda one: one.claim.device, right=False),
        Column(header="by", text=lambda one: one.claim.source, right=False),
        Column(header="measured there", text=lambda one: one.claim.shape, right=False),
        Column(header="our case", text=our_case, right=False),
        Column(header="ours", text=ours, right=False),
        Column(header="ours is", text=lambda one: str(one.state), right=False),
        Column(header="why not", text=_why_not, right=False),
    )
    return table_of(columns, claims, title="Published, and ours beside it:")


def _why_not(one: JudgedClaim) -> str:
    return one.claim.unmet if one.state not in (ClaimState.SAME, ClaimState.BETTER) else ""


def _about(claim: Claim) -> str:
    return ", ".join(filter(None, [claim.implementation, claim.mode if claim.mode != "eager" else ""]))


def _ratio(claim: Claim) -> str:
    least, most = claim.ratio
    return units.ratio(least) if least == most else f"{units.ratio_range(least, most)}x"
