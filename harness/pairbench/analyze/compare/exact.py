"""What a comparison says without statistics: which records belong together, and which must not be compared; statuses, counts and accepted levels.

Any increase of a count is a regression, any decrease an improvement.
"""

import difflib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from pairbench.analyze.compare.rounds import damage, latency_of_runs, usable
from pairbench.errors import UsageError
from pairbench.model.comparison import DEFAULT, Acceptance, Attribution, GateOutcome, Judgement, Verdict
from pairbench.model.outcome import OUT_OF_BUDGET, Status
from pairbench.model.plain import Value, grouped
from pairbench.model.record import CALL, DEVICE, HOST, Record, Series

Records = tuple[Record, ...]
Candidates = Sequence[tuple[Series, Record]]


@dataclass(frozen=True)
class Matched:
    """One series with its records on both sides, oldest first; the reference without records that cannot be compared, if others can."""

    series: Series
    reference: Records
    current: Records
    outcome: GateOutcome | None = None
    """New, missing, incomparable, or failed with the whole suite; None where there is something to judge."""
    reason: str = ""
    attribution: Attribution | None = None
    left_out_runs: tuple[str, ...] = ()  # runs of the reference with another source than its newest one, oldest first


BAD = frozenset(status.value for status in Status if status.bad)


def match(reference: Iterable[Record], current: Iterable[Record]) -> list[Matched]:
    """Return each series of either side once, with its records of both, in the order of the current side."""
    before, _ = _by_series(reference)
    now, broken = _by_series(current)
    gone = [series for series in before if series not in now]
    fresh = [series for series in now if series not in before]
    elsewhere = _elsewhere(fresh, gone)
    matches = []
    for series, records in now.items():
        if series in before:
            matches.append(_both(series, before[series], records))
        elif twin := elsewhere.get(series):
            pairs = (("device model", twin.device_name, series.device_name), ("mode", twin.mode, series.mode))
            reason = "; ".join(f"another {name}: {old} -> {new}" for name, old, new in pairs if old != new)
            matches.append(_incomparable(series, before[twin], records, reason))
        else:
            matches.append(_new(series, records))
    moved = set(elsewhere.values())
    newest = ((series, representative(now[series])) for series in fresh)
    candidates = grouped(((series.device_name, series.mode), (series, record)) for series, record in newest)
    for series in gone:
        if series not in moved:
            others = candidates[series.device_name, series.mode]
            matches.append(_gone(series, before[series], broken.get(series.suite), others))
    suites = {item.series.suite for item in matches if item.outcome is GateOutcome.FAILED}
    for record in broken.values():
        if record.suite not in suites:
            series = Series(device_name=record.device_name, suite=record.suite, case="", implementation="", mode="")
            reason = f"the suite could not be loaded: {reason_of(record)}"
            matches.append(Matched(series, (), (record,), GateOutcome.FAILED, reason))
    return matches


def representative(records: Sequence[Record]) -> Record:
    """Return the newest record that was measured, else the newest."""
    return next((record for record in reversed(records) if usable(record)), records[-1])


def _by_series(records: Iterable[Record]) -> tuple[dict[Series, Records], dict[str, Record]]:
    known = [(Series.of(record), record) for record in records]
    by_series = grouped((series, record) for series, record in known if series is not None)
    broken = {record.suite: record for series, record in known if series is None}
    for own in by_series.values():
        if len({(record.run_id, record.device_uuid) for record in own}) < len(own):
            # The same run may be read twice; its rounds are not more for that.
            own[:] = [record for place, record in enumerate(own) if record not in own[:place]]
        own.sort(key=lambda record: record.run_id)
    return {series: tuple(own) for series, own in by_series.items()}, broken


def _incomparable(series: Series, reference: Records, current: Records, reason: str) -> Matched:
    wrong = _failure(current)
    outcome = GateOutcome.FAILED if wrong else GateOutcome.INCOMPARABLE
    return Matched(series, reference, current, outcome, f"{wrong}; {reason}" if wrong else reason)


def _failure(records: Sequence[Record]) -> str:
    """Return the status and the reason of the last record that went wrong; "" where none did."""
    wrong = [record for record in records if record.status in BAD]
    return f"{wrong[-1].status}: {reason_of(wrong[-1])}" if wrong else ""


def reason_of(record: Record) -> str:
    return record.reason or "no reason was stored"


def _both(series: Series, reference: Records, current: Records) -> Matched:
    present = representative(current)
    if present.reason == OUT_OF_BUDGET:
        return _incomparable(series, reference, current, f"not measured: {OUT_OF_BUDGET}")
    kept: Sequence[Record] = [record for record in reference if record.definition_hash == present.definition_hash]
    if not kept:
        before = representative(reference).definition_hash
        reason = f"the question changed: definition {before or 'unknown'} -> {present.definition_hash or 'unknown'}"
        return replace(_incomparable(series, reference, current, reason), attribution=Attribution.DEFINITION)
    wanted = present.definition_hash
    current = tuple(record for record in current if record.definition_hash == wanted or record.status in BAD)
    if usable(present):
        timed = [record for record in kept if not usable(record) or record.timer == present.timer]
        if any(usable(record) for record in kept) and not any(usable(record) for record in timed):
            reason = f"another timer: {representative(kept).timer or 'unknown'} -> {present.timer or 'unknown'}"
            return _incomparable(series, reference, current, reason)
        kept = timed
        current = tuple(record for record in current if not usable(record) or record.timer == present.timer)
    gpus = {record.device_uuid for record in current if usable(record)}
    if any(usable(record) and record.device_uuid in gpus for record in kept):
        kept = [record for record in kept if record.device_uuid in (None, *gpus) or not usable(record)]
    # A change of era was judged when it came; while there are runs of the present era, they alone are the reference.
    same_era = [record for record in kept if record.environment_hash == present.environment_hash]
    if any(usable(record) for record in same_era) and usable(present):
        kept = same_era
    # An average over several versions of the code is the latency of none: the newest of them is the reference.
    source = representative(kept).implementation_hash
    others = dict.fromkeys(record.run_id for record in kept if record.implementation_hash != source)
    newest = tuple(record for record in kept if record.implementation_hash == source)
    return Matched(series, newest, current, left_out_runs=tuple(others))


def _elsewhere(fresh: Iterable[Series], gone: Iterable[Series]) -> dict[Series, Series]:
    """Return for series that only the current side has the one that the reference has on another device or in another mode."""
    twins = grouped(((series.suite, series.case, series.implementation), series) for series in gone)
    twin_of = {}
    for series in fresh:
        others = twins[series.suite, series.case, series.implementation]
        others.sort(key=lambda other: (other.mode == series.mode, other.device_name == series.device_name))
        if others:
            twin_of[series] = others.pop()
    return twin_of


def _new(series: Series, records: Records) -> Matched:
    record = representative(records)
    if record.reason == OUT_OF_BUDGET:
        return _incomparable(series, (), records, f"not measured: {OUT_OF_BUDGET}")
    if wrong := _failure(records):
        return Matched(series, (), records, GateOutcome.FAILED, f"new, and {wrong}")
    state = "" if usable(record) else f"; {record.status}: {reason_of(record)}"
    return Matched(series, (), records, GateOutcome.NEW, f"the reference does not have it{state}")


def _gone(series: Series, records: Records, broken: Record | None, candidates: Candidates) -> Matched:
    if broken:
        reason = f"its suite could not be loaded: {reason_of(broken)}"
        return Matched(series, records, (), GateOutcome.FAILED, reason)
    likely = _renamed(series, representative(records), candidates)
    hint = f"; renamed to {likely.name}?" if likely else ""
    reason = f"renamed, vanished or not selected: the current side does not have it{hint}"
    return Matched(series, records, (), GateOutcome.MISSING, reason)


def _renamed(series: Series, record: Record, candidates: Candidates) -> Series | None:
    """Return the new series with the same source, or else the most similar name; None if there is none."""
    source = (record.axes, record.implementation_hash) if record.implementation_hash is not None else None
    same = [other for other, theirs in candidates if (theirs.axes, theirs.implementation_hash) == source]
    code, question = attrgetter("operator", "implementation"), attrgetter("suite", "case")
    near = [other for other, _ in candidates if code(other) == code(series) or question(other) == question(series)]
    names = {other.name: other for other in same or near}
    closest = difflib.get_close_matches(series.name, names, n=1, cutoff=0.0 if same else 0.6)
    return names[closest[0]] if closest else None


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


def judge_exact(reference: Record, current: Record) -> Iterator[Judgement]:
    before, now = reference.launch_status, current.launch_status
    if before == now == "exact":
        yield from _counts(reference, current, LAUNCHES)
    elif before == "exact" or "unreliable" in (before, now):
        why = f"launches cannot be judged: {before or 'not counted'} in the reference, {now or 'not counted'} now"
        outcome = GateOutcome.UNDECIDED
        yield Judgement(metric="launch_status", outcome=outcome, reference=before, current=now, reason=why)
    yield from _counts(reference, current, COUNTS)
    yield from _counts(reference, current, {"peak_bytes": "peak memory"})


def number(record: Record, metric: str) -> float | None:
    """Return a count of a record; None where there is none, or NaN was stored."""
    value: float | None = getattr(record, metric)
    return None if value is None or not math.isfinite(value) else value


def _slack(metric: str, value: float) -> float:
    """Return by how much a metric may differ from a value without being another."""
    return max(DEFAULT.memory_part * value, DEFAULT.memory_bytes) if metric == "peak_bytes" else 0


def _counts(reference: Record, current: Record, metrics: Mapping[str, str]) -> Iterator[Judgement]:
    for metric, words in metrics.items():
        before, now = number(reference, metric), number(current, metric)
        if before is None:
            continue
        is_memory = metric == "peak_bytes"
        if now is None:
            outcome = GateOutcome.UNDECIDED
            reason = f"{words} {'is' if is_memory else f'a call were {before:.0f} and are'} not known now"
        elif abs(now - before) <= _slack(metric, before):
            outcome = GateOutcome.UNCHANGED
            reason = f"{words} as before" if is_memory else f"{now} {words} a call, as before"
        else:
            more = now > before
            outcome = GateOutcome.REGRESSION if more else GateOutcome.IMPROVEMENT
            reason = f"{abs(now - before):.0f} {'more' if more else 'fewer'} {words} a call, {before:.0f} -> {now:.0f}"
            if is_memory:
                reason = f"{'more' if more else 'less'} {words}, {before / 2**20:.4g} -> {now / 2**20:.4g} MiB"
        yield Judgement(metric=metric, outcome=outcome, reference=before, current=now, reason=reason)


_RATIO_LIMIT = 2.0  # the oracle rule allows an error of at most this multiple of the baseline's


def judge_margin(reference: Record, current: Record) -> Iterator[Judgement]:
    """Yield the judgements of the correctness of two measured records; none where the reference's is not known."""
    ratios = (reference.oracle_ratio, current.oracle_ratio)
    left = [None if ratio is None else 1 - ratio / _RATIO_LIMIT for ratio in ratios]
    margins = [reference.margin, current.margin]
    judged = (("margin", "tolerance", margins, margins), ("oracle_ratio", "oracle rule", ratios, left))
    for metric, words, stored, (before, now) in judged:
        if before is None or not math.isfinite(before):
            continue
        if now is None or not math.isfinite(now):
            outcome, reason = GateOutcome.UNDECIDED, f"how much of the {words} is left is not known now"
        elif before > 0 and now < DEFAULT.margin_safe and now <= DEFAULT.margin_part * before:
            outcome = GateOutcome.UNDECIDED
            reason = f"still right, but only {100 * now:.0f} % of the {words} is left, before {100 * before:.0f} %"
        else:  # where nothing was left before, nothing is lost
            outcome, reason = GateOutcome.UNCHANGED, f"{100 * now:.0f} % of the {words} is left"
        yield Judgement(metric=metric, outcome=outcome, reference=stored[0], current=stored[1], reason=reason)


def bad(record: Record) -> bool:
    """Return whether a record's status says that the implementation failed; an unknown status counts as failed."""
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


class AcceptedLevel(Value):
    """An acceptance, with the smallest relative change of its series' latencies that counts: 0.08 is 8 %."""

    acceptance: Acceptance
    minimum_effect: float

    def covers(self, metric: str, value: float | None, definition_hash: str | None) -> bool:
        """Return whether a value of a column, measured with a definition, is no worse than the accepted one."""
        accepted = self.acceptance
        limit = accepted.latencies.get(metric, accepted.exact.get(metric))
        if limit is None or value is None or accepted.definition_hash != definition_hash:
            return False
        if metric == "margin":
            return value >= limit
        if metric in accepted.latencies:
            return value <= limit * (1 + self.minimum_effect)
        return value <= limit + _slack(metric, limit)


def accepted(judgement: Judgement, acceptance: Acceptance, definition_hash: str | None) -> Judgement | None:
    """Return a worsening as unchanged where it stays within the accepted level; None where it goes beyond, or is none."""
    worse = judgement.outcome is GateOutcome.REGRESSION or judgement.verdict is Verdict.SLOWER
    margin = judgement.metric == "margin" and judgement.outcome is GateOutcome.UNDECIDED
    level = AcceptedLevel(acceptance=acceptance, minimum_effect=judgement.minimum_effect or DEFAULT.minimum_effect)
    value = judgement.current if isinstance(judgement.current, int | float) else None
    if not (worse or margin) or not level.covers(judgement.metric, value, definition_hash):
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
    names = {"p50_ns": CALL.p50, "p95_ns": CALL.p95, **{name: name for name in (DEVICE.p50, DEVICE.p95, HOST.p50)}}
    known = ((name, latency_of_runs(sound, metric)) for name, metric in names.items())
    latencies: dict[str, Any] = {name: value if math.isfinite(value) else None for name, value in known}
    exact = {name: value for name in (*METRICS, "margin") if (value := number(last, name)) is not None}
    definition = last.definition_hash
    return Acceptance(
        series=series, definition_hash=definition, **latencies, exact=exact, run_id=run_id, at=at, reason=reason
    )
