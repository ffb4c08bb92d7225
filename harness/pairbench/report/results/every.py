"""All implementations of all cases in one table: latencies, errors, and the gain of each step by itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from pairbench.model.latency import CALL, Latency, p50_of
from pairbench.model.record import Record
from pairbench.model.results import OperatorResults, StepGain
from pairbench.report import latency_words, rows, units
from pairbench.report.layout import Column
from pairbench.report.results.blocks import TableBlock, table_of

_LONG = 8
"""Number of rows above which the table is folded."""


@dataclass(frozen=True, kw_only=True)
class MeasurementRow:
    """The record of one implementation in one case."""

    label: str
    record: Record
    latency: Latency
    """The latency in which it stands beside its baseline."""
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
        _COLUMNS,
        measurements,
        title=f"All {len(measurements)} measurements, errors included; a speedup is over the baseline of its own run:",
        fold_above=_LONG,
    )


def _gain(row: MeasurementRow) -> str:
    if row.step is None:
        return ""
    within = units.ratio_range(row.step.gain.low, row.step.gain.high)
    return f"{units.ratio(row.step.gain.estimate)} {f'({within}) ' if within else ''}over {row.step.over}"


_COLUMNS: tuple[Column[MeasurementRow], ...] = (
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
