"""The newest night: the newest run of each device model, whether it was on time, and how many of the usual series it measured."""

import datetime as dt
import itertools
import statistics
from collections import defaultdict
from dataclasses import dataclass

from pairbench.analyze.history.points import moment_of
from pairbench.model.site import Event, RunHead, SiteFacts

_TOGETHER = dt.timedelta(hours=24)
"""Runs of several device models are of one night if they are less apart: than this, or than half the usual interval."""
_HISTORY = 10  # number of runs before the newest from which the usual interval and number of series are taken
_FEWEST = 4  # number of intervals from which on they can be called regular
_IRREGULAR = 0.25  # part by which an interval may differ from the median of all
_LATE = 0.05  # part of the interval, and at least half an hour, from which on a run is called late
_LEAST_LATE = dt.timedelta(minutes=30)
_COMPLETE = 0.9  # part of the usual number of series below which a run is called incomplete


@dataclass(frozen=True, kw_only=True)
class Night:
    """What the first line of the overview says."""

    heads: tuple[RunHead, ...]
    """The newest run of each device model, the newest first."""
    new: int
    open: int
    recovered: int
    """Numbers of events: begun in these runs, still there at all, and ended in these runs."""
    oldest_days: int | None
    """Age of the oldest open event; None where there is none."""
    measured: int
    series: int
    """Numbers of series: those that were measured, and those that were expected, by these runs or by the runs before, whichever is more."""
    incomplete: tuple[str, ...]
    """Device models whose run has fewer series than usual."""
    absent: tuple[RunHead, ...]
    """The last run of each device model that is missing: it used to run at regular times, and a run of it is due."""
    late: str
    """How much later than usual the newest run began, in words; empty where it was on time, or runs do not come at regular times."""
    skipped: int
    """Number of runs that were due between the newest two, and did not come."""
    due: str | None
    """When the next run is late, as ISO 8601 in UTC; None where runs do not come at regular times."""


def newest_night(facts: SiteFacts) -> Night | None:
    """Return the newest night; None where no run has a time. Runs that confirm another run do not count."""
    runs_of = defaultdict[str, list[RunHead]](list)
    for head in facts.runs:
        if head.confirms is None and _moment(head) is not None:
            runs_of[head.device_name].append(head)
    if not runs_of:
        return None
    newest = max(_at(runs[0]) for runs in runs_of.values())
    tonight = {
        name: runs
        for name, runs in runs_of.items()
        if newest - _at(runs[0]) < min(_TOGETHER, (_interval(runs) or 2 * _TOGETHER) / 2)
    }
    heads = tuple(sorted((runs[0] for runs in tonight.values()), key=_at, reverse=True))
    keys = {(head.run_id, head.device_name) for head in heads}
    opened = [event for event in facts.events if event.open]
    began = [at for event in opened if (at := _moment(event.after)) is not None]
    usual = {name: _usual_series(runs) for name, runs in tonight.items()}
    interval = _interval(tonight[heads[0].device_name])
    skipped, late, due = 0, "", None
    if interval is not None:
        gap, allowed = newest - _at(tonight[heads[0].device_name][1]), max(_LATE * interval, _LEAST_LATE)
        skipped = max(round(gap / interval) - 1, 0)
        after_due = gap - (skipped + 1) * interval
        late = _in_words(after_due) if after_due > allowed else ""
        due = (newest + interval + allowed).isoformat()
    return Night(
        heads=heads,
        new=sum(_in_runs(event, keys, ended=False) for event in opened),
        open=len(opened),
        recovered=sum(_in_runs(event, keys, ended=True) for event in facts.events if event.standing == "recovered"),
        oldest_days=(newest - min(began)).days if began else None,
        measured=sum(head.statuses.get("measured", 0) for head in heads),
        series=sum(max(_series(head), usual[head.device_name]) for head in heads),
        incomplete=tuple(head.device_name for head in heads if _series(head) < _COMPLETE * usual[head.device_name]),
        absent=tuple(runs[0] for name, runs in runs_of.items() if name not in tonight and _is_missed(runs, newest)),
        late=late,
        skipped=skipped,
        due=due,
    )


def _moment(head: RunHead) -> dt.datetime | None:
    at = moment_of(head.started_at)
    return None if at is None else dt.datetime.fromtimestamp(at, dt.UTC)


def _at(head: RunHead) -> dt.datetime:
    at = _moment(head)
    assert at is not None  # runs without a time were left out
    return at


def _in_words(time: dt.timedelta) -> str:
    hours = time / dt.timedelta(hours=1)
    return f"{hours:.0f} h" if hours >= 1 else f"{60 * hours:.0f} min"


def _series(head: RunHead) -> int:
    return sum(number for status, number in head.statuses.items() if status != "skipped")


def _usual_series(runs: list[RunHead]) -> int:
    earlier = [_series(head) for head in runs[1 : _HISTORY + 1]]
    return round(statistics.median(earlier)) if len(earlier) >= _FEWEST else 0


def _interval(runs: list[RunHead]) -> dt.timedelta | None:
    """Return the usual time between two runs, without the newest; None where runs do not come at regular times."""
    times = [_at(head) for head in runs[1 : _HISTORY + 2]]
    gaps = [after - before for after, before in itertools.pairwise(times)]
    if len(gaps) < _FEWEST:
        return None
    usual = sorted(gaps)[len(gaps) // 2]
    regular = [gap for gap in gaps if abs(gap - usual) <= _IRREGULAR * usual]
    return usual if len(regular) > len(gaps) / 2 and usual > dt.timedelta(hours=1) else None


def _is_missed(runs: list[RunHead], newest: dt.datetime) -> bool:
    """Return whether a device model is missing: its runs were regular, one is due, and fewer than 14 have been missed."""
    interval = _interval([runs[0], *runs])
    return interval is not None and interval < newest - _at(runs[0]) < 14 * interval


def _in_runs(event: Event, keys: set[tuple[str, str]], *, ended: bool) -> bool:
    return any((one.ended if ended else one.after.run_id, one.device_name) in keys for one in event.everywhere)
