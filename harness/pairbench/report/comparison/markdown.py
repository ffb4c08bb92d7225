"""A comparison as Markdown for a job summary or a comment on a pull request: what is bad in sight, the rest folded."""

from collections.abc import Iterator
from dataclasses import dataclass

from pairbench.model.comparison import Change, Comparison
from pairbench.report.comparison import words
from pairbench.report.comparison.rows import COLUMNS, Group, Section, by_case, false_alarms, rows_of, sections
from pairbench.report.layout import cells_of, telling
from pairbench.report.render import markdown_table, markdown_text

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
        yield list(_section(section))


def _section(section: Section) -> Iterator[_Chunk]:
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
