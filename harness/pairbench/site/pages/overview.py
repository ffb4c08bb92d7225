"""The first page: the store's content, what needs attention, and the state of every operator.

A strip of speedups on a logarithmic scale: one dot a group, stacked where they lie close, as an SVG without scripts.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jinja2 import Environment

from pairbench.model.site import ATTENTION, STATES, OverviewRow, SiteFacts
from pairbench.report import units
from pairbench.site.judging.summary import device_summaries, family_of, is_self_test, operator_summaries
from pairbench.site.pages import paths
from pairbench.site.pages.event_words import WINDOWS
from pairbench.site.pages.marks import spark
from pairbench.site.pages.pages import render
from pairbench.site.pages.paths import File
from pairbench.site.pages.regressions import EventRow, event_rows

_BINS = 90
_HIGHEST = 12
"""Number of dots that fit on each other; more are drawn over the highest."""
_FAR = 8.0
"""How many times further than the median from 1x a group lies that is named."""
_NAMED = 4
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Dots in a box of 100 x 40, y counted from its top."""

    dots: tuple[tuple[float, float, str], ...]
    """Place and state of each: faster, open or slower."""
    ticks: tuple[tuple[float, str], ...]
    one: float
    """Place of 1x."""
    far: tuple[OverviewRow, ...]
    """Groups that lie far from all others, the furthest first."""
    words: str


def strip(groups: Sequence[OverviewRow], median: float | None, among: Sequence[OverviewRow] = ()) -> Strip | None:
    """Return the strip of some groups; None where fewer than three have a speedup.

    Args:
        groups: what to show.
        median: of their speedups, from which others lie far.
        among: groups whose speedups the scale holds, too, so that several strips can be compared; then one group is enough.
    """
    known = [(row, row.speedup) for row in groups if row.speedup is not None and row.speedup.estimate > 0]
    if len(known) < (1 if among else 3) or median is None:
        return None
    values = [speedup.estimate for _, speedup in known]
    scale = [*values, *(row.speedup.estimate for row in among if row.speedup is not None and row.speedup.estimate > 0)]
    low, high = math.log(min(*scale, 0.9)), math.log(max(*scale, 1.1))
    reach = 1.04 * (high - low)
    start = low - 0.02 * (high - low)

    def place(value: float) -> float:
        return round(100 * (math.log(value) - start) / reach, 2)

    stacked: Counter[int] = Counter()
    dots = []
    for _, speedup in sorted(known, key=lambda pair: pair[1].estimate):
        own = int(place(speedup.estimate) * _BINS / 100)
        state = "faster" if speedup.low > 1 else "slower" if speedup.high < 1 else "open"
        height = min(stacked[own], _HIGHEST)
        dots.append((round(100 * (own + 0.5) / _BINS, 2), round(38 - 3.0 * height, 1), state))
        stacked[own] += 1
    ticks = [(place(tick), f"{tick:g}x") for tick in _TICKS if low <= math.log(tick) <= high]
    step = max(1, math.ceil(len(ticks) / 6))
    middle = next((number for number, (_, label) in enumerate(ticks) if label == "1x"), 0)
    far = sorted(known, key=lambda pair: -abs(math.log(pair[1].estimate) - math.log(median)))
    limit = max(math.log(_FAR), abs(math.log(median)) * 2)
    return Strip(
        dots=tuple(dots),
        ticks=tuple(tick for number, tick in enumerate(ticks) if (number - middle) % step == 0),
        one=place(1.0),
        far=tuple(row for row, value in far if abs(math.log(value.estimate) - math.log(median)) > limit)[:_NAMED],
        words=f"{len(known)} speedups from {units.ratio(min(values))} to {units.ratio(max(values))}, median {units.ratio(median)}",
    )


_EVENTS = 60
"""Number of open events that the page holds, the worst first; it shows the first few that are in the reader's window."""
_COLUMNS = 3
"""Number of device models whose column is seen at first; those of others where a reader chooses them."""
_MOST = 12
"""Number of device models that have a column at all; groups of others are in the unfolded rows."""


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
        columns=_COLUMNS,
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


def _matrix(rows: Sequence[OverviewRow]) -> list[str]:
    """Return the device models that have a column: the few that measured most in the order of their names, then all others."""
    counts = Counter(device for device, _, _ in {(row.device_name, row.suite, row.operator) for row in rows})
    ordered = [device for device, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]
    return sorted(ordered[:_COLUMNS]) + sorted(ordered[_COLUMNS:_MOST])


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
