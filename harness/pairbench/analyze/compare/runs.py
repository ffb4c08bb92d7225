"""Current runs against reference runs: the change of every series that either side has.

The metrics of a series are judged one by one, attributed, confirmed by second measurements, and joined into one outcome.
"""

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pairbench.analyze.compare import exact
from pairbench.analyze.compare.attribute import Circumstances, kernel_changes, outcome_of_move, percent
from pairbench.analyze.compare.exact import METRICS, Matched, representative
from pairbench.analyze.compare.latency import judge_interleaved, judge_latencies, suspicious, undecided, unjudged
from pairbench.analyze.compare.rounds import MeasuredSides, damage, is_median, mean_log, mean_relative, pair_of, usable
from pairbench.model.comparison import (
    DEFAULT,
    Acceptance,
    Across,
    Attribution,
    Change,
    Floor,
    GateOutcome,
    Judgement,
    Policy,
    Verdict,
)
from pairbench.model.plain import Value, grouped
from pairbench.model.record import CALL, HOST, Record, Series, p50_of, result_of, speedup_of
from pairbench.stats import Interval

Rows = Sequence[Record]


def suspects(changes: Iterable[Change]) -> tuple[Series, ...]:
    """Return the series to measure again, together with their controls, before anything fails."""
    worse = (change for change in changes if change.outcome in (GateOutcome.REGRESSION, GateOutcome.FAILED))
    return tuple(change.series for change in worse if change.series.case and change.confirmed is None)


def again(current: Rows) -> list[Record]:
    """Return the records that measured suspects of the other current runs again."""
    runs = {record.run_id for record in current}
    return [record for record in current if record.confirms in runs]


def confirm(
    judgement: Judgement, reference: Rows, current: Rows, *, controls: Rows = ()
) -> tuple[Judgement, bool | None]:
    """Return a judgement after the second measurement, if there is one, and whether that showed a worsening again."""
    # Only a regression can become another outcome by it. A change relative to the baseline is judged by the records of its `controls`.
    second = [record for record in again(current) if usable(record)]
    if not second:
        return judgement, None
    if judgement.verdict is not None:
        unseen = _seen_again(judgement, reference, current, second, controls)
    elif judgement.metric in METRICS and judgement.outcome is GateOutcome.REGRESSION:
        value = exact.number(second[-1], judgement.metric)
        judged = exact.judge_exact(reference[-1], second[-1])
        worse = {item.metric for item in judged if item.outcome is judgement.outcome}
        # Peak memory need not be the same to the byte.
        repeated = judgement.metric in worse and (value == judgement.current or judgement.metric == "peak_bytes")
        counted = "not counted" if value is None else f"{value:.0f}"
        unseen = "" if repeated else f"not seen again when measured again ({counted})"
    else:
        return judgement, None
    if not unseen:
        return judgement, None if unseen is None else True
    outcome = GateOutcome.UNDECIDED if judgement.outcome is GateOutcome.REGRESSION else judgement.outcome
    return replace(judgement, outcome=outcome, reason=f"{judgement.reason}; {unseen}"), False


def _seen_again(judgement: Judgement, reference: Rows, current: Rows, second: Rows, controls: Rows) -> str | None:
    """Return in words that a slow-down was not seen again; "" where it was, None where there was none."""

    def level(records: Rows) -> float:
        metric = judgement.metric
        return mean_relative(metric, records, controls) if judgement.relative_to_baseline else mean_log(metric, records)

    seen = level(second) - level(reference)
    if judgement.outcome is GateOutcome.REGRESSION and judgement.change is not None:
        moved = math.log(judgement.change.estimate)
    elif not is_median(judgement.metric):
        return None
    else:
        # Both measurements together may prove nothing any more; the first alone made it a suspect.
        moved = level([record for record in current if record not in second]) - level(reference)
        if not moved >= DEFAULT.least_estimate * math.log1p(judgement.minimum_effect or DEFAULT.minimum_effect):
            return None
    if math.isnan(seen):
        return None
    if seen >= DEFAULT.confirmed_part * moved:
        return "" if judgement.outcome is GateOutcome.REGRESSION else None
    return f"not seen again when measured again ({percent(math.exp(seen))})"


_WORST_FIRST = ("failed", "regression", "incomparable", "missing", "undecided", "new", "improvement", "unchanged")
SEVERITY = tuple(map(GateOutcome, _WORST_FIRST))
"""The outcomes, the worst first. Where the metrics of a series disagree, the worst decides: faster with one more launch is a regression."""

_MOVED = (GateOutcome.FAILED, GateOutcome.REGRESSION, GateOutcome.MISSING, GateOutcome.IMPROVEMENT)


class _Evidence(NamedTuple):
    matched: Matched
    measured: MeasuredSides | None
    latencies: Mapping[str, Judgement]
    control: MeasuredSides | None
    control_changes: Mapping[str, Interval]
    """The change of each latency of the control, which the series is held against, current over reference."""
    acceptance: Acceptance | None
    interleaved: bool


class _Finding(Value):
    """A judgement of one metric, its likely cause, and whether a second run confirmed it or its level was accepted."""

    judgement: Judgement
    attribution: Attribution | None = None
    why: str = ""
    confirmed: bool | None = None
    accepted: bool = False
    decides: bool = True  # whether this metric may make the outcome of its series worse
    median: bool = False  # whether this is the median latency by which the series is judged


def _change(evidence: _Evidence) -> Change:
    matched = evidence.matched
    record = representative(matched.current or matched.reference)
    sides = (matched.reference, matched.current)
    old, new = (tuple(dict.fromkeys(item.run_id for item in side)) for side in sides)
    described = functools.partial(Change, series=matched.series, role=record.role or "", tier=record.tier)
    described = functools.partial(described, reference_runs=old, current_runs=new, left_out_runs=matched.left_out_runs)
    if matched.outcome is not None:
        across = _across(matched) if matched.outcome is GateOutcome.INCOMPARABLE else None
        return described(outcome=matched.outcome, reason=matched.reason, attribution=matched.attribution, across=across)
    before, now = map(representative, sides)
    controls = (evidence.control.reference[-1], evidence.control.current[-1]) if evidence.control else (None, None)
    # Of several GPUs a side, only where none is on both sides.
    gpus = [{record.device_uuid for record in side if usable(record)} for side in sides]
    apart = all(gpus) and None not in gpus[0] | gpus[1] and not gpus[0] & gpus[1]
    devices = [" ".join(sorted(map(str, side))) for side in gpus] if apart else (None, None)
    known = replace(Circumstances.between(before, now, controls, gpus=devices), interleaved=evidence.interleaved)
    findings = sorted((_finished(finding, evidence) for finding in _findings(evidence, known)), key=_rank)
    first = findings[0]
    outcome = first.judgement.outcome if first.decides else GateOutcome.UNCHANGED
    named = [item for item in findings if item.decides and item.judgement.outcome in (*_MOVED, outcome)]
    if outcome is GateOutcome.UNCHANGED:
        named = [item for item in findings if item.accepted or item.median] or named[:1]
    # Metrics that moved together have one cause, which the first of them names.
    causes = {item.attribution: item for item in reversed(named)}
    sentences = ((item.judgement.reason, item.why * (causes[item.attribution] is item)) for item in named)
    parts = [part for both in sentences for part in both if part]
    median = next((item.judgement for item in findings if item.median), None)
    of_host = first.judgement.metric != "status" and any(item.judgement.metric == HOST.p50 for item in named)
    if of_host and median and median.outcome not in _MOVED:
        same = median.verdict is Verdict.SAME
        parts.insert(1, "the device is unchanged" if same else f"the device: {median.reason}")
    # A change that was seen again counts, whatever other metrics did.
    seen = {item.confirmed for item in findings if item.confirmed is not None}
    took = outcome is GateOutcome.UNCHANGED and any(item.accepted for item in findings)
    changed = known.implementation_changed
    described = functools.partial(described, outcome=outcome, era=known.era, implementation_changed=changed)
    return described(
        reason="; ".join(dict.fromkeys(parts + _left_out(evidence))),
        verdict=median.verdict if median else None,
        attribution=next((item.attribution for item in findings if item.attribution), None),
        judgements=tuple(item.judgement for item in findings),
        control=evidence.control_changes.get(evidence.measured.latency.p50) if evidence.measured else None,
        kernels=kernel_changes(before, now) if usable(before) and usable(now) else (),
        confirmed=(True in seen) if seen else None,
        accepted=evidence.acceptance.reason if evidence.acceptance and took else None,
    )


def _rank(finding: _Finding) -> tuple[bool, int, bool, bool]:
    """Return a sort key: the worst first, of equal ones the median, then the tail."""
    tail = finding.judgement.metric.endswith("_p95_ns")
    return not finding.decides, SEVERITY.index(finding.judgement.outcome), not finding.median, not tail


def _across(matched: Matched) -> Across | None:
    if not matched.reference or not matched.current:
        return None
    before, now = representative(matched.reference), representative(matched.current)
    same = (before.definition_hash, before.mode, before.timer, result_of(before))
    if before.device_name == now.device_name or same != (now.definition_hash, now.mode, now.timer, result_of(now)):
        return None
    medians = p50_of(before), p50_of(now)
    if medians[0] is None or medians[1] is None or not (usable(before) and usable(now)):
        return None
    speedups = [one and one.estimate for one in (speedup_of(before), speedup_of(now))]
    across = functools.partial(Across, reference_device=before.device_name, latency=result_of(now).name)
    across = functools.partial(across, reference_ns=medians[0].estimate, current_ns=medians[1].estimate)
    return across(reference_speedup=speedups[0], current_speedup=speedups[1])


def _findings(evidence: _Evidence, known: Circumstances) -> list[_Finding]:
    matched = evidence.matched
    status = exact.judge_status(matched.reference, matched.current)
    # A skip has a reason; code that did not change is no cause of it.
    innocent = status.outcome is GateOutcome.MISSING and not (known.era or known.implementation_changed)
    moved = status.outcome in _MOVED and not innocent
    attribution, why = known.cause_of_count() if moved else (None, "")
    if status.outcome is GateOutcome.FAILED:
        attribution, why = known.cause_of_failure(representative(matched.reference), matched.current)
    failed_again = None
    if again(matched.current) and status.current not in ("measured", "skipped"):
        failed_again = status.outcome is GateOutcome.FAILED
    findings = [_Finding(judgement=status, attribution=attribution, why=why, confirmed=failed_again)]
    if status.outcome is not GateOutcome.UNCHANGED or not usable(representative(matched.current)):
        return findings
    # The newest that was profiled, for a run that was cut short may have counted nothing; and no second measurement.
    counted = [record for record in matched.reference if usable(record) and record.ops_per_call is not None]
    second = again(matched.current)
    own = [record for record in matched.current if usable(record) and record not in second]
    before, now = (representative(side) for side in (counted or matched.reference, own or matched.current))
    for judgement in [*exact.judge_exact(before, now), *exact.judge_margin(before, now)]:
        attribution, why = known.cause_of_count() if judgement.outcome is not GateOutcome.UNCHANGED else (None, "")
        # Launches that the reference did not count either are listed, and decide nothing.
        decides = judgement.metric != "launch_status" or judgement.reference == "exact"
        findings.append(_Finding(judgement=judgement, attribution=attribution, why=why, decides=decides))
    findings += [_latency(judgement, evidence, known) for judgement in evidence.latencies.values()]
    if not any(finding.median for finding in findings):
        both = (*matched.current, *matched.reference)
        wrong = [text for record in both if usable(record) and (text := damage(record))]
        reason = f"the latency cannot be judged: {'; '.join(wrong) or 'one side holds none'}"
        findings.append(_Finding(judgement=undecided(metric=CALL.p50, reason=reason), median=True))
    return findings


def _latency(judgement: Judgement, evidence: _Evidence, known: Circumstances) -> _Finding:
    median = evidence.measured is not None and judgement.metric == evidence.measured.latency.p50
    if judgement.verdict not in (Verdict.SLOWER, Verdict.FASTER) or judgement.change is None:
        # The verdict is that of the median; a tail that may be noise does not take it back.
        decides = median or judgement.verdict is Verdict.SAME or suspicious(judgement)
        return _Finding(judgement=judgement, decides=decides, median=median)
    relative = judgement.relative_to_baseline
    control = None if relative else evidence.control_changes.get(judgement.metric)
    attribution, why = known.cause_of_latency(judgement.change, control, relative=relative)
    outcome = outcome_of_move(judgement.change.estimate, attribution)
    if outcome is GateOutcome.UNDECIDED and judgement.verdict is Verdict.SLOWER:
        why += "; so it is not shown that the code became slower; `pairbench ab` measures both sides in one place and would tell"
    return _Finding(judgement=replace(judgement, outcome=outcome), attribution=attribution, why=why, median=median)


def _finished(finding: _Finding, evidence: _Evidence) -> _Finding:
    if finding.judgement.outcome is GateOutcome.UNCHANGED and finding.judgement.verdict is None:
        return finding
    sides, beside = evidence.measured or evidence.matched, evidence.control
    controls = (*beside.reference, *beside.current) if beside else ()
    judgement, confirmed = confirm(finding.judgement, sides.reference, sides.current, controls=controls)
    if confirmed is not None:
        finding = replace(finding, judgement=judgement, confirmed=confirmed)
    asked = evidence.acceptance
    covered = exact.accepted(judgement, asked, sides.current[-1].definition_hash) if asked else None
    return finding if covered is None else replace(finding, judgement=covered, accepted=True, decides=True, why="")


def _left_out(evidence: _Evidence) -> list[str]:
    if evidence.measured is None:
        return []
    sides = [(getattr(evidence.matched, side), getattr(evidence.measured, side)) for side in ("reference", "current")]
    fewer = (record for records, kept in sides if len(kept) < len(records) for record in records)
    return [f"left out: {text}" for record in fewer if usable(record) and (text := damage(record))]


def compare(
    reference: Sequence[Record],
    current: Sequence[Record],
    *,
    floors: Mapping[Series, Floor] | None = None,
    policy: Policy = DEFAULT,
    accepted: Mapping[Series, Acceptance] | None = None,
    interleaved: bool = False,
    trusted: Collection[Series] | None = None,
) -> tuple[Change, ...]:
    """Return the change of each series that the reference or the current runs have."""
    # `current` has the runs that measured suspects again, too. Latencies are judged of `trusted` series, whose machine is quiet enough, or
    # of all. Sides that were measured interleaved are compared round by round, without floors.
    matched = exact.match(reference, current)
    on_both = []
    for item in (item for item in matched if item.outcome is None):
        both = (item.reference, item.current)
        sound = [tuple(record for record in side if usable(record) and not damage(record)) for side in both]
        if all(sound):
            on_both.append(MeasuredSides(series=item.series, reference=sound[0], current=sound[1]))
    judged = judge_interleaved(on_both, policy) if interleaved else judge_latencies(on_both, floors or {}, policy)
    latencies: dict[Series, tuple[MeasuredSides, Mapping[str, Judgement]]] = {}
    beside = grouped((pair_of(measured.series), measured.series) for measured in on_both)
    for measured, judgements in zip(on_both, judged, strict=True):
        series = measured.series
        latencies[series] = measured, judgements if trusted is None or series in trusted else unjudged(judgements)
    changes = []
    for item in matched:
        sides, of_series = latencies.get(item.series, (None, {}))
        control, control_changes = _control(sides, [latencies[other] for other in beside[pair_of(item.series)]])
        acceptance = (accepted or {}).get(item.series)
        evidence = _Evidence(item, sides, of_series, control, control_changes, acceptance, interleaved)
        changes.append(_change(evidence))
    return tuple(changes)


def _control(
    measured: MeasuredSides | None, beside: Sequence[tuple[MeasuredSides, Mapping[str, Judgement]]]
) -> tuple[MeasuredSides | None, dict[str, Interval]]:
    """Return the baseline for a variant, and for a baseline the variant in the middle, with its changes."""
    others = sorted(
        (judgement.change.estimate, place)
        for place, (other, judgements) in enumerate(beside)
        if measured
        and other.is_baseline is not measured.is_baseline
        and (judgement := judgements.get(measured.latency.p50))
        and judgement.change
    )
    if not others:
        return None, {}
    middle, judgements = beside[others[(len(others) - 1) // 2][1]]
    own = {metric: item.change for metric, item in judgements.items() if item.change and not item.relative_to_baseline}
    return middle, own
