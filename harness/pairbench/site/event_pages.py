"""Events for readers: their page, the Atom feed (RFC 4287), and the table of the verb `triage`, which sets their states."""

import datetime as dt
import math
import re
import shlex
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

from pairbench.analyze.compare.exact import METRICS
from pairbench.analyze.history.points import moment_of
from pairbench.config import Config
from pairbench.errors import SelectionError, UsageError
from pairbench.model.comparison import Attribution
from pairbench.model.site import ATTENTION, TRIAGE, Event, Moved, RunHead, SiteFacts, Triage
from pairbench.report import units
from pairbench.report.render import shorten
from pairbench.report.units import listed
from pairbench.site import paths
from pairbench.site.events import TOLD_TOGETHER
from pairbench.site.gather import SiteReading
from pairbench.site.paths import File
from pairbench.site.store_events import by_id
from pairbench.site.templates import render
from pairbench.store.documents import write_document

_TOLD = 2  # number of counts that a headline names
_RUNS, _DAYS = (10, 50), (7, 30)
WINDOWS = {f"{number}r": f"last {number} runs" for number in _RUNS}
WINDOWS |= {f"{number}d": f"{number} days" for number in _DAYS}
"""What a reader may narrow events to, by its name in the address. Days count back from the newest run."""


def headline(event: Event) -> SimpleNamespace:
    """Return the one line of an event: its largest change that is in the state of the whole."""
    first = event.moved[0]
    if event.kind in TOLD_TOGETHER:
        operator, said = first.series.operator, [f"{len(event.moved):,} series"]
        if event.kind == "environment":
            operator = ", ".join(event.era[:2])
            said = [f"{len(event.moved):,} of {event.of:,} series", f"median {units.change(event.median)}"]
        empty = dict.fromkeys(("implementation", "beside", "more", "reason"), "")
        return SimpleNamespace(operator=operator, changes=said, cause=event.kind, **empty)
    others = len(event.moved) - 1
    operators = {one.series.operator for one in event.moved}
    of = f" of {len(operators)} operators" if len(operators) > 1 else ""
    beside = units.change(first.control) if first.size is not None and first.control is not None else ""
    return SimpleNamespace(
        operator=first.series.operator,
        implementation=first.series.implementation,
        changes=changes(first, event.kind),
        beside=f"its control {beside}" if beside else "",
        cause=str(first.attribution or "unknown"),
        more=f"and {others:,} more series{of}" if others else "",
        reason=first.reason if event.kind != "moved" else "",
    )


def changes(moved: Moved, kind: str) -> tuple[str, ...]:
    if kind in ("failed", "new"):
        return (kind,)
    size = (units.change(moved.size),) if moved.size is not None else ()
    counts = counts_in_words(moved)
    more = (f"{len(counts) - _TOLD} more counts",) if len(counts) > _TOLD else ()
    return (*size, *counts[:_TOLD], *more) or ("worse",)


def counts_in_words(moved: Moved) -> tuple[str, ...]:
    ordered = sorted(moved.counts, key=lambda step: units.order(step.metric))
    return tuple(units.count_change(step.metric, step.before, step.after) for step in ordered)


def _windows_of(runs: Sequence[RunHead]) -> dict[tuple[str, str], set[str]]:
    """Return the windows that each of all runs, the newest first, lies in: those of runs are of its device model's, those of days of all."""
    ranks: Counter[str] = Counter()
    newest = moment_of(runs[0].started_at) if runs else None
    windows: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        place, moment = ranks[run.device_name], moment_of(run.started_at)
        ranks[run.device_name] += 1
        age_s = math.inf if newest is None or moment is None else newest - moment
        inside = {f"{number}r" for number in _RUNS if place < number}
        windows[run.run_id, run.device_name] = inside | {f"{days}d" for days in _DAYS if age_s < 86400 * days}
    return windows


_ISSUE = 10  # number of series of a device model that the text for an issue names
SHOWN = 200  # number of series of an event that its row lists, the largest changes first; runs/ and `compare` have all


def regressions(facts: SiteFacts) -> File:
    events = facts.events
    rows = event_rows(events, facts)
    standing: dict[str, Any] = {
        "open": [one for one in rows if one.event.is_new],
        "known": [one for one in rows if one.event.open and not one.event.is_new],
        "ended": [one for one in rows if not one.event.open and not one.event.accepted],
        "accepted": [one for one in rows if one.event.accepted],
    }
    choices = {
        "window": WINDOWS,
        "device": sorted({part.device_name for event in events for part in event.everywhere}),
        **{name: sorted({getattr(event, name) for event in events}) for name in ("direction", "kind")},
        "outcome": [str(outcome) for outcome in ATTENTION if any(event.worst == outcome for event in events)],
        "attribution": sorted({word for event in events for word in _attributions(event.moved)}),
    }
    return render(paths.REGRESSIONS, facts, **standing, changes=changes, SHOWN=SHOWN, choices=choices)


def event_rows(events: Iterable[Event], facts: SiteFacts) -> list[SimpleNamespace]:
    windows = _windows_of(facts.runs)
    return [_row(event, windows, facts) for event in events]


def _row(event: Event, windows: Mapping[tuple[str, str], set[str]], facts: SiteFacts) -> SimpleNamespace:
    series = [(one.series.suite, one.series.operator) for one in event.moved]
    owners = tuple(dict.fromkeys(facts.owners[one] for one in series if one in facts.owners))
    operators = tuple(dict.fromkeys(one.series.operator for one in event.moved))
    commands = {"compare": compare_command(event, facts.options), "ab": ab_command(event)}
    commands |= {"bisect": bisect_command(event)}
    words = [*operators, *dict.fromkeys(one.series.implementation for one in event.moved)]
    devices = tuple(part.device_name for part in event.everywhere)
    # An event is in the windows that it began or ended in, on any device model.
    ends = ((run, part.device_name) for part in event.everywhere for run in (part.after.run_id, part.ended) if run)
    inside = {name for end in ends for name in windows.get(end, ())}
    runs = [head for head in (event.before, event.end) if head]
    words += [word for head in runs for word in (head.run_id, head.commit, head.branch, head.hostname) if word]
    words += [*owners, event.key, event.state, event.triage.note if event.triage else ""]
    if event.blames:
        request = f"#{event.after.pull_request}" if event.after.pull_request else None
        words += filter(None, (event.after.subject, event.after.author, request))
    commands |= {"triage": shlex.join(["pairbench", "triage", event.key, "--state", "investigating", *facts.options])}
    named = {"operators": operators, "owners": owners, "devices": devices, "attributions": _attributions(event.moved)}
    return SimpleNamespace(
        event=event,
        **commands,
        **named,
        headline=headline(event),
        windows=tuple(name for name in WINDOWS if name in inside),
        issue=_issue(event, owners, commands["compare"], commands["bisect"] or commands["ab"]),
        text=" ".join(word[:200] for word in [*words, *devices, *event.era])[:4000],
    )


def _issue(event: Event, owners: Sequence[str], *commands: str | None) -> str:
    words = headline(event)
    what = f"{words.operator} {words.implementation} {', '.join(words.changes)} ({words.cause})"
    lines = [f"{str(event.worst).capitalize()}: {what}", ""]
    for part in event.everywhere:
        heads = filter(None, (part.before, part.end))
        runs = " to ".join(f"{head.run_id} ({(head.commit or 'no commit')[:10]})" for head in heads)
        lines.append(f"- {part.device_name}: {runs}, {part.life}")
        lines += [f"  - {one.series.name}: {', '.join(changes(one, part.kind))}" for one in part.moved[:_ISSUE]]
        if len(part.moved) > _ISSUE:
            lines.append(f"  - and {len(part.moved) - _ISSUE:,} more series")
    facts = {"newest commit in question": _commit_words(event.after) if event.blames else ""}
    facts |= {"commits in question": f"{event.commits:,}" if event.commits else ""}
    facts |= {"environment": ", ".join(event.era[:8]), "owner": ", ".join(owners[:5])}
    lines += [f"- {name}: {text}" for name, text in facts.items() if text]
    lines += ["", *(f"    {command}" for command in commands if command)]
    return "\n".join(f"{'  ' if line.startswith('  ') else ''}{shorten(line, 300)}" for line in lines)


def _commit_words(head: RunHead) -> str:
    request = f"#{head.pull_request}" if head.pull_request else ""
    parts = [head.subject or "", request if request not in (head.subject or "") else ""]
    text = " ".join(filter(None, parts))
    return f"{text} by {head.author}".strip() if head.author else text


def compare_command(event: Event, options: Sequence[str] = ()) -> str | None:
    if event.before is None:
        return None
    return shlex.join(["pairbench", "compare", event.before.run_id, event.end.run_id, *options])


def ab_command(event: Event) -> str | None:
    """Return the command that measures the two commits side by side; None where it would not measure what was measured."""
    # That is where a commit is not known, where both are the same, or where either run had changes that no commit holds.
    runs = (event.before, event.end) if event.kind not in TOLD_TOGETHER else ()
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
    series, commits = first.series, ["--good", event.before.commit or "", "--bad", event.end.commit or ""]
    mode = [] if series.mode == "eager" else ["--mode", series.mode]
    # What is counted is exact; a latency that moved along follows from it.
    counts = [step.metric for step in first.counts if step.metric in METRICS]
    metric = ["--metric", counts[0].removesuffix("_per_call")] if counts else []
    case = [f"{series.suite}::{series.case}", "-i", series.implementation]
    return shlex.join(["pairbench", "bisect", *case, *mode, *metric, *commits])


def _attributions(moved: Sequence[Moved]) -> tuple[str, ...]:
    attributions = [str(one.attribution or "unknown") for one in moved]
    known = [*(str(one) for one in Attribution), "unknown"]
    return tuple(sorted(set(attributions), key=lambda word: (-attributions.count(word), known.index(word))))


FEED = "feed.xml"
_ENTRIES = 100
_MOVED, _TITLED = 20, 3  # number of series that one entry lists, and of operators in its title
_ROOT = uuid.uuid5(uuid.NAMESPACE_URL, "urn:pairbench:site")
_DIRECTIONS = {"both": "slower and faster"}


def feed(facts: SiteFacts, *, address: str | None) -> File:
    """Return feed.xml: the newest 100 events."""
    # An entry's id comes from its event's key alone, so that readers know it again after every build. Its time is that
    # of the first run with the event; the feed's own is that of the newest event, else of the newest run, else 1970.
    base = f"{address.rstrip('/')}/" if address else ""
    events = facts.events[:_ENTRIES]
    times = [_time(event.after.started_at) for event in events] or [_time(run.started_at) for run in facts.runs]
    root = ET.Element("feed", {"xmlns": "http://www.w3.org/2005/Atom"})
    _add(root, "id", _id("feed", base or facts.repository or facts.store))
    _add(root, "title", "pairbench: what moved")
    _add(root, "updated", max(times, default="1970-01-01T00:00:00Z"))
    _add(_add(root, "author"), "name", "pairbench")
    _add(root, "link", rel="alternate", type="text/html", href=base + paths.REGRESSIONS)
    if base:
        _add(root, "link", rel="self", type="application/atom+xml", href=base + FEED)
    for event in events:
        _entry(root, event, base)
    return File(path=FEED, content=bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n")


def _entry(root: ET.Element, event: Event, base: str) -> None:
    entry = _add(root, "entry")
    _add(entry, "id", _id("event", event.key))
    _add(entry, "title", _title(event))
    _add(entry, "updated", _time(event.after.started_at))
    _add(entry, "link", rel="alternate", type="text/html", href=f"{base}{paths.REGRESSIONS}#{paths.anchor(event.key)}")
    for term in dict.fromkeys((str(event.outcome), event.kind, event.standing if not event.open else "open")):
        _add(entry, "category", term=term)
    page = _add(_add(entry, "content", type="xhtml"), "div", xmlns="http://www.w3.org/1999/xhtml")
    _add(page, "p", _between(event))
    if event.blames and (about := _commit_words(event.after)):
        _add(page, "p", f"newest commit in question: {shorten(about, 300)}")
    if event.era:
        _add(page, "p", f"environment changed: {', '.join(shorten(field, 80) for field in event.era[:8])}")
    series = _add(page, "ul")
    for moved in event.moved[:_MOVED]:
        _add(series, "li", _moved_words(moved))
    if len(event.moved) > _MOVED:
        _add(series, "li", f"and {len(event.moved) - _MOVED:,} more series")


def _title(event: Event) -> str:
    names = list(dict.fromkeys(shorten(one.series.operator or one.series.suite, 40) for one in event.moved))
    operators = listed(names, _TITLED)
    devices = " and ".join(shorten(one.device_name, 60) for one in event.everywhere)
    if event.kind in TOLD_TOGETHER:
        words = headline(event)
        return f"{event.kind.capitalize()}: {shorten(words.operator, 120)} on {devices} ({', '.join(words.changes)})"
    largest = units.change(event.moved[0].size) if event.moved else ""
    up_to = "up to " if len(event.moved) > 1 else ""
    sized = f"{len(event.moved):,} series" + (f", {up_to}{largest}" if largest else "")
    direction = _DIRECTIONS.get(event.direction, event.direction)
    suffix = "" if direction == event.outcome else f" {direction}"
    return f"{str(event.outcome).capitalize()}: {operators}{suffix} on {devices} ({sized})"


def _between(event: Event) -> str:
    after = event.end
    runs = [one for one in (event.before, after) if one]
    text = f"{'between runs' if len(runs) > 1 else 'in run'} {' and '.join(shorten(one.run_id, 60) for one in runs)}"
    commits = [shorten(one.commit, 12) for one in runs if one.commit]
    branch = f" of {shorten(after.branch, 60)}" if after.branch else ""
    return f"{text}, commits {'..'.join(commits)}{branch}" if commits else text


def _moved_words(moved: Moved) -> str:
    ends = (moved.before_ns, moved.after_ns)
    latency = "" if None in ends else " -> ".join(map(units.duration, ends))
    control, reason = units.change(moved.control), shorten(moved.reason, 300)
    on_purpose = f"accepted: {shorten(moved.accepted, 300)}" if moved.accepted else ""
    facts = [units.change(moved.size), *counts_in_words(moved), latency, f"control {control}" if control else ""]
    facts += [moved.attribution or "", reason, on_purpose]
    return f"{shorten(moved.series.name, 200)}: {'; '.join(filter(None, facts))}"


def _time(text: str) -> str:
    try:
        time = dt.datetime.fromtimestamp(moment_of(text) or 0.0, dt.UTC)
    except (ValueError, OverflowError):  # no reader takes a feed with another kind of time in it
        time = dt.datetime.fromtimestamp(0.0, dt.UTC)
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _id(*parts: str) -> str:
    return uuid.uuid5(_ROOT, "\0".join(parts).encode(errors="replace").decode()).urn


def _add(parent: ET.Element, tag: str, text: str = "", **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, {name: _allowed(value) for name, value in attributes.items()})
    element.text = _allowed(text) or None
    return element


def _allowed(text: str) -> str:
    """Return text without what XML forbids even escaped: control characters, lone surrogates, U+FFFE and U+FFFF."""
    return re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", text)


Found = tuple[tuple[Event, ...], tuple[str, ...]]  # events of a store, and a sentence for each file that cannot be read


def table_rows(events: Iterable[Event]) -> list[dict[str, str]]:
    rows = []
    for event in events:
        words, said = headline(event), event.triage
        what = " ".join(filter(None, (words.operator, words.implementation, ", ".join(words.changes), words.more)))
        row = {"id": event.key, "state": event.state, "until or url": (said and (said.until or said.url)) or ""}
        row |= {"note": said.note if said else "", "outcome": str(event.worst), "since": event.after.started_at[:10]}
        devices = ", ".join(one.device_name for one in event.everywhere)
        rows.append({**row, "what": what, "devices": devices, "life": event.standing})
    return rows


def stored_events(config: Config, *, ended: bool = False) -> Found:
    """Return the open events of a store, and on request those that ended: new ones first, then the worst, then the newest."""
    reading = SiteReading(config)
    for _ in reading.operators():
        pass  # events of all of them together are known at the end
    chosen = [event for event in reading.facts.events if event.open or ended]
    chosen.sort(key=lambda event: (not event.open, not event.is_new, ATTENTION.index(event.worst)))
    return tuple(chosen), reading.facts.problems


def set_states(
    config: Config, ids: Sequence[str], *, state: str | None, url: str | None, until: str | None, note: str
) -> Found:
    """Set the state of events and return them; an id may be an earlier one, or the address of the event on the site."""
    # Whatever is wrong with the state or one of the ids, nothing is stored.
    if state is None:
        raise UsageError(f"--state is missing, expected one of {', '.join(TRIAGE)}")
    at = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    try:
        asked = Triage(event="", state=state, url=url, until=until, note=note.strip(), at=at)
    except ValueError as error:
        raise UsageError(f"--{error}") from error
    if asked.until is not None and asked.until < at[:10]:
        raise UsageError(f"--until {asked.until!r} has passed, expected today or a later day")
    events, problems = stored_events(config, ended=True)
    meant, chosen = by_id(events), dict[str, Triage]()
    for text in ids:
        named = meant.get(text.rpartition("#")[2].partition("-")[0], ())  # an anchor has a digest behind the id
        if not named:
            raise SelectionError(f"{text!r} is the id of no event of the store; `pairbench triage --all` lists them")
        if len(named) > 1:
            keys = ", ".join(event.key for event in named)
            raise SelectionError(f"{text!r} may be each of {keys}; name one of them")
        chosen[named[0].key] = replace(asked, event=named[0].key)
    for triage in chosen.values():
        write_document(config.store, triage)
    return tuple(replace(one, triage=chosen[one.key]) for one in events if one.key in chosen), problems
