"""The part of a page of results that one operator has on one device model."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pairbench.analyze.site.facts import ceilings_of, series_facts
from pairbench.model.claim import Claim
from pairbench.model.latency import CALL
from pairbench.model.record import Record
from pairbench.model.results import CaseResults, ContributingRun, JudgedClaim, ModeResults, OperatorResults
from pairbench.model.series import Series
from pairbench.model.settings import MODES
from pairbench.model.site import SeriesStatus
from pairbench.report import latency_words, rows, units
from pairbench.report.case_labels import labels_of
from pairbench.report.charts.roofline import roof_fraction
from pairbench.report.layout import Column
from pairbench.report.results.blocks import Block, Heading, Items, Paragraph, table_of
from pairbench.report.results.claims import arrow, claims_table, in_short
from pairbench.report.results.every import every_table
from pairbench.report.results.losses import losses_blocks, refused_blocks
from pairbench.report.results.modes import modes_blocks

_FITS = 80
"""Number of letters of a case's name: a page has more room than a chart."""
_LONG = 40
"""Number of cases above which their table is folded."""
_FEW = 6
"""Number of cases that a sentence names."""


@dataclass(frozen=True, kw_only=True)
class CaseRow:
    """A case in the mode that the main table shows."""

    case: CaseResults
    mode: ModeResults
    label: str
    claims: tuple[JudgedClaim, ...]


def operator_blocks(results: OperatorResults) -> Iterator[Block]:
    """Yield the part of the page on one operator and device model."""
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
        CaseRow(case=case, mode=mode, label=labels[case.case.key], claims=_claims_of(results, case, mode.mode))
        for case in results.cases
        if (mode := main_mode(case))
    ]
    yield table_of(_COLUMNS, shown, title=_cases(len(shown)), fold_above=_LONG)
    yield from modes_blocks(results, labels)
    if results.claims:
        yield claims_table(results.claims, labels)
    yield every_table(results, labels)
    yield from losses_blocks(results, labels)
    yield from refused_blocks(results, labels)
    yield from _gaps(results, labels)


def _run(behind: ContributingRun) -> str:
    rounds = " or ".join(map(str, behind.rounds))
    suffix = f", of {rounds} {'round' if behind.rounds == (1,) else 'rounds'}" if rounds else ""
    return f"{rows.heading(behind.record)}: {behind.records} records{suffix}"


def case_names(results: OperatorResults) -> dict[str, str]:
    """Return short names of an operator's cases by their keys."""
    cases = [*(item.case for item in results.cases), *results.missing]
    return {one.case: one.label for one in labels_of({case.key: dict(case.axes) for case in cases}, fits=_FITS)}


def _cases(number: int) -> str:
    return f"All {number} cases" if number > _LONG else ""


def main_mode(case: CaseResults) -> ModeResults | None:
    """Return the mode in which a case is in the main table: eager, or the first that was measured."""
    return next((results for mode in MODES if (results := case.in_mode(mode))), None)


def _claims_of(results: OperatorResults, case: CaseResults, mode: str) -> tuple[JudgedClaim, ...]:
    return tuple(
        one
        for one in results.claims
        if one.case is not None and one.case.key == case.case.key and one.claim.mode == mode
    )


def _best(row: CaseRow) -> str:
    best, mode = row.mode.best, row.mode.mode
    return f"{best.implementation}{f' ({mode})' if mode != 'eager' else ''}" if best else "none was measured"


def _latency(row: CaseRow, record: Record | None) -> str:
    return latency_words.p50(record, latency_words.common(row.mode.baseline, row.mode.best))


def _calls(row: CaseRow) -> str:
    """Return the latencies of one call of baseline and best where those of the device stand before them."""
    if latency_words.common(row.mode.baseline, row.mode.best) is CALL:
        return ""
    return arrow(*(latency_words.call(record) if record else "" for record in (row.mode.baseline, row.mode.best)))


def _host_bound(row: CaseRow) -> str:
    """Return which of baseline and best the host limits, with what issuing a call takes it."""
    return "; ".join(
        f"{name}: {latency_words.issuing(record.host_p50_ns, record.device_p50_ns)}"
        for name, record in (("baseline", row.mode.baseline), ("best", row.mode.best))
        if record and record.bound == "host"
    )


def _same_memory(row: CaseRow) -> str:
    """Return which of baseline and best return the same memory in each call."""
    both = (("baseline", row.mode.baseline), ("best", row.mode.best))
    return " and ".join(name for name, record in both if record and record.reuses_output)


def _between(row: CaseRow, column: str) -> str:
    """Return baseline and best in one column of counts, sizes or parts."""
    before, after = row.mode.baseline, row.mode.best
    return arrow(_value(before, column), _value(after, column))


def _value(record: Record | None, column: str) -> str:
    if record is None:
        return ""
    match column:
        case "launches":
            return rows.launches(record)
        case "peak_bytes":
            return units.size(record.peak_bytes)
        case _:
            return units.percent(part_of_roof(record))


def part_of_roof(record: Record) -> float | None:
    """Return the part of its roof that a record reaches, as on the site; None where that is not known."""
    series = Series.of(record)
    assert series is not None
    fraction = roof_fraction(series_facts(record, series, SeriesStatus(state="unchanged")), ceilings_of(record))
    return None if math.isnan(fraction) else fraction


def _published(row: CaseRow) -> str:
    return "; ".join(f"{_implementation_of(one.claim)}{in_short(one.claim)}" for one in row.claims)


def _states(row: CaseRow) -> str:
    """Return the state of each claim, or one state where all are the same."""
    states = [str(one.state) for one in row.claims]
    return states[0] if len(set(states)) == 1 else "; ".join(states)


def _implementation_of(claim: Claim) -> str:
    return f"{claim.implementation} " if claim.implementation else ""


_COLUMNS: tuple[Column[CaseRow], ...] = (
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
    Column(header="launches", text=lambda row: _between(row, "launches")),
    Column(header="peak memory", text=lambda row: _between(row, "peak_bytes")),
    Column(header="of the roof", text=lambda row: _between(row, "roofline_fraction")),
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
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"{words}: {'; '.join(names[:_FEW])}{more}." if names else ""
