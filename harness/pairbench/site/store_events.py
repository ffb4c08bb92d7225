"""Events of many series at once, a change of the environment of a device model and a new operator, and the states that people set.

Nobody is to blame for the former, and after some runs they are noted and no longer open.
"""

import datetime as dt
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import NamedTuple

from pairbench.analyze.history.trend import Trend
from pairbench.model.comparison import DEFAULT, Attribution, GateOutcome
from pairbench.model.plain import grouped
from pairbench.model.record import Series
from pairbench.model.site import TRIAGE, Event, Moved, RunHead, Triage
from pairbench.site.events import Heads, Measured, RunKey, id_of, runs_by_device

_OPEN = 8  # the runs of a device model for which such an event is open
_LEAST = 3  # the fewest values before a change of environment that say how far a series spreads
_SPREADS = 3.0
"""The spreads of a series, as the median difference of its neighbouring runs, that the median of all has to be beyond."""


_OUTCOMES = {True: GateOutcome.UNDECIDED, False: GateOutcome.IMPROVEMENT}  # by whether it became slower


class Shift(NamedTuple):
    """What a series did where the environment changed: `log` is the shift in log units, and `spread` the series' own before it."""

    run_id: str  # the first run after
    era: tuple[str, ...]
    moved: Moved
    log: float
    spread: float
    found: bool  # whether a changepoint says so


def shifts_of(trend: Trend) -> Iterator[Shift]:
    points, (line, _) = trend.points, trend.points.lines
    places = {*(era.index for era in trend.eras), *(move.index for move in trend.moves), *trend.definitions}
    ends = sorted({0, len(points), *places})
    for era in trend.eras:
        if era.index in trend.definitions:
            continue
        at = ends.index(era.index)
        begin, end = max(ends[at - 1], era.index - 2 * _OPEN), min(ends[at + 1], era.index + _OPEN)
        before = [value for value in line[begin : era.index].tolist() if not math.isnan(value)]
        after = [value for value in line[era.index : end].tolist() if not math.isnan(value)]
        if len(before) < _LEAST or not after:
            continue
        levels = median(before), median(after)
        shift, cause = levels[1] - levels[0], Attribution.ENVIRONMENT
        found = [one for one in trend.moves if one.index == era.index and one.attribution is cause]
        outcome, reason = _OUTCOMES[shift > 0], found[0].reason if found else ""
        moved = Moved(series=trend.series, outcome=outcome, attribution=cause, change=math.exp(shift), reason=reason)
        moved = replace(moved, before_ns=math.exp(levels[0]), after_ns=math.exp(levels[1]))
        spread = median(abs(now - then) for then, now in itertools.pairwise(before))
        run_id = points[era.index].record.run_id
        yield Shift(run_id, tuple(map(str, era.changes)), moved, shift, spread, bool(found))


def environment_events(shifts: Iterable[Shift], heads: Heads) -> Iterator[Event]:
    """Yield one event for each change of environment that moved series: where a changepoint was found, or most moved alike."""
    # A run that returns to the environment of one of the eight runs before it is no such change.
    least = math.log1p(DEFAULT.minimum_effect) / 2
    by_device = runs_by_device(heads)
    by_run = grouped(((shift.run_id, shift.moved.series.device_name), shift) for shift in shifts)
    for (run_id, device_name), together in sorted(by_run.items()):
        runs = by_device[device_name]
        place = [one.run_id for one in runs].index(run_id)
        earlier = {head.environment_hash for head in runs[max(0, place - _OPEN) : place]}
        middle = median(shift.log for shift in together)
        beyond = max(least, _SPREADS * median(shift.spread for shift in together))
        alike = any(shift.found for shift in together) or abs(middle) >= beyond
        if not place or runs[place].environment_hash in earlier or not alike:
            continue
        listed = [shift for shift in together if shift.found or abs(shift.log) >= least]
        listed.sort(key=lambda shift: -abs(shift.log))
        life = _life(place, runs)
        found = _event("environment", run_id, runs[place - 1], runs[place], life, _OUTCOMES[middle > 0])
        direction, moved = "slower" if middle > 0 else "faster", [replace(shift.moved, life=life) for shift in listed]
        found = replace(found, direction=direction, moved=tuple(moved), era=together[0].era)
        yield replace(found, of=len(together), median=math.exp(middle))


def _event(kind: str, name: str, before: RunHead, after: RunHead, life: str, outcome: GateOutcome) -> Event:
    """Return an event of many series, none of which it has yet."""
    key = id_of((kind, after.device_name, name))
    event = partial(Event, key=key, kind=kind, device_name=after.device_name, life=life, outcome=outcome)
    return event(direction=kind, before=before, after=after, moved=(), era=())


def _life(place: int, runs: Sequence[RunHead]) -> str:
    return "noted" if len(runs) - place > _OPEN else "still there"


def new_operator(
    first: str, series: Sequence[Series], heads: Heads, measured: Measured, beside: Mapping[RunKey, str]
) -> Iterator[Event]:
    """Yield the event of an operator of a device model that was not in the store from the start, by its first run."""
    # It is new in a run that measured at least half of the series of the run before it, too: not in one of that operator alone.
    key = first, series[0].device_name
    if key not in beside or key not in heads:
        return
    before = beside[key], key[1]
    earlier = measured[before]
    if 2 * len(set(earlier).intersection(measured[key])) < len(earlier):
        return
    runs = runs_by_device(heads)[key[1]]
    life = _life(runs.index(heads[key]), runs)
    why, name = "the first run of the operator", f"{series[0].suite}\0{series[0].operator}"
    moved = tuple(Moved(series=one, outcome=GateOutcome.NEW, reason=why, life=life) for one in series)
    yield replace(_event("new", name, heads[before], heads[key], life, GateOutcome.NEW), moved=moved)


def by_id(events: Sequence[Event]) -> Mapping[str, Sequence[Event]]:
    """Return the events of each id: the event with this key, else all events that have it among their aliases."""
    found = grouped((key, event) for event in events for key in event.aliases)
    return {**found, **{event.key: [event] for event in events}}


def with_states(events: Sequence[Event], stored: Iterable[Triage], today: dt.date) -> tuple[Event, ...]:
    """Return events with their stored states (oldest first; the last one of an event counts). An `expected` event is new again after its day."""
    # A state whose id is an alias of several events now is ignored.
    meant, states = by_id(events), dict[str, Triage]()
    for triage in stored:
        named = meant.get(triage.event, ())
        if len(named) == 1:
            states[named[0].key] = triage
            if triage.until is not None and triage.until < today.isoformat():
                note = ": ".join(filter(None, (f"expected until {triage.until}, which has passed", triage.note)))
                states[named[0].key] = replace(triage, state=TRIAGE[0], until=None, note=note)
    return tuple(replace(event, triage=states.get(event.key)) for event in events)
