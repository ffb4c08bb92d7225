"""The list of breakdowns that were kept, and the page of each: tables that need no script."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment

from pairbench.model.breakdown import Breakdown, KeptBreakdown
from pairbench.model.site import BreakdownHead, SiteFacts
from pairbench.report.breakdown import PROFILED, Rows, sentences, side_by_side, tables, tree_rows
from pairbench.report.site import paths
from pairbench.report.site.pages import render
from pairbench.report.site.stacked_bars import beside_baseline, stacked
from pairbench.report.site.values import File


@dataclass(frozen=True, kw_only=True)
class BreakdownTable:
    """A table as the template writes it."""

    title: str
    columns: tuple[tuple[str, bool], ...]
    """Pairs of a column's name and whether it holds numbers."""
    rows: Rows


def head_of(kept: KeptBreakdown) -> BreakdownHead:
    """Return the entry of a case's breakdowns in the list."""
    return BreakdownHead(
        breakdown_id=kept.breakdown_id,
        made_at=kept.made_at,
        device_name=kept.device_name,
        suite=kept.suite,
        operator=kept.operator,
        case=kept.case,
        entries=tuple(str(part.entry) for part in kept.parts),
    )


def breakdowns(env: Environment, facts: SiteFacts, kept: tuple[KeptBreakdown, ...]) -> Iterator[File]:
    """Yield the list and the pages; nothing where none were kept, for then nothing points at them."""
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
            parts=[(str(part.entry), sentences(part), _tables(part)) for part in one.parts],
            bars=stacked(one.parts),
            beside=beside_baseline(one.parts),
            together=_table("Side by side, in us", side_by_side(one.parts)) if len(one.parts) > 1 else None,
        )


def _tables(part: Breakdown) -> list[BreakdownTable]:
    titled = [("Modules", tree_rows(part)), *tables(part)]
    return [_table(title, rows) for title, rows in titled if rows]


def _table(title: str, rows: Rows) -> BreakdownTable:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = tuple((name, all(_is_number(row.get(name)) for row in rows)) for name in names)
    return BreakdownTable(title=title[:1].upper() + title[1:], columns=columns, rows=rows)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, int | float)
