"""Which records of a comparison belong together, and which must not be compared at all."""

import difflib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pairbench.analyze.compare.rounds import usable
from pairbench.model.comparison import Attribution, GateOutcome
from pairbench.model.outcome import OUT_OF_BUDGET, Status
from pairbench.model.record import Record, Series


@dataclass(frozen=True, kw_only=True)
class Matched:
    """One series with its records on both sides, oldest first; the reference without records that cannot be compared, if others can."""

    series: Series
    reference: tuple[Record, ...]
    current: tuple[Record, ...]
    outcome: GateOutcome | None = None
    """New, missing, incomparable, or failed with the whole suite; None where there is something to judge."""
    reason: str = ""
    attribution: Attribution | None = None
    left_out_runs: tuple[str, ...] = ()
    """The reference runs that measured another source than the newest of them, oldest first."""


BAD = frozenset(status.value for status in Status if status.bad)


def match(reference: Iterable[Record], current: Iterable[Record]) -> list[Matched]:
    """Return every series that either side has, exactly once, in the order of the current side."""
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
    candidates: defaultdict[tuple[str, str], list[tuple[Series, Record]]] = defaultdict(list)
    for series in fresh:
        candidates[series.device_name, series.mode].append((series, representative(now[series])))
    for series in gone:
        if series not in moved:
            others = candidates[series.device_name, series.mode]
            matches.append(_gone(series, before[series], broken.get(series.suite), others))
    suites = {item.series.suite for item in matches if item.outcome is GateOutcome.FAILED}
    for record in broken.values():
        if record.suite not in suites:
            series = Series(device_name=record.device_name, suite=record.suite, case="", implementation="", mode="")
            reason = f"the suite could not be loaded: {reason_of(record)}"
            matches.append(_unjudged(series, (), (record,), GateOutcome.FAILED, reason))
    return matches


def representative(records: Sequence[Record]) -> Record:
    """Return the newest record that was measured, else the newest."""
    return next((record for record in reversed(records) if usable(record)), records[-1])


def _by_series(records: Iterable[Record]) -> tuple[dict[Series, list[Record]], dict[str, Record]]:
    by_series: defaultdict[Series, list[Record]] = defaultdict(list)
    broken: dict[str, Record] = {}
    for record in records:
        series = Series.of(record)
        if series is None:
            broken[record.suite] = record
        else:
            by_series[series].append(record)
    for own in by_series.values():
        if len({(record.run_id, record.device_uuid) for record in own}) < len(own):
            # The same run may be read twice; its rounds are not more for that.
            own[:] = [record for place, record in enumerate(own) if record not in own[:place]]
        own.sort(key=lambda record: record.run_id)
    return dict(by_series), broken


def _unjudged(
    series: Series,
    reference: Sequence[Record],
    current: Sequence[Record],
    outcome: GateOutcome,
    reason: str,
    attribution: Attribution | None = None,
) -> Matched:
    sides: dict[str, Any] = {"reference": tuple(reference), "current": tuple(current)}
    return Matched(series=series, **sides, outcome=outcome, reason=reason, attribution=attribution)


def _incomparable(
    series: Series,
    reference: Sequence[Record],
    current: Sequence[Record],
    reason: str,
    attribution: Attribution | None = None,
) -> Matched:
    wrong = _failure(current)
    outcome = GateOutcome.FAILED if wrong else GateOutcome.INCOMPARABLE
    return _unjudged(series, reference, current, outcome, f"{wrong}; {reason}" if wrong else reason, attribution)


def _failure(records: Sequence[Record]) -> str:
    """Return the status and the reason of the last record that went wrong; "" where none did."""
    wrong = [record for record in records if record.status in BAD]
    return f"{wrong[-1].status}: {reason_of(wrong[-1])}" if wrong else ""


def reason_of(record: Record) -> str:
    return record.reason or "no reason was stored"


def _both(series: Series, reference: Sequence[Record], current: Sequence[Record]) -> Matched:
    present = representative(current)
    if present.reason == OUT_OF_BUDGET:
        return _incomparable(series, reference, current, f"not measured: {OUT_OF_BUDGET}")
    kept: Sequence[Record] = [record for record in reference if record.definition_hash == present.definition_hash]
    if not kept:
        before = representative(reference).definition_hash
        reason = f"the question changed: definition {before or 'unknown'} -> {present.definition_hash or 'unknown'}"
        return _incomparable(series, reference, current, reason, Attribution.DEFINITION)
    current = [
        record for record in current if record.definition_hash == present.definition_hash or record.status in BAD
    ]
    if usable(present):
        timed = [record for record in kept if not usable(record) or record.timer == present.timer]
        if any(usable(record) for record in kept) and not any(usable(record) for record in timed):
            reason = f"another timer: {representative(kept).timer or 'unknown'} -> {present.timer or 'unknown'}"
            return _incomparable(series, reference, current, reason)
        kept = timed
        current = [record for record in current if not usable(record) or record.timer == present.timer]
    kept = _of_same_gpus(kept, current)
    # A change of era was judged when it came; while there are runs of the present era, they alone are the reference.
    same_era = [record for record in kept if record.environment_hash == present.environment_hash]
    if any(usable(record) for record in same_era) and usable(present):
        kept = same_era
    # An average over several versions of the code is the latency of none: the newest of them is the reference.
    source = representative(kept).implementation_hash
    others = dict.fromkeys(record.run_id for record in kept if record.implementation_hash != source)
    return Matched(
        series=series,
        reference=tuple(record for record in kept if record.implementation_hash == source),
        current=tuple(current),
        left_out_runs=tuple(others),
    )


def _of_same_gpus(reference: Sequence[Record], current: Sequence[Record]) -> Sequence[Record]:
    here = {record.device_uuid for record in current if usable(record)}
    if not any(usable(record) and record.device_uuid in here for record in reference):
        return reference
    return [record for record in reference if record.device_uuid in (None, *here) or not usable(record)]


def _elsewhere(fresh: Iterable[Series], gone: Iterable[Series]) -> dict[Series, Series]:
    """Return for series that only the current side has the one that the reference has on another device or in another mode."""
    twins: defaultdict[tuple[str, str, str], list[Series]] = defaultdict(list)
    for series in gone:
        twins[series.suite, series.case, series.implementation].append(series)
    twin_of = {}
    for series in fresh:
        others = twins[series.suite, series.case, series.implementation]
        others.sort(key=lambda other: (other.mode == series.mode, other.device_name == series.device_name))
        if others:
            twin_of[series] = others.pop()
    return twin_of


def _new(series: Series, records: Sequence[Record]) -> Matched:
    record = representative(records)
    if record.reason == OUT_OF_BUDGET:
        return _incomparable(series, (), records, f"not measured: {OUT_OF_BUDGET}")
    if wrong := _failure(records):
        return _unjudged(series, (), records, GateOutcome.FAILED, f"new, and {wrong}")
    state = "" if usable(record) else f"; {record.status}: {reason_of(record)}"
    return _unjudged(series, (), records, GateOutcome.NEW, f"the reference does not have it{state}")


def _gone(
    series: Series, records: Sequence[Record], broken: Record | None, candidates: Sequence[tuple[Series, Record]]
) -> Matched:
    if broken:
        reason = f"its suite could not be loaded: {reason_of(broken)}"
        return _unjudged(series, records, (), GateOutcome.FAILED, reason)
    likely = _renamed(series, representative(records), candidates)
    hint = f"; renamed to {likely.name}?" if likely else ""
    reason = f"renamed, vanished or not selected: the current side does not have it{hint}"
    return _unjudged(series, records, (), GateOutcome.MISSING, reason)


def _renamed(series: Series, record: Record, candidates: Sequence[tuple[Series, Record]]) -> Series | None:
    """Return the new series with the same source, or else the most similar name; None if there is none."""
    source = (record.axes, record.implementation_hash)
    same = [
        other
        for other, theirs in candidates
        if source[1] is not None and (theirs.axes, theirs.implementation_hash) == source
    ]
    near = [
        other
        for other, _ in candidates
        if (other.operator, other.implementation) == (series.operator, series.implementation)
        or (other.suite, other.case) == (series.suite, series.case)
    ]
    names = {other.name: other for other in same or near}
    closest = difflib.get_close_matches(series.name, names, n=1, cutoff=0.0 if same else 0.6)
    return names[closest[0]] if closest else None
