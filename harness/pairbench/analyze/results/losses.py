"""Where variants lose, and the one condition on a case that tells it best: a map of many cases in a line."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pairbench.model.latency import speedup_of
from pairbench.model.outcome import Status
from pairbench.model.record import Record
from pairbench.model.results import AxisBound, CaseResults, LossCondition, Losses, ModeResults

SIZE = "bytes"
"""The name under which conditions speak of the size of a case: the bytes that it demands."""
_FEWEST = 4
"""The number of cases below which any axis would tell them apart."""
_TELLS = 0.75
"""The part of the losing cases that a condition must hold, less the part of the others that it holds."""
_ENOUGH, _MORE, _MANY = 0.95, 0.1, 20
"""Up to `_ENOUGH`, one bound leaves room for a second; the two must tell `_MORE` more, and of `_MANY` cases."""


@dataclass(frozen=True, kw_only=True)
class CasePoint:
    """A case in which a variant was measured."""

    axes: Mapping[str, object]
    """The case's axes, and its size under SIZE."""
    loses: bool


def losses_of(cases: Sequence[CaseResults]) -> tuple[Losses, ...]:
    """Return where each variant is proven slower in each mode, those that lose nowhere left out; the most losses first."""
    found: dict[tuple[str, str], list[tuple[CaseResults, Record]]] = {}
    for case, mode, record in _measured(cases):
        found.setdefault((str(record.implementation), mode.mode), []).append((case, record))
    losses = [
        Losses(
            implementation=implementation,
            mode=mode,
            losing=tuple(
                sorted((record for _, record in rows if loses(record)), key=lambda record: speedup_of(record) or ())
            ),
            measured=len(rows),
            where=condition_of([_point(case, record) for case, record in rows]),
        )
        for (implementation, mode), rows in found.items()
    ]
    return tuple(sorted((one for one in losses if one.losing), key=lambda one: (-len(one.losing), one.implementation)))


def loses(record: Record) -> bool:
    """Return whether a variant is proven slower: its whole interval lies below 1."""
    speedup = speedup_of(record)
    return record.status == Status.MEASURED and speedup is not None and speedup.high < 1


def condition_of(points: Sequence[CasePoint]) -> LossCondition | None:
    """Return the condition that best tells losing cases from the others; None where all lose, one or none does, or none tells them.

    A second bound is taken where it tells much more than the first alone: more of them would fit any map.
    """
    losing = sum(point.loses for point in points)
    if len(points) < _FEWEST or losing in (0, 1, len(points)):
        return None

    def telling(one: LossCondition) -> float:
        return one.inside[0] / losing - (one.inside[1] - one.inside[0]) / (len(points) - losing)

    terms = list(_terms(points))
    singles = [_counted(points, (term,)) for term in terms]
    best = max(singles, key=telling, default=None)
    if best is None:
        return None
    if telling(best) < _ENOUGH and len(points) >= _MANY:
        pairs = (_counted(points, pair) for pair in itertools.combinations(terms, 2) if pair[0].axis != pair[1].axis)
        second = max(pairs, key=telling, default=best)
        best = second if telling(second) >= telling(best) + _MORE else best
    return best if telling(best) >= _TELLS and best.inside[0] > 1 else None


def _measured(cases: Sequence[CaseResults]) -> Iterator[tuple[CaseResults, ModeResults, Record]]:
    for case in cases:
        for mode in case.modes:
            for record in mode.variants:
                if record.status == Status.MEASURED and speedup_of(record) is not None:
                    yield case, mode, record


def _point(case: CaseResults, record: Record) -> CasePoint:
    axes: dict[str, object] = dict(case.case.axes)
    if case.bytes_moved is not None:
        axes[SIZE] = case.bytes_moved
    return CasePoint(axes=axes, loses=loses(record))


def _terms(points: Sequence[CasePoint]) -> Iterator[AxisBound]:
    """Yield every bound there is, on a case's own axes before its size."""
    names = sorted({name for point in points for name in point.axes}, key=lambda name: (name == SIZE, name))
    for name in names:
        values = list(dict.fromkeys(point.axes[name] for point in points if name in point.axes))
        if all(_number(value) for value in values):
            yield from (
                AxisBound(axis=name, relation=relation, value=value)
                for relation in (">=", "<=")
                for value in sorted(values, key=_key)
            )
        else:
            yield from (AxisBound(axis=name, relation="=", value=value) for value in values)


def _counted(points: Sequence[CasePoint], terms: tuple[AxisBound, ...]) -> LossCondition:
    inside = [point.loses for point in points if all(_meets(point, term) for term in terms)]
    losing = sum(point.loses for point in points)
    return LossCondition(
        terms=terms,
        inside=(sum(inside), len(inside)),
        outside=(losing - sum(inside), len(points) - len(inside)),
    )


def _meets(point: CasePoint, term: AxisBound) -> bool:
    if term.axis not in point.axes:
        return False
    value = point.axes[term.axis]
    if term.relation == "=":
        return value == term.value
    return _key(value) >= _key(term.value) if term.relation == ">=" else _key(value) <= _key(term.value)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _key(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
