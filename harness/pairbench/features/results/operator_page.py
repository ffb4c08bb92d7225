"""The part of a page of results on one operator and device model: cases, published figures, all measurements, losses, refusals."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from pairbench.analyze.facts import ceilings_of, series_facts
from pairbench.features.results.operator import (
    SIZE,
    AxisBound,
    CaseResults,
    ClaimState,
    JudgedClaim,
    Losses,
    ModeResults,
    OperatorResults,
    StepGain,
    loses,
)
from pairbench.model.claim import Claim
from pairbench.model.latency import CALL, Latency, p50_of, speedup_of
from pairbench.model.record import Record, Series
from pairbench.model.settings import MODES
from pairbench.model.site import SeriesStatus
from pairbench.report import latency_words, rows, units
from pairbench.report.blocks import Block, Heading, Items, Line, TableBlock, table_of
from pairbench.report.labels import axis_text, labels_of
from pairbench.report.operator_charts import roof_fraction, state_of
from pairbench.report.render import Column, clean, shorten

Value = TypeVar("Value")


def _published(claim: Claim) -> str:
    if claim.pair is None:
        return _ratio(claim)
    match claim.quantity:
        case "latency_ms":
            return f"{_between(claim.pair, lambda ms: units.duration(ms * 1e6))} ({_ratio(claim)})"
        case "peak_gib":
            return _between(claim.pair, lambda gib: units.size(gib * 2**30))
        case quantity:
            return f"{_between(claim.pair, units.count)} {quantity}"


def _ours(one: JudgedClaim) -> str:
    """Return what was measured here of the quantity that a claim is about; empty where nothing was."""
    if one.variant is None or one.state is ClaimState.UNMEASURED:
        return ""
    by, both = f", {one.variant.implementation}", (one.baseline, one.variant)
    if quantity := _QUANTITIES.get(one.claim.quantity):
        return _between(both, quantity) + by
    speedup = ", ".join(filter(None, [latency_words.speedup(one.variant), latency_words.speedup_range(one.variant)]))
    latency = latency_words.common(*both)
    return f"{_between(both, lambda record: latency_words.p50(record, latency))} ({speedup}){by}"


def _between(both: Iterable[Value | None], text: Callable[[Value], str]) -> str:
    """Return the text of a value before and after, or of the one of them that is known, such as the baseline and a variant."""
    return " -> ".join(filter(None, [text(value) if value is not None else "" for value in both]))


_QUANTITIES: dict[str, Callable[[Record], str]] = {
    "launches": rows.launches,
    "syncs": lambda record: units.count(record.syncs_per_call),
    "peak_gib": lambda record: units.size(record.peak_bytes),
}


def _claims_table(claims: Sequence[JudgedClaim], labels: dict[str, str]) -> TableBlock:
    proven = (ClaimState.SAME, ClaimState.BETTER)

    def about(claim: Claim) -> str:
        return ", ".join(filter(None, [claim.implementation, claim.mode if claim.mode != "eager" else ""]))

    columns: tuple[Column[JudgedClaim], ...] = (
        Column("published", lambda one: _published(one.claim), right=False),
        Column("about", lambda one: about(one.claim), right=False),
        Column("on", lambda one: one.claim.device, right=False),
        Column("by", lambda one: one.claim.source, right=False),
        Column("measured there", lambda one: one.claim.shape, right=False),
        Column("our case", lambda one: labels[one.case.key] if one.case else "none here", right=False),
        Column("ours", _ours, right=False),
        Column("ours is", lambda one: str(one.state), right=False),
        Column("why not", lambda one: "" if one.state in proven else one.claim.unmet, right=False),
    )
    return table_of(columns, claims, title="Published, and ours beside it:")


def _ratio(claim: Claim) -> str:
    least, most = claim.ratio
    return units.ratio(least) if least == most else f"{units.ratio_range(least, most)}x"


class MeasurementRow(NamedTuple):
    label: str
    record: Record
    latency: Latency  # the latency in which it stands beside its baseline
    step: StepGain | None


def _every_table(results: OperatorResults, labels: Mapping[str, str]) -> TableBlock:
    measurements = [
        MeasurementRow(
            label=labels[case.case.key],
            record=record,
            latency=latency_words.common(record, mode.baselines.get(str(record.implementation))),
            step=mode.steps.get(str(record.implementation)),
        )
        for case in results.cases
        for mode in case.modes
        for record in ([mode.baseline] if mode.baseline else []) + list(mode.variants)
        if p50_of(record)
    ]
    return table_of(
        _MEASUREMENT_COLUMNS,
        measurements,
        title=f"All {len(measurements)} measurements, errors included; a speedup is over the baseline of its own run:",
        fold_above=8,
    )


def _gain(row: MeasurementRow) -> str:
    if row.step is None:
        return ""
    within = units.ratio_range(row.step.gain.low, row.step.gain.high)
    return f"{units.ratio(row.step.gain.estimate)} {f'({within}) ' if within else ''}over {row.step.over}"


_MEASUREMENT_COLUMNS: tuple[Column[MeasurementRow], ...] = (
    Column("case", lambda row: row.label, right=False),
    Column("implementation", lambda row: row.record.implementation or "", right=False),
    Column("mode", lambda row: row.record.mode or "", right=False, usual="eager"),
    Column("P50", lambda row: latency_words.p50(row.record, row.latency)),
    Column("speedup", lambda row: latency_words.speedup(row.record)),
    Column("95 %", lambda row: latency_words.speedup_range(row.record)),
    Column("call", lambda row: latency_words.call(row.record) if row.latency != CALL else ""),
    Column("host", lambda row: latency_words.host(row.record)),
    Column("the step alone", _gain),
    Column("launches", lambda row: rows.launches(row.record)),
    Column("peak memory", lambda row: units.size(row.record.peak_bytes)),
    Column(latency_words.SAME_MEMORY, lambda row: "yes" if row.record.reuses_output else "", right=False),
    Column("max error", lambda row: units.error(row.record.max_abs_error)),
    Column("mean error", lambda row: units.error(row.record.mean_abs_error)),
    Column("oracle ratio", lambda row: units.significant(row.record.oracle_ratio, 3)),
)


_FOLD_LOSSES, _NAMED_CASES = 15, 3  # number of rows above which a table is folded, and of cases that a row names


def _losses_blocks(results: OperatorResults, labels: Mapping[str, str]) -> Iterator[Block]:
    if not results.losses:
        if any(mode.best for case in results.cases for mode in case.modes):
            yield Line(text="Where variants lose: no variant is proven slower than the baseline in any case.", gap=True)
        return
    columns: tuple[Column[Losses], ...] = (
        Column("variant", lambda one: one.implementation, right=False),
        Column("mode", lambda one: one.mode, right=False, usual="eager"),
        Column("loses in", lambda one: f"{len(one.losing)} of {one.measured}"),
        Column("slowest", lambda one: _speedup(one.losing[0])),
        Column("there", lambda one: labels.get(str(one.losing[0].case), ""), right=False),
        Column("where it loses", _where, right=False),
    )
    yield table_of(columns, results.losses, title="Where variants lose:")
    # The speedups of all variants that lose anywhere, in the cases and modes in which one of them does.
    names = [item.name for item in results.operator.implementations]
    losing = sorted({one.implementation for one in results.losses}, key=names.index)
    modes = {one.mode for one in results.losses}
    rows = [
        (
            labels[case.case.key] + (f", {mode.mode}" if len(modes) > 1 else ""),
            {str(record.implementation): record for record in mode.variants},
        )
        for case in results.cases
        for mode in case.modes
        if any(map(loses, mode.variants))
    ]

    def cell(name: str) -> Column[tuple[str, dict[str, Record]]]:
        return Column(name, lambda row: _cell(row[1].get(name)))

    yield table_of(
        (Column("case", lambda row: row[0], right=False), *map(cell, losing)),
        rows,
        title="Their speedups, case by case, wherever one of them loses (slower: its whole interval lies below 1)",
        fold_above=_FOLD_LOSSES,
    )


def _grouped(records: Sequence[Record], labels: Mapping[str, str], *, title: str) -> TableBlock:
    """Return records in which the same happened to the same implementation as one row."""
    groups: dict[tuple[str | None, ...], list[Record]] = {}
    for record in records:
        groups.setdefault((record.implementation, record.mode, record.status, record.reason), []).append(record)

    def which(several: Sequence[Record]) -> str:
        more = f" and {len(several) - _NAMED_CASES} more" if len(several) > _NAMED_CASES else ""
        return "; ".join(labels[str(one.case)] for one in several[:_NAMED_CASES]) + more

    columns: tuple[Column[list[Record]], ...] = (
        Column("implementation", lambda several: several[0].implementation or "", right=False),
        Column("mode", lambda several: several[0].mode or "", right=False, usual="eager"),
        Column("status", lambda several: several[0].status, right=False, usual="skipped"),
        Column("cases", lambda several: units.count(len(several))),
        Column("which", which, right=False),
        Column("why", lambda several: shorten(several[0].reason or "", 140), right=False),
    )
    return table_of(columns, list(groups.values()), title=title, fold_above=_FOLD_LOSSES)


def _where(one: Losses) -> str:
    if len(one.losing) == one.measured:
        return "everywhere"
    if one.where is None:
        return ""
    (lost, among), (others, rest) = one.where.inside, one.where.outside
    return f"{' and '.join(map(_term, one.where.terms))}: {lost} of {among}, else {others} of {rest}"


def _term(one: AxisBound) -> str:
    if one.axis == SIZE and isinstance(one.value, int | float):
        return f"{'at least' if one.relation == '>=' else 'at most'} {units.size(one.value)} moved"
    return f"{one.axis} {one.relation} {axis_text(one.value)}"


def _cell(record: Record | None) -> str:
    if record is None or not latency_words.speedup(record):
        return str(record.status) if record is not None and record.status != "measured" else ""
    return f"slower, {_speedup(record)}" if loses(record) else latency_words.speedup(record)


def _speedup(record: Record) -> str:
    interval = latency_words.speedup_range(record)
    return f"{latency_words.speedup(record)}{f' ({interval})' if interval else ''}"


def _modes_blocks(results: OperatorResults, labels: Mapping[str, str]) -> Iterator[Block]:
    """Yield a table with each mode beside the others, and when compiling has paid for itself; nothing where only one was measured."""
    modes = [mode for mode in MODES if any(case.in_mode(mode) for case in results.cases)]
    if len(modes) < 2:
        return
    columns: list[Column[CaseResults]] = [Column("case", lambda case: labels[case.case.key], right=False)]
    for mode in modes:
        columns += [
            Column(f"{mode}: baseline", partial(_in_mode, mode=mode, best=False)),
            Column(f"{mode}: best", partial(_in_mode, mode=mode, best=True)),
        ]
    columns += [
        Column("compiling the baseline", partial(_paid, best=False)),
        Column("compiling the best", partial(_paid, best=True)),
    ]
    several = [case for case in results.cases if len(case.modes) > 1]
    yield table_of(
        columns,
        several,
        title="Modes: baseline, and the best variant with its speedup over the baseline of the same mode. Compiling: "
        "the first call (warm: in a new process that finds what was compiled on disk), after how many calls it has paid for "
        "itself, by the latency of a call, beside the same implementation in eager mode, and how often was compiled where that is not once.",
        fold_above=15,
    )
    for mode in modes:
        bests = [best for case in results.cases if (one := case.in_mode(mode)) and (best := one.best)]
        states = Counter(state_of(*speedup) for best in bests if (speedup := speedup_of(best)))
        if mode != "eager" and bests:
            yield Line(
                text=f"In mode {mode} the best variant is proven faster than the baseline of that mode in {states['faster']} of "
                f"{len(bests)} cases, slower in {states['slower']}, and not told apart from it in {states['open']}.",
                gap=True,
            )


def _in_mode(case: CaseResults, *, mode: str, best: bool) -> str:
    results = case.in_mode(mode)
    record = (results.best if best else results.baseline) if results else None
    named = f" {record.implementation}, {latency_words.speedup(record)}" if best and record else ""
    return f"{latency_words.p50(record)}{named}"


def _paid(case: CaseResults, *, best: bool) -> str:
    """Return the first call in compile mode, how many calls it takes until that is paid back, and unusual counts of compilations."""
    results, eager = case.in_mode("compile"), case.in_mode("eager")
    record = (results.best if best else results.baseline) if results else None
    if record is None or record.first_call_ns is None:
        return ""
    warm = f" ({units.duration(record.warm_first_call_ns)} warm)" if record.warm_first_call_ns is not None else ""
    records = [eager.baseline, *eager.variants] if eager else []
    before = next((one.call_p50_ns for one in records if one and one.implementation == record.implementation), None)
    calls = "not measured in eager mode"
    if before is not None and record.call_p50_ns is not None:
        saved = before - record.call_p50_ns
        calls = f"{math.ceil(record.first_call_ns / saved):,} calls" if saved > 0 else "never"
    counts = ((record.compilations, "compiled"), (record.recompilations, "again"), (record.graph_breaks, "breaks"))
    usual = record.compilations is None or (record.compilations == 1 and not record.graph_breaks)
    compiled = "" if usual else "; " + ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"{units.duration(record.first_call_ns)}{warm}, {calls}{compiled}"


_FOLD_CASES, _NAMED_GAPS = 40, 6  # number of cases above which their table is folded, and of names in a sentence


class CaseRow(NamedTuple):
    case: CaseResults
    mode: ModeResults
    label: str
    claims: tuple[JudgedClaim, ...]

    @property
    def both(self) -> tuple[Record | None, Record | None]:
        return self.mode.baseline, self.mode.best


def operator_blocks(results: OperatorResults) -> Iterator[Block]:
    labels = case_names(results)
    yield Heading(text=results.operator.name, level=3)
    summary, source = results.operator.summary, results.operator.source
    sentences = [f"{summary or 'No summary.'} From {results.operator.suite}{f', after {source}' if source else ''}."]
    sentences += [
        f"{item.name} {latency_words.overwrites(item.consumes)}, which its caller loses."
        for item in results.operator.implementations
        if item.consumes
    ]
    yield Line(text=clean(" ".join([*sentences, *(f"{note}." for note in results.notes)])), gap=True)
    runs = []
    for run in results.runs:
        rounds = (
            f", of {' or '.join(map(str, run.rounds))} {'round' if run.rounds == (1,) else 'rounds'}"
            if run.rounds
            else ""
        )
        runs.append(f"{rows.heading(run.record)}: {run.records} records{rounds}")
    yield Items(texts=tuple(runs))
    shown = [
        CaseRow(
            case=case,
            mode=mode,
            label=labels[case.case.key],
            claims=tuple(one for one in results.claims if one.case == case.case and one.claim.mode == mode.mode),
        )
        for case in results.cases
        if (mode := main_mode(case))
    ]
    title = f"All {len(shown)} cases" if len(shown) > _FOLD_CASES else ""
    yield table_of(_CASE_COLUMNS, shown, title=title, fold_above=_FOLD_CASES)
    yield from _modes_blocks(results, labels)
    if results.claims:
        yield _claims_table(results.claims, labels)
    yield _every_table(results, labels)
    yield from _losses_blocks(results, labels)
    if results.refused:
        yield _grouped(results.refused, labels, title="Refused (mismatched, failed, out of memory or out of time):")
    if results.skipped:
        yield _grouped(results.skipped, labels, title="Skipped:")
    yield from _gaps(results, labels)


def case_names(results: OperatorResults) -> dict[str, str]:
    """Return short names of an operator's cases by their keys; longer ones than a chart's, for a page has more room."""
    cases = [*(item.case for item in results.cases), *results.missing]
    return labels_of({case.key: dict(case.axes) for case in cases}, fits=80)


def main_mode(case: CaseResults) -> ModeResults | None:
    """Return the mode in which a case is in the main table: eager, or the first that was measured."""
    return next((results for mode in MODES if (results := case.in_mode(mode))), None)


def _best(row: CaseRow) -> str:
    best, mode = row.mode.best, row.mode.mode
    return f"{best.implementation}{f' ({mode})' if mode != 'eager' else ''}" if best else "none was measured"


def _latency(row: CaseRow, record: Record | None) -> str:
    return latency_words.p50(record, latency_words.common(*row.both))


def _calls(row: CaseRow) -> str:
    return "" if latency_words.common(*row.both) is CALL else _between(row.both, latency_words.call)


def _host_bound(row: CaseRow) -> str:
    return "; ".join(
        f"{name}: {latency_words.issuing(record.host_p50_ns, record.device_p50_ns)}"
        for name, record in zip(("baseline", "best"), row.both, strict=True)
        if record and record.bound == "host"
    )


def _same_memory(row: CaseRow) -> str:
    both = zip(("baseline", "best"), row.both, strict=True)
    return " and ".join(name for name, record in both if record and record.reuses_output)


def part_of_roof(record: Record) -> float | None:
    """Return the part of its roof that a record reaches, as on the site; None where that is not known."""
    series = Series.of(record)
    assert series is not None
    fraction = roof_fraction(series_facts(record, series, SeriesStatus(state="unchanged")), ceilings_of(record))
    return None if math.isnan(fraction) else fraction


def _claims(row: CaseRow) -> str:
    texts = []
    for claim in (one.claim for one in row.claims):
        # Our latencies stand beside it, so that its ratio is enough.
        figure = _ratio(claim) if claim.quantity == "latency_ms" else _published(claim)
        texts.append(f"{claim.implementation} {figure}" if claim.implementation else figure)
    return "; ".join(texts)


def _states(row: CaseRow) -> str:
    states = [str(one.state) for one in row.claims]
    return states[0] if len(set(states)) == 1 else "; ".join(states)


_CASE_COLUMNS: tuple[Column[CaseRow], ...] = (
    Column("case", lambda row: row.label, right=False),
    Column("tier", lambda row: row.case.case.tier, right=False),
    Column("baseline", lambda row: _latency(row, row.mode.baseline)),
    Column("best variant", _best, right=False),
    Column("P50", lambda row: _latency(row, row.mode.best)),
    Column("speedup", lambda row: latency_words.speedup(row.mode.best)),
    Column("95 %", lambda row: latency_words.speedup_range(row.mode.best)),
    Column("as launched", lambda row: latency_words.as_launched(row.mode.best)),
    Column("call", _calls),
    Column("host-bound", _host_bound, right=False),
    Column(latency_words.SAME_MEMORY, _same_memory, right=False),
    Column("launches", lambda row: _between(row.both, _QUANTITIES["launches"])),
    Column("peak memory", lambda row: _between(row.both, _QUANTITIES["peak_gib"])),
    Column("of the roof", lambda row: _between(row.both, lambda one: units.percent(part_of_roof(one)))),
    Column("published", _claims, right=False),
    Column("ours is", _states, right=False),
)


def _gaps(results: OperatorResults, labels: Mapping[str, str]) -> Iterator[Block]:
    """Yield the variants and cases that have no record, or only of an earlier definition."""
    tried = {str(record.implementation) for case in results.cases for mode in case.modes for record in mode.variants}
    untried = [item.name for item in results.operator.implementations[1:] if item.name not in tried]
    sentences = [
        _list("No measurement of the variants", untried),
        _list("No measurement of the cases", [labels[case.key] for case in results.missing]),
        _list("Measured with an earlier definition of the operator", [labels[key] for key in results.outdated]),
    ]
    if any(sentences):
        yield Items(texts=tuple(filter(None, sentences)))


def _list(words: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_GAPS} more" if len(names) > _NAMED_GAPS else ""
    return f"{words}: {'; '.join(names[:_NAMED_GAPS])}{more}." if names else ""
