"""Events of many series at once, a change of the environment of a device model and a new operator, and the states that people set.

Nobody is to blame for the former, and after some runs they are noted and no longer open.
"""

import datetime as dt
import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from pairbench.analyze.history.points import lines_of
from pairbench.analyze.history.trend import Trend
from pairbench.model.comparison import DEFAULT, Attribution, GateOutcome, Policy
from pairbench.model.record import Series
from pairbench.model.site import TRIAGE, Event, Moved, RunHead, Triage
from pairbench.site.events import Heads, RunKey, id_of, runs_by_device

_OPEN = 8  # the runs of a device model for which such an event is open
_LEAST = 3  # the fewest values before a change of environment that say how far a series spreads
_SPREADS = 3.0
"""The spreads of a series, as the median difference of its neighbouring runs, that the median of all has to be beyond."""


class _Shift(NamedTuple):
    moved: Moved
    log: float
    spread: float
    found: bool  # whether a changepoint says so


class EnvironmentShifts:
    """The series that were measured before and after changes of environment, by device model and the first run after."""

    def __init__(self, heads: Heads) -> None:
        self._by_device = runs_by_device(heads)
        self.shifts: dict[RunKey, list[_Shift]] = {}
        self.eras: dict[RunKey, tuple[str, ...]] = {}
        for device_name, runs in self._by_device.items():
            for at in range(1, len(runs)):  # those whose environment none of the runs before them had
                if runs[at].environment_hash not in {head.environment_hash for head in runs[max(0, at - _OPEN) : at]}:
                    self.shifts[runs[at].run_id, device_name] = []

    def add(self, trend: Trend) -> None:
        points, (line, _) = trend.points, lines_of(trend.points)
        places = {*(era.index for era in trend.eras), *(move.index for move in trend.moves), *trend.definitions}
        ends = sorted({0, len(points), *places})
        for era in trend.eras:
            key = points[era.index].record.run_id, trend.series.device_name
            shifts = self.shifts.get(key)
            if shifts is None or era.index in trend.definitions:
                continue
            self.eras.setdefault(key, tuple(map(str, era.changes)))
            at = ends.index(era.index)
            begin, end = max(ends[at - 1], era.index - 2 * _OPEN), min(ends[at + 1], era.index + _OPEN)
            before = [value for value in line[begin : era.index].tolist() if not math.isnan(value)]
            after = [value for value in line[era.index : end].tolist() if not math.isnan(value)]
            if len(before) < _LEAST or not after:
                continue
            shift = median(after) - median(before)
            change = math.exp(shift)
            found = [
                one for one in trend.moves if one.index == era.index and one.attribution is Attribution.ENVIRONMENT
            ]
            moved = Moved(
                series=trend.series,
                outcome=GateOutcome.UNDECIDED if shift > 0 else GateOutcome.IMPROVEMENT,
                change=change,
                before_ns=math.exp(median(before)),
                after_ns=math.exp(median(after)),
                control=None,
                attribution=Attribution.ENVIRONMENT,
                reason=found[0].reason if found else "",
            )
            spread = median(abs(now - then) for then, now in itertools.pairwise(before))
            shifts.append(_Shift(moved, math.log(change), spread, bool(found)))

    def events(self, policy: Policy = DEFAULT) -> Iterator[Event]:
        """Yield one event for each change that moved series: where a changepoint was found, or most moved alike."""
        least = math.log1p(policy.minimum_effect) / 2
        for (run_id, device_name), shifts in self.shifts.items():
            if not shifts:
                continue
            middle = median(shift.log for shift in shifts)
            beyond = max(least, _SPREADS * median(shift.spread for shift in shifts))
            if not any(shift.found for shift in shifts) and abs(middle) < beyond:
                continue
            listed = [shift for shift in shifts if shift.found or abs(shift.log) >= least]
            listed.sort(key=lambda shift: -abs(shift.log))
            runs = self._by_device[device_name]
            place = [one.run_id for one in runs].index(run_id)
            life = _life(place, runs)
            yield Event(
                key=id_of(("environment", device_name, run_id)),
                kind="environment",
                direction="slower" if middle > 0 else "faster",
                device_name=device_name,
                before=runs[place - 1],
                after=runs[place],
                moved=tuple(replace(shift.moved, life=life) for shift in listed),
                era=self.eras[run_id, device_name],
                outcome=GateOutcome.UNDECIDED if middle > 0 else GateOutcome.IMPROVEMENT,
                life=life,
                of=len(shifts),
                median=math.exp(middle),
            )


def _life(place: int, runs: Sequence[RunHead]) -> str:
    return "noted" if len(runs) - place > _OPEN else "still there"


def new_operator(
    trends: Sequence[Trend], heads: Heads, measured: Mapping[RunKey, Collection[Series]], beside: Mapping[RunKey, str]
) -> Iterator[Event]:
    """Yield the event of an operator of a device model that was not in the store from the start.

    It is new in a run that measured at least half of the series of the run before it, too: not in one of that operator alone.
    """
    series = [trend.series for trend in trends]
    key = min((trend.points[0].record.run_id, trend.series.device_name) for trend in trends)
    if key not in beside or key not in heads:
        return
    before = beside[key], key[1]
    earlier = measured[before]
    if 2 * len(set(earlier).intersection(measured[key])) < len(earlier):
        return
    runs = runs_by_device(heads)[key[1]]
    life = _life(runs.index(heads[key]), runs)
    moved = Moved(
        series=series[0], outcome=GateOutcome.NEW, change=None, before_ns=None, after_ns=None, control=None,
        attribution=None, reason="the first run of the operator", life=life,
    )  # fmt: skip
    yield Event(
        key=id_of(("new", key[1], f"{series[0].suite}\0{series[0].operator}")),
        kind="new",
        direction="new",
        device_name=key[1],
        before=heads[before],
        after=heads[key],
        moved=tuple(replace(moved, series=one) for one in series),
        era=(),
        outcome=GateOutcome.NEW,
        life=life,
    )


def by_id(events: Sequence[Event]) -> Mapping[str, Sequence[Event]]:
    """Return the events of each id: the event with this key, else all events that have it among their aliases."""
    found: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        for key in event.aliases:
            found[key].append(event)
    return {**found, **{event.key: [event] for event in events}}


def with_states(events: Sequence[Event], stored: Iterable[Triage], today: dt.date) -> tuple[Event, ...]:
    """Return events with their stored states (oldest first; the last one of an event counts). An `expected` event is new again after its day.

    A state whose id is an alias of several events now is ignored.
    """
    meant, states = by_id(events), dict[str, Triage]()
    for triage in stored:
        named = meant.get(triage.event, ())
        if len(named) == 1:
            states[named[0].key] = triage
            if triage.until is not None and triage.until < today.isoformat():
                note = ": ".join(filter(None, (f"expected until {triage.until}, which has passed", triage.note)))
                states[named[0].key] = replace(triage, state=TRIAGE[0], until=None, note=note)
    return tuple(replace(event, triage=states.get(event.key)) for event in events)
