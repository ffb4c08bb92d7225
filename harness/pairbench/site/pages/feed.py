"""The events as an Atom feed: RFC 4287."""

import datetime as dt
import uuid
from xml.etree import ElementTree as ET

from pairbench.model.site import Event, Moved, SiteFacts
from pairbench.report import units
from pairbench.report.render import shorten
from pairbench.site.pages import paths
from pairbench.site.pages.event_words import counts_in_words
from pairbench.site.pages.paths import File
from pairbench.site.pages.regressions import commit_words

PATH = "feed.xml"
_ENTRIES = 100
_MOVED = 20
"""Number of series that one entry lists."""
_NAMED = 3
"""Number of operators in a title."""
_NEVER = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ROOT = uuid.uuid5(uuid.NAMESPACE_URL, "urn:pairbench:site")
_WORDS = {"both": "slower and faster"}


def feed(facts: SiteFacts, *, address: str | None) -> File:
    """Return feed.xml: the newest 100 events.

    An entry's id comes from its event's key alone, so a reader that has seen it knows it again after every build, and
    its time is that of the first run with the event; the feed's own is that of the newest event, without one of the
    newest run, without that 1970.

    Args:
        facts: What every page knows.
        address: Where the site will stand on the web; None leaves links relative to the feed.
    """
    base = f"{address.rstrip('/')}/" if address else ""
    events = facts.events[:_ENTRIES]
    times = [_time(event.after.started_at) for event in events] or [_time(run.started_at) for run in facts.runs]
    root = ET.Element("feed", {"xmlns": "http://www.w3.org/2005/Atom"})
    _add(root, "id", _id("feed", base or facts.repository or facts.store))
    _add(root, "title", "pairbench: what moved")
    _add(root, "updated", _stamp(max(times, default=_NEVER)))
    _add(_add(root, "author"), "name", "pairbench")
    _add(root, "link", rel="alternate", type="text/html", href=base + paths.REGRESSIONS)
    if base:
        _add(root, "link", rel="self", type="application/atom+xml", href=base + PATH)
    for event in events:
        _entry(root, event, base)
    return File(path=PATH, content=bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n")


def _entry(root: ET.Element, event: Event, base: str) -> None:
    entry = _add(root, "entry")
    _add(entry, "id", _id("event", event.key))
    _add(entry, "title", _title(event))
    _add(entry, "updated", _stamp(_time(event.after.started_at)))
    _add(entry, "link", rel="alternate", type="text/html", href=f"{base}{paths.REGRESSIONS}#{paths.anchor(event.key)}")
    for term in dict.fromkeys((str(event.outcome), event.kind, event.standing if not event.open else "open")):
        _add(entry, "category", term=term)
    page = _add(_add(entry, "content", type="xhtml"), "div", xmlns="http://www.w3.org/1999/xhtml")
    _add(page, "p", _between(event))
    if about := commit_words(event.after):
        _add(page, "p", f"newest commit in question: {shorten(about, 300)}")
    if event.era:
        _add(page, "p", f"environment changed: {', '.join(shorten(field, 80) for field in event.era[:8])}")
    series = _add(page, "ul")
    for moved in event.moved[:_MOVED]:
        _add(series, "li", _line(moved))
    if len(event.moved) > _MOVED:
        _add(series, "li", f"and {len(event.moved) - _MOVED:,} more series")


def _title(event: Event) -> str:
    names = list(dict.fromkeys(shorten(one.series.operator or one.series.suite, 40) for one in event.moved))
    operators = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    count = f"{len(event.moved):,} series"
    largest = units.change(event.moved[0].size) if event.moved else ""
    sized = f"{count}, {'up to ' if len(event.moved) > 1 else ''}{largest}" if largest else count
    devices = " and ".join(shorten(one.device_name, 60) for one in event.everywhere)
    direction = _WORDS.get(event.direction, event.direction)
    suffix = "" if direction == event.outcome else f" {direction}"
    return f"{str(event.outcome).capitalize()}: {operators}{suffix} on {devices} ({sized})"


def _between(event: Event) -> str:
    after = event.after
    runs = [one for one in (event.before, after) if one]
    text = f"{'between runs' if len(runs) > 1 else 'in run'} {' and '.join(shorten(one.run_id, 60) for one in runs)}"
    commits = [shorten(one.commit, 12) for one in runs if one.commit]
    branch = f" of {shorten(after.branch, 60)}" if after.branch else ""
    return f"{text}, commits {'..'.join(commits)}{branch}" if commits else text


def _line(moved: Moved) -> str:
    latency = ""
    if moved.before_ns is not None and moved.after_ns is not None:
        latency = f"{units.duration(moved.before_ns)} -> {units.duration(moved.after_ns)}"
    control = units.change(moved.control)
    facts = [
        units.change(moved.size),
        *counts_in_words(moved),
        latency,
        f"control {control}" if control else "",
        moved.attribution or "",
    ]
    facts += [shorten(moved.reason, 300), f"accepted: {shorten(moved.accepted, 300)}" if moved.accepted else ""]
    return f"{shorten(moved.series.name, 200)}: {'; '.join(filter(None, facts))}"


def _time(text: str) -> dt.datetime:
    try:
        time = dt.datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (ValueError, OverflowError):  # no reader takes a feed with another kind of time in it
        return _NEVER


def _stamp(time: dt.datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _id(*parts: str) -> str:
    return uuid.uuid5(_ROOT, "\0".join(parts).encode(errors="replace").decode()).urn


def _add(parent: ET.Element, tag: str, text: str = "", **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, {name: _allowed(value) for name, value in attributes.items()})
    element.text = _allowed(text) or None
    return element


def _allowed(text: str) -> str:
    """Return text without what XML forbids even escaped: control characters, lone surrogates, U+FFFE and U+FFFF."""
    return "".join(
        letter
        for letter in text
        if letter in "\t\n\r" or " " <= letter <= "\ud7ff" or "\ue000" <= letter <= "\ufffd" or letter > "\uffff"
    )
