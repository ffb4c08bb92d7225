"""Events of a store: one for each pair of runs between which series moved, joined where device models show the same step."""

import datetime as dt
import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pairbench.analyze.compare.kernels import kernel_changes
from pairbench.analyze.site.series_events import Key, SeriesEvent
from pairbench.model.comparison import Attribution, GateOutcome
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record
from pairbench.model.series import Series
from pairbench.model.site import ATTENTION, LIVES, Event, Moved, RunHead

Heads = Mapping[tuple[str, str], RunHead]
"""What each run is, by run and device model."""


def events_of(several: Iterable[SeriesEvent], heads: Heads) -> tuple[Event, ...]:
    """Return the events that what happened to the series makes up, the newest first.

    Args:
        several: from `series_events`, of as many series as are wanted in the events.
        heads: of all runs; what is between others is left out.
    """
    by_key: defaultdict[Key, list[SeriesEvent]] = defaultdict(list)
    for one in several:
        if (one.key[3], one.key[1]) in heads:
            by_key[one.key].append(one)
    return _newest_first(_event(key, several, heads) for key, several in by_key.items())


def joined(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return events with what is the same step on several device models as one, the newest first.

    It is the same where the code moved the same series the same way, and the commits in question overlap. The device model
    that showed it first names the event, so that it keeps its key when others follow.
    """
    found: list[list[Event]] = []
    for event in sorted(events, key=lambda event: (event.after.started_at, event.key)):
        same = next((several for several in found if _same_step(several, event)), None)
        if same is None:
            found.append([event])
        else:
            same.append(event)
    return _newest_first(replace(first, elsewhere=tuple(others)) for first, *others in found)


def lasting(events: Iterable[SeriesEvent]) -> dict[Series, Moved]:
    """Return of each series the worst that happened to it, is still there, and was not accepted."""
    found: dict[Series, Moved] = {}
    for one in events:
        if one.moved.life == LIVES[0]:
            known = found.get(one.moved.series, one.moved)
            found[one.moved.series] = min(one.moved, known, key=lambda moved: ATTENTION.index(moved.outcome))
    return found


def kernels_wanted(events: Sequence[Event]) -> dict[str, set[Series]]:
    """Return of which runs and series the kernels have to be known to say how they differ."""
    wanted: defaultdict[str, set[Series]] = defaultdict(set)
    for event in (part for whole in events for part in whole.everywhere):
        for run in (event.before, event.after):
            if run is not None and event.kind != "failed":
                wanted[run.run_id] |= {one.series for one in event.moved}
    return dict(wanted)


def with_kernels(event: Event, records: Mapping[tuple[str, Series], Record], policy: Policy = DEFAULT) -> Event:
    """Return an event that says how the kernels of its series differ, as far as records of both its runs are given."""

    def told(one: Moved) -> Moved:
        before = records.get((event.before.run_id, one.series)) if event.before else None
        after = records.get((event.after.run_id, one.series))
        if one.kernels or before is None or after is None:
            return one
        return replace(one, kernels=tuple(map(str, kernel_changes(before, after, policy))))

    others = tuple(with_kernels(other, records, policy) for other in event.elsewhere)
    return replace(event, moved=tuple(map(told, event.moved)), elsewhere=others)


def _newest_first(events: Iterable[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: (event.after.started_at, event.key), reverse=True))


def _event(key: Key, several: Sequence[SeriesEvent], heads: Heads) -> Event:
    kind, device_name, before, after = key
    moved = sorted((one.moved for one in several), key=lambda one: (LIVES.index(one.life), -_size(one), one.series))
    life = moved[0].life
    ends = [one.ended for one in moved if one.ended]
    return Event(
        key=hashlib.sha256("\0".join([kind, device_name, before or "", after]).encode()).hexdigest()[:12],
        kind=kind,
        direction=_direction(kind, moved),
        device_name=device_name,
        before=heads.get((before, device_name)) if before else None,
        after=heads[after, device_name],
        moved=tuple(moved),
        era=tuple(dict.fromkeys(change for one in several for change in one.era)),
        outcome=min((one.outcome for one in moved if one.life == life), key=ATTENTION.index),
        life=life,
        ended=max(ends) if life in ("recovered", "superseded") else None,
    )


def _size(one: Moved) -> float:
    return abs(one.size - 1) if one.size is not None else math.inf


def _way(one: Moved) -> str:
    if one.size is not None:
        return "slower" if one.size > 1 else "faster"
    return "better" if one.outcome is GateOutcome.IMPROVEMENT else "worse"


def _direction(kind: str, moved: Sequence[Moved]) -> str:
    if kind != "moved":  # a newest run is worse also where it became no slower
        return {"failed": "failed"}.get(kind, "worse")
    ways = {_way(one) for one in moved}
    return ways.pop() if len(ways) == 1 else "worse" if ways == {"slower", "worse"} else "both"


def _same_step(several: Sequence[Event], event: Event) -> bool:
    first = several[0]
    return (
        first.kind == event.kind
        and event.device_name not in {one.device_name for one in several}
        and _overlap(first, event)
        and not _by_code(first).isdisjoint(_by_code(event))
    )


def _by_code(event: Event) -> set[tuple[str, ...]]:
    """Return the series that the code moved, without their device model, each with its direction."""
    return {
        (one.series.suite, one.series.case, one.series.implementation, one.series.mode, _way(one))
        for one in event.moved
        if one.attribution is Attribution.CODE
    }


def _overlap(one: Event, other: Event) -> bool:
    """Return whether a commit lies in both ranges, by the moments of the commits."""
    return _moment(one.before) < _moment(other.after) and _moment(other.before) < _moment(one.after)


def _moment(head: RunHead | None) -> float:
    try:
        moment = dt.datetime.fromisoformat((head.commit_at or head.started_at) if head is not None else "")
    except ValueError:
        return -math.inf
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
