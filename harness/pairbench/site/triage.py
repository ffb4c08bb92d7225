"""The verb `triage`: events of a store with the states that people set, and setting them."""

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pairbench.config import Config
from pairbench.errors import SelectionError, UsageError
from pairbench.model.site import ATTENTION, TRIAGE, Event, Triage
from pairbench.site.event_pages import headline
from pairbench.site.gather import SiteReading
from pairbench.site.store_events import by_id
from pairbench.store.documents import write_triage

Found = tuple[tuple[Event, ...], tuple[str, ...]]
"""Events of a store, and a sentence for each of its files that cannot be read."""


def table_rows(events: Iterable[Event]) -> list[dict[str, str]]:
    """Return a row of each event, for a table or a program."""
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
    """Set the state of events, and return them; an id may be an earlier one, or the address of the event on the site.

    Raises:
        UsageError: the state is unknown, lacks what it needs, or is of a day that has passed; then nothing is stored.
        SelectionError: an id means no event of the store, or several.
    """
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
        if len(named) != 1:
            several = f"may be each of {', '.join(event.key for event in named)}; name one of them"
            nothing = "is the id of no event of the store; `pairbench triage --all` lists them"
            raise SelectionError(f"{text!r} {several if named else nothing}")
        chosen[named[0].key] = replace(asked, event=named[0].key)
    for triage in chosen.values():
        write_triage(config.store, triage)
    return tuple(replace(one, triage=chosen[one.key]) for one in events if one.key in chosen), problems
