"""All implementations of all cases in one table: latencies, errors, and the gain of each step by itself."""

from collections.abc import Mapping
from dataclasses import dataclass

from pairbench.model.record import Record
from pairbench.model.results import OperatorResults, StepGain
from pairbench.report import rows, units
from pairbench.report.layout import Column
from pairbench.report.results.blocks import TableBlock, table_of

_LONG = 8
"""Number of rows above which the table is folded."""


@dataclass(frozen=True, kw_only=True)
class MeasurementRow:
    """The record of one implementation in one case."""

    label: str
    record: Record
    step: StepGain | None


def every_table(results: OperatorResults, labels: Mapping[str, str]) -> TableBlock:
    """Return what was measured of every implementation, in the order of declaration."""
    measurements = [
        MeasurementRow(label=labels[case.case.key], record=record, step=mode.steps.get(str(record.implementation)))
        for case in results.cases
        for mode in case.modes
        for record in ([mode.baseline] if mode.baseline else []) + list(mode.variants)
        if record.call_p50_ns is not None
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
    Column(header="P50", text=lambda row: units.duration(row.record.call_p50_ns)),
    Column(header="device", text=lambda row: units.duration(row.record.device_p50_ns)),
    Column(header="speedup", text=lambda row: units.ratio(row.record.speedup)),
    Column(header="95 %", text=lambda row: units.ratio_range(row.record.speedup_low, row.record.speedup_high)),
    Column(header="the step alone", text=_gain),
    Column(header="launches", text=lambda row: rows.launches(row.record)),
    Column(header="peak memory", text=lambda row: units.size(row.record.peak_bytes)),
    Column(header="max error", text=lambda row: units.error(row.record.max_abs_error)),
    Column(header="mean error", text=lambda row: units.error(row.record.mean_abs_error)),
    Column(header="oracle ratio", text=lambda row: units.significant(row.record.oracle_ratio, 3)),
)
