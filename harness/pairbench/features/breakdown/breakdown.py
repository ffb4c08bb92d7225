"""`pairbench breakdown`: each implementation of a case is profiled in a worker that never times, and its time is shown.

The text is a tree of modules, kinds of work, kernels, and the lines that copy, cast and wait.
"""

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pairbench.config import Config
from pairbench.errors import SelectionError, UsageError
from pairbench.execute.parent.scout import probe_environment
from pairbench.execute.protocol import BreakDownCase
from pairbench.features.breakdown import summary
from pairbench.model.breakdown import Breakdown, CaseBreakdown, Idle, KeptBreakdown, NotInspected
from pairbench.model.plan import PlannedCase
from pairbench.report.render import clean, markdown_text, render_rows, shorten, to_json
from pairbench.report.units import listed, merge_numbered, percent, size
from pairbench.store.documents import write_document
from pairbench.workflow.devices import open_case
from pairbench.workflow.git import read_commit
from pairbench.workflow.setup import stamp

PROFILED = "Times are those of a profiled run: their shares count, and none of them is a latency."
_KERNELS = 12
_SMALL = 0.001  # the part of a call's time below which modules are left out of the table; JSON has them

Rows = list[dict[str, Any]]


def render_breakdown(breakdown: CaseBreakdown, output: str, *, expand: bool = False) -> str:
    if output == "json":
        found = [_plain(part) for part in breakdown.parts]
        return to_json({"breakdown": {**breakdown.named(), "note": PROFILED, "implementations": found}})
    escape = markdown_text if output == "markdown" else clean
    parts = [escape(f"{breakdown.case.key} ({breakdown.operator.suite}, {breakdown.device.name}). {PROFILED}") + "\n"]
    for part in breakdown.parts:
        if isinstance(part, NotInspected):
            parts.append(escape(f"{part.entry}: {part.reason}") + "\n")
            continue
        parts += [render_rows(str(part.entry), tree_rows(part, expand=expand), output)]
        parts += ["\n".join(escape(sentence) for sentence in sentences(part)) + "\n"]
        parts += [render_rows(f"{part.entry}: {title}", rows, output) for title, rows in tables(part)]
    if len(several := [part for part in breakdown.parts if isinstance(part, Breakdown)]) > 1:
        parts.append(render_rows("side by side, in us", side_by_side(several), output))
    return "\n".join(parts)


def tables(part: Breakdown) -> Iterator[tuple[str, Rows]]:
    """Yield the tables below the tree of modules, each with its title."""
    whole, piece = summary.parts_ns(part), "kernel" if part.idle else "operator"

    def spent(row: summary.BreakdownRow) -> dict[str, float | None]:
        return {"share_%": _share(row.ns, whole), "us": _us(row.ns)}

    kinds = summary.by_kind(part)
    yield "kinds of work", [{"kind": row.kind, **spent(row), **_counts(row, part.idle)} for row in kinds]
    kernels, longest = summary.by_kernel(part), []
    for row in kernels[:_KERNELS]:
        name = row.name if len(row.name) <= 90 else f"{row.name[:60]}...{row.name[-27:]}"
        longest.append({piece: name, "kind": row.kind, "count": row.count, **spent(row)})
    yield f"{piece}s{f', {_KERNELS} of {len(kernels)}' if len(kernels) > _KERNELS else ''}", longest
    yield "copies, casts and waits", line_rows(part)


def sentences(part: Breakdown) -> list[str]:
    lines = []
    if part.whole_ns:
        whole = "the time that the device was busy" if part.idle else "the host's clock around the call"
        doubt = "more means that kernels ran side by side" if part.idle else "the rest is in no operator of this thread"
        sum_ = f"The parts add up to {percent(summary.parts_ns(part) / part.whole_ns)} of {whole}"
        lines.append(f"{sum_}." if summary.agrees(part) else f"{sum_}; {doubt}.")
    if (unknown := summary.unknown_part(part)) > 0:
        lines.append(f"Of {percent(unknown)} it is not known which module launched it.")
    if idle := part.idle:
        starved, waited = (ns / (idle.span_ns or math.inf) for ns in (idle.starved_ns, idle.after_sync_ns))
        lines.append(
            f"Launch-bound: {percent(starved)} of the time from the first to the last kernel the device had nothing to do while the "
            f"host was enqueuing ({percent(waited)} after a wait for the device). "
            "The profiler slows the host, so this is an upper limit."
        )
    if rest := sum(wait.count for wait in part.waits if wait.spot is None):
        lines.append(f"{rest} waits for the device in the trace belong to no line that is known.")
    if part.calls > 1:
        lines.append(f"This is the quickest of {part.calls} recorded calls.")
    return lines + list(part.notes)


def tree_rows(part: Breakdown, *, expand: bool = False) -> Rows:
    root = summary.tree_of(part, alike_together=not expand)

    def rows(node: summary.Node, depth: int) -> Iterator[dict[str, Any]]:
        kinds = sorted(node.kinds.items(), key=lambda item: -item[1])[:3]
        parts = (f"{kind} {percent(ns / node.ns)}" for kind, ns in kinds if node.ns and ns / node.ns >= 0.01)
        yield {
            # Spaces in front of a cell would be lost.
            "module": "· " * depth + node.label,
            "class": node.class_name,
            "calls": node.calls or None,
            "share_%": _share(node.ns, root.ns),
            "own_%": _share(node.own_ns, root.ns),
            "us": _us(node.ns),
            **_counts(node, part.idle),
            "mostly": ", ".join(parts),
        }
        for child in node.children:
            if not root.ns or child.ns / root.ns >= _SMALL:
                yield from rows(child, depth + 1)

    return list(rows(root, 0))


def _counts(row: summary.Node | summary.BreakdownRow, idle: Idle | None) -> dict[str, int]:
    return {"kernels": row.count, "launches": row.launches} if idle else {"operators": row.count}


def line_rows(part: Breakdown) -> Rows:
    whole = summary.parts_ns(part)
    several = any(spot.called_from for spot in part.spots)
    return [
        {
            "what": item.spot.what,
            "from_to": item.spot.detail,
            "line": f"{item.spot.file}:{item.spot.line}" if item.spot.file else "",
            **({"called_from": item.spot.called_from} if several else {}),
            "code": shorten(item.spot.code, 80),
            "module": listed(merge_numbered(item.spot.modules), 2),
            "count": item.spot.count,
            "bytes": size(item.spot.bytes) if item.spot.bytes else "",
            "share_%": None if item.ns is None else _share(item.ns, whole),
        }
        for item in summary.by_line(part)
    ]


def side_by_side(parts: Sequence[Breakdown]) -> Rows:
    tables = {str(part.entry): {row.kind: row.ns for row in summary.by_kind(part)} for part in parts}
    known = {kind for table in tables.values() for kind in table}
    kinds = sorted(known, key=lambda kind: -max(table.get(kind, 0.0) for table in tables.values()))
    rows: Rows = [{"kind": kind, **{name: _us(table.get(kind, 0)) for name, table in tables.items()}} for kind in kinds]
    rows.append({"kind": "sum", **{name: _us(sum(table.values())) for name, table in tables.items()}})
    return rows


def _plain(part: Breakdown | NotInspected) -> dict[str, Any]:
    entry = {"implementation": part.entry.implementation, "mode": part.entry.mode}
    if isinstance(part, NotInspected):
        return {**entry, "reason": part.reason}
    return {
        **entry,
        "recorded_calls": part.calls,
        "parts_ns": summary.parts_ns(part),
        "whole_ns": part.whole_ns,
        "off_by": summary.off_by(part),
        "unknown_part": summary.unknown_part(part),
        "graph_launches": part.graph_launches,
        "idle": part.idle,
        "modules": summary.tree_of(part, alike_together=False),
        "kinds": summary.by_kind(part),
        "kernels": summary.by_kernel(part),
        "lines": summary.by_line(part),
        "waits": part.waits,
        "notes": part.notes,
    }


def _share(ns: float, whole: float) -> float | None:
    return round(100 * ns / whole, 1) if whole else None


def _us(ns: float) -> float:
    return round(ns / 1e3, 1)


def break_down(
    config: Config, operator: str, case: str | None, device: str, wanted: list[str], *, trace: Path | None, keep: bool
) -> tuple[CaseBreakdown, str | None]:
    """Return the breakdown of some implementations of one case, and the path under which the store keeps it, if `keep`."""
    with open_case(config, operator, case, device) as whole:
        names = _names(whole.planned, wanted)
        one = whole.only(tuple(entry for entry in whole.planned.entries if entry.implementation in names))
        if trace and len(names) > 1:
            raise UsageError(f"--trace takes one implementation at a time, got {', '.join(names)}")
        if trace and not trace.resolve().parent.is_dir():
            raise UsageError(f"--trace {str(trace)!r}: its folder does not exist")
        planned = one.planned
        left_out, job = planned.skipped | planned.untimed, partial(BreakDownCase, trace=trace and trace.resolve())
        parts: list[Breakdown | NotInspected] = one.inspect("breakdown", left_out, job)
        made = CaseBreakdown(operator=planned.operator, case=planned.case, device=one.device, parts=tuple(parts))
        whole_parts = tuple(part for part in parts if isinstance(part, Breakdown))
        if not keep or not whole_parts:
            return made, None
        environment = probe_environment(one.request.context, one.device)
        commit = read_commit(Path(planned.operator.path).parent)
        now = dt.datetime.now(dt.UTC)
        named = ("driver", "cuda", "cudnn", "torch", "triton", "python")
        kept = KeptBreakdown(
            breakdown_id=stamp(now),
            made_at=now.isoformat(timespec="milliseconds"),
            device_name=one.device.name,
            environment_hash=environment.hash,
            versions={name: version for name in named if (version := getattr(environment, name))},
            commit=commit.sha if commit else None,
            suite=planned.operator.suite,
            operator=planned.operator.name,
            case=planned.case.key,
            parts=whole_parts,
        )
        return made, write_document(config.store, kept)


def _names(planned: PlannedCase, wanted: Sequence[str]) -> tuple[str, ...]:
    known = tuple(entry.implementation for entry in planned.entries)
    if "all" in wanted:
        return known
    if unknown := [name for name in wanted if name not in known]:
        expected = f"expected one of {', '.join(known)}, or all"
        raise SelectionError(f"{planned.operator.name} has no implementation {unknown[0]!r}, {expected}")
    return tuple(dict.fromkeys(wanted))
