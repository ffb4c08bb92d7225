"""The page of an operator on a device model, the script with what its charts show, and its static figures."""

import shlex
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath

from jinja2 import Environment

from pairbench.analyze.site.verdict import operator_verdict
from pairbench.model.outcome import Status
from pairbench.model.settings import about_precision
from pairbench.model.site import SiteFacts
from pairbench.report.charts.roofline import roofline_chart, roofline_summary
from pairbench.report.charts.roofline_figure import roofline_figure
from pairbench.report.charts.series_figure import SUFFIXES, to_bytes
from pairbench.report.charts.speedup import speedup_chart, speedup_summary
from pairbench.report.charts.speedup_figure import speedup_figure
from pairbench.report.comparison.words import shorten
from pairbench.report.limits import LIMITS
from pairbench.report.site import operator_view, paths
from pairbench.report.site.event_words import headline
from pairbench.report.site.heat import heat_map
from pairbench.report.site.operator_payload import operator_payload, series_id
from pairbench.report.site.pages import render
from pairbench.report.site.payload import beside_result, script
from pairbench.report.site.values import File, OperatorFacts

TEMPLATE = "operator.html.j2"
FIGURES = ("speedup", "roofline")
"""Kinds of static figures; a roofline needs declared costs."""


def operator(
    environment: Environment, facts: SiteFacts, operator: OperatorFacts, *, drawn: Collection[str] = ()
) -> Iterator[File]:
    """Yield the page and its data script.

    Args:
        environment: that `pages.environment` made.
        facts: what every page knows.
        operator: what this page shows.
        drawn: kinds of `FIGURES` that `operator_figures` writes, to be linked.
    """
    key = (operator.device_name, operator.suite, operator.operator)
    page, data = paths.operator_page(*key), paths.operator_data(*key)
    name = str(PurePosixPath(data).with_suffix(""))
    speedups = speedup_chart(operator.series)
    roofline = roofline_chart(operator.series, operator.ceilings)
    rows = operator_view.rows(operator)
    yield render(
        environment,
        TEMPLATE,
        page,
        facts,
        operator=operator,
        data=data,
        name=name,
        newest=operator_view.newest(facts, operator),
        summaries=operator.rows,
        verdict=operator_verdict(operator.rows, operator.series),
        heat=heat_map(operator.series),
        no_change=operator_view.no_change(operator),
        precision=about_precision(
            one.texts.get("float32_precision") for one in operator.series if one.texts.get("device_uuid")
        ),
        breakdowns=[one for one in facts.breakdowns if (one.device_name, one.suite, one.operator) == key],
        headline=headline,
        rows=rows,
        known=any(point.state != "none" for point in speedups.points),
        measured=any(row.facts.status == Status.MEASURED for row in rows),
        next=_next(operator, tried=bool(rows)),
        beside=beside_result(operator.series),
        choices=operator_view.choices(rows),
        limited=operator_view.limited(rows),
        LIMITS=LIMITS,
        series_id=series_id,
        speedup=speedups,
        speedup_summary=speedup_summary(speedups),
        roofline=roofline,
        roofline_summary=roofline_summary(roofline),
        figures={
            kind: [(suffix[1:].upper(), paths.figure(kind, *key, suffix)) for suffix in SUFFIXES]
            for kind in FIGURES
            if kind in drawn
        },
    )
    yield File(path=data, content=script(name, operator_payload(facts, operator)))


def _next(operator: OperatorFacts, *, tried: bool) -> str:
    """Return the command that helps where nothing was measured: as it is typed, whatever the names are."""
    verb = "verify" if tried else "run"
    return shlex.join(["pairbench", verb, shorten(f"{operator.suite}::{operator.operator}", 300)])


def operator_figures(operator: OperatorFacts) -> Iterator[File]:
    """Yield the static figures of an operator, for pull requests: of each of `FIGURES` that has anything to show."""
    key = (operator.device_name, operator.suite, operator.operator)
    for kind in drawn_of(operator):
        figure = (
            speedup_figure(operator.series)
            if kind == "speedup"
            else roofline_figure(operator.series, operator.ceilings)
        )
        for suffix in SUFFIXES:
            yield File(path=paths.figure(kind, *key, suffix), content=to_bytes(figure, suffix))


def drawn_of(operator: OperatorFacts) -> tuple[str, ...]:
    """Return the kinds of `FIGURES` that an operator has anything to show in."""
    points = {
        "speedup": any(point.state != "none" for point in speedup_chart(operator.series).points),
        "roofline": bool(roofline_chart(operator.series, operator.ceilings).points),
    }
    return tuple(kind for kind in FIGURES if points[kind])
