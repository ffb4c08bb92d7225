"""A comparison as GitHub workflow commands, which mark a pull request with what went wrong.

The format and its escapes: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from collections.abc import Sequence
from pathlib import PurePosixPath

from pairbench.analyze.compare.latency import suspicious
from pairbench.model.comparison import Change, Comparison, GateOutcome, Verdict
from pairbench.report.comparison import words
from pairbench.report.comparison.rows import by_case, rows_of
from pairbench.report.render import clean

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
