"""The list of runs, the page of each, and the page that compares two of them."""

import shlex
from collections.abc import Sequence

from jinja2 import Environment

from pairbench.model.comparison import Change
from pairbench.model.site import Event, RunHead, SeriesFacts, SiteFacts
from pairbench.site.pages import paths
from pairbench.site.pages.event_words import headline
from pairbench.site.pages.operator_payload import beside_result, grouped, run_payload, script, series_anchor
from pairbench.site.pages.pages import operators_of, render
from pairbench.site.pages.paths import File, RunFacts

SHOWN = 200
"""Number of series without a measurement that a run's page lists with reasons; the table below has all of them."""

_BAD = ("failed", "mismatched", "timeout", "oom")


def runs(env: Environment, facts: SiteFacts) -> File:
    """Return the list of runs."""
    return render(
        env,
        "runs.html.j2",
        paths.RUNS,
        facts,
        choices={
            "device": sorted({head.device_name for head in facts.runs}),
            "branch": sorted({head.branch for head in facts.runs if head.branch}),
            "host": sorted({head.hostname for head in facts.runs}),
            "environment": list(dict.fromkeys(head.environment_hash for head in facts.runs)),
        },
        bad=_bad,
    )


def run(env: Environment, facts: SiteFacts, one: RunFacts) -> tuple[File, File]:
    """Return the page of a run, and the script with its numbers, which `compare` loads too."""
    key = one.head.run_id, one.head.device_name
    troubled = [series for series in one.series if series.status != "measured"]
    page = render(
        env,
        "run.html.j2",
        paths.run_page(*key),
        facts,
        run=one,
        groups=grouped(one.environment),
        troubled=sorted(troubled, key=_worst_first)[:SHOWN],
        troubles=len(troubled),
        operators=_operators(one.series),
        beside=beside_result(one.series),
        data=data_name(*key),
        source=paths.run_data(*key),
        changed=_changed(one),
        began=[(event, headline(event)) for event in facts.events if _here(event.after.run_id, key, event)],
        ended=[(event, headline(event)) for event in facts.events if _here(event.ended, key, event)],
    )
    return page, File(path=paths.run_data(*key), content=script(data_name(*key), run_payload(one, operators_of(facts))))


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


def _here(run_id: str | None, key: tuple[str, str], event: Event) -> bool:
    """Return whether an event began, or ended, in a run on its device model."""
    return (run_id, event.device_name) == key


def _changed(one: RunFacts) -> list[tuple[Change, str]]:
    """Return what a run changed, each with the id of its series on its operator's page."""
    told = one.verdicts.changes if one.verdicts is not None else ()
    return [(change, series_anchor(change.series)) for change in told[:SHOWN]]


def data_name(run_id: str, device_name: str) -> str:
    """Return the name that a run's data has in the page."""
    return paths.run_data(run_id, device_name).removesuffix(".js")


def _bad(head: RunHead) -> int:
    return sum(head.statuses.get(status, 0) for status in _BAD)


def _worst_first(one: SeriesFacts) -> tuple[int, str, str]:
    return (_BAD.index(one.status) if one.status in _BAD else len(_BAD), one.series.suite, one.series.case)


def _operators(series: Sequence[SeriesFacts]) -> list[tuple[str, str, int]]:
    """Return suite, operator and number of series of each operator."""
    counts: dict[tuple[str, str], int] = {}
    for one in series:
        key = (one.series.suite, one.series.operator)
        counts[key] = counts.get(key, 0) + 1
    return [(suite, operator, number) for (suite, operator), number in sorted(counts.items())]
