"""The page of events: a row for each, the newest first, with the commands that measure or judge it again."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jinja2 import Environment

from pairbench.analyze.compare.exact import METRICS
from pairbench.model.comparison import Attribution
from pairbench.model.site import ATTENTION, Event, Moved, RunHead, SiteFacts
from pairbench.report.render import shorten
from pairbench.site.pages import paths
from pairbench.site.pages.event_words import LIFE_MEANS, WINDOWS, Headline, Windows, changes, headline
from pairbench.site.pages.marks import event_spark
from pairbench.site.pages.operator_payload import series_anchor
from pairbench.site.pages.pages import render
from pairbench.site.pages.paths import File

_ISSUE = 10
"""Number of series of a device model that the text for an issue names."""
SHOWN = 200
"""Number of series of an event that its row lists, the largest changes first; runs/ and `compare` have all."""


@dataclass(frozen=True, kw_only=True)
class EventRow:
    """The row of an event."""

    event: Event
    operators: tuple[str, ...]
    owners: tuple[str, ...]
    """Who looks after the operators that moved, as their suites declare."""
    headline: Headline
    windows: tuple[str, ...]
    """Names of the windows that it began or ended in."""
    devices: tuple[str, ...]
    attributions: tuple[str, ...]
    """Causes of the change, the most frequent first; `unknown` where it cannot be attributed."""
    compare: str | None
    ab: str | None
    bisect: str | None
    """The command that finds the commit; None where one commit alone is in question, or `ab` cannot measure them."""
    issue: str
    """Text for an issue about it, in Markdown."""
    text: str
    """Text that the page's filter searches."""


def regressions(env: Environment, facts: SiteFacts) -> File:
    """Return the page of all events."""
    events = facts.events
    rows = event_rows(events, facts)
    return render(
        env,
        "regressions.html.j2",
        paths.REGRESSIONS,
        facts,
        open=[one for one in rows if one.event.open],
        ended=[one for one in rows if not one.event.open and not one.event.accepted],
        accepted=[one for one in rows if one.event.accepted],
        means=LIFE_MEANS,
        changes=changes,
        event_spark=event_spark,
        series_anchor=series_anchor,
        SHOWN=SHOWN,
        choices={
            "window": WINDOWS,
            "device": sorted({part.device_name for event in events for part in event.everywhere}),
            "direction": sorted({event.direction for event in events}),
            "kind": sorted({event.kind for event in events}),
            "outcome": [str(outcome) for outcome in ATTENTION if any(event.worst == outcome for event in events)],
            "attribution": sorted({word for event in events for word in _attributions(event.moved)}),
        },
    )


def event_rows(events: Iterable[Event], facts: SiteFacts) -> list[EventRow]:
    """Return the rows of events, in their order."""
    windows = Windows(facts.runs)
    return [_row(event, windows, facts) for event in events]


def _row(event: Event, windows: Windows, facts: SiteFacts) -> EventRow:
    options = facts.options
    series = [(one.series.suite, one.series.operator) for one in event.moved]
    owners = tuple(dict.fromkeys(facts.owners[one] for one in series if one in facts.owners))
    operators = tuple(dict.fromkeys(one.series.operator for one in event.moved))
    words = [*operators, *dict.fromkeys(one.series.implementation for one in event.moved)]
    devices = tuple(part.device_name for part in event.everywhere)
    runs = [head for head in (event.before, event.after) if head]
    words += [word for head in runs for word in (head.run_id, head.commit, head.branch, head.hostname) if word]
    words += [*owners, *filter(None, (event.after.subject, event.after.author))]
    words += [f"#{event.after.pull_request}"] if event.after.pull_request else []
    return EventRow(
        event=event,
        operators=operators,
        owners=owners,
        headline=headline(event),
        windows=windows.of(event),
        devices=devices,
        attributions=_attributions(event.moved),
        compare=compare_command(event, options),
        ab=ab_command(event),
        bisect=bisect_command(event),
        issue=_issue(event, owners, compare_command(event, options), bisect_command(event) or ab_command(event)),
        text=" ".join(word[:200] for word in [*words, *devices, *event.era])[:4000],
    )


def _issue(event: Event, owners: Sequence[str], *commands: str | None) -> str:
    """Return what somebody who is to look at an event has to know."""
    words = headline(event)
    lines = [
        f"{str(event.worst).capitalize()}: {words.operator} {words.implementation} {', '.join(words.changes)} ({words.cause})",
        "",
    ]
    for part in event.everywhere:
        runs = " to ".join(
            f"{head.run_id} ({(head.commit or 'no commit')[:10]})" for head in (part.before, part.after) if head
        )
        lines.append(f"- {part.device_name}: {runs}, {part.life}")
        lines += [f"  - {one.series.name}: {', '.join(changes(one, part.kind))}" for one in part.moved[:_ISSUE]]
        if len(part.moved) > _ISSUE:
            lines.append(f"  - and {len(part.moved) - _ISSUE:,} more series")
    lines += [f"- newest commit in question: {about}"] if (about := commit_words(event.after)) else []
    lines += [f"- commits in question: {event.commits:,}"] if event.commits else []
    lines += [f"- environment: {', '.join(event.era[:8])}"] if event.era else []
    lines += [f"- owner: {', '.join(owners[:5])}"] if owners else []
    return "\n".join(
        shorten(line, 300) if not line.startswith("  ") else f"  {shorten(line, 300)}"
        for line in [*lines, "", *(f"    {command}" for command in commands if command)]
    )


def commit_words(head: RunHead) -> str:
    """Return subject, pull request and author of a run's commit in words, as far as they were recorded."""
    request = f"#{head.pull_request}" if head.pull_request else ""
    parts = [head.subject or "", request if request not in (head.subject or "") else ""]
    said = " ".join(filter(None, parts))
    return f"{said} by {head.author}".strip() if head.author else said


def compare_command(event: Event, options: Sequence[str] = ()) -> str | None:
    """Return the command that judges the two runs of the store again; None where there is no run before.

    Args:
        event: what happened.
        options: that a command needs to find the store.
    """
    if event.before is None:
        return None
    return shlex.join(["pairbench", "compare", event.before.run_id, event.after.run_id, *options])


def ab_command(event: Event) -> str | None:
    """Return the command that measures the two commits side by side; None where it would not measure what was measured.

    That is where a commit is not known, where both are the same, or where either run had changes that no commit holds.
    """
    runs = (event.before, event.after)
    commits = [head.commit for head in runs if head and head.commit and not head.dirty]
    if len(commits) != 2 or commits[0] == commits[1] or not event.moved:
        return None
    first = event.moved[0].series
    mode = [] if first.mode == "eager" else ["--mode", first.mode]
    # With its suite, for that may be none of those that are taken where none is named.
    return shlex.join(["pairbench", "ab", *commits, *mode, f"{first.suite}::{first.case}"])


def bisect_command(event: Event) -> str | None:
    """Return the command that finds the commit between two runs; None where there is one commit at most, or `ab_command` has none."""
    if ab_command(event) is None or event.before is None or event.commits == 1:
        return None
    first = event.moved[0]
    series, good, bad = first.series, event.before.commit or "", event.after.commit or ""
    mode = [] if series.mode == "eager" else ["--mode", series.mode]
    # What is counted is exact; a latency that moved along follows from it.
    counts = [step.metric for step in first.counts if step.metric in METRICS]
    metric = ["--metric", counts[0].removesuffix("_per_call")] if counts else []
    what = [f"{series.suite}::{series.case}", "-i", series.implementation]
    return shlex.join(["pairbench", "bisect", *what, *mode, *metric, "--good", good, "--bad", bad])


def _attributions(moved: Sequence[Moved]) -> tuple[str, ...]:
    attributions = [str(one.attribution or "unknown") for one in moved]
    known = [*(str(one) for one in Attribution), "unknown"]
    return tuple(sorted(set(attributions), key=lambda word: (-attributions.count(word), known.index(word))))
