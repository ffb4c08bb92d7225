"""The first page: the store's content, what needs attention, and the state of every operator."""

from collections import Counter
from collections.abc import Iterable, Sequence

from jinja2 import Environment

from pairbench.analyze.site.summary import device_summaries, family_of, is_self_test, operator_summaries
from pairbench.model.site import ATTENTION, STATES, OverviewRow, SiteFacts
from pairbench.report.site import paths
from pairbench.report.site.event_words import WINDOWS
from pairbench.report.site.pages import render
from pairbench.report.site.regressions import EventRow, event_rows
from pairbench.report.site.sparks import spark
from pairbench.report.site.strip import strip
from pairbench.report.site.values import File

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
