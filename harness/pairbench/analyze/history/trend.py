"""The history of one series: its levels, where it moved and why, and whether its newest run is on its level or off it.

A changepoint needs some runs before it can be told from noise; `judge_newest` judges the newest one, two or three runs. It is
apart from the detector because it answers for the end of the series only, and may be undecided.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from pairbench.analyze.compare.attribute import era_changes, outcome_of_move
from pairbench.analyze.compare.exact import AcceptedLevel, bad, failing_since
from pairbench.analyze.compare.rounds import latency_of_runs
from pairbench.analyze.history.changepoint import FLOOR_TO_SIGMA, MIN_RUNS, Changepoint, Found, clean, finite, searched
from pairbench.analyze.history.moves import Move, Step, cause_of, median_level, moves_of, shift, steps_of, without_drift
from pairbench.analyze.history.points import History, Lines, Points, history, in_order
from pairbench.model.comparison import DEFAULT, Attribution, EraChange, Floor, GateOutcome, Verdict
from pairbench.model.plain import Value
from pairbench.model.plan import BASELINE
from pairbench.model.record import CALL, Latency, Record, Series
from pairbench.stats import Floats, Interval

_ALPHA = 0.01  # the share of newest runs on an unchanged level that may be called slower or faster
_LEAST_HISTORY = 5
_FAR = 4.0  # a number of standard deviations: one run so far off is as little news after another as one farther off
_SHORTEST = 3  # runs that a level must have besides the ones that are judged


class NewestRuns(Value):
    verdict: Verdict
    reason: str
    runs: int = 0
    effect: float | None = None  # the mean of these runs over the level that they are judged against: 1.03 is 3 % more


class _Tail(Value):
    """The newest runs against the runs before them on the same level."""

    runs: int
    shift: float
    halfwidth: float
    gaussian: float  # the p value of the run that is least far off to the side of the shift, if noise were normal
    seen: float  # the share of earlier windows of as many runs that all lay as far off to that side, or far enough

    @property
    def p_value(self) -> float:
        return max(self.gaussian, self.seen)


def judge_newest(
    levels: ArrayLike, changepoints: Sequence[Changepoint], *, floor: float | None = None, minimum_effect: float = 0.02
) -> NewestRuns:
    """Say whether the newest run, or the newest two or three, lie on the current level, by the changepoints of the series."""
    # Slower and faster mean: at least the minimum effect away, beyond what noise explains, and with (nearly) no earlier place where as many
    # neighbouring runs were all as far off to that side, so that one more spike, or the other of two modes, is not news. Same means: the 95 % interval of
    # the shift lies within the minimum effect. On a level that began at a changepoint less than seven runs ago, the answer is the changepoint's.
    series = np.asarray(levels, dtype=np.float64)
    values, places = finite(series)
    if not len(series) or np.isnan(series[-1]):
        return NewestRuns(verdict=Verdict.UNDECIDED, reason="the newest run has no value")
    cuts = [0, *np.searchsorted(places, [point.index for point in changepoints]).tolist(), len(values)]
    if changepoints and cuts[-1] - cuts[-2] < MIN_RUNS + _SHORTEST:
        last, runs = changepoints[-1], cuts[-1] - cuts[-2]
        back = abs(values[-1] - last.before) < abs(values[-1] - last.after)
        reason = f"a new level began {runs} runs ago{', but the newest run is nearer to the old one' if back else ''}"
        verdict = Verdict.UNDECIDED if back else _towards(last.after - last.before)
        return NewestRuns(verdict=verdict, runs=runs, effect=last.effect, reason=reason)
    most = min(MIN_RUNS - 1, cuts[-1] - cuts[-2] - _SHORTEST)
    # A row for each number of newest runs, with the runs before them.
    rows = clean(np.where(np.arange(-len(values), 0) >= -np.c_[1 : most + 1], np.nan, values)) if most > 0 else ()
    found = (_tail(values, row[:-runs], cuts, runs, floor) for runs, row in enumerate(rows, start=1))
    if not (tails := [tail for tail in found if tail is not None]):
        return NewestRuns(verdict=Verdict.UNDECIDED, reason="too few runs before it on its level")
    return _judged(tails, math.log1p(minimum_effect))


def _towards(shift: float) -> Verdict:
    return Verdict.SLOWER if shift > 0 else Verdict.FASTER


def _judged(tails: Sequence[_Tail], smallest: float) -> NewestRuns:
    # A run that is odd by itself is not the one to prove that nothing changed.
    odd = tails[0].gaussian < 0.05 and abs(tails[0].shift) >= smallest
    if off := [tail for tail in tails if tail.p_value < _ALPHA / len(tails) and abs(tail.shift) >= smallest]:
        tail = min(off, key=lambda tail: tail.p_value)
        verdict, reason = _towards(tail.shift), "beyond what the noise of the series explains"
    elif odd:
        verdict, tail, reason = Verdict.UNDECIDED, tails[0], "off its level, but noise may explain it"
    elif inside := [tail for tail in tails if abs(tail.shift) + tail.halfwidth <= smallest]:
        verdict, tail, reason = Verdict.SAME, inside[-1], "the 95 % interval lies within the minimum effect"
    else:
        verdict, tail, reason = Verdict.UNDECIDED, tails[-1], "too noisy a series to tell from so few runs"
    return NewestRuns(verdict=verdict, runs=tail.runs, effect=math.exp(tail.shift), reason=reason)


def _tail(values: Floats, cleaned: Floats, cuts: Sequence[int], runs: int, floor: float | None) -> _Tail | None:
    """Return how the newest runs lie; None where too few runs tell how the series spreads."""
    history = values[:-runs]
    ends = [*cuts[:-1], len(history)]
    spans = [slice(start, end) for start, end in itertools.pairwise(ends)]
    freedom = len(history) - len(spans)
    if len(history) < _LEAST_HISTORY or freedom < _SHORTEST:
        return None
    means = [float(cleaned[span].sum()) / (span.stop - span.start) for span in spans]
    # Noise that remembers makes means of neighbours spread more than independent runs would: ask the means themselves.
    tame, wild = (
        _windows([series[span] - mean for span, mean in zip(spans, means, strict=True)], runs)
        for series in (cleaned, history)
    )
    if not tame.size:
        return None
    variance = float(((tame.sum(axis=0) / runs) ** 2).sum()) / tame.shape[1] * len(history) / freedom
    variance = max(variance, ((floor or 0.0) * FLOOR_TO_SIGMA) ** 2 / runs, 1e-8)
    spread = math.sqrt(variance * (1 + runs / (spans[-1].stop - spans[-1].start)))
    shift = float(values[-runs:].mean()) - means[-1]
    side = math.copysign(1, shift)
    least = float((side * (values[-runs:] - means[-1])).min())
    halfwidth = float(special.stdtrit(freedom, 0.975)) * spread
    gaussian = min(1.0, 2 * float(special.stdtr(freedom, -least / spread)))
    seen = float(np.mean((side * wild).min(axis=0) >= min(least, _FAR * spread)))
    return _Tail(runs=runs, shift=shift, halfwidth=halfwidth, gaussian=gaussian, seen=seen)


def _windows(pieces: Sequence[Floats], runs: int) -> Floats:
    columns = [[piece[at : len(piece) - runs + 1 + at] for at in range(runs)] for piece in pieces if len(piece) >= runs]
    return np.concatenate(columns, axis=1) if columns else np.empty((runs, 0))


Asked = tuple[Series, History, Floor | None, AcceptedLevel | None]
"""A series with its history, its noise floor and its accepted level."""
_DRIFTS = 3  # the most drifts that are looked for in a part, one after the other
_NEWS = 2 * MIN_RUNS  # the number of runs for which a new level is news: half of them it takes to be seen


class Latest(Value):
    index: int
    outcome: GateOutcome
    verdict: Verdict | None = None
    change: float | None = None
    """The median latency of the newest run over its level, or the new level over the one before; 1.02 is 2 % slower."""
    attribution: Attribution | None = None
    reason: str


def latest(
    points: Points, first: int, moves: Sequence[Move], line: Floats, own: Sequence[Changepoint], *, floor: float | None
) -> Latest:
    # `first` is where the newest definition begins; `line`, the log latency without drifts, and the indices of `own`, its changepoints, count from there.
    newest = functools.partial(Latest, index=len(points) - 1)
    if math.isnan(points.p50[-1]):
        record = points[-1].record
        failed = list(itertools.takewhile(lambda point: bad(point.record), reversed(points)))
        since = f"; {failing_since(failed[-1].record)}" if len(failed) > 1 else ""
        outcome = GateOutcome.FAILED if failed else GateOutcome.UNDECIDED
        return newest(outcome=outcome, reason=f"{record.status}: {record.reason or 'no value was stored'}{since}")
    news = max(first, len(points) - _NEWS)
    recent = next((move for move in reversed(moves) if move.index >= news or move.last == len(points) - 1), None)
    if recent is not None and abs(math.log(recent.own)) >= math.log1p(DEFAULT.minimum_effect):
        since = "" if recent.last is not None else f"on a new level since run {points[recent.index].record.run_id}: "
        verdict, cause = _towards(math.log(recent.own)), recent.attribution
        newest = functools.partial(newest, verdict=verdict, change=recent.own, attribution=cause)
        return newest(outcome=outcome_of_move(recent.own, cause), reason=f"{since}{recent.reason}")
    here = points[first:]
    judged = judge_newest(line, own, floor=floor, minimum_effect=DEFAULT.minimum_effect)
    if first and len(here) == 1:
        return newest(outcome=GateOutcome.NEW, reason="the first run of a new definition")
    newest = functools.partial(newest, verdict=judged.verdict, change=judged.effect)
    outcome = GateOutcome.UNCHANGED if judged.verdict is Verdict.SAME else GateOutcome.UNDECIDED
    if judged.verdict not in (Verdict.SLOWER, Verdict.FASTER) or judged.effect is None:
        return newest(outcome=outcome, reason=judged.reason)
    measured = here.measured.tolist()
    after, before = measured[-judged.runs], measured[-judged.runs - 1]
    control = shift(here.lines[1], after, (own[-1].index if own else 0, len(here)))
    moved = Interval(judged.effect, judged.effect, judged.effect)
    attribution, why = cause_of(moved, control, here[-1].since(here[before]))
    if judged.runs == 1 and judged.verdict is Verdict.SLOWER:
        outcome = GateOutcome.UNDECIDED
        hint = "one run alone is a suspect: another one, or `pairbench run --confirm`, will tell"
    else:
        outcome = outcome_of_move(judged.effect, attribution)
        hint = "" if judged.runs == 1 else f"{judged.runs} runs in a row"
    reason = "; ".join(filter(None, [judged.reason, hint, why]))
    return newest(outcome=outcome, attribution=attribution, reason=reason)


def unless_accepted(judged: Latest, points: Points, accepted: AcceptedLevel | None) -> Latest:
    if accepted is None or judged.verdict is not Verdict.SLOWER:
        return judged
    last = points[judged.index].record
    run_id = last.confirms or last.run_id
    # A run and those that measured its suspects again count as one, as in a comparison.
    together = [one.record for one in points if one.p50 and run_id in (one.record.run_id, one.record.confirms)]
    metric, acceptance = points[judged.index].latency.p50, accepted.acceptance
    if not accepted.covers(metric, latency_of_runs(together, metric), last.definition_hash):
        return judged
    reason = f"{judged.reason}; accepted in {acceptance.run_id}: {acceptance.reason}"
    return replace(judged, outcome=GateOutcome.UNCHANGED, reason=reason)


class Level(Value):
    """Runs between two moves, or changes of the environment."""

    start: int
    stop: int  # the indices of the level's first and last point
    p50_ns: float
    speedup: float | None
    rise: float = 1.0  # the latency at its end over that at its start: other than 1 in a drift
    speedup_rise: float = 1.0


class Era(Value):
    """A change of environment, or of the GPU, right before a run."""

    index: int
    changes: tuple[EraChange, ...]


class Trend(Value):
    """The history of a series; indices count its points from 0, oldest first."""

    series: Series
    points: Points
    timer: str | None
    control: str | None
    moves: tuple[Move, ...]
    steps: tuple[Step, ...]  # where counts took another value, as far as the points have counts
    levels: tuple[Level, ...]
    eras: tuple[Era, ...]
    definitions: tuple[int, ...]  # the indices of the runs with which a new definition, and so a new series, begins
    newest: Latest | None
    notes: tuple[str, ...] = ()
    latency: Latency = CALL


def make_trend(
    records: Iterable[Record],
    series: Series,
    *,
    timer: str | None = None,
    last: int | None = None,
    floor: Floor | None = None,
    accepted: AcceptedLevel | None = None,
) -> Trend:
    """Return the trend of a series, from all records of its case in its mode on its device model, in any order."""
    # It has the values of one timer, by default that of the newest run, of all runs or of the `last` newest.
    past = history(in_order(records), series.implementation, timer=timer)
    return make_trends([(series, past._replace(points=past.points[-(last or 0) :]), floor, accepted)])[0]


def make_trends(asked: Sequence[Asked]) -> list[Trend]:
    """Return the trends of several series, each from its history; one search goes over all of them."""
    parts = [past.points.by_part() for _, past, *_ in asked]
    lines = [[part.lines for part in several] for several in parts]
    looks = [look for several in lines for own, control in several for look in (own, own - control)]
    found = iter(searched(looks, minimum_effect=DEFAULT.minimum_effect))
    return [_trend(*each, found) for each in zip(asked, parts, lines, strict=True)]


def _trend(asked: Asked, parts: Sequence[Points], several: Sequence[Lines], looks: Iterator[Found]) -> Trend:
    series, past, floor, accepted = asked
    points = past.points
    limit = floor.p50 if floor is not None and floor.latency == points.latency.name else None
    moves: list[Move] = []
    levels: list[Level] = []
    newest = None
    firsts = [0, *itertools.accumulate(map(len, parts[:-1]))]
    for first, here, (latency, control) in zip(firsts, parts, several, strict=False):
        lines, breaks, drifts, found = (latency, control), here.breaks, list[Move](), looks
        for _ in range(_DRIFTS):
            own, sloped = next(found).explained(limit, breaks)
            relative, beside = next(found).explained(limit, breaks)
            if (drift := sloped or beside) is None:
                break
            move, lines = without_drift(here, lines, drift, first=first)
            drifts.append(move)
            found = iter(searched([lines[0], lines[0] - lines[1]], minimum_effect=DEFAULT.minimum_effect))
        steps = moves_of(here, lines, own, relative, first=first)
        moved = sorted([*drifts, *steps], key=lambda move: move.index)
        moves += moved
        sign = 1 if series.implementation == BASELINE else -1
        over_control = latency - control
        ramps = latency - lines[0], over_control - (lines[0] - lines[1])
        places = {end - first for move in moved for end in (move.index, (move.last or move.index - 1) + 1)}
        for begin, end in itertools.pairwise(here.stretches(places)):
            side = slice(begin, end)
            ratio = median_level(over_control[side])
            rise, beside_rise = (math.exp(_rise(ramp[side])) for ramp in ramps)
            level = Level(
                start=first + begin,
                stop=first + end - 1,
                p50_ns=math.exp(median_level(latency[side])),
                speedup=None if math.isnan(ratio) else math.exp(sign * ratio),
                rise=rise,
                speedup_rise=beside_rise**sign,
            )
            levels.append(level)
        if here is parts[-1]:
            newest = latest(points, first, moves, lines[0], own, floor=limit)
    told = functools.partial(Trend, series=series, latency=points.latency, definitions=tuple(firsts[1:]))
    told = functools.partial(told, moves=tuple(moves), levels=tuple(levels), steps=steps_of(points))
    newest = unless_accepted(newest, points, accepted) if newest else None
    return told(**past._asdict(), eras=tuple(_eras(points)), newest=newest)


def _rise(ramp: Floats) -> float:
    known = ramp[~np.isnan(ramp)]
    return float(known[-1] - known[0]) if len(known) else 0.0


def _eras(points: Points) -> Iterator[Era]:
    moved, another = points.changed(np.arange(len(points)))
    for index in (np.flatnonzero(moved | another) + 1).tolist():
        before, after = points[index - 1], points[index]
        changes = era_changes(before.record, after.record)
        if another[index - 1]:
            changes += (EraChange(field="another GPU of the model", reference=before.gpu, current=after.gpu),)
        if changes:
            yield Era(index=index, changes=changes)
