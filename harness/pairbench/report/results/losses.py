"""The cases in which variants lose, and those that were refused or skipped: the page shows them like what wins."""

from collections.abc import Iterator, Mapping, Sequence

from pairbench.analyze.results.losses import SIZE, loses
from pairbench.model.record import Record
from pairbench.model.results import AxisBound, CaseResults, Losses, OperatorResults
from pairbench.report import latency_words, units
from pairbench.report.comparison.words import shorten
from pairbench.report.layout import Column
from pairbench.report.results.blocks import Block, Paragraph, TableBlock, table_of

_REASON = 140
_LONG = 15
"""Number of rows above which a table is folded: the page must stay readable."""
_FEW = 3
"""Number of cases that a row names."""


def losses_blocks(results: OperatorResults, labels: Mapping[str, str]) -> Iterator[Block]:
    """Yield the variants that lose, a row each, then their speedups case by case."""
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
        (case, mode.mode, {str(record.implementation): record for record in mode.variants})
        for case in results.cases
        for mode in case.modes
        if any(loses(record) for record in mode.variants)
    ]

    def label(row: tuple[CaseResults, str, dict[str, Record]]) -> str:
        return labels[row[0].case.key] + (f", {row[1]}" if len(modes) > 1 else "")

    def cell(name: str) -> Column[tuple[CaseResults, str, dict[str, Record]]]:
        return Column(header=name, text=lambda row: _cell(row[2].get(name)))

    return table_of(
        (Column(header="case", text=label, right=False), *(cell(name) for name in losing)),
        rows,
        title="Their speedups, case by case, wherever one of them loses (slower: its whole interval lies below 1)",
        fold_above=_LONG,
    )


def refused_blocks(results: OperatorResults, labels: Mapping[str, str]) -> Iterator[Block]:
    """Yield which implementations were refused, with reasons, and which were skipped."""
    if results.refused:
        yield _grouped(results.refused, labels, title="Refused (mismatched, failed, out of memory or out of time):")
    if results.skipped:
        yield _grouped(results.skipped, labels, title="Skipped:")


def _grouped(records: Sequence[Record], labels: Mapping[str, str], *, title: str) -> TableBlock:
    """Return records in which the same happened to the same implementation as one row."""
    groups: dict[tuple[str | None, ...], list[Record]] = {}
    for record in records:
        groups.setdefault((record.implementation, record.mode, record.status, record.reason), []).append(record)

    def which(several: Sequence[Record]) -> str:
        more = f" and {len(several) - _FEW} more" if len(several) > _FEW else ""
        return "; ".join(labels[str(one.case)] for one in several[:_FEW]) + more

    columns: tuple[Column[list[Record]], ...] = (
        Column(header="implementation", text=lambda several: several[0].implementation or "", right=False),
        Column(header="mode", text=lambda several: several[0].mode or "", right=False, usual="eager"),
        Column(header="status", text=lambda several: several[0].status, right=False, usual="skipped"),
        Column(header="cases", text=lambda several: units.count(len(several))),
        Column(header="which", text=which, right=False),
        Column(header="why", text=lambda several: shorten(several[0].reason or "", _REASON), right=False),
    )
    return table_of(columns, list(groups.values()), title=title, fold_above=_LONG)


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
