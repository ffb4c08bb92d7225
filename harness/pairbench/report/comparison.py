"""A comparison as `pairbench compare` prints it: the overall verdict first, then what is bad, then the rest.

Annotations are workflow commands of GitHub, which mark a pull request with what went wrong. The commands and their escapes:
https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from pairbench.analyze.compare.latency import suspicious
from pairbench.model.comparison import Calibration, Change, Comparison, GateOutcome, Judgement, Verdict, moves_of
from pairbench.model.plain import grouped
from pairbench.model.record import HOST
from pairbench.report import comparison_words as words
from pairbench.report import render as page
from pairbench.report import units
from pairbench.report.comparison_words import OUTCOME_STYLES
from pairbench.report.render import Column, clean, shorten
from pairbench.stats import upper_bound

_FEW = 15  # number of unchanged series up to which they are listed rather than counted

_BAD = (GateOutcome.FAILED, GateOutcome.REGRESSION)
_MOVED = (*_BAD, GateOutcome.IMPROVEMENT)


class _Row(NamedTuple):
    change: Change
    judgement: Judgement
    first: bool  # whether the row is the first of its change, and so has the cells that hold for all of its rows


class _Outcome(NamedTuple):
    """The changes of one outcome, in groups under headings that may be empty."""

    title: str
    groups: list[tuple[str, list[Change]]]
    bad: bool = False
    judged: bool = True  # whether there are numbers to show; otherwise names stand under their reason


def _first(text: Callable[[_Row], str]) -> Callable[[_Row], str]:
    return lambda row: text(row) if row.first else ""


_COLUMNS: tuple[Column[_Row], ...] = (
    Column("implementation", _first(lambda row: shorten(row.change.series.implementation, 40)), right=False),
    Column("mode", _first(lambda row: row.change.series.mode), right=False, usual="eager"),
    Column("metric", lambda row: words.metric(row.judgement, of=row.change), right=False, usual="P50"),
    Column("reference", lambda row: shorten(words.value(row.judgement, row.judgement.reference), 40), drop=2),
    Column("current", lambda row: shorten(words.value(row.judgement, row.judgement.current), 40)),
    Column("change", lambda row: words.change(row.judgement)),
    Column("interval", lambda row: units.between(row.judgement.change, units.change), drop=4),
    Column("minimum", lambda row: units.percent(row.judgement.minimum_effect), drop=5),
    Column("floor", lambda row: units.percent(row.judgement.floor), drop=6),
    Column("control", _first(lambda row: units.change(row.change.control and row.change.control.estimate)), drop=3),
    Column("attribution", _first(lambda row: row.change.attribution or ""), right=False, drop=1),
)


def _rows_of(change: Change) -> list[_Row]:
    """Return the rows of a change: the metric that decided, the median, and every other metric that moved."""
    # A time of the host has its row even where it is not judged, if its whole interval lies on one side of 1.
    chosen = []
    for index, judgement in enumerate(change.judgements):
        interval = judgement.change if judgement.metric == HOST.p50 else None
        host_moved = interval is not None and (interval.low > 1 or interval.high < 1)
        if index == 0 or judgement is change.p50 or judgement.outcome in _MOVED or host_moved:
            chosen.append(judgement)
    return [_Row(change, judgement, not index) for index, judgement in enumerate(chosen)]


_TITLES: dict[GateOutcome | None, str] = {
    GateOutcome.FAILED: "Failed",
    GateOutcome.REGRESSION: "Regressions",
    GateOutcome.IMPROVEMENT: "Improvements",
    None: "Accepted on purpose",
    **{outcome: outcome.capitalize() for outcome in map(GateOutcome, ("undecided", "missing", "incomparable", "new"))},
    GateOutcome.UNCHANGED: "Unchanged",
}


def _outcomes(comparison: Comparison) -> list[_Outcome]:
    """Return the outcomes that some change has, the bad first; many unchanged series are left out."""
    by_outcome: dict[GateOutcome | None, list[Change]] = {outcome: [] for outcome in _TITLES}
    for change in comparison.changes:
        on_purpose = change.accepted is not None and change.outcome is GateOutcome.UNCHANGED
        by_outcome[None if on_purpose else change.outcome].append(change)
    if len(by_outcome[GateOutcome.UNCHANGED]) > _FEW:
        by_outcome[GateOutcome.UNCHANGED] = []
    # Where all that was judged met the same change of environment, the head says it once.
    alike = len({change.era for change in comparison.changes if change.judgements}) < 2

    def era(change: Change) -> str:
        return "" if alike else words.era(change.era)

    sections = []
    for outcome, changes in by_outcome.items():
        judged = outcome not in (GateOutcome.MISSING, GateOutcome.INCOMPARABLE, GateOutcome.NEW)
        if judged:  # those in the same environment first, the others below what changed in theirs
            groups = [(heading, list(those)) for heading, those in groupby(sorted(changes, key=era), key=era)]
        else:
            in_order = sorted(changes, key=lambda change: change.series)
            by_reason = grouped((shorten(change.reason, 400), change) for change in in_order)
            groups = sorted(by_reason.items(), key=lambda item: -len(item[1]))
        sections.append(_Outcome(_TITLES[outcome], groups, outcome in _BAD, judged))
    return [section for section in sections if section.groups]


def false_alarms(comparison: Comparison) -> list[str]:
    if not comparison.current.runs:
        return []  # measured interleaved, where false-alarm rates differ
    known = {calibration.device_name: calibration for calibration in comparison.calibrations}
    devices = sorted({change.series.device_name for change in comparison.changes} | known.keys())
    unknown = "none known, it was never calibrated; `pairbench calibrate` measures them"
    return [
        measured(known[name]) if name in known else shorten(f"measured false alarms on {name}: {unknown}", 300)
        for name in devices
    ]


def _by_case(changes: Iterable[Change]) -> list[tuple[str, Change]]:
    """Return changes with their cases; a case comes as early as its largest change."""
    cases: dict[str, list[Change]] = {}
    for change in sorted(changes, key=_size):
        series = change.series
        name = f"{series.suite}{'::' if series.case else ''}{series.case} ({series.device_name})"
        cases.setdefault(name, []).append(change)
    return [(name, change) for name, several in cases.items() for change in several]


def _size(change: Change) -> tuple[float, str, str]:
    """Return a sort key: what was judged exactly first, then latencies by how far they moved."""
    moved = change.judgements[0].change if change.judgements else None
    size = math.inf
    if moved is not None:
        size = abs(math.log(moved.estimate)) if 0 < moved.estimate < math.inf else 0.0
    return -size, change.series.name, change.series.device_name


def measured(calibration: Calibration) -> str:
    judged, alarms = calibration.judged, calibration.alarms
    known = f"{alarms:,} of {judged:,}"
    if 0 <= alarms <= judged and judged:
        known += f" (<= {units.percent(upper_bound(alarms, judged))})"
    runs = len(calibration.runs)
    made = f"{calibration.made_at[:10]}, {runs} run{'' if runs == 1 else 's'}"
    return shorten(f"measured false alarms on {calibration.device_name}: {known}, {made}", 300)


LIMIT = 65_000  # most bytes of Markdown: GitHub takes comments of 65,536 characters
_CLOSING = 600  # number of bytes kept free for the sentence on what was left out
_LISTED = 40  # number of changes of one group that a terminal shows, unless they are bad


def render_comparison(comparison: Comparison, output: str, *, terminal: page.Terminal | None = None) -> str:
    """Return a comparison in one of `FORMATS`, on stdout's terminal where none is given."""
    # Only JSON has everything; Markdown has less than 65,536 bytes, which GitHub takes as a comment.
    if output == "markdown":
        return to_markdown(comparison)
    return page.render_page(output, lambda: document(comparison), lambda: _blocks(comparison), terminal)


def document(comparison: Comparison) -> dict[str, Any]:
    """Return the JSON document; the floors of a calibration are in the judgements that used them."""
    outcomes = {outcome.value: comparison.outcomes[outcome] for outcome in GateOutcome}
    whole: dict[str, Any] = {"verdict": words.headline(comparison), "outcomes": outcomes}
    whole |= {"moves": moves_of(comparison.changes), "exit_code": comparison.exit_code()}
    whole |= {"exit_code_strict": comparison.exit_code(strict=True)}
    whole |= {"reference": comparison.reference, "current": comparison.current}
    whole["changes"] = [{"name": change.series.name, **vars(change)} for change in comparison.changes]
    whole["calibrations"] = [
        {**{key: item for key, item in vars(one).items() if key != "floors"}, "n_floors": len(one.floors)}
        for one in comparison.calibrations
    ]
    return whole | {"false_alarms": false_alarms(comparison), "problems": comparison.problems}


def _blocks(comparison: Comparison) -> list[page.Block]:
    worst = next((outcome for outcome in OUTCOME_STYLES if comparison.outcomes[outcome]), None)
    # Where everything is new, the first line is enough.
    everything_new = comparison.outcomes[GateOutcome.NEW] == len(comparison.changes)
    outcomes = [] if everything_new else _outcomes(comparison)
    shown = [change for one in outcomes if one.judged for _, changes in one.groups for change in _listed(one, changes)]
    has_change = any(row.judgement.change for change in shown for row in _rows_of(change))
    notes = [words.legend(comparison)] if has_change else []
    warned = (*words.eras(comparison.changes), *words.left_out(comparison))
    return [
        page.Line(text=words.headline(comparison), style=f"bold {OUTCOME_STYLES[worst]}" if worst else "bold"),
        *(page.Line(text=f"  {line}") for line in words.moves(comparison.changes)),
        page.Line(text=f"current: {words.side(comparison.current)}", style="dim"),
        *(page.Line(text=line, style="yellow") for line in warned),
        page.BLANK,
        *(_section(one, _LISTED) for one in outcomes),
        *(page.Line(text=line, style="dim") for line in (*notes, *false_alarms(comparison))),
        page.Line(text=lambda layout: layout.note, style="dim"),
        page.Items(texts=comparison.problems, mark="", style="yellow", gap=False),
    ]


def to_markdown(comparison: Comparison, *, limit: int = LIMIT) -> str:
    """Return a comparison as Markdown of at most so many bytes; the last sentence names what was left out."""
    footer = _footer(comparison, limit // 4)
    sides = f"Reference: {words.side(comparison.reference)}. Current: {words.side(comparison.current)}."
    head = [sides, *words.eras(comparison.changes), *words.left_out(comparison)]
    blocks: list[page.Block] = [
        page.Heading(text=f"pairbench: {words.verdict(comparison.outcomes)}", level=3),
        page.Items(texts=tuple(words.moves(comparison.changes))),
        *(page.Line(text=line) for line in head),
        *(_section(one, None) for one in _outcomes(comparison)),
    ]
    text, left_out = page.fit_bytes(blocks, limit - _CLOSING - len(footer.encode()))
    if left_out:
        known = f"{left_out:,} of {len(comparison.changes):,} series are left out for want of space"
        footer += f"\n{known}; the table in the log and `pairbench compare --format json` have them.\n"
    return text + footer


def _footer(comparison: Comparison, room: int) -> str:
    """Return what the changes are computed from, the false-alarm rates, and what could not be read, in so many bytes."""
    notes = [words.legend(comparison)] if any(change.verdict is not None for change in comparison.changes) else []
    notes += [*false_alarms(comparison), *(shorten(problem, 400) for problem in comparison.problems)]
    text, left_out = page.fit_bytes([page.Items(texts=tuple(notes))], room)
    rest = f"- and {left_out:,} more problems\n" if left_out else ""
    return f"\n{text}{rest}" if notes else ""


def _section(outcome: _Outcome, most: int | None) -> page.Section:
    """Return the changes of an outcome: all, or so many of each group on a terminal."""
    blocks: list[page.Block] = []
    for heading, changes in outcome.groups:
        shown = changes if most is None else _listed(outcome, changes)
        blocks += [page.Line(text=f"  {heading}", style="yellow")] if heading else []
        if outcome.judged:
            entries = [_entry(case, change) for case, change in _by_case(shown)]
            filled = page.filled_columns(_COLUMNS, [cells for entry in entries for cells, _ in entry.rows])
            filled = [column for column in filled if column.header not in ("implementation", "mode")]
            remarks = outcome.title != "Unchanged"
            table = page.Grouped(columns=_COLUMNS, entries=entries, filled=filled, head="series", remarks=remarks)
            blocks.append(table)
        else:
            width = 240 if most is None else 400
            names = (f"{shorten(words.name(one.series), width)}{words.across(one)}" for one in shown)
            blocks.append(page.Items(texts=tuple(names), mark=" " * page.INDENT, gap=False))
        if more := len(changes) - len(shown):
            text = f"{' ' * page.INDENT}and {more:,} more; --format json lists them"
            blocks.append(page.Line(text=text, style="dim"))
    size = sum(len(changes) for _, changes in outcome.groups)
    return page.Section(title=f"{outcome.title} ({size:,})", blocks=blocks, folded=not outcome.bad)


def _listed(outcome: _Outcome, changes: Sequence[Change]) -> list[Change]:
    """Return the changes of a group that a terminal has room for: what is bad is never left out."""
    ordered = [change for _, change in _by_case(changes)] if outcome.judged else list(changes)
    return ordered if outcome.bad else ordered[:_LISTED]


def _entry(case: str, change: Change) -> page.Entry:
    remarks, series = words.remarks(change), change.series
    styles = [{"change": OUTCOME_STYLES.get(row.judgement.outcome, "")} for row in _rows_of(change)]
    return page.Entry(
        case=shorten(case, 400),
        name=shorten(words.name(series), 240),
        rows=list(zip([page.cells_of(_COLUMNS, row) for row in _rows_of(change)], styles, strict=True)),
        without=f"{shorten(series.implementation, 40)} {clean(series.mode)}",
        remarks=remarks,
        remark_cell=". ".join(line.rstrip(".") for line in remarks),
    )


_SHOWN = 10  # number of annotations of one level that GitHub shows of a step; it drops more without a message
_WARNINGS = (GateOutcome.UNDECIDED, GateOutcome.MISSING, GateOutcome.INCOMPARABLE)


def annotations(comparison: Comparison) -> str:
    """Return workflow commands, a line each: errors for what fails, warnings for what cannot be decided, and a notice at the end."""
    # Undecided series are warned of only where they are suspects.
    lines = []
    for level, outcomes in (("error", _BAD), ("warning", _WARNINGS)):
        chosen = [
            change
            for outcome in outcomes
            for _, change in _by_case(one for one in comparison.changes if one.outcome is outcome)
            if outcome is not GateOutcome.UNDECIDED or _is_suspect(change)
        ]
        shown = chosen if len(chosen) <= _SHOWN else chosen[: _SHOWN - 1]
        lines += [_annotation(level, change) for change in shown]
        if more := len(chosen) - len(shown):
            rest = f"and {more:,} more: GitHub shows {_SHOWN} of a step; the log has all of them"
            lines.append(_command(level, rest, title="pairbench"))
    lines.append(_command("notice", words.headline(comparison), title="pairbench"))
    return "".join(f"{line}\n" for line in lines)


def _is_suspect(change: Change) -> bool:
    """Return whether an undecided change looks bad: slower without the code as its shown cause, or worse in a metric."""
    undecided = (one for one in change.judgements if one.outcome is GateOutcome.UNDECIDED)
    return any(one.verdict in (Verdict.SLOWER, None) or suspicious(one) for one in undecided)


def _annotation(level: str, change: Change) -> str:
    name = shorten(words.name(change.series), 300)
    numbers = []
    for _, judgement, _ in _rows_of(change):
        ends = filter(None, (words.value(judgement, side) for side in (judgement.reference, judgement.current)))
        moved = f" ({moved})" if (moved := words.change(judgement)) else ""
        numbers.append(shorten(f"{words.metric(judgement, of=change)} {' -> '.join(ends)}{moved}", 200))
    lines = [*numbers, f"attributed to: {change.attribution}" if change.attribution else "", words.era(change.era)]
    message = "\n".join([name, *filter(None, lines), *words.remarks(change)])
    title = f"{change.outcome}: {shorten(change.series.operator, 80)} {shorten(change.series.implementation, 60)}"
    path = PurePosixPath(clean(change.series.suite))  # only in the checkout can GitHub show the suite
    inside = path.suffix == ".py" and not path.is_absolute() and ".." not in path.parts and len(str(path)) <= 300
    return _command(level, message, title=title, file=str(path) if inside else "")


def _command(level: str, message: str, **properties: str) -> str:
    given = ",".join(f"{key}={_escaped(clean(value), ':,')}" for key, value in properties.items() if value)
    return f"::{level} {given}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    for letter in f"%\r\n{more}":  # the percent sign first, for the others bring some
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text
