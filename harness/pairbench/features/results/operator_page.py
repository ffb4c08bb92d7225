"""The part of a page of results on one operator and device model: cases, published figures, all measurements, losses, refusals."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pairbench.analyze.facts import ceilings_of, series_facts
from pairbench.features.results.modes import modes_blocks
from pairbench.features.results.operator import SIZE, loses
from pairbench.features.results.values import (
    AxisBound,
    CaseResults,
    ClaimState,
    ContributingRun,
    JudgedClaim,
    Losses,
    ModeResults,
    OperatorResults,
    StepGain,
)
from pairbench.model.claim import Claim
from pairbench.model.latency import CALL, Latency, p50_of
from pairbench.model.record import Record, Series
from pairbench.model.settings import MODES
from pairbench.model.site import SeriesStatus
from pairbench.report import latency_words, rows, units
from pairbench.report.blocks import Block, Heading, Items, Paragraph, TableBlock, table_of
from pairbench.report.labels import labels_of
from pairbench.report.operator_charts import roof_fraction
from pairbench.report.render import Column, shorten

_NS_PER_MS = 1e6
_BYTES_PER_GIB = 2**30


def arrow(before: str, after: str) -> str:
    """Return `before -> after`, or the one of them that is known."""
    return f"{before} -> {after}" if before and after else before or after


def published(claim: Claim) -> str:
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


def ours(one: JudgedClaim) -> str:
    """Return what was measured here of the quantity that a claim is about; empty where nothing was."""
    if one.variant is None or one.state is ClaimState.UNMEASURED:
        return ""
    by, both = f", {one.variant.implementation}", (one.baseline, one.variant)
    if quantity := _QUANTITIES.get(one.claim.quantity):
        return _between(both, quantity) + by
    speedup = ", ".join(filter(None, [latency_words.speedup(one.variant), latency_words.speedup_range(one.variant)]))
    latency = latency_words.common(*both)
    return f"{_between(both, lambda record: latency_words.p50(record, latency))} ({speedup}){by}"


def _between(both: Iterable[Record | None], text: Callable[[Record], str]) -> str:
    """Return a text on a baseline and the same on a variant."""
    return arrow(*(text(record) if record else "" for record in both))


_QUANTITIES: dict[str, Callable[[Record], str]] = {
    "launches": rows.launches,
    "syncs": lambda record: units.count(record.syncs_per_call),
    "peak_gib": lambda record: units.size(record.peak_bytes),
}


def claims_table(claims: Sequence[JudgedClaim], labels: dict[str, str]) -> TableBlock:
    columns: tuple[Column[JudgedClaim], ...] = (
        Column(header="published", text=lambda one: published(one.claim), right=False),
        Column(header="about", text=lambda one: _about(one.claim), right=False),
        Column(header="on", text=lambda one: one.claim.device, right=False),
        Column(header="by", text=lambda one: one.claim.source, right=False),
        Column(header="measured there", text=lambda one: one.claim.shape, right=False),
        Column(header="our case", text=lambda one: labels[one.case.key] if one.case else "none here", right=False),
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


@dataclass(frozen=True, kw_only=True)
class MeasurementRow:
    label: str
    record: Record
    latency: Latency  # the latency in which it stands beside its baseline
    step: StepGain | None


def every_table(results: OperatorResults, labels: Mapping[str, str]) -> TableBlock:
    """Return what was measured of every implementation, in the order of declaration."""
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
    Column(header="case", text=lambda row: row.label, right=False),
    Column(header="implementation", text=lambda row: row.record.implementation or "", right=False),
    Column(header="mode", text=lambda row: row.record.mode or "", right=False, usual="eager"),
    Column(header="P50", text=lambda row: latency_words.p50(row.record, row.latency)),
    Column(header="speedup", text=lambda row: latency_words.speedup(row.record)),
    Column(header="95 %", text=lambda row: latency_words.speedup_range(row.record)),
    Column(header="call", text=lambda row: latency_words.call(row.record) if row.latency != CALL else ""),
    Column(header="host", text=lambda row: latency_words.host(row.record)),
    Column(header="the step alone", text=_gain),
    Column(header="launches", text=lambda row: rows.launches(row.record)),
    Column(header="peak memory", text=lambda row: units.size(row.record.peak_bytes)),
    Column(header=latency_words.SAME_MEMORY, text=lambda row: "yes" if row.record.reuses_output else "", right=False),
    Column(header="max error", text=lambda row: units.error(row.record.max_abs_error)),
    Column(header="mean error", text=lambda row: units.error(row.record.mean_abs_error)),
    Column(header="oracle ratio", text=lambda row: units.significant(row.record.oracle_ratio, 3)),
)


_FOLD_LOSSES = 15  # number of rows above which a table is folded: the page must stay readable
_NAMED_CASES = 3  # in a row


def losses_blocks(results: OperatorResults, labels: Mapping[str, str]) -> Iterator[Block]:
    if not results.losses:
        if any(mode.best for case in results.cases for mode in case.modes):
            yield Paragraph(text="Where variants lose: no variant is proven slower than the baseline in any case.")
        return
    columns: tuple[Column[Losses], ...] = (
        Column(header="variant", text=lambda one: one.implementation, right=False),
        Column(header="mode", text=lambda one: one.mode, right=False, usual="eager"),
        Column(header="loses in", text=lambda one: f"{len(one.losing)} of {one.measured}"),
        Column(header="slowest", text=lambda one: _speedup(one.losing[0])),
        Column(header="there", text=lambda one: labels.get(str(one.losing[0].case), ""), right=False),
        Column(header="where it loses", text=_where, right=False),
    )
    yield table_of(columns, results.losses, title="Where variants lose:")
    yield _map(results, labels)


def _map(results: OperatorResults, labels: Mapping[str, str]) -> TableBlock:
    """Return the speedups of all variants that lose anywhere, in the cases and modes in which one of them does."""
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
        return Column(header=name, text=lambda row: _cell(row[1].get(name)))

    return table_of(
        (Column(header="case", text=lambda row: row[0], right=False), *map(cell, losing)),
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
        Column(header="implementation", text=lambda several: several[0].implementation or "", right=False),
        Column(header="mode", text=lambda several: several[0].mode or "", right=False, usual="eager"),
        Column(header="status", text=lambda several: several[0].status, right=False, usual="skipped"),
        Column(header="cases", text=lambda several: units.count(len(several))),
        Column(header="which", text=which, right=False),
        Column(header="why", text=lambda several: shorten(several[0].reason or "", 140), right=False),
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
    value = "x".join(map(str, one.value)) if isinstance(one.value, tuple) else one.value
    return f"{one.axis} {one.relation} {value}"


def _cell(record: Record | None) -> str:
    if record is None or not latency_words.speedup(record):
        return str(record.status) if record is not None and record.status != "measured" else ""
    return f"slower, {_speedup(record)}" if loses(record) else latency_words.speedup(record)


def _speedup(record: Record) -> str:
    interval = latency_words.speedup_range(record)
    return f"{latency_words.speedup(record)}{f' ({interval})' if interval else ''}"


_FOLD_CASES = 40  # number of cases above which their table is folded
_NAMED_GAPS = 6  # in a sentence


@dataclass(frozen=True, kw_only=True)
class CaseRow:
    """A case in the mode that the main table shows."""

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
    yield Paragraph(text=" ".join([*sentences, *(f"{note}." for note in results.notes)]))
    yield Items(texts=tuple(map(_run, results.runs)))
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
    yield from modes_blocks(results, labels)
    if results.claims:
        yield claims_table(results.claims, labels)
    yield every_table(results, labels)
    yield from losses_blocks(results, labels)
    if results.refused:
        yield _grouped(results.refused, labels, title="Refused (mismatched, failed, out of memory or out of time):")
    if results.skipped:
        yield _grouped(results.skipped, labels, title="Skipped:")
    yield from _gaps(results, labels)


def _run(behind: ContributingRun) -> str:
    rounds = " or ".join(map(str, behind.rounds))
    suffix = f", of {rounds} {'round' if behind.rounds == (1,) else 'rounds'}" if rounds else ""
    return f"{rows.heading(behind.record)}: {behind.records} records{suffix}"


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
    """Return the latencies of one call of baseline and best where those of the device stand before them."""
    return "" if latency_words.common(*row.both) is CALL else _between(row.both, latency_words.call)


def _host_bound(row: CaseRow) -> str:
    """Return which of baseline and best the host limits, with what issuing a call takes it."""
    return "; ".join(
        f"{name}: {latency_words.issuing(record.host_p50_ns, record.device_p50_ns)}"
        for name, record in zip(("baseline", "best"), row.both, strict=True)
        if record and record.bound == "host"
    )


def _same_memory(row: CaseRow) -> str:
    """Return which of baseline and best return the same memory in each call."""
    both = zip(("baseline", "best"), row.both, strict=True)
    return " and ".join(name for name, record in both if record and record.reuses_output)


def part_of_roof(record: Record) -> float | None:
    """Return the part of its roof that a record reaches, as on the site; None where that is not known."""
    series = Series.of(record)
    assert series is not None
    fraction = roof_fraction(series_facts(record, series, SeriesStatus(state="unchanged")), ceilings_of(record))
    return None if math.isnan(fraction) else fraction


def _published(row: CaseRow) -> str:
    texts = []
    for claim in (one.claim for one in row.claims):
        # Our latencies stand beside it, so that its ratio is enough.
        figure = _ratio(claim) if claim.quantity == "latency_ms" else published(claim)
        texts.append(f"{claim.implementation} {figure}" if claim.implementation else figure)
    return "; ".join(texts)


def _states(row: CaseRow) -> str:
    """Return the state of each claim, or one state where all are the same."""
    states = [str(one.state) for one in row.claims]
    return states[0] if len(set(states)) == 1 else "; ".join(states)


_CASE_COLUMNS: tuple[Column[CaseRow], ...] = (
    Column(header="case", text=lambda row: row.label, right=False),
    Column(header="tier", text=lambda row: row.case.case.tier, right=False),
    Column(header="baseline", text=lambda row: _latency(row, row.mode.baseline)),
    Column(header="best variant", text=_best, right=False),
    Column(header="P50", text=lambda row: _latency(row, row.mode.best)),
    Column(header="speedup", text=lambda row: latency_words.speedup(row.mode.best)),
    Column(header="95 %", text=lambda row: latency_words.speedup_range(row.mode.best)),
    Column(header="as launched", text=lambda row: latency_words.as_launched(row.mode.best)),
    Column(header="call", text=_calls),
    Column(header="host-bound", text=_host_bound, right=False),
    Column(header=latency_words.SAME_MEMORY, text=_same_memory, right=False),
    Column(header="launches", text=lambda row: _between(row.both, _QUANTITIES["launches"])),
    Column(header="peak memory", text=lambda row: _between(row.both, _QUANTITIES["peak_gib"])),
    Column(header="of the roof", text=lambda row: _between(row.both, lambda one: units.percent(part_of_roof(one)))),
    Column(header="published", text=_published, right=False),
    Column(header="ours is", text=_states, right=False),
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
