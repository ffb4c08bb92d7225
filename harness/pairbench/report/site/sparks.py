"""Small lines of values over runs, as an SVG without scripts: in rows of the overview and beside events."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pairbench.model.site import Moved
from pairbench.report import units

_WIDTH, _HEIGHT, _EDGE = 100.0, 24.0, 3.0


@dataclass(frozen=True, kw_only=True)
class Spark:
    """A line of values as points in a box of 100 x 24."""

    lines: tuple[str, ...]
    """Points of each stretch without a gap, as SVG wants them."""
    dots: tuple[tuple[float, float], ...]
    """Runs with gaps on both sides, and the newest."""
    one: float | None
    """Height of a speedup of 1 in the box; None where that is outside."""
    mark: float | None
    """Place of the run with which something changed; None for none."""
    trend: float
    """Ratio of the newest speedup to the first."""
    words: str
    """Description of the line for screen readers."""


def spark(
    values: Sequence[float | None],
    what: str = "Speedup in the newest",
    say: Callable[[float], str] = units.ratio,
    mark: int | None = None,
) -> Spark | None:
    """Return the line of some values, oldest first; None where there are fewer than two that are positive.

    Args:
        values: the values.
        what: what they are, for those who do not see the line.
        say: how one of them is said.
        mark: index of the run with which something changed; None for no mark.
    """
    known = [value for value in values if value is not None and 0 < value < math.inf]
    if len(known) < 2:
        return None
    # Ratios are seen as ratios: half is as far from one as double.
    logs = [math.log(value) if value is not None and 0 < value < math.inf else None for value in values]
    low, high = math.log(min(known)), math.log(max(known))
    # A line that hardly moves should look like one.
    reach = max(high - low, 0.05)
    middle = (low + high) / 2

    def across(at: int) -> float:
        return round(_EDGE + (_WIDTH - 2 * _EDGE) * at / (len(values) - 1), 1)

    def point(at: int, log: float) -> tuple[float, float]:
        y = _HEIGHT / 2 - (_HEIGHT - 2 * _EDGE) * (log - middle) / reach
        return across(at), round(y, 1)

    lines: list[list[tuple[float, float]]] = [[]]
    for at, log in enumerate(logs):
        if log is None:
            lines.append([])
        else:
            lines[-1].append(point(at, log))
    one = point(0, 0.0)[1]
    lines = [line for line in lines if line]
    newest = lines[-1][-1]
    return Spark(
        lines=tuple(" ".join(f"{x:g},{y:g}" for x, y in line) for line in lines if len(line) > 1),
        dots=tuple(dict.fromkeys([*(line[0] for line in lines if len(line) == 1), newest])),
        one=one if 0 <= one <= _HEIGHT else None,
        mark=across(mark) if mark is not None else None,
        trend=known[-1] / known[0],
        words=f"{what} {len(known)} runs: first {say(known[0])}, least {say(min(known))}, "
        f"most {say(max(known))}, newest {say(known[-1])}",
    )


def event_spark(moved: Moved) -> Spark | None:
    """Return the line of what moved in the runs around an event, with a mark at the first run that has it."""
    what, say = ("Latency", units.duration) if not moved.counts or moved.change is not None else ("Count", units.count)
    return spark(moved.history, f"{what} in the {len(moved.history)} runs around it, of", say, mark=moved.place)
