"""What happened to a store's series: moves to new levels, worse newest runs and failures, one event for each pair of runs."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pairbench.analyze.compare.accepted import AcceptedLevel
from pairbench.analyze.compare.attribute import outcome_of_move
from pairbench.analyze.compare.era import era_changes
from pairbench.analyze.compare.kernels import kernel_changes
from pairbench.analyze.history.changepoint import MIN_RUNS
from pairbench.analyze.history.trend import Trend
from pairbench.model.comparison import Change, GateOutcome, KernelChange
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import Record
from pairbench.model.series import Series
from pairbench.model.site import Event, Moved, RunHead

_RECENT = 2 * MIN_RUNS
"""The number of runs for which a new level says the same as a worse newest run."""
_WORST = (GateOutcome.FAILED, GateOutcome.REGRESSION, GateOutcome.UNDECIDED, GateOutcome.IMPROVEMENT)

Heads = Mapping[tuple[str, str], RunHead]
"""What each run is, by run and device model."""
Key = tuple[str, str, str | None, str]
"""What one event has in common: kind, device model, the last run before and the first run after."""


@dataclass(frozen=True, kw_only=True)
class SeriesEvent:
    """What happened to one series; with what happened to others between the same runs it makes an event."""

    key: Key
    moved: Moved
    era: tuple[str, ...]


def series_events(
    trend: Trend, changes: Iterable[Change] = (), accepted: AcceptedLevel | None = None
) -> tuple[SeriesEvent, ...]:
    """Return what happened to one series.

    Args:
        trend: its history.
        changes: what comparisons of runs of it with their references say. That of the newest run counts, unless a new level says
            the same; those of earlier ones only where the history is too short to have levels.
        accepted: the level of the series that was accepted on purpose, if there is one.
    """
    points = trend.points
    short = len(points) < 2 * MIN_RUNS
    told = bool(trend.moves) and trend.moves[-1].index >= len(points) - _RECENT
    wanted = [change for change in changes if short or points[-1].record.run_id in change.current_runs]
    return (*_moves(trend, accepted), *_compared(wanted, told=told))


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
    events = [_event(key, several, heads) for key, several in by_key.items()]
    return tuple(sorted(events, key=lambda event: (event.after.started_at, event.key), reverse=True))


def kernels_wanted(events: Sequence[Event]) -> dict[str, set[Series]]:
    """Return of which runs and series the kernels have to be known to say how they differ."""
    wanted: defaultdict[str, set[Series]] = defaultdict(set)
    for event in events:
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
        return replace(one, kernels=tuple(map(_words, kernel_changes(before, after, policy))))

    return replace(event, moved=tuple(map(told, event.moved)))


def _words(change: KernelChange) -> str:
    counts = f"{change.reference_count} -> {change.current_count} a call"
    times = f"{change.reference_ns / 1e3:.4g} -> {change.current_ns / 1e3:.4g} us"
    return f"{change.what}: {change.name} ({counts}, {times})"


def _moves(trend: Trend, accepted: AcceptedLevel | None) -> Iterable[SeriesEvent]:
    for move in trend.moves:
        if move.attribution is None:  # only its control moved, and the control's own series says so
            continue
        before, after = trend.points[move.before].record, trend.points[move.index].record
        covered = accepted is not None and accepted.covers(trend.latency.p50, move.after_ns, after.definition_hash)
        yield SeriesEvent(
            key=("moved", trend.series.device_name, before.run_id, after.run_id),
            moved=Moved(
                series=trend.series,
                change=move.own,
                before_ns=move.before_ns,
                after_ns=move.after_ns,
                control=move.control,
                attribution=move.attribution,
                reason=move.reason,
                accepted=accepted.acceptance.reason if accepted is not None and covered else None,
            ),
            era=tuple(map(str, era_changes(before, after))),
        )


def _compared(changes: Iterable[Change], *, told: bool) -> Iterable[SeriesEvent]:
    for change in changes:
        if change.outcome not in (GateOutcome.REGRESSION, GateOutcome.FAILED) or not change.current_runs:
            continue
        kind = "failed" if change.outcome is GateOutcome.FAILED else "newest"
        if kind == "newest" and told:
            continue
        p50 = change.p50
        yield SeriesEvent(
            key=(kind, change.series.device_name, max(change.reference_runs, default=None), min(change.current_runs)),
            moved=Moved(
                series=change.series,
                change=p50.change.estimate if p50 and p50.change else None,
                before_ns=_number(p50.reference) if p50 else None,
                after_ns=_number(p50.current) if p50 else None,
                control=change.control.estimate if change.control else None,
                attribution=change.attribution,
                reason=change.reason,
                kernels=tuple(map(_words, change.kernels)),
                accepted=change.accepted,
            ),
            era=tuple(map(str, change.era)),
        )


def _number(value: float | str | None) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _event(key: Key, several: Sequence[SeriesEvent], heads: Heads) -> Event:
    kind, device_name, before, after = key
    moved = sorted((one.moved for one in several), key=lambda one: (-_size(one), one.series))
    return Event(
        key=hashlib.sha256("\0".join([kind, device_name, before or "", after]).encode()).hexdigest()[:12],
        kind=kind,
        direction=_direction(kind, moved),
        device_name=device_name,
        before=heads.get((before, device_name)) if before else None,
        after=heads[after, device_name],
        moved=tuple(moved),
        era=tuple(dict.fromkeys(change for one in several for change in one.era)),
        outcome=min((_outcome(kind, one) for one in moved), key=_WORST.index),
    )


def _size(one: Moved) -> float:
    return abs(one.change - 1) if one.change is not None else float("inf")


def _direction(kind: str, moved: Sequence[Moved]) -> str:
    if kind == "failed":
        return "failed"
    if kind == "newest":  # also of what became no slower, and launches more
        return "worse"
    slower = {one.change is None or one.change > 1 for one in moved}
    return "both" if len(slower) == 2 else "slower" if slower == {True} else "faster"


def _outcome(kind: str, one: Moved) -> GateOutcome:
    """Return what one series of an event means to a gate."""
    if kind == "failed":
        return GateOutcome.FAILED
    if kind == "newest" or one.change is None:  # only what a comparison called a regression is there
        return GateOutcome.REGRESSION
    return outcome_of_move(one.change, one.attribution)
