"""Where each page lies in the site, relative to its root, the values that pages are written from, and the cache of what was made before.

Names come from anywhere, so none of them becomes a path: what is not plain is left out of the file's name, and a digest
of the whole name keeps names apart that then look the same.

The cache knows what each part of the site was made from: the files of one operator or run, or the whole site. It lies in the site's
folder and is safe to delete. Of each part it has a digest of the inputs, digests of the files, which are read again from the folder, and
the values that other pages need of it. Where the cache or a file is damaged, missing or made by other code, the part is made again.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import io
import pickle
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from pairbench.analyze.history.trend import Trend
from pairbench.model.breakdown import KeptBreakdown
from pairbench.model.plain import Value
from pairbench.model.record import Series
from pairbench.model.site import About, BreakdownHead, Event, OverviewRow, RunHead, RunVerdicts, SeriesFacts
from pairbench.site.events import SeriesEvent
from pairbench.site.store_events import Shift
from pairbench.store.files import write_whole
from pairbench.workflow.setup import catalogue_folder


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


def series_anchor(series: Series) -> str:
    return digest(f"{series.case}-{series.implementation}-{series.mode}")


def _file(shown: str, *whole: str) -> str:
    words = re.sub(r"[^a-z0-9_]+", "-", shown.lower()).strip("-_")[:_LONGEST].strip("-_")
    short = _sha("\0".join(whole).encode(errors="surrogatepass"))[:8]  # which nobody reads
    return "-".join(filter(None, (words, short)))


CACHE = ".pairbench-site.cache"
_LIBRARIES = ("plotly", "jinja2", "numpy", "scipy")
_ROOMS = ("pairbench.model.", "pairbench.site.", "pairbench.stats")
_DIGEST = hashlib.sha256().digest_size


class _Cached(NamedTuple):
    inputs: str
    files: dict[str, str]  # the digest of each file's content, by its path
    values: Any


class _Values(pickle.Unpickler):
    """Reads nothing but values: of classes only those that pairbench declares by their fields, and no function is called."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "Counter"):
            return Counter
        found = super().find_class(module, name) if module.startswith(_ROOMS) else None
        declared = isinstance(found, type) and (is_dataclass(found) or issubclass(found, tuple | Enum))
        if not declared or not found.__module__.startswith(_ROOMS):
            raise pickle.UnpicklingError(f"{module}.{name} is no value of a site")
        return found


class SiteCache:
    def __init__(self, folder: Path) -> None:
        """Read the cache of a folder, which is empty unless it was made by the same code."""
        self._folder = folder
        self._made_with = digest(code_digest())
        self._before: dict[str, _Cached] = {}
        self._now: dict[str, _Cached] = {}
        self._unchanged: list[File] = []
        with contextlib.suppress(Exception):  # an unpickler raises whatever bytes make it raise
            content = (folder / CACHE).read_bytes()
            if hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
                earlier, parts = _Values(io.BytesIO(content[_DIGEST:])).load()
                self._before = parts if earlier == self._made_with else {}

    def values(self, name: str) -> Any:
        """Return the values of a part, whatever its inputs were; None where it is not in the cache."""
        return self._before[name].values if name in self._before else None

    def find(self, name: str, inputs: str) -> Any:
        part = self._before.get(name)
        if part is None or part.inputs != inputs:
            return None
        try:
            found = [File(path=path, content=(self._folder / path).read_bytes()) for path in part.files]
        except OSError:
            return None
        if any(_sha(file.content) != part.files[file.path] for file in found):
            return None
        self._unchanged += found
        self._now[name] = part
        return part.values

    def put(self, name: str, inputs: str, values: Any, files: Iterable[File]) -> Iterator[File]:
        """Yield the files of a part that was made, and put the part into the cache."""
        digests = {}
        for file in files:
            digests[file.path] = _sha(file.content)
            yield file
        self._now[name] = _Cached(inputs, digests, values)

    def unchanged(self) -> Iterator[File]:
        """Yield the files of the parts that were found since the last call."""
        while self._unchanged:
            yield self._unchanged.pop()

    def save(self) -> None:
        if self._now != self._before:
            content = pickle.dumps((self._made_with, self._now))
            with contextlib.suppress(OSError):  # the site is written, and without a cache it is made anew
                write_whole(self._folder / CACHE, hashlib.sha256(content).digest() + content, durable=False)


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest(*inputs: object) -> str:
    """Return a digest of values by their texts, which have to hold all that is in them."""
    return _sha(repr(inputs).encode(errors="surrogatepass"))


@functools.cache
def code_digest() -> str:
    """Return a digest of all that makes a site but its store: pairbench's files and the libraries that draw."""
    # In a checkout of pairbench the site lies in `dashboards`, too, by default.
    dashboards = catalogue_folder("dashboards")
    folders = (Path(__file__).parents[1], dashboards / "templates", dashboards / "assets")
    files = sorted(path for folder in folders for path in folder.rglob("*.*") if "__pycache__" not in path.parts)
    stats = [(str(path), status.st_size, status.st_mtime_ns) for path in files if (status := path.stat())]
    return digest(stats, sys.version, [importlib.metadata.version(name) for name in _LIBRARIES])
