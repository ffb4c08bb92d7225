"""The values that pages are written from, beside the facts that all of them share."""

from collections.abc import Mapping
from dataclasses import dataclass

from pairbench.analyze.history.trend import Trend
from pairbench.model.site import About, Event, OverviewRow, RunHead, RunVerdicts, SeriesFacts


@dataclass(frozen=True, kw_only=True)
class OperatorFacts:
    """Everything that the page of an operator on a device model shows."""

    device_name: str
    suite: str
    operator: str
    about: About | None
    """Description from the operator's suite file; None where that file is not here."""
    series: tuple[SeriesFacts, ...]
    """Series ordered by case, then baseline and variants by name, then mode."""
    trends: tuple[Trend, ...]
    """Trends of the series, in the same order; all have points in runs that `SiteFacts.runs` lists."""
    ceilings: Mapping[str, float]
    """Ceilings of the newest run that has them: copy_gbps, float32_tflops, bfloat16_tflops and so on."""
    rows: tuple[OverviewRow, ...]
    """Rows of the overview that show the operator."""
    events: tuple[Event, ...]
    """Events in which a series of the operator moved, the newest first."""
    elsewhere: tuple[str, ...] = ()
    """Other device models on which it was measured."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Everything that the page of a run shows, and that runs are compared by."""

    head: RunHead
    environment: Mapping[str, object]
    """The recorded environment of the run."""
    series: tuple[SeriesFacts, ...]
    """Series of this run; their `kernels` and `quantiles` are left out."""
    broken: tuple[tuple[str, str], ...]
    """Suites that could not be loaded, each with the reason."""
    remeasured_blocks: int
    throttle_reasons: Mapping[str, int]
    """Number of series that met each throttle reason."""
    verdicts: RunVerdicts | None = None
    """What judging it beside an earlier run says; None where it was not judged."""
    stop_reasons: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of the site."""

    path: str
    """Path relative to the site's root, with slashes."""
    content: bytes
