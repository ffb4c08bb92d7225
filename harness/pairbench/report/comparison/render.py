"""A comparison as `pairbench compare` prints it: the overall verdict first, then what is bad, then the rest."""

from collections.abc import Iterator
from typing import Any

from rich.padding import Padding
from rich.text import Text

from pairbench.model.comparison import Change, Comparison, GateOutcome
from pairbench.report.comparison.annotations import annotations
from pairbench.report.comparison.markdown import to_markdown
from pairbench.report.comparison.rows import (
    COLUMNS,
    ComparisonRow,
    Group,
    Section,
    by_case,
    false_alarms,
    rows_of,
    sections,
)
from pairbench.report.comparison.words import (
    OUTCOME_STYLES,
    across,
    eras,
    headline,
    left_out,
    legend,
    name,
    remarks,
    shorten,
    side,
)
from pairbench.report.layout import INDENT, Column, Layout, cells_of
from pairbench.report.render import FORMATS, Terminal, clean, to_json

__all__ = ["annotations", "render_comparison"]

_LISTED = 40
"""Number of undecided changes, and of names below one reason, that a table shows."""


def render_comparison(comparison: Comparison, output: str, *, terminal: Terminal | None = None) -> str:
    """Return a comparison in one of the formats; only JSON has everything.

    Args:
        comparison: the verdicts on all series.
        output: table, markdown (under 65,536 bytes, what GitHub takes as a comment) or json.
        terminal: stdout where not given.
    """
    if output == "json":
        return to_json(document(comparison))
    if output == "markdown":
        return to_markdown(comparison)
    if output != "table":
        raise ValueError(f"format {output!r} is unknown, expected one of {', '.join(FORMATS)}")
    terminal = terminal or Terminal.of_stdout()
    return terminal.paint(*_lines(comparison, terminal.width))


def document(comparison: Comparison) -> dict[str, Any]:
    """Return the JSON document; the floors of a calibration are in the judgements that used them."""
    return {
        "verdict": headline(comparison),
        "outcomes": {outcome.value: comparison.outcomes[outcome] for outcome in GateOutcome},
        "exit_code": comparison.exit_code(),
        "exit_code_strict": comparison.exit_code(strict=True),
        "reference": comparison.reference,
        "current": comparison.current,
        "changes": [{"name": change.series.name, **vars(change)} for change in comparison.changes],
        "calibrations": [
            {**{key: item for key, item in vars(one).items() if key != "floors"}, "n_floors": len(one.floors)}
            for one in comparison.calibrations
        ],
        "false_alarms": false_alarms(comparison),
        "problems": comparison.problems,
    }


def _lines(comparison: Comparison, width: int | None) -> Iterator[Text | Padding]:
    worst = next((outcome for outcome in OUTCOME_STYLES if comparison.outcomes[outcome]), None)
    yield Text(headline(comparison), style=f"bold {OUTCOME_STYLES[worst]}" if worst else "bold")
    yield Text(f"current: {side(comparison.current)}", style="dim")
    yield from (Text(line, style="yellow") for line in (*eras(comparison), *left_out(comparison)))
    yield Text()
    # Where everything is new, the first line is enough.
    everything_new = comparison.outcomes[GateOutcome.NEW] == len(comparison.changes)
    shown_sections = [] if everything_new else sections(comparison)
    rows = [row for section in shown_sections if section.judged for one in _shown(section) for row in rows_of(one)]
    layout = Layout.fit(COLUMNS, [cells_of(COLUMNS, row) for row in rows], width)
    for section in shown_sections:
        yield from _section(section, layout)
        yield Text()
    if any(row.judgement.change is not None for row in rows):
        yield Text(legend(comparison), style="dim")
    yield from (Text(line, style="dim") for line in false_alarms(comparison))
    if layout.note:
        yield Text(layout.note, style="dim")
    yield from (Text(clean(problem), style="yellow") for problem in comparison.problems)


def _shown(section: Section) -> list[Change]:
    """Return the changes of a section that a table has room for: what is bad is never left out."""
    return [change for group in section.groups for change in _some(section, group)]


def _some(section: Section, group: Group) -> list[Change]:
    ordered = [change for _, changes in by_case(group.changes) for change in changes]
    return ordered if section.bad else ordered[:_LISTED]


def _section(section: Section, layout: Layout[ComparisonRow]) -> Iterator[Text | Padding]:
    yield Text(f"{section.title} ({section.size:,})", style="bold")
    if section.judged and _shown(section):
        yield layout.line(lambda column: column.header, lambda _: "dim")
    for group in section.groups:
        if group.heading:
            yield Text(f"  {group.heading}", style="yellow")
        if section.judged:
            yield from _changes(section, group, layout)
        else:
            yield from (
                Text(f"{' ' * INDENT}{shorten(name(one.series), 400)}{across(one)}") for one in group.changes[:_LISTED]
            )
        if not section.bad and len(group.changes) > _LISTED:
            more = len(group.changes) - _LISTED
            yield Text(f"{' ' * INDENT}and {more:,} more; --format json lists them", style="dim")


def _changes(section: Section, group: Group, layout: Layout[ComparisonRow]) -> Iterator[Text | Padding]:
    for case, changes in by_case(_some(section, group)):
        yield Text(f"  {shorten(case, 400)}", style="cyan")
        for change in changes:
            for row in rows_of(change):
                yield _row(row, layout)
            if not rows_of(change):
                yield Text(f"{' ' * INDENT}{shorten(change.series.implementation, 40)} {clean(change.series.mode)}")
            for remark in remarks(change):
                yield Padding(Text(remark, style="dim"), (0, 0, 0, INDENT + 2), expand=False)


def _row(row: ComparisonRow, layout: Layout[ComparisonRow]) -> Text:
    cells = cells_of(COLUMNS, row)

    def style(column: Column[ComparisonRow]) -> str:
        return OUTCOME_STYLES.get(row.judgement.outcome, "") if column.header == "change" else ""

    return layout.line(lambda column: cells[column.header], style)
