"""Where each page lies in the site, relative to its root, and the values that pages are written from.

Names come from anywhere, so none of them becomes a path: what is not plain is left out of the file's name, and a digest
of the whole name keeps names apart that then look the same.
"""

import hashlib
import re
from collections.abc import Collection, Mapping

from pairbench.analyze.history.trend import Trend
from pairbench.model.breakdown import KeptBreakdown
from pairbench.model.plain import Value
from pairbench.model.record import Series
from pairbench.model.site import About, BreakdownHead, Event, OverviewRow, RunHead, RunVerdicts, SeriesFacts
from pairbench.site.events import SeriesEvent
from pairbench.site.store_events import Shift


class Contribution(Value):
    """The values of an operator on a device model that the pages of all operators are made from."""

    rows: tuple[OverviewRow, ...]  # rows of the overview that show the operator
    happened: tuple[SeriesEvent, ...] = ()
    shifts: tuple[Shift, ...] = ()
    ratios: tuple[Mapping[str, float], ...] = ()  # latencies of each GPU to those of the median GPU, by series
    first_run: str = ""
    series: tuple[Series, ...] = ()
    owner: str = ""


class OperatorFacts(Value):
    device_name: str
    suite: str
    operator: str
    about: About | None  # description from the operator's suite file; None where that file is not here
    series: tuple[SeriesFacts, ...]  # series ordered by case, then baseline and variants by name, then mode
    trends: tuple[Trend, ...]  # in the order of the series; all have points in runs that `SiteFacts.runs` lists
    ceilings: Mapping[str, float]  # of the newest run that has them: copy_gbps, float32_tflops and so on
    events: tuple[Event, ...]  # events in which a series of the operator moved, the newest first
    contribution: Contribution
    elsewhere: tuple[str, ...] = ()  # other device models on which it was measured


class RunFacts(Value):
    head: RunHead
    environment: Mapping[str, object]  # the recorded environment of the run
    series: tuple[SeriesFacts, ...]  # series of this run; their `kernels` and `quantiles` are left out
    broken: tuple[tuple[str, str], ...]  # suites that could not be loaded, each with the reason
    remeasured_blocks: int
    throttle_reasons: Mapping[str, int]  # number of series that met each throttle reason
    verdicts: RunVerdicts | None = None  # what judging it beside an earlier run says; None where it was not judged
    stop_reasons: Mapping[str, int]
    pages: Collection[tuple[str, str, str]] = ()
    """Device model, suite and operator of each operator that has a page, on this run's device model."""


class File(Value):
    path: str  # path relative to the site's root, with slashes
    content: bytes


def head_of(kept: KeptBreakdown) -> BreakdownHead:
    names = ("breakdown_id", "made_at", "device_name", "suite", "operator", "case")
    entries = tuple(str(part.entry) for part in kept.parts)
    return BreakdownHead(**{name: getattr(kept, name) for name in names}, entries=entries)


OVERVIEW = "index.html"
REGRESSIONS = "regressions.html"
COMPARE = "compare.html"
RUNS = "runs.html"
BREAKDOWNS = "breakdowns.html"
GPUS = "gpus.html"

_LONGEST = 40


def operator_page(device_name: str, suite: str, operator: str) -> str:
    return f"operators/{_file(operator, device_name, suite, operator)}.html"


def run_page(run_id: str, device_name: str) -> str:
    return f"runs/{run_key(run_id, device_name)}.html"


def breakdown_page(breakdown_id: str, device_name: str) -> str:
    return f"breakdowns/{run_key(breakdown_id, device_name)}.html"


def data_of(page: str) -> str:
    """Return the script that has the data of a page; without its suffix this is the name of the data, too."""
    return f"{page.removesuffix('.html')}.js"


def run_key(run_id: str, device_name: str) -> str:
    """Return what a run on one device model is called in addresses."""
    return _file(run_id, run_id, device_name)


def badge(device_name: str, suite: str, operator: str) -> str:
    return f"badges/{_file(operator, device_name, suite, operator)}.svg"


def relative(page: str, target: str) -> str:
    return "../" * page.count("/") + target


def anchor(text: str) -> str:
    return _file(text, text)


def digest(text: str) -> str:
    """Return a short id for one of many things on a page, which nobody reads."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def _file(shown: str, *whole: str) -> str:
    words = re.sub(r"[^a-z0-9_]+", "-", shown.lower()).strip("-_")[:_LONGEST].strip("-_")
    return "-".join(filter(None, (words, digest("\0".join(whole)))))
