"""The table of `show` before it is laid out: columns, order of rows, headings.

Records as `pairbench show` prints them: by operator and case, the baseline first, remarks below their row.

How near a record comes to what the device can do, as text: its rate of arithmetic or of bytes, and its part of the roof.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import Any

from rich.padding import Padding
from rich.text import Text

from pairbench.analyze.facts import ceilings_of, series_facts
from pairbench.model.case import TIERS
from pairbench.model.environment import withheld
from pairbench.model.latency import CALL, result_of, speedup_of
from pairbench.model.outcome import OUT_OF_BUDGET, Status
from pairbench.model.record import Record, Series
from pairbench.model.settings import MODES, about_precision
from pairbench.model.site import SeriesFacts, SeriesStatus
from pairbench.report import latency_words, units
from pairbench.report.charts.roofline import intensity_of, ridge, roof_fraction
from pairbench.report.latency_words import LEGEND
from pairbench.report.render import (
    FORMATS,
    INDENT,
    Column,
    Layout,
    Terminal,
    cells_of,
    clean,
    markdown_table,
    markdown_text,
    telling,
    to_json,
)

_COLUMNS = ("flops", "bytes_moved", "tflops", "gbps", "roofline_fraction")


def rate(record: Record) -> str:
    """Return a rate like `3800 GB/s`, or like `1.52 TFLOP/s` where arithmetic limits a case and not memory.

    Empty where no cost is declared, or the latency is not to be believed.
    """
    facts = _facts(record)
    if facts is None:
        return ""
    numbers, ceilings = facts.numbers, ceilings_of(record)
    dtypes = [facts.dtype] if facts.dtype else [name.removesuffix("_tflops") for name in ceilings]
    ridges = [found for dtype in dtypes if not math.isnan(found := ridge(ceilings, dtype))]
    intensity = intensity_of(facts)
    # Where nothing is known of the roof, nearly everything with so few operations a byte is limited by memory.
    arithmetic = math.isnan(intensity) or intensity >= max(ridges, default=_INTENSE)
    if arithmetic and numbers.get("tflops"):
        return f"{units.significant(numbers['tflops'], 3)} TFLOP/s"
    return f"{units.significant(numbers['gbps'], 4)} GB/s" if numbers.get("gbps") else ""


_INTENSE = 10.0


def part_of_roof(record: Record) -> str:
    """Return the part of its roof that a record reaches, like `85%`; empty where that is not known."""
    facts = _facts(record)
    return "" if facts is None else units.percent(roof_fraction(facts, ceilings_of(record)))


def _facts(record: Record) -> SeriesFacts | None:
    series = Series.of(record)
    if series is None or record.gbps is None or withheld(record.device_kind, record.environment):
        return None
    return series_facts(record, series, SeriesStatus(state="unchanged"), columns=_COLUMNS)


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
    Column(header="rate", text=rate, drop=7),
    Column(header="roof", text=part_of_roof, drop=6),
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


_NAMED = 10
"""How many cases a line names."""
_BAD = tuple(status for status in Status if status.bad)


def render(
    records: Sequence[Record], output: str, *, problems: Sequence[str] = (), terminal: Terminal | None = None
) -> str:
    """Return the records of one run or more in one of the formats.

    Args:
        records: in the order in which implementations were declared, as far as it is known.
        output: table, markdown or json.
        problems: what could not be read, listed at the end.
        terminal: stdout where not given.
    """
    if output == "json":
        document = {"records": [expanded(record) for record in records], "problems": problems}
        return to_json({**document, "notes": precision_remark(records)})
    problems = [*problems, *load_remarks(records), *_out_of_budget(records)]
    if output == "markdown":
        return _markdown(records, problems)
    if output != "table":
        raise ValueError(f"format {output!r} is unknown, expected one of {', '.join(FORMATS)}")
    terminal = terminal or Terminal.of_stdout()
    return terminal.paint(*_lines(records, problems, terminal.width))


def expanded(record: Record) -> dict[str, Any]:
    """Return a record as a dict, with objects where its columns hold JSON."""
    return {**asdict(record), "axes": _object(record.axes), "environment": _object(record.environment)}


def _lines(records: Sequence[Record], problems: Sequence[str], width: int | None) -> Iterator[Text | Padding]:
    rows = rows_of(_tried(records))
    layout = Layout.fit(COLUMNS, [row.cells for row in rows], width)
    several = _several_devices(rows)
    explained = legend((column.header for column in layout.widths), rows)
    for _, of_run in groupby(rows, key=lambda row: row.record.run_id):
        in_run = list(of_run)
        yield Text(heading(in_run[0].record), style="dim")
        yield Text()
        for _, of_operator in groupby(in_run, key=lambda row: operator_of(row.record)):
            yield from _operator_lines(list(of_operator), layout, several_devices=several)
            if explained:
                yield from (Text(explained, style="dim"), Text())
            explained = ""  # below the first table alone
    if _on_gpu(records):
        yield Text(LEGEND, style="dim")
    if rows:
        counts = Counter(record.status for record in records)
        yield Text(", ".join(f"{number} {status}" for status, number in counts.most_common()))
    yield from (Text(line, style="dim") for line in precision_remark(records))
    if layout.note:
        yield Text(layout.note, style="dim")
    yield from (Text(clean(problem), style="yellow") for problem in problems)


def _operator_lines(
    rows: list[RecordRow], layout: Layout[Record], *, several_devices: bool
) -> Iterator[Text | Padding]:
    yield Text(title(rows[0].record), style="bold")
    yield layout.line(lambda column: column.header, lambda _: "dim")
    for _, of_case in groupby(rows, key=lambda row: case_of(row.record)):
        in_case = list(of_case)
        yield Text(f"  {case_line(in_case[0].record, several_devices=several_devices)}", style="cyan")
        for row in in_case:
            yield layout.line(partial(_cell, row), partial(_style, row.record))
            if remark := note(row.record):
                style = "red" if row.record.status in _BAD else "yellow" if row.record.reason else "dim"
                yield Padding(Text(remark, style=style), (0, 0, 0, INDENT + 2), expand=False)
    yield Text()


def _tried(records: Sequence[Record]) -> Sequence[Record]:
    """Return the records without those for which a run had no time: they may be most, and are named in one line."""
    return [record for record in records if record.reason != OUT_OF_BUDGET]


def _out_of_budget(records: Sequence[Record]) -> Iterator[str]:
    left = list(dict.fromkeys(str(record.case) for record in records if record.reason == OUT_OF_BUDGET))
    if left:
        more = f" and {len(left) - _NAMED} more, which --format json names" if len(left) > _NAMED else ""
        number = f"{len(left)} case{'' if len(left) == 1 else 's'}"
        yield f"skipped, {OUT_OF_BUDGET}, and first in the next run with one: {number}, {', '.join(left[:_NAMED])}{more}"


def _on_gpu(records: Sequence[Record]) -> bool:
    """Tell whether the table has another latency than the call's: a CPU has no other."""
    return any(result_of(record) is not CALL for record in records)


def _several_devices(rows: Sequence[RecordRow]) -> bool:
    return len({row.record.device_uuid for row in rows}) > 1


def _cell(row: RecordRow, column: Column[Record]) -> str:
    return row.cells[column.header]


def _style(record: Record, column: Column[Record]) -> str:
    if column.header not in ("speedup", "interval") or record.role == "baseline":
        return ""
    if withheld(record.device_kind, record.environment):
        return ""
    # Coloured only where the whole interval lies on one side.
    speedup = speedup_of(record)
    if speedup is None:
        return ""
    return "green" if speedup.low > 1 else "red" if speedup.high < 1 else ""


def _object(text: str | None) -> object:
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return text


def _markdown(records: Sequence[Record], problems: Sequence[str]) -> str:
    rows = rows_of(_tried(records))
    columns = telling(COLUMNS, [row.cells for row in rows])
    several = _several_devices(rows)
    names = ["case", *(column.header for column in columns), "remarks"]
    explained = legend(names, rows)
    right = [False, *(column.right for column in columns), False]
    parts: list[str] = []
    for _, of_run in groupby(rows, key=lambda row: row.record.run_id):
        in_run = list(of_run)
        parts.append(f"{markdown_text(heading(in_run[0].record))}\n")
        for _, of_operator in groupby(in_run, key=lambda row: operator_of(row.record)):
            in_operator = list(of_operator)
            parts.append(f"### {markdown_text(title(in_operator[0].record))}\n")
            cells = [
                [
                    case_line(row.record, several_devices=several),
                    *(row.cells[column.header] for column in columns),
                    note(row.record),
                ]
                for row in in_operator
            ]
            parts.append(markdown_table(names, cells, right=right))
            if explained:
                parts.append(f"{markdown_text(explained)}\n")
            explained = ""
    if _on_gpu(records):
        parts.append(f"{markdown_text(LEGEND)}\n")
    parts += [f"{markdown_text(line)}\n" for line in precision_remark(records)]
    parts += [f"- {markdown_text(problem)}\n" for problem in problems]
    return "\n".join(parts)
