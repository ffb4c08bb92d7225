"""The table of `show` before it is laid out: columns, order of rows, headings."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from pairbench.model.case import TIERS
from pairbench.model.load import withheld
from pairbench.model.outcome import Status
from pairbench.model.record import Record
from pairbench.model.settings import MODES, about_precision
from pairbench.report import latency_words, roof_words, units
from pairbench.report.layout import Column, cells_of
from pairbench.report.render import clean


def launches(row: Record) -> str:
    """Return the number of launches, with that of kernels in brackets where it differs."""
    if row.launch_status == "unreliable":
        return "unreliable"
    by_host, kernels = units.count(row.launches_per_call), units.count(row.kernels_per_call)
    return f"{by_host} ({kernels})" if kernels and by_host and kernels != by_host else by_host or kernels


def _unless_baseline(record: Record, text: str) -> str:
    return "" if record.role == "baseline" else text


COLUMNS: tuple[Column[Record], ...] = (
    Column(header="implementation", text=lambda row: row.implementation or "", right=False),
    Column(header="mode", text=lambda row: row.mode or "", right=False, usual="eager"),
    Column(header="float32", text=lambda row: row.float32_precision or "", right=False, usual="ieee", drop=12),
    Column(header="P50", text=latency_words.p50),
    Column(header="±", text=latency_words.spread, drop=4),
    Column(header="P95", text=latency_words.p95, drop=1),
    Column(header="call", text=latency_words.call, drop=10),
    Column(header="host", text=latency_words.host, drop=11),
    Column(header="speedup", text=lambda row: _unless_baseline(row, latency_words.speedup(row))),
    Column(header="interval", text=lambda row: _unless_baseline(row, latency_words.speedup_range(row)), drop=2),
    Column(header="launches", text=launches, drop=3),
    Column(header="rate", text=roof_words.rate, drop=7),
    Column(header="roof", text=roof_words.part_of_roof, drop=6),
    Column(header="ops", text=lambda row: units.count(row.ops_per_call), drop=5),
    Column(header="max error", text=lambda row: units.error(row.max_abs_error), drop=8),
    Column(header="oracle ratio", text=lambda row: units.significant(row.oracle_ratio, 3), drop=9),
)


MEANINGS = {
    "?": "host or device had other work to do, so the latency is not to be believed",
    "±": "how far the 95 % interval of P50 reaches",
    "ops": "ATen operators that a call dispatches",
    "oracle ratio": "largest error over the baseline's, both against float64; up to 2, plus one spacing of the output, is right",
}
"""What a table's short words mean, in the order in which they are explained."""


def legend(headers: Iterable[str], rows: "Iterable[RecordRow]") -> str:
    """Return a line that explains the short words of a table; empty where it has none.

    Args:
        headers: Of the columns that are shown.
        rows: The table's rows.
    """
    shown = {*headers} | {"?" for row in rows if row.cells["P50"].endswith("?")}
    return "; ".join(f"{word}: {meaning}" for word, meaning in MEANINGS.items() if word in shown)


@dataclass(frozen=True, kw_only=True)
class RecordRow:
    """A record with its cells, by the column's header."""

    record: Record
    cells: dict[str, str]


def rows_of(records: Iterable[Record]) -> list[RecordRow]:
    """Return records as rows, in the order of `ordered`."""
    return [RecordRow(record=record, cells=_cells(record)) for record in ordered(records)]


def _cells(record: Record) -> dict[str, str]:
    cells = cells_of(COLUMNS, record)
    if withheld(record.device_kind, record.environment) and record.status == Status.MEASURED:
        cells |= {name: f"{cells[name]}?" for name in ("P50", "P95")} | {"interval": ""}
        cells["speedup"] = "withheld" if cells["speedup"] else ""
    return cells


def load_remarks(records: Iterable[Record]) -> list[str]:
    """Return a sentence for each run whose speedups are not shown, for its host had other work to do."""
    remarks = {
        f"run {row.run_id}: {why}; they are marked with ?, and speedups are withheld"
        for row in records
        if row.status == Status.MEASURED and (why := withheld(row.device_kind, row.environment))
    }
    return sorted(remarks)


def precision_remark(records: Iterable[Record]) -> list[str]:
    """Return a line on the precision of float32 products and convolutions, where there are any on a GPU: a CPU has no TF32."""
    line = about_precision(row.float32_precision for row in records if row.device_kind == "cuda")
    return [line] if line else []


def ordered(records: Iterable[Record]) -> list[Record]:
    """Return records by operator in order of appearance, then by case, the baseline first, then what was measured."""
    records = sorted(records, key=lambda record: record.status != Status.MEASURED)
    first: dict[object, int] = {}
    for number, record in enumerate(records):
        operator = operator_of(record)
        for key in (record.run_id, operator, case_of(record), (operator, record.implementation)):
            first.setdefault(key, number)

    def sort_key(record: Record) -> tuple[object, ...]:
        mode = MODES.index(record.mode) if record.mode in MODES else len(MODES)
        operator = operator_of(record)
        among = (record.role != "baseline", first[operator, record.implementation])
        return first[record.run_id], first[operator], _case_order(record), first[case_of(record)], mode, among

    return sorted(records, key=sort_key)


def _case_order(record: Record) -> tuple[object, ...]:
    """Return a sort key of a case: tier, then the axes' values, numbers as numbers."""
    tier = TIERS.index(record.tier) if record.tier in TIERS else len(TIERS)
    axes = json.loads(record.axes) if record.axes else {}
    values = [
        (axis, isinstance(value, str | list), value if isinstance(value, int | float) else str(value))
        for axis, value in sorted(axes.items())
    ]
    return tier, tuple(values)


def operator_of(record: Record) -> tuple[object, ...]:
    """Return the key that the rows below one operator's heading share."""
    return record.run_id, record.device_name, record.suite, record.operator


def case_of(record: Record) -> tuple[object, ...]:
    """Return the key that the rows of one case, measured together, share."""
    return (*operator_of(record), record.case, record.device_uuid)


def heading(record: Record) -> str:
    """Return a line on the run that a record belongs to."""
    commit = f"commit {record.commit[:10]}{' and changes' if record.dirty else ''}" if record.commit else "no commit"
    versions = {
        "torch": record.torch,
        "triton": record.triton,
        "CUDA": record.cuda,
        "cuDNN": record.cudnn,
        "driver": record.driver,
    }
    known = [f"{name} {version}" for name, version in versions.items() if version]
    return clean(", ".join([f"run {record.run_id}", str(record.started_at), commit, *known]))


def title(record: Record) -> str:
    """Return the heading of an operator's rows."""
    return clean(f"{record.operator or 'not loaded'} ({record.suite}, {record.device_name})")


def case_line(record: Record, *, several_devices: bool) -> str:
    """Return the heading of a case's rows; the key is whole, so that it can be copied into the next command."""
    details = [record.tier, record.device_uuid if several_devices else None]
    known = ", ".join(detail for detail in details if detail)
    return clean(f"{record.case or 'no case'}{f' ({known})' if known else ''}")


def note(record: Record) -> str:
    """Return why a record is not plainly measured, and what is to be known beside its latency; or empty."""
    status = "" if record.status == "measured" else str(record.status)
    why = ": ".join(part for part in (status, record.reason) if part)
    parts = (why, latency_words.remark(record), latency_words.same_memory(record), autotuned(record))
    return clean("; ".join(part for part in parts if part))


def autotuned(record: Record) -> str:
    """Return what Triton's autotuner chose; empty where none was at work."""
    return f"autotuned {'; '.join(record.autotuned)}" if record.autotuned else ""
