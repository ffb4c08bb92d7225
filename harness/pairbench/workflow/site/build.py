"""Builds the site of a store: reads it, writes every page, and says what was written."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pairbench.config import Config
from pairbench.errors import EmptyStoreError, StoreFailedError
from pairbench.model.breakdown import KeptBreakdown
from pairbench.model.site import SiteFacts
from pairbench.report.site import paths
from pairbench.report.site.assets import assets
from pairbench.report.site.breakdowns import breakdowns, head_of
from pairbench.report.site.feed import feed
from pairbench.report.site.machine_readable import badges, index_json
from pairbench.report.site.operator_page import drawn_of, operator, operator_figures
from pairbench.report.site.overview import overview
from pairbench.report.site.pages import environment, render
from pairbench.report.site.regressions import regressions
from pairbench.report.site.runs import compare, run, runs
from pairbench.report.site.values import File
from pairbench.store.breakdowns import read_breakdowns
from pairbench.workflow.git.repository import repository_address
from pairbench.workflow.places import catalogue_folder
from pairbench.workflow.setup import store_of
from pairbench.workflow.site.gather import SiteReading, shown_store
from pairbench.workflow.site.publish import Published, publish


@dataclass(frozen=True, kw_only=True)
class SiteOptions:
    """What a site is to be like, beside the store that it shows."""

    folder: Path
    """Where the site goes: a new folder, or that of an earlier build."""
    repository: str | None = None
    """The address of the repository on the web; that of the checkout's origin where not given."""
    address: str | None = None
    """Where the site will be on the web, for the links in its feed; None where that is not known."""
    last: int | None = None
    """How many of the newest runs are shown; all where not given."""
    figures: bool = False
    """Whether each operator's speedup and roofline are drawn as SVG and PNG, too."""
    store_options: tuple[str, ...] = ()
    """What the commands on the pages have to be told to find the store."""


@dataclass(frozen=True, kw_only=True)
class BuiltSite:
    """A site that was written."""

    published: Published
    """The files that were written and removed."""
    problems: tuple[str, ...]
    """A sentence for each thing of the store that could not be read."""


def build_site(config: Config, options: SiteOptions) -> BuiltSite:
    """Read a store and write its site; an empty store makes a site that says what to do.

    Raises:
        StoreFailedError: the store cannot be listed, or nothing of it can be read; a site that is there stays as it is.
        UsageError: the folder holds something else, or cannot be written.
    """
    problems: tuple[str, ...] = ()
    reading = None
    try:
        address = options.repository or repository_address(config.root)
        reading = SiteReading(config, repository=address, last=options.last, options=options.store_options)
    except EmptyStoreError as error:
        problems = (str(error),)
    if reading is not None:
        kept, facts = reading.breakdowns, reading.facts
        if facts.problems and not facts.runs:
            raise StoreFailedError("; ".join([f"store {facts.store!r}: no run of it can be read", *facts.problems]))
    else:
        kept, missed = read_breakdowns(store_of(config))
        facts = _nothing(config, kept, missed)
    published = publish(options.folder, _files(reading, facts, kept, options))
    return BuiltSite(published=published, problems=(*problems, *facts.problems))


def _nothing(config: Config, kept: tuple[KeptBreakdown, ...], problems: tuple[str, ...]) -> SiteFacts:
    return SiteFacts(
        store=shown_store(config),
        repository=None,
        runs=(),
        rows=(),
        events=(),
        problems=problems,
        breakdowns=tuple(map(head_of, kept)),
    )


def _files(
    reading: SiteReading | None, facts: SiteFacts, kept: tuple[KeptBreakdown, ...], options: SiteOptions
) -> Iterator[File]:
    """Yield every file of the site; what all operators add up to is known, and so written, after them."""
    folder = catalogue_folder("dashboards")
    templates = environment(folder / "templates")
    yield from assets(folder / "assets")
    if reading is not None:
        for one in reading.operators():
            yield from operator(templates, facts, one, drawn=drawn_of(one) if options.figures else ())
            if options.figures:
                yield from operator_figures(one)
        facts = reading.facts
    yield overview(templates, facts)
    yield regressions(templates, facts)
    yield compare(templates, facts)
    yield runs(templates, facts)
    if facts.several_gpus:
        yield render(templates, "gpus.html.j2", paths.GPUS, facts)
    if reading is not None:
        for each in reading.runs():
            yield from run(templates, facts, each)
    yield from breakdowns(templates, facts, kept)
    yield index_json(facts)
    yield feed(facts, address=options.address)
    yield from badges(facts)
