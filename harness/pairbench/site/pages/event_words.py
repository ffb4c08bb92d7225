"""What an event says in few words, part by part: which operator and implementation, how much, and the likely cause.

Pages put the parts side by side, so that nothing has to be cut out of the middle of a sentence.
"""

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pairbench.model.site import Event, Moved, RunHead
from pairbench.report import units
from pairbench.report.units import count_change, order

_TOLD = 2
"""Number of counts that a headline names."""
_RUNS, _DAYS = (10, 50), (7, 30)
WINDOWS = {f"{number}r": f"last {number} runs" for number in _RUNS} | {
    f"{number}d": f"{number} days" for number in _DAYS
}
"""What a reader may narrow events to, by its name in the address. Days count back from the newest run."""

LIFE_MEANS = {
    "still there": "no later run took it back",
    "accepted": "this level was accepted on purpose",
    "recovered": "a later run is as good as those before it",
    "superseded": "something else took its place: a new definition, or of a gain its loss",
}


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The parts of an event's one line."""

    operator: str
    implementation: str
    changes: tuple[str, ...]
    """What changed: `+17.9 %`, `launches 1 → 3`, or `failed`."""
    beside: str
    """Change of the control, in words; empty where there is none to name."""
    cause: str
    more: str
    """How many other series it moved, in words; empty where there is none."""
    reason: str
    """Reason of a failure, or of a newest run that is worse, which a number alone does not give; else empty."""


def headline(event: Event) -> Headline:
    """Return the one line of an event: its largest change that is in the state of the whole."""
    first = event.moved[0]
    others = len(event.moved) - 1
    operators = {one.series.operator for one in event.moved}
    of = f" of {len(operators)} operators" if len(operators) > 1 else ""
    beside = units.change(first.control) if first.size is not None and first.control is not None else ""
    return Headline(
        operator=first.series.operator,
        implementation=first.series.implementation,
        changes=changes(first, event.kind),
        beside=f"its control {beside}" if beside else "",
        cause=str(first.attribution or "unknown"),
        more=f"and {others:,} more series{of}" if others else "",
        reason=first.reason if event.kind != "moved" else "",
    )


def changes(moved: Moved, kind: str) -> tuple[str, ...]:
    """Return what changed of a series, each in a few words."""
    if kind == "failed":
        return ("failed",)
    size = (units.change(moved.size),) if moved.size is not None else ()
    counts = counts_in_words(moved)
    more = (f"{len(counts) - _TOLD} more counts",) if len(counts) > _TOLD else ()
    return (*size, *counts[:_TOLD], *more) or ("worse",)


def counts_in_words(moved: Moved) -> tuple[str, ...]:
    """Return the counts that changed, each like `launches 1 → 3`, the most telling first."""
    ordered = sorted(moved.counts, key=lambda step: order(step.metric))
    return tuple(count_change(step.metric, step.before, step.after) for step in ordered)


class Windows:
    """Tells in which windows events began or ended."""

    def __init__(self, runs: Sequence[RunHead]) -> None:
        """Look at all runs, the newest first: windows of runs are of the runs on a device model, days count back from the newest."""
        ranks: Counter[str] = Counter()
        newest = _day(runs[0].started_at) if runs else None
        self._of: dict[tuple[str, str], frozenset[str]] = {}
        for run in runs:
            place, day = ranks[run.device_name], _day(run.started_at)
            ranks[run.device_name] += 1
            age = newest - day if newest is not None and day is not None else None
            self._of[run.run_id, run.device_name] = frozenset(
                {f"{number}r" for number in _RUNS if place < number}
                | {f"{number}d" for number in _DAYS if age is not None and age < dt.timedelta(days=number)}
            )

    def of(self, event: Event) -> tuple[str, ...]:
        """Return the windows that an event began or ended in, on any device model."""
        ends = ((run, part.device_name) for part in event.everywhere for run in (part.after.run_id, part.ended) if run)
        found = frozenset[str]().union(*(self._of.get(end, frozenset()) for end in ends))
        return tuple(name for name in WINDOWS if name in found)


def _day(text: str) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
