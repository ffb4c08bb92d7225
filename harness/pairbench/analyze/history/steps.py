"""Steps of metrics that are counted rather than timed: launches, operators, memory, correctness and status.

A count needs no statistics, so a step begins with the first run that shows it, and stays, where a comparison of the newest run is
forgotten with the next run. Each value is judged against the last one that counted, as `compare` judges
two runs, so that a slow drift within the slack of memory becomes a step, too.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter, eq

import numpy as np

from pairbench.analyze.compare.attribute import Circumstances
from pairbench.analyze.compare.exact import LAUNCHES, METRICS, bad, judge_exact, judge_margin, judge_status, number
from pairbench.analyze.compare.rounds import usable
from pairbench.analyze.history.points import Points
from pairbench.model.comparison import Attribution, EraChange, GateOutcome, Judgement
from pairbench.model.outcome import Status
from pairbench.model.plain import Value
from pairbench.model.record import Record

MARGINS = ("margin", "oracle_ratio")
STATUS = "status"
COLUMNS = (*METRICS, *MARGINS, "launch_status")
"""Columns of a record that steps are found in, besides its status."""

_WORSE = (GateOutcome.FAILED, GateOutcome.REGRESSION, GateOutcome.UNDECIDED)
_METRICS = (*METRICS, *MARGINS)
_TEXTS = (STATUS, "launch_status")
_WATCHED = (STATUS, *COLUMNS)
_values = attrgetter(*_WATCHED)


class Step(Value):
    """One metric that took another value at a run, and whether that lasts."""

    metric: str
    level: int | None
    before: int | None
    """`level` and `before` are the indices of the first and the last run with the value before; None where the first run of all failed."""
    index: int
    outcome: GateOutcome
    reference: float | str | None
    current: float | str | None
    """`reference` and `current` are the values before and after, in the unit of the column."""
    reason: str
    attribution: Attribution | None
    why: str
    """The sentence that says why `attribution` is the likely cause, which a failure that was never seen to work has not."""
    era: tuple[EraChange, ...]
    ended: int | None = None
    """Index of the run in which it was no longer so; None while it lasts."""
    superseded: bool = False
    """Whether it ended because something replaced it, such as a new definition, and not because it was undone."""

    @property
    def worse(self) -> bool:
        return self.outcome in _WORSE


def steps_of(points: Points) -> tuple[Step, ...]:
    """Return the steps of a series; a return to an earlier value ends the step away from it, and is none itself."""
    walk = _Walk(points)
    columns = [points.parts, *(points.codes(name) for name in _TEXTS), *map(points.numbers, _METRICS)]
    same = [(one[1:] == one[:-1]) | ((one[1:] != one[1:]) & (one[:-1] != one[:-1])) for one in columns]  # NaN is NaN
    changed = (np.flatnonzero(~np.all(same, axis=0)) + 1).tolist()
    if not changed and points.values(STATUS)[:1] in ([], [Status.MEASURED]):
        return ()
    for index in [0, *changed]:
        if index and points.parts[index] != points.parts[index - 1]:
            walk.new_definition(index)
        walk.take(index, points[index].record)
    steps = [*walk.done, *itertools.chain(*walk.lasting.values())]
    return tuple(sorted(steps, key=attrgetter("index", "metric")))


class _Walk:
    """Goes along a series, and keeps for each metric the first run with the present value and the last with any."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self.done: list[Step] = []
        self._begin()

    def _begin(self) -> None:
        self._levels: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._last: Sequence[object] = (object(),) * len(_WATCHED)
        self._counted: list[str] = []
        self.lasting: defaultdict[str, list[Step]] = defaultdict(list)

    def new_definition(self, index: int) -> None:
        for metric in list(self.lasting):
            self._end(metric, index, superseded=True)
        self._begin()

    def take(self, index: int, record: Record) -> None:
        """Take the next run that differs from the one before it."""
        values = _values(record)
        for metric in self._counted:
            self._seen[metric] = index - 1
        same = dict(zip(_WATCHED, map(eq, values, self._last), strict=True))
        self._last = values
        if not same[STATUS]:
            self._status(index, record)
        exact = record.launch_status == "exact"  # else launches are not known
        known = (metric for metric in _METRICS if number(record, metric) is not None)
        self._counted = [metric for metric in known if usable(record) and (exact or metric not in LAUNCHES)]
        for metric in self._counted:
            if not same[metric] or not same["launch_status"] or not same[STATUS]:
                self._metric(metric, index)
        self._counted.append(STATUS)

    def _status(self, index: int, record: Record) -> None:
        before, failed = self._levels.get(STATUS), bad(record)
        if usable(record):
            self._end(STATUS, index)
        elif not failed:  # skipped on purpose
            self._end(STATUS, index, lambda step: step.outcome is GateOutcome.FAILED, superseded=True)
        judgement = self._judged(STATUS, before, index)
        was = before is not None and bad(self._points[before].record)
        if (failed and not was) or judgement.outcome is GateOutcome.REGRESSION:
            self.lasting[STATUS].append(self._step(judgement, index))
        self._levels[STATUS] = index

    def _metric(self, metric: str, index: int) -> None:
        if (level := self._levels.setdefault(metric, index)) == index:
            return
        judgement = self._judged(metric, level, index)
        moved = judgement.outcome is not GateOutcome.UNCHANGED
        if judgement.outcome in _WORSE:
            # Earlier improvements are lost.
            self._end(metric, index, lambda step: not step.worse and not self._holds(step, index), superseded=True)
            self.lasting[metric].append(self._step(judgement, index))
        else:
            if ended := self._end(metric, index, lambda step: step.worse and self._holds(step, index)):
                judgement = self._judged(metric, ended[0].level, index)
            if judgement.outcome is GateOutcome.IMPROVEMENT:
                self.lasting[metric].append(self._step(judgement, index))
        if moved or metric in MARGINS:
            self._levels[metric] = index

    def _holds(self, step: Step, index: int) -> bool:
        """Return whether a run is as good as those before a worsening were, or as that with an improvement."""
        good = step.level if step.worse else step.index
        return self._judged(step.metric, good, index).outcome not in _WORSE

    def _end(
        self, metric: str, index: int, over: Callable[[Step], bool] | None = None, *, superseded: bool = False
    ) -> list[Step]:
        ended = [step for step in self.lasting[metric] if over is None or over(step)]
        self.lasting[metric] = [step for step in self.lasting[metric] if step not in ended]
        self.done += [replace(step, ended=index, superseded=superseded) for step in ended]
        return ended

    def _judged(self, metric: str, before: int | None, index: int) -> Judgement:
        now = self._points[index].record
        then = self._points[before].record if before is not None else now
        if metric == STATUS:
            return judge_status([then], [now])
        judge = judge_margin if metric in MARGINS else judge_exact
        return next(judgement for judgement in judge(then, now) if judgement.metric == metric)

    def _step(self, judgement: Judgement, index: int) -> Step:
        before, now = self._seen.get(judgement.metric), self._points[index].record
        then = self._points[before].record if before is not None else None
        known = Circumstances.between(then or now, now)
        failed = judgement.outcome is GateOutcome.FAILED
        cause, why = known.cause_of_failure(then, [now]) if failed else known.cause_of_count()
        return Step(
            metric=judgement.metric,
            level=self._levels.get(judgement.metric),
            before=before,
            index=index,
            outcome=judgement.outcome,
            reference=judgement.reference if before is not None else None,
            current=judgement.current,
            reason=judgement.reason.partition("; failing since ")[0],
            attribution=cause,
            why=why,
            era=known.era,
        )
