"""What the pages are written from, beside the facts that all of them share."""

from collections.abc import Mapping
from dataclasses import dataclass

from pairbench.analyze.history.trend import Trend
from pairbench.model.site import About, Event, OverviewRow, RunHead, SeriesFacts


@dataclass(frozen=True, kw_only=True)
class OperatorFacts:
    """Everything that the page of an operator on a device model shows."""

    device_name: str
    suite: str
    operator: str
    about: About | None
    """What its suite's file says; None where that file is not here."""
    series: tuple[SeriesFacts, ...]
    """By case, then baseline and variants in the order of their names, then mode."""
    trends: tuple[Trend, ...]
    """One for each series, in the same order; all have points in runs that `SiteFacts.runs` lists."""
    ceilings: Mapping[str, float]
    """Of the newest run that has them: copy_gbps, float32_tflops, bfloat16_tflops and so on."""
    rows: tuple[OverviewRow, ...]
    """Of the overview."""
    events: tuple[Event, ...]
    """Those in which a series of it moved, newest first."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Everything that the page of a run shows, and what it is compared by."""

    head: RunHead
    environment: Mapping[str, object]
    """All that was recorded of it."""
    series: tuple[SeriesFacts, ...]
    """Of this run; `kernels` and `quantiles` are left out."""
    broken: tuple[tuple[str, str], ...]
    """Suites that could not be loaded, each with the reason."""
    remeasured_blocks: int
    throttle_reasons: Mapping[str, int]
    """How many series met each."""
    stop_reasons: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of the site."""

    path: str
    """Relative to the root, with slashes."""
    content: bytes
