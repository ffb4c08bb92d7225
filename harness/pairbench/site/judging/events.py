"""Events of a store: one for each pair of runs between which series moved, joined where device models show the same step.

Which earlier run a run is to be held against: the newest of its device model that measured enough of the same series.

How far the GPUs of one model differ: the same series, by the same code in the same environment, on each of them.
"""

import datetime as dt
import hashlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from pairbench.analyze.compare.attribute import kernel_changes
from pairbench.analyze.history.points import SeriesPoint
from pairbench.analyze.history.trend import Trend
from pairbench.model.comparison import DEFAULT, Attribution, Change, GateOutcome, Policy, Verdict
from pairbench.model.record import Record, Series
from pairbench.model.site import ATTENTION, LIVES, Event, GpuSpread, Moved, RunHead, RunVerdicts
from pairbench.site.judging.series_events import Key, SeriesEvent
from pairbench.stats import percentile

_ENOUGH = 0.5
"""The part of a run's series that an earlier run has to share for none before it to be looked at."""
_BACK = 50
"""The number of earlier runs that are looked at."""
_TOLD = (
    *(GateOutcome.FAILED, GateOutcome.REGRESSION, GateOutcome.MISSING, GateOutcome.IMPROVEMENT),
    *(GateOutcome.INCOMPARABLE, GateOutcome.NEW),
)
"""Outcomes that a reader of a run is told of, in this order. What is proven slower or faster by the machine comes last; all else
is noise or nothing."""

RunKey = tuple[str, str]
"""A run and a device model."""


def overlapping(runs: Sequence[RunHead], series: Mapping[RunKey, Collection[Series]]) -> dict[RunKey, str]:
    """Return for each run the earlier run to hold it against; none where no earlier run shares any series.

    Args:
        runs: all runs in any order; those that measured suspects of another one again are passed over.
        series: what each measured.
    """
    found: dict[RunKey, str] = {}
    earlier: defaultdict[str, list[str]] = defaultdict(list)
    for head in sorted(runs, key=lambda head: (head.started_at, head.run_id)):
        if head.confirms is not None:
            continue
        own = frozenset(series.get((head.run_id, head.device_name), ()))
        best, most = None, 0
        for run_id in reversed(earlier[head.device_name][-_BACK:]):
            shared = len(own.intersection(series.get((run_id, head.device_name), ())))
            if shared > most:
                best, most = run_id, shared
            if shared >= _ENOUGH * len(own) > 0:
                break
        if best is not None:
            found[head.run_id, head.device_name] = best
        earlier[head.device_name].append(head.run_id)
    return found


def run_verdicts(reference: str, device_name: str, changes: Sequence[Change]) -> RunVerdicts:
    """Return what a comparison of a run with an earlier one says of a device model, the worst and then the largest first."""
    here = [change for change in changes if change.series.device_name == device_name]
    told = [change for change in here if change.outcome in _TOLD or change.verdict in (Verdict.SLOWER, Verdict.FASTER)]
    rank = {outcome: place for place, outcome in enumerate(_TOLD)}
    told.sort(key=lambda change: (rank.get(change.outcome, len(rank)), -_pair_size(change), change.series))
    counts = {outcome: sum(change.outcome is outcome for change in here) for outcome in GateOutcome}
    return RunVerdicts(
        reference=reference,
        changes=tuple(told),
        counts={str(outcome): number for outcome, number in counts.items() if number},
        outcomes={change.series: str(change.outcome) for change in here},
    )


def _pair_size(change: Change) -> float:
    return abs(change.p50.change.estimate - 1) if change.p50 and change.p50.change else 0.0


_NEWEST = 5
"""Runs of a series on a GPU that count, the newest."""


def gpu_ratios(trend: Trend) -> dict[str, float]:
    """Return for each GPU that has a series its latency over the median GPU's; nothing where one GPU has it alone.

    Only what the newest run can be compared with counts: the same source, definition and environment.
    """
    newest = next((point for point in reversed(trend.points) if point.p50), None)
    if newest is None:
        return {}
    of_gpu: defaultdict[str, list[float]] = defaultdict(list)
    for point in trend.points:
        if point.p50 and point.record.device_uuid and _question(point) == _question(newest):
            of_gpu[point.record.device_uuid].append(point.p50.estimate)
    if len(of_gpu) < 2:
        return {}
    levels = {gpu: median(values[-_NEWEST:]) for gpu, values in of_gpu.items()}
    middle = median(levels.values())
    return {gpu: level / middle for gpu, level in levels.items()}


def _question(point: SeriesPoint) -> tuple[int, str | None, str]:
    return point.part, point.record.implementation_hash, point.record.environment_hash


def spreads(ratios: Iterable[tuple[str, dict[str, float]]]) -> tuple[GpuSpread, ...]:
    """Return a row for each GPU, the models by name and the slowest of each first.

    Args:
        ratios: The device model of each series, and what `gpu_ratios` returns for it.
    """
    of_gpu: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for device_name, several in ratios:
        for gpu, ratio in several.items():
            of_gpu[device_name, gpu].append(ratio)
    rows = [
        GpuSpread(
            device_name=device_name,
            gpu=gpu,
            series=len(values),
            ratio=median(values),
            low=percentile(values, 10),
            high=percentile(values, 90),
        )
        for (device_name, gpu), values in of_gpu.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.device_name, -row.ratio, row.gpu)))


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
