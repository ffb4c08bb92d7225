"""The overview and the pages of runs: the store's content, the state of every operator, each run, and two of them side by side."""

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace

from jinja2 import Environment

from pairbench.model.site import (
    ATTENTION,
    LIVES,
    STATES,
    Event,
    OverviewRow,
    RunHead,
    RunVerdicts,
    SeriesFacts,
    SiteFacts,
)
from pairbench.site import paths
from pairbench.site.event_pages import WINDOWS, changes, event_rows, headline
from pairbench.site.events import TOLD_TOGETHER
from pairbench.site.marks import event_spark, spark, strip
from pairbench.site.night import newest_night
from pairbench.site.paths import File, RunFacts
from pairbench.site.payload import beside_result, grouped, run_payload, script, series_anchor
from pairbench.site.summary import device_summaries, family_of, is_self_test, operator_summaries
from pairbench.site.templates import operators_of, render

_EVENTS = 60
"""Number of open events that the page holds, the worst first; it shows the first few that are in the reader's window."""
_COLUMNS = 3  # number of device models whose column is seen at first; those of others where a reader chooses them
_MOST = 12  # number of device models that have a column at all; groups of others are in the unfolded rows


def overview(env: Environment, facts: SiteFacts) -> File:
    opened = sorted((event for event in facts.events if event.open), key=lambda event: ATTENTION.index(event.worst))
    rows, new = facts.rows, [event for event in opened if event.is_new]
    choices = {
        "family": sorted({family_of(row.suite) for row in rows}),
        "device": sorted({row.device_name for row in rows}),
        "dtype": sorted({row.dtype for row in rows} - {""}),
        "tier": sorted({row.tier for row in rows}),
        "mode": sorted({row.mode for row in rows}),
        "state": sorted({row.state for row in rows}, key=STATES.index),
    }
    return render(
        env,
        "index.html.j2",
        paths.OVERVIEW,
        facts,
        attention=_attention(event_rows(new, facts)),
        known=event_rows((event for event in opened if not event.is_new), facts),
        worst_moves=_worst_moves(opened),
        closed=len(facts.events) - len(opened),
        windows=WINDOWS,
        night=newest_night(facts),
        choices=choices,
        summaries=operator_summaries(rows),
        headlines=device_summaries(facts.rows, facts.self_tests),
        left_out=sorted({row.suite for row in facts.rows if is_self_test(row.suite, facts.self_tests)}),
        matrix=_matrix(facts.rows),
        columns=_COLUMNS,
        varies={name: len(values) > 1 for name, values in choices.items()},
        strip=strip,
        is_self_test=is_self_test,
        devices=sorted({run.device_name for run in facts.runs}),
        events=event_rows(new[:_EVENTS], facts),
        measured=any(row.statuses.get("measured") for row in facts.rows),
        ranks={state: rank for rank, state in enumerate(STATES)},
        spark=spark,
        event_spark=event_spark,
    )


def _worst_moves(opened: Iterable[Event]) -> dict[tuple[str, str, str], SimpleNamespace]:
    """Return the largest open move for the worse by suite, operator and state, those of new events first."""
    found: dict[tuple[str, str, str], SimpleNamespace] = {}
    parts = [(whole, part) for whole in opened for part in whole.everywhere if part.kind not in TOLD_TOGETHER]
    for whole, part, moved in [(*pair, moved) for pair in parts for moved in pair[1].moved]:
        if moved.life != LIVES[0] or moved.outcome not in ATTENTION[:3]:
            continue
        key = moved.series.suite, moved.series.operator, str(moved.outcome)
        rank = not whole.is_new, -math.inf if moved.size is None else -abs(moved.size - 1)
        if key not in found or rank < found[key].rank:
            told = {"changes": changes(moved, part.kind), "since": part.after.started_at[:10]}
            found[key] = SimpleNamespace(rank=rank, event=whole, moved=moved, **told)
    return found


def _attention(opened: Sequence[SimpleNamespace]) -> dict[str, dict[str, int]]:
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


_REASONS = 200
"""Number of series without a measurement that a run's page lists with reasons; the table below has all of them."""
_CASES = 40  # number of new cases of an operator that a run's page lists

_BAD = ("failed", "mismatched", "timeout", "oom")
_VERDICTS = ("regression", "failed", "improvement", "new", "undecided")


def runs(env: Environment, facts: SiteFacts, verdicts: Mapping[tuple[str, str], RunVerdicts]) -> File:
    return render(
        env,
        "runs.html.j2",
        paths.RUNS,
        facts,
        verdicts=verdicts,
        choices={
            "device": sorted({head.device_name for head in facts.runs}),
            "branch": sorted({head.branch for head in facts.runs if head.branch}),
            "host": sorted({head.hostname for head in facts.runs}),
            "environment": list(dict.fromkeys(head.environment_hash for head in facts.runs)),
        },
        bad=lambda head: sum(head.statuses.get(status, 0) for status in _BAD),
        told=lambda counts: {name: counts[name] for name in _VERDICTS if name in counts},
    )


def run(env: Environment, facts: SiteFacts, one: RunFacts) -> tuple[File, File]:
    """Return the page of a run, and the script with its numbers, which `compare` loads too."""
    key = one.head.run_id, one.head.device_name
    told = one.verdicts.changes if one.verdicts is not None else ()
    references = list(one.verdicts.references) if one.verdicts is not None else []
    added: dict[tuple[str, str], dict[str, list[tuple[str, str]]]] = {}
    for new in one.verdicts.new if one.verdicts is not None else ():
        cases = added.setdefault((new.suite, new.operator), {})
        cases.setdefault(new.case, []).append((new.implementation, series_anchor(new)))
    operators = Counter((series.series.suite, series.series.operator) for series in one.series)

    def worst_first(one: SeriesFacts) -> tuple[int, str, str]:
        rank = _BAD.index(one.status) if one.status in _BAD else len(_BAD)
        return rank, one.series.suite, one.series.case

    here = [event for event in facts.events if event.device_name == one.head.device_name]
    troubled = [series for series in one.series if series.status != "measured"]
    page = render(
        env,
        "run.html.j2",
        paths.run_page(*key),
        facts,
        run=one,
        groups=grouped(one.environment),
        troubled=sorted(troubled, key=worst_first)[:_REASONS],
        troubles=len(troubled),
        operators=[(*name, number) for name, number in sorted(operators.items())],
        beside=beside_result(one.series),
        data=data_name(*key),
        source=paths.run_data(*key),
        ends=dict.fromkeys([*references[:1], *references[-1:]]),
        added=added,
        most=_CASES,
        changed=[(change, series_anchor(change.series)) for change in told[:_REASONS]],
        began=[(event, headline(event)) for event in here if event.after.run_id == one.head.run_id],
        ended=[(event, headline(event)) for event in here if event.ended == one.head.run_id],
    )
    payload = run_payload(one, operators_of(facts), facts.beside.get(key))
    return page, File(path=paths.run_data(*key), content=script(data_name(*key), payload))


def compare(env: Environment, facts: SiteFacts) -> File:
    """Return the page that compares two runs, of one device model or of two."""
    devices: dict[str, list[RunHead]] = {}
    for head in facts.runs:
        devices.setdefault(head.device_name, []).append(head)
    return render(
        env,
        "compare.html.j2",
        paths.COMPARE,
        facts,
        options=shlex.join(facts.options),
        devices=devices,
        beside=facts.beside,
        comparable=len(facts.runs) > 1,
        data_name=data_name,
        source=paths.run_data,
    )


def data_name(run_id: str, device_name: str) -> str:
    """Return the name that a run's data has in the page."""
    return paths.run_data(run_id, device_name).removesuffix(".js")
