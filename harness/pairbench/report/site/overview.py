"""The first page: the store's content, what needs attention, and the state of every operator."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jinja2 import Environment

from pairbench.analyze.site.summary import device_summaries, family_of, is_self_test, operator_summaries
from pairbench.model.site import ATTENTION, STATES, OverviewRow, SiteFacts
from pairbench.report import units
from pairbench.report.site import paths
from pairbench.report.site.event_words import WINDOWS
from pairbench.report.site.pages import render
from pairbench.report.site.regressions import EventRow, event_rows
from pairbench.report.site.strip import strip
from pairbench.report.site.values import File

_EVENTS = 60
"""Number of open events that the page holds, the worst first; it shows the first few that are in the reader's window."""
_COLUMNS = 3
"""Number of device models that have a column of their own; groups of others are in the unfolded rows."""
_WIDTH, _HEIGHT, _EDGE = 100.0, 24.0, 3.0


@dataclass(frozen=True, kw_only=True)
class Spark:
    """A line of speedups as points in a box of 100 x 24."""

    lines: tuple[str, ...]
    """Points of each stretch without a gap, as SVG wants them."""
    dots: tuple[tuple[float, float], ...]
    """Runs with gaps on both sides, and the newest."""
    one: float | None
    """Height of a speedup of 1 in the box; None where that is outside."""
    trend: float
    """Ratio of the newest speedup to the first."""
    words: str
    """Description of the line for screen readers."""


def overview(env: Environment, facts: SiteFacts) -> File:
    """Return the overview."""
    opened = sorted((event for event in facts.events if event.open), key=lambda event: ATTENTION.index(event.worst))
    return render(
        env,
        "index.html.j2",
        paths.OVERVIEW,
        facts,
        attention=_attention(event_rows(opened, facts)),
        closed=len(facts.events) - len(opened),
        windows=WINDOWS,
        choices=_choices(facts.rows),
        summaries=operator_summaries(facts.rows),
        headlines=device_summaries(facts.rows, facts.self_tests),
        left_out=sorted({row.suite for row in facts.rows if is_self_test(row.suite, facts.self_tests)}),
        matrix=_matrix(facts.rows),
        varies={name: len(values) > 1 for name, values in _choices(facts.rows).items()},
        strip=strip,
        is_self_test=is_self_test,
        devices=_distinct(run.device_name for run in facts.runs),
        events=event_rows(opened[:_EVENTS], facts),
        measured=any(row.statuses.get("measured") for row in facts.rows),
        ranks={state: rank for rank, state in enumerate(STATES)},
        spark=spark,
    )


def _attention(opened: Sequence[EventRow]) -> dict[str, dict[str, int]]:
    """Return how many events of each outcome are open, in all (by the empty name) and in each window."""
    return {
        str(outcome): {
            name: sum(one.event.worst == outcome and (not name or name in one.windows) for one in opened)
            for name in ("", *WINDOWS)
        }
        for outcome in ATTENTION
    }


def spark(values: Sequence[float | None]) -> Spark | None:
    """Return the line of some speedups, oldest first; None where there are fewer than two."""
    known = [value for value in values if value is not None and 0 < value < math.inf]
    if len(known) < 2:
        return None
    # Ratios are seen as ratios: half is as far from one as double.
    logs = [math.log(value) if value is not None and 0 < value < math.inf else None for value in values]
    low, high = math.log(min(known)), math.log(max(known))
    # A line that hardly moves should look like one.
    reach = max(high - low, 0.05)
    middle = (low + high) / 2

    def point(at: int, log: float) -> tuple[float, float]:
        x = _EDGE + (_WIDTH - 2 * _EDGE) * at / (len(values) - 1)
        y = _HEIGHT / 2 - (_HEIGHT - 2 * _EDGE) * (log - middle) / reach
        return round(x, 1), round(y, 1)

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
        trend=known[-1] / known[0],
        words=f"Speedup in the newest {len(known)} runs: first {units.ratio(known[0])}, least {units.ratio(min(known))}, "
        f"most {units.ratio(max(known))}, newest {units.ratio(known[-1])}",
    )


def _matrix(rows: Sequence[OverviewRow]) -> list[str]:
    """Return the device models that have a column: those that measured most, in the order of their names."""
    counts = Counter(device for device, _, _ in {(row.device_name, row.suite, row.operator) for row in rows})
    return sorted(device for device, _ in counts.most_common(_COLUMNS))


def _choices(rows: Sequence[OverviewRow]) -> dict[str, list[str]]:
    """Return what there is to filter by, each in an order that a reader expects."""
    return {
        "family": _distinct(family_of(row.suite) for row in rows),
        "device": _distinct(row.device_name for row in rows),
        "dtype": _distinct(row.dtype for row in rows if row.dtype),
        "tier": _distinct(row.tier for row in rows),
        "mode": _distinct(row.mode for row in rows),
        "state": [state for state in STATES if any(row.state == state for row in rows)],
    }


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted(set(values))
