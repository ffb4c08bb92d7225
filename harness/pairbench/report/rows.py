"""Records as `pairbench show` prints them: by operator and case, the baseline first, remarks below their row."""

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from pairbench.analyze.facts import ceilings_of, series_facts
from pairbench.model.case import TIERS
from pairbench.model.environment import MODES, about_precision, withheld
from pairbench.model.outcome import OUT_OF_BUDGET, Status
from pairbench.model.plain import grouped
from pairbench.model.plan import BASELINE
from pairbench.model.record import CALL, Record, Series, result_of, speedup_of, speedup_over
from pairbench.model.site import SeriesFacts, SeriesStatus
from pairbench.report import render as page
from pairbench.report import units
from pairbench.report.operator_charts import intensity_of, ridge, roof_fraction
from pairbench.report.render import Column, clean, shorten
from pairbench.report.units import LEGEND

_COLUMNS = ("flops", "bytes_moved", "tflops", "gbps", "roofline_fraction")


def rate(record: Record) -> str:
    """Return a rate like `3800 GB/s`, or `1.52 TFLOP/s` where arithmetic limits the case; empty where no cost or latency is known."""
    facts = _facts(record)
    if facts is None:
        return ""
    numbers, ceilings = facts.numbers, ceilings_of(record)
    dtypes = [facts.dtype] if facts.dtype else [name.removesuffix("_tflops") for name in ceilings]
    ridges = [intensity for dtype in dtypes if not math.isnan(intensity := ridge(ceilings, dtype))]
    intensity = intensity_of(facts)
    # Where nothing is known of the roof, nearly everything with so few operations a byte is limited by memory.
    arithmetic = math.isnan(intensity) or intensity >= max(ridges, default=10.0)
    if arithmetic and numbers.get("tflops"):
        return f"{units.significant(numbers['tflops'], 3)} TFLOP/s"
    return f"{units.significant(numbers['gbps'], 4)} GB/s" if numbers.get("gbps") else ""


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


COLUMNS: tuple[Column[Record], ...] = (
    Column("implementation", lambda row: row.implementation or "", right=False),
    Column("mode", lambda row: row.mode or "", right=False, usual="eager"),
    Column("float32", lambda row: row.float32_precision or "", right=False, usual="ieee", drop=12),
    Column("P50", units.p50),
    Column("±", units.spread_of, drop=4),
    Column("P95", units.p95, drop=1),
    Column("call", units.call, drop=10),
    Column("host", units.host, drop=11),
    Column("speedup", lambda row: "" if row.role == "baseline" else units.speedup(row)),
    Column("interval", lambda row: "" if row.role == "baseline" else units.speedup_range(row), drop=2),
    Column("launches", launches, drop=3),
    Column("rate", rate, drop=7),
    Column("roof", part_of_roof, drop=6),
    Column("ops", lambda row: units.count(row.ops_per_call), drop=5),
    Column("max error", lambda row: units.error(row.max_abs_error), drop=8),
    Column("oracle ratio", lambda row: units.significant(row.oracle_ratio, 3), drop=9),
)


MEANINGS = {
    "?": "host or device had other work to do, so the latency is not to be believed",
    "±": "how far the 95 % interval of P50 reaches",
    "ops": "ATen operators that a call dispatches",
    "oracle ratio": "largest error over the baseline's, both against float64; up to 2, plus one spacing of the output, is right",
}
"""What a table's short words mean, in the order in which they are explained."""


def _cells(record: Record) -> dict[str, str]:
    cells = page.cells_of(COLUMNS, record)
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
        tier = TIERS.index(record.tier) if record.tier in TIERS else len(TIERS)
        axes = tuple(
            (axis, isinstance(value, str | list), value if isinstance(value, int | float) else str(value))
            for axis, value in sorted(json.loads(record.axes or "{}").items())
        )
        operator = operator_of(record)
        among = (record.role != "baseline", first[operator, record.implementation])
        return first[record.run_id], first[operator], tier, axes, first[case_of(record)], mode, among

    return sorted(records, key=sort_key)


def operator_of(record: Record) -> tuple[object, ...]:
    return record.run_id, record.device_name, record.suite, record.operator


def case_of(record: Record) -> tuple[object, ...]:
    return (*operator_of(record), record.case, record.device_uuid)


def heading(record: Record) -> str:
    commit = f"commit {record.commit[:10]}{' and changes' if record.dirty else ''}" if record.commit else "no commit"
    names = {"torch": "torch", "triton": "triton", "CUDA": "cuda", "cuDNN": "cudnn", "driver": "driver"}
    known = [f"{name} {version}" for name, column in names.items() if (version := getattr(record, column))]
    return clean(", ".join([f"run {record.run_id}", str(record.started_at), commit, *known]))


def title(record: Record) -> str:
    return clean(f"{record.operator or 'not loaded'} ({record.suite}, {record.device_name})")


def note(record: Record, baseline: Record | None = None) -> str:
    """Return a record's status where it was not measured, and remarks on its latency; or empty."""
    status = "" if record.status == "measured" else str(record.status)
    why = ": ".join(filter(None, (status, record.reason)))
    over_best = units.over_best(record)
    of_call = (
        f"{over_best}, the best alternative" if over_best else "",
        units.SAME_MEMORY if record.reuses_output else "",
        units.repeats_otherwise(record, baseline),
    )
    spills = most(record, "spills")
    spilled = f"spills {spills} words a thread" if spills else ""
    return clean("; ".join(filter(None, (why, units.remark(record), *of_call, autotuned(record), spilled))))


def most(record: Record, name: str) -> int | None:
    """Return the largest value of an attribute of a record's `kernel_builds`; None where none is known."""
    known = [value for build in record.kernel_builds or () if (value := getattr(build, name)) is not None]
    return max(known, default=None)


def autotuned(record: Record) -> str:
    return f"autotuned {'; '.join(record.autotuned)}" if record.autotuned else ""


_NAMED = 10  # how many cases a line names


def render(
    records: Sequence[Record], output: str, *, problems: Sequence[str] = (), terminal: page.Terminal | None = None
) -> str:
    """Return the records of one run or more in one of `FORMATS`, on stdout's terminal where none is given."""
    # Records come in the order in which implementations were declared, as far as it is known; problems are listed at the end.

    def document() -> dict[str, Any]:
        expanded_records = [expanded(record) for record in records]
        return {"records": expanded_records, "problems": problems, "notes": precision_remark(records)}

    def blocks() -> list[page.Block]:
        notes = [*problems, *load_remarks(records)]
        if left := list(dict.fromkeys(str(record.case) for record in records if record.reason == OUT_OF_BUDGET)):
            more = f" and {len(left) - _NAMED} more, which --format json names" if len(left) > _NAMED else ""
            number = f"{len(left)} case{'' if len(left) == 1 else 's'}, {', '.join(left[:_NAMED])}{more}"
            notes.append(f"skipped, {OUT_OF_BUDGET}, and first in the next run with one: {number}")
        return _blocks(records, notes)

    return page.render_page(output, document, blocks, terminal)


def html_table(records: Sequence[Record], problems: Iterable[str] = ()) -> str:
    return page.to_html(_blocks(records, [*load_remarks(records), *problems]))


def expanded(record: Record) -> dict[str, Any]:
    """Return a record as a dict, with objects where its columns hold JSON."""
    return {**asdict(record), "axes": _object(record.axes), "environment": _object(record.environment)}


def _object(text: str | None) -> object:
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return text


def _blocks(records: Sequence[Record], problems: Sequence[str]) -> list[page.Block]:
    # Records for which a run had no time may be most; they are named in one line.
    tried = ordered(record for record in records if record.reason != OUT_OF_BUDGET)
    rows = [(record, _cells(record)) for record in tried]
    baselines = {(case_of(record), record.mode): record for record in tried if record.role == "baseline"}
    filled = page.filled_columns(COLUMNS, [cells for _, cells in rows])
    several = len({record.device_uuid for record, _ in rows}) > 1
    doubted = any(cells["P50"].endswith("?") for _, cells in rows)

    def legend(layout: page.Layout) -> str:
        shown = {*(column.header for column in layout.widths), *(["?"] if doubted else [])}
        return "; ".join(f"{word}: {meaning}" for word, meaning in MEANINGS.items() if word in shown)

    blocks: list[page.Block] = []
    for _, of_run in itertools.groupby(rows, key=lambda row: row[0].run_id):
        in_run = list(of_run)
        blocks += [page.Line(text=heading(in_run[0][0]), style="dim"), page.BLANK]
        for _, of_operator in itertools.groupby(in_run, key=lambda row: operator_of(row[0])):
            in_operator = list(of_operator)
            entries = [
                _entry(record, cells, baselines.get((case_of(record), record.mode)), several_devices=several)
                for record, cells in in_operator
            ]
            table = page.Grouped(columns=COLUMNS, filled=filled, entries=entries)
            blocks.append(page.Section(title=title(in_operator[0][0]), level=3, blocks=[table]))
            if len(blocks) == 3:  # below the first table alone
                blocks.append(page.Line(text=legend, style="dim", gap=True))
    if any(result_of(record) is not CALL for record in records):  # a CPU has no other latency
        blocks.append(page.Line(text=LEGEND, style="dim"))
    if rows:
        counts = Counter(record.status for record in records)
        text = ", ".join(f"{number} {status}" for status, number in counts.most_common())
        blocks.append(page.Line(text=text, markdown=False))
    blocks += [page.Line(text=line, style="dim") for line in precision_remark(records)]
    blocks.append(page.Line(text=lambda layout: layout.note, style="dim"))
    return [*blocks, page.Items(texts=tuple(problems), mark="", style="yellow", gap=False)]


def _entry(record: Record, cells: dict[str, str], baseline: Record | None, *, several_devices: bool) -> page.Entry:
    known = ", ".join(filter(None, [record.tier, record.device_uuid if several_devices else None]))
    # The key is whole, so that it can be copied into the next command.
    case, remark = clean(f"{record.case or 'no case'}{f' ({known})' if known else ''}"), note(record, baseline)
    style, speedup = "", speedup_of(record)
    if speedup and record.role != "baseline" and not withheld(record.device_kind, record.environment):
        style = "green" if speedup.low > 1 else "red" if speedup.high < 1 else ""
    return page.Entry(
        case=case,
        name=case,
        rows=[(cells, dict.fromkeys(("speedup", "interval"), style))],
        remarks=[remark] if remark else [],
        remark_cell=remark,
        style="red" if Status(record.status).bad else "yellow" if record.reason else "dim",
    )


_SCREEN = 40  # rows beyond which the tables of a run do not fit on a screen
_LISTED = 5


def believed(records: Sequence[Record]) -> Sequence[Record]:
    """Return the records of a run to show: of many on a busy host only those whose latencies are to be believed, and those without one."""
    if len(records) <= _SCREEN:
        return records
    return [one for one in records if one.status != Status.MEASURED or not withheld(one.device_kind, one.environment)]


def fast_p(records: Iterable[Record], suites: Collection[str]) -> list[dict[str, object]]:
    """Return KernelBench's fast_p for the problems among some suites: the share of all cases of a dtype that are right and more than p times as fast."""
    # A case without a right result counts as well. Where a speedup is withheld, as on a busy host, only fast_0 is known.
    cases: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    found: defaultdict[tuple[tuple[str, str, str], str], dict[str, Record]] = defaultdict(dict)
    for record in records:
        if record.suite in suites and record.case and record.mode and record.implementation:
            where = (record.device_name, record.mode, record.dtype or "")
            cases[where].add(record.case)
            right = {record.case: record} if record.status == Status.MEASURED else {}
            found[where, record.implementation].update(right)
    rows: list[dict[str, object]] = []
    for (where, name), over in itertools.product(sorted(found), (BASELINE, "compiled")):
        if name not in (BASELINE, over) and (beside := found.get((where, over))) is not None:
            own, total = found[where, name], len(cases[where])
            speedups = [speedup_over(own[case], beside[case]) for case in own.keys() & beside.keys()]
            known = [one.estimate for one in speedups if one is not None]
            row: dict[str, object] = dict(zip(("device", "mode", "dtype"), where, strict=True))
            row |= {"implementation": name, "over": over, "cases": total, "fast_0": len(own) / total}
            fast = {f"fast_{p}": sum(one > p for one in known) / total for p in (1, 2)}
            rows.append(row | (fast if len(known) == len(speedups) else dict.fromkeys(fast)))
    return rows


def answer(records: Sequence[Record], attention: Iterable[str] = ()) -> list[str]:
    """Return the result of a run of many pairs as a few lines: how many are right, the largest speedups, what needs attention."""
    # Empty where the tables of the run fit on a screen. `attention` are sentences on what needs it beside the records.
    if len(records) <= _SCREEN:
        return []
    tried = [one for one in records if one.role != "baseline" and one.status != Status.SKIPPED]
    pairs = grouped(((*operator_of(record), record.implementation), record) for record in tried)
    wrong = sum(any(Status(one.status).bad for one in several) for several in pairs.values())
    lines = [f"Pairs: {len(pairs) - wrong} of {len(pairs)} are right"]
    best: dict[tuple[object, ...], tuple[float, Record]] = {}
    for record in records:
        # By the lower end of its interval, for what may as well be a loss is no speedup.
        if record.role != "baseline" and (speedup := speedup_of(record)) and speedup.low > 1:
            key = operator_of(record)
            best[key] = max(best.get(key, (0.0, record)), (speedup.low, record), key=lambda pair: pair[0])
    largest = sorted(best.values(), key=lambda pair: -pair[0])[:_LISTED]
    hidden = len(records) - len(believed(records))
    why = max((withheld(one.device_kind, one.environment) or "" for one in records), default="")  # the most cores
    lines += [f"Not shown: {hidden} of {len(records)} rows, for {why} (`pairbench show` has them)"] if hidden else []
    lines += ["Largest speedups:" if largest else "Largest speedups: none that is to be believed"]
    for _, one in largest:
        figure = f"{units.speedup(one)} ({units.speedup_range(one)})"
        mode = "" if one.mode == "eager" else f" ({one.mode})"
        over_best = f"; {beside}" if (beside := units.over_best(one)) else ""
        lines.append(f"  {figure:<24} {clean(f'{one.implementation} of {one.case}{mode}{over_best}')}")
    bad = [one for one in records if Status(one.status).bad]
    needs = [
        *(f"{one.case or one.suite}, {one.implementation or 'not loaded'}: {note(one)}" for one in bad),
        *attention,
    ]
    lines += ["Needs attention:" if needs else "Needs attention: nothing"]
    lines += [f"  {shorten(text, 150)}" for text in needs[:_LISTED]]
    return [*lines, *([f"  and {len(needs) - _LISTED} more"] if len(needs) > _LISTED else [])]
