"""What `pairbench bisect` prints: the commit that it was, or those that it may be."""

from typing import Any

from pairbench.analyze.history.commits import Bisection, HistoryCommit, Suspect
from pairbench.model.plain import plain
from pairbench.report.comparison.render import document, render_comparison
from pairbench.report.render import clean, render_rows, to_json

_SHOWN = 10
"""Commits that a table has."""


def render_bisection(found: Bisection, output: str) -> str:
    """Return a search in one of the formats."""
    if output == "json":
        return to_json(plain_bisection(found))
    parts = [f"{clean(f'{found.series.name}: {found.ends}')}\n"]
    if found.suspects:
        rows = [_row(one) for one in found.suspects[:_SHOWN]]
        parts.append(render_rows("the most probable commits", rows, output))
    parts.append(f"{clean(_sentence(found))}\n")
    for one in found.skipped:
        log = f" (log: {one.log})" if one.log else ""
        parts.append(f"{clean(f'Skipped: {_named(one.commit)}: {one.reason}{log}')}\n")
    if found.last is not None:
        parts.append(f"\n{render_comparison(found.last, output)}")
    return "".join(parts)


def plain_bisection(found: Bisection) -> dict[str, Any]:
    """Return a search as JSON has it."""
    values = {name: plain(value) for name, value in vars(found).items() if name != "last"}
    return {
        **values,
        "exit_code": found.exit_code,
        "probability": found.probability,
        "last": document(found.last) if found.last else None,
    }


def _sentence(found: Bisection) -> str:
    rounds = (
        f"{found.rounds} round{'' if found.rounds == 1 else 's'} beyond the {found.confirming} of the ends"
        if found.confirming
        else f"{found.rounds + 2} commits counted"
    )
    if not found.moved:
        return "No change is proven between the ends, so there is nothing to look for"
    if not found.found:
        why = "interrupted" if found.interrupted else "not sure enough"
        return f"Not found, {why}: {rounds}, {found.commits} commits"
    if len(found.found) > 1:
        first, last = found.found[0], found.found[-1]
        return (
            f"One of {len(found.found)} commits, {_named(first)} to {_named(last)}, with {_percent(found.probability)}: those before the last "
            f"cannot be measured ({rounds}, {found.commits} commits)"
        )
    sure = f", with {_percent(found.probability)}" if found.confirming else ""
    return f"It was {_named(found.found[0])} by {found.found[0].author}{sure} ({rounds}, {found.commits} commits)"


def _row(one: Suspect) -> dict[str, object]:
    return {
        "commit": one.commit.sha[:10],
        "probability": _percent(one.probability),
        "date": one.commit.committed_at[:10],
        "author": one.commit.author,
        "subject": one.commit.subject,
        "implementation": {None: "", True: "changed", False: "the same"}[one.changed],
        "": "skipped" if one.skipped else "",
    }


def _named(commit: HistoryCommit) -> str:
    return f"{commit.sha[:10]} ({commit.subject})"


def _percent(probability: float) -> str:
    part = 100 * probability
    return f"{part:.1f} %" if part < 99.95 else "> 99.9 %"
