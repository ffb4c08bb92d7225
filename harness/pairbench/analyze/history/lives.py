"""What became of a move: it lasts, a later run took it back, or something else took its place.

Sums of later moves tell, not the newest latency: what drifts slowly, and what an environment does to all alike, takes back
nothing that the code did.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pairbench.analyze.history.moves import Move
from pairbench.analyze.history.trend import Trend
from pairbench.model.comparison import Attribution
from pairbench.model.policy import DEFAULT, Policy


@dataclass(frozen=True, kw_only=True)
class MoveLife:
    """A move, and what became of it."""

    move: Move
    ended: int | None = None
    """Index among the points of the run in which it was no longer so; None while it lasts."""
    superseded: bool = False
    """Whether it ended because something else took its place: a new definition, or of a gain its loss."""


def lives_of(trend: Trend, policy: Policy = DEFAULT) -> tuple[MoveLife, ...]:
    """Return the moves of a series with what became of them, oldest first.

    A move of the control alone is left out, for the control's own series tells of it. So is one that does nothing but take an
    earlier one back, which is that one's end; a gain of the code's that is lost again is a regression, though.

    Args:
        trend: of the series.
        policy: the smallest change that counts.
    """
    moves = [move for move in trend.moves if move.attribution is not None]
    least = math.log1p(policy.minimum_effect)
    lives = [_life(move, moves[place + 1 :], trend.definitions, least) for place, move in enumerate(moves)]
    returns = {life.ended for life in lives if life.ended is not None and not life.superseded}
    return tuple(life for life in lives if life.move.index not in returns or not _only_returns(life, lives, least))


def _life(move: Move, later: Sequence[Move], definitions: Sequence[int], least: float) -> MoveLife:
    new = next((index for index in definitions if index > move.index), None)
    beside = [other for other in later if new is None or other.index < new]
    slower, code = move.size > 1, move.attribution is Attribution.CODE
    levels = itertools.accumulate((_of(other, move) for other in beside), initial=_of(move, move))
    ended = MoveLife(move=move) if new is None else MoveLife(move=move, ended=new, superseded=True)
    for other, level in zip(beside, list(levels)[1:], strict=True):
        gone = level < least if slower else level > -least
        if gone:
            lost = not slower and (code or other.attribution is Attribution.CODE)
            return MoveLife(move=move, ended=other.index, superseded=lost)
    return ended


def _of(other: Move, move: Move) -> float:
    """Return how far another move goes on the scale of one.

    Where the code was the cause, that is relative to the control; else what the control shares, for what the code did since takes
    nothing back of what a driver did.
    """
    if move.attribution is Attribution.CODE:
        return math.log(other.relative if other.relative is not None else other.own)
    return math.log(other.own if other is move or other.control is None else other.control)


def _only_returns(life: MoveLife, lives: Sequence[MoveLife], least: float) -> bool:
    """Return whether a move goes no further than back to where an earlier one began."""
    ended = [one.move for one in lives if one.ended == life.move.index and not one.superseded]
    first = ended[0]
    between = [one.move for one in lives if first.index <= one.move.index <= life.move.index]
    return abs(sum(_of(move, first) for move in between)) < least
