"""A comparison as `pairbench compare` prints it: the overall verdict first, then what is bad, then the rest.

A comparison as Markdown for a job summary or a comment on a pull request: what is bad in sight, the rest folded.

A comparison as GitHub workflow commands, which mark a pull request with what went wrong.

The format and its escapes: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from rich.padding import Padding
from rich.text import Text

from pairbench.analyze.compare.latency import suspicious
from pairbench.model.comparison import Change, Comparison, GateOutcome, Verdict
from pairbench.report.comparison import words
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

LIMIT = 65_000
"""Most bytes of the text: GitHub takes comments of 65,536 characters."""
_CLOSING = 600
"""Number of bytes kept free for the sentence on what was left out."""


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """Text that is taken whole or left out, with the text that must close it later."""

    text: str
    changes: int = 0
    """Number of changes that the text holds."""
    closing: str = ""


def to_markdown(comparison: Comparison, *, limit: int = LIMIT) -> str:
    """Return a comparison as Markdown of at most so many bytes; the last sentence names what was left out."""
    parts, used, left_out = [], _CLOSING, 0
    footer = _footer(comparison, limit // 4)
    used += _bytes(footer)
    full = False
    for chunks in _chunks(comparison):
        closing = ""
        for chunk in chunks:
            cost = _bytes(chunk.text) + _bytes(chunk.closing)
            if full or used + cost > limit:
                # Once something is left out, all that comes after is, so that no gap goes unnoticed.
                full = True
                left_out += chunk.changes
                continue
            used += cost
            parts.append(chunk.text)
            closing = chunk.closing or closing
        parts.append(closing)
    parts.append(footer)
    if left_out:
        parts.append(
            f"\n{left_out:,} of {len(comparison.changes):,} series are left out for want of space; "
            "the table in the log and `pairbench compare --format json` have them.\n"
        )
    return "".join(parts)


def _chunks(comparison: Comparison) -> Iterator[list[_Chunk]]:
    yield [
        _Chunk(text=f"### pairbench: {markdown_text(words.verdict(comparison.outcomes))}\n\n"),
        _Chunk(
            text=f"Reference: {markdown_text(words.side(comparison.reference))}. "
            f"Current: {markdown_text(words.side(comparison.current))}.\n"
        ),
        *(_Chunk(text=f"\n{markdown_text(line)}\n") for line in (*words.eras(comparison), *words.left_out(comparison))),
    ]
    for section in sections(comparison):
        yield list(_markdown_section(section))


def _markdown_section(section: Section) -> Iterator[_Chunk]:
    if section.bad:
        yield _Chunk(text=f"\n**{section.title} ({section.size:,})**\n")
    else:
        yield _Chunk(
            text=f"\n<details><summary>{section.title} ({section.size:,})</summary>\n", closing="\n</details>\n"
        )
    for group in section.groups:
        if group.heading:
            yield _Chunk(text=f"\n{markdown_text(group.heading)}\n")
        yield from _table(group, remarks=section.title != "Unchanged") if section.judged else _names(group)


def _names(group: Group) -> Iterator[_Chunk]:
    yield _Chunk(text="\n")
    for change in group.changes:
        yield _Chunk(text=f"- {markdown_text(_name(change) + words.across(change))}\n", changes=1)


def _table(group: Group, *, remarks: bool) -> Iterator[_Chunk]:
    changes = [change for _, of_case in by_case(group.changes) for change in of_case]
    cells = {id(change): [cells_of(COLUMNS, row) for row in rows_of(change)] for change in changes}
    columns = [
        column
        for column in telling(COLUMNS, [row for rows in cells.values() for row in rows])
        if column.header not in ("implementation", "mode")
    ]
    names = ["series", *(column.header for column in columns), *(["remarks"] if remarks else [])]
    right = [False, *(column.right for column in columns), *([False] if remarks else [])]
    yield _Chunk(text="\n" + markdown_table(names, [], right=right))
    for change in changes:
        rows = cells[id(change)] or [{column.header: "" for column in columns}]
        lines = [
            [
                "" if index else _name(change),
                *(row[column.header] for column in columns),
                *([_remarks(change) if not index else ""] if remarks else []),
            ]
            for index, row in enumerate(rows)
        ]
        # The first two lines are the head.
        table = markdown_table(names, lines, right=right).split("\n", 2)[2]
        yield _Chunk(text=table, changes=1)


def _remarks(change: Change) -> str:
    return ". ".join(line.rstrip(".") for line in words.remarks(change))


def _name(change: Change) -> str:
    return words.shorten(words.name(change.series), 240)


def _footer(comparison: Comparison, room: int) -> str:
    """Return what the changes are computed from, the false-alarm rates, and what could not be read, in so many bytes."""
    lines = [words.legend(comparison)] if any(change.verdict is not None for change in comparison.changes) else []
    lines = [f"- {markdown_text(line)}\n" for line in (*lines, *false_alarms(comparison))]
    lines += [f"- {markdown_text(words.shorten(problem, 400))}\n" for problem in comparison.problems]
    kept: list[str] = []
    for index, line in enumerate(lines):
        if sum(map(_bytes, kept)) + _bytes(line) > room:
            kept.append(f"- and {len(lines) - index:,} more problems\n")
            break
        kept.append(line)
    return "\n" + "".join(kept) if kept else ""


def _bytes(text: str) -> int:
    return len(text.encode())


_SHOWN = 10
"""Number of annotations of one level that GitHub shows of a step; it drops more without a message."""

_ERRORS = (GateOutcome.FAILED, GateOutcome.REGRESSION)
_WARNINGS = (GateOutcome.UNDECIDED, GateOutcome.MISSING, GateOutcome.INCOMPARABLE)


def annotations(comparison: Comparison) -> str:
    """Return workflow commands, a line each: errors for what fails, warnings for what cannot be decided, and a notice at the end.

    Undecided series are warned of only where they are suspects.
    """
    by_outcome = {
        outcome: [change for change in comparison.changes if change.outcome is outcome] for outcome in GateOutcome
    }
    by_outcome[GateOutcome.UNDECIDED] = [change for change in by_outcome[GateOutcome.UNDECIDED] if is_suspect(change)]
    lines = [
        *_level("error", [change for outcome in _ERRORS for change in _ordered(by_outcome[outcome])]),
        *_level("warning", [change for outcome in _WARNINGS for change in _ordered(by_outcome[outcome])]),
        _command("notice", words.headline(comparison), title="pairbench"),
    ]
    return "".join(f"{line}\n" for line in lines)


def is_suspect(change: Change) -> bool:
    """Return whether an undecided change looks bad: slower without the code as its shown cause, or worse in a metric."""
    return any(
        judgement.outcome is GateOutcome.UNDECIDED
        and (judgement.verdict in (Verdict.SLOWER, None) or suspicious(judgement))
        for judgement in change.judgements
    )


def _ordered(changes: Sequence[Change]) -> list[Change]:
    return [change for _, of_case in by_case(changes) for change in of_case]


def _level(level: str, changes: Sequence[Change]) -> list[str]:
    if len(changes) <= _SHOWN:
        return [_annotation(level, change) for change in changes]
    shown = changes[: _SHOWN - 1]
    rest = f"and {len(changes) - len(shown):,} more: GitHub shows {_SHOWN} of a step; the log has all of them"
    return [*(_annotation(level, change) for change in shown), _command(level, rest, title="pairbench")]


def _annotation(level: str, change: Change) -> str:
    name = words.shorten(words.name(change.series), 300)
    numbers = []
    for row in rows_of(change):
        one = row.judgement
        ends = (words.value(one, one.reference), words.value(one, one.current))
        moved = words.change(one)
        numbers.append(
            words.shorten(
                f"{words.metric(one, of=change)} {' -> '.join(filter(None, ends))}{f' ({moved})' if moved else ''}", 200
            )
        )
    lines = [*numbers, f"attributed to: {change.attribution}" if change.attribution else "", words.era(change.era)]
    message = "\n".join([name, *filter(None, lines), *words.remarks(change)])
    title = f"{change.outcome}: {words.shorten(change.series.operator, 80)} {words.shorten(change.series.implementation, 60)}"
    return _command(level, message, title=title, file=_file(change.series.suite))


def _file(suite: str) -> str:
    """Return the suite's path where it lies in the checkout, for only there can GitHub show it."""
    path = PurePosixPath(clean(suite))
    inside = path.suffix == ".py" and not path.is_absolute() and ".." not in path.parts and len(suite) <= 300
    return str(path) if inside else ""


def _command(level: str, message: str, **properties: str) -> str:
    given = ",".join(f"{key}={_escaped(clean(value), ':,')}" for key, value in properties.items() if value)
    return f"::{level} {given}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    # The percent sign first, for the others bring some.
    for letter in f"%\r\n{more}":
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


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
