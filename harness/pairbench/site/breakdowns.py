"""The list of breakdowns that were kept, and the page of each: tables, and a stacked bar for each implementation, without a script."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace

from jinja2 import Environment

from pairbench.features.breakdown.breakdown import PROFILED, Rows, sentences, side_by_side, tables, tree_rows
from pairbench.features.breakdown.summary import by_kind, parts_ns, tree_of
from pairbench.model.breakdown import Breakdown, KeptBreakdown
from pairbench.model.plan import BASELINE
from pairbench.model.site import BreakdownHead, SiteFacts
from pairbench.report import units
from pairbench.site import paths
from pairbench.site.paths import File
from pairbench.site.templates import render

_COLOURS = 8  # number of parts with a colour of their own; the rest of a bar is one part
_REST = "all else"


def stacked(parts: Sequence[Breakdown]) -> tuple[SimpleNamespace, ...]:
    """Return the bars by kind and, where there are modules, by module; nothing where nothing took any time."""
    kinds = _bars("By kind of work", parts, [{row.name: row.ns for row in by_kind(part)} for part in parts])
    modules = _bars("By module", parts, list(map(_modules, parts))) if any(part.modules for part in parts) else None
    return tuple(filter(None, (kinds, modules)))


def beside_baseline(parts: Sequence[Breakdown]) -> tuple[str, ...]:
    """Return for each variant in a sentence how its launches and its time compare with the baseline's in the same mode."""
    sentences = []
    baselines = {part.entry.mode: part for part in reversed(parts) if part.entry.implementation == BASELINE}
    for part in parts:
        base = baselines.get(part.entry.mode, part)
        if part is base:
            continue
        before, after = (sum(piece.launches for piece in side.pieces) + side.graph_launches for side in (base, part))
        then, now = parts_ns(base), parts_ns(part)
        launches = _times(before, after, "many launches", "fewer", f"{before:,} → {after:,}")
        times = f"{units.duration(then)} → {units.duration(now)}"
        sentences.append(f"{part.entry}: {launches}, {_times(then, now, 'much time in kernels', 'less', times)}")
    return tuple(sentences)


def _times(before: float, after: float, much: str, less: str, ends: str) -> str:
    what = much.partition(" ")[2]
    if before == after:
        return f"as {much} ({ends})"
    if not before or not after:
        return f"{what} {ends}"
    ratio = before / after
    return f"{max(ratio, 1 / ratio):.3g}x {less if ratio > 1 else 'more'} {what} ({ends})"


def _modules(part: Breakdown) -> dict[str, float]:
    root = tree_of(part)
    times: defaultdict[str, float] = defaultdict(float)
    for node in root.children:
        times[node.label or "outside of modules"] += node.ns
    rest = root.ns - sum(times.values())
    return {**times, "outside of modules": rest} if rest > 0 else dict(times)


def _bars(title: str, parts: Sequence[Breakdown], tables: Sequence[Mapping[str, float]]) -> SimpleNamespace | None:
    longest = max((sum(table.values()) for table in tables), default=0.0)
    if not longest:
        return None
    names = sorted(
        dict.fromkeys(itertools.chain(*tables)), key=lambda name: -max(table.get(name, 0.0) for table in tables)
    )
    colours = {name: place for place, name in enumerate(names[: _COLOURS - 1])}
    key = [*colours.items(), *([(_REST, _COLOURS - 1)] if len(names) > len(colours) else [])]
    bars = []
    for part, table in zip(parts, tables, strict=True):
        shown = {name: table.get(name, 0.0) for name in colours}
        shown[_REST] = sum(table.values()) - sum(shown.values())
        segments = []
        for name, ns in shown.items():
            if ns > 1e-4 * longest:
                colour, width = colours.get(name, _COLOURS - 1), round(100 * ns / longest, 2)
                segments.append(SimpleNamespace(name=name, colour=colour, width=width, text=units.duration(ns)))
        total = units.duration(sum(table.values()))
        bars.append(SimpleNamespace(name=str(part.entry), total=total, segments=segments))
    return SimpleNamespace(title=title, bars=bars, key=key)


def head_of(kept: KeptBreakdown) -> BreakdownHead:
    names = ("breakdown_id", "made_at", "device_name", "suite", "operator", "case")
    entries = tuple(str(part.entry) for part in kept.parts)
    return BreakdownHead(**{name: getattr(kept, name) for name in names}, entries=entries)


def breakdowns(env: Environment, facts: SiteFacts, kept: tuple[KeptBreakdown, ...]) -> Iterator[File]:
    """Yield the list of breakdowns and a page of each; nothing if none are stored."""
    if not kept:
        return
    yield render(env, "breakdowns.html.j2", paths.BREAKDOWNS, facts)
    for one in kept:
        yield render(
            env,
            "breakdown.html.j2",
            paths.breakdown_page(one.breakdown_id, one.device_name),
            facts,
            kept=one,
            note=PROFILED,
            parts=[
                (
                    str(part.entry),
                    sentences(part),
                    [_table(title, rows) for title, rows in [("Modules", tree_rows(part)), *tables(part)] if rows],
                )
                for part in one.parts
            ],
            bars=stacked(one.parts),
            beside=beside_baseline(one.parts),
            together=_table("Side by side, in us", side_by_side(one.parts)) if len(one.parts) > 1 else None,
        )


def _table(title: str, rows: Rows) -> SimpleNamespace:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = tuple((name, all(isinstance(row.get(name), int | float | None) for row in rows)) for name in names)
    return SimpleNamespace(title=title[:1].upper() + title[1:], columns=columns, rows=rows)
