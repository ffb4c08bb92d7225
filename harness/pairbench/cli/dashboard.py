"""`pairbench dashboard`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairbench.cli.options import StoreOption
from pairbench.execute.garbage import collector_at_rest
from pairbench.workflow.setup import catalogue_folder, configure

if TYPE_CHECKING:
    from pairbench.config import Config
    from pairbench.model.breakdown import KeptBreakdown
    from pairbench.model.site import SiteFacts
    from pairbench.report.site.values import File
    from pairbench.workflow.site.gather import SiteReading

_FOLDER = Path("dashboards", "site")


def dashboard(
    store: StoreOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Where the site goes: a new folder, or that of an earlier build. Default: dashboards/site.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", min=1, help="Take the newest N runs. Default: all.", show_default=False),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(
            "--repository",
            metavar="URL",
            help="The repository on the web, for links to commits and sources. Default: the checkout's origin.",
            show_default=False,
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="URL",
            help="Where the site will be on the web, for the links in its feed.",
            show_default=False,
        ),
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Draw each operator's speedup and roofline as SVG and PNG, too.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Then show it to browsers on this machine, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of --serve; 0 takes a free one.")] = 8000,
) -> None:
    """Write a site of the store, which opens from disk. Overview, operators, regressions and runs; it needs no network.

    Prints the path of its first page. Another build into the same folder writes only what changed. Exit code 4 where nothing of
    the store can be read; an empty one makes a site that says what to do.

    Example: pairbench dashboard --output site --serve
    """
    from pairbench.store.breakdowns import read_breakdowns
    from pairbench.workflow.site.publish import publish
    from pairbench.workflow.site.serve import serve as serve_folder

    config = configure(store=store)
    _check_address("--repository", repository)
    _check_address("--address", address)
    folder = output if output is not None else config.root / _FOLDER
    with collector_at_rest():
        options = ("--store", store) if store is not None else ()
        reading = _read(config, repository, last, options)
        kept = reading.breakdowns if reading is not None else read_breakdowns(config.store).value
        facts = reading.facts if reading is not None else _nothing(config, kept)
        done = publish(folder, _files(reading, facts, kept, figures=figures, address=address))
    for problem in facts.problems:
        typer.echo(f"pairbench: {problem}", err=True)
    typer.echo(
        f"pairbench: {done.files:,} files, {len(done.written):,} of them new or changed, {len(done.removed):,} removed",
        err=True,
    )
    typer.echo(folder / "index.html")
    if facts.problems and not facts.runs:
        raise typer.Exit(4)
    if serve:
        serve_folder(folder, port, lambda text: typer.echo(f"pairbench: {text}", err=True))


def _read(config: "Config", repository: str | None, last: int | None, options: tuple[str, ...]) -> "SiteReading | None":
    """Return the store, read; None where there is nothing in it, which is said and makes a site that says it, too."""
    from pairbench.errors import StoreError
    from pairbench.workflow.git.repository import repository_address
    from pairbench.workflow.site.gather import SiteReading

    try:
        address = repository or repository_address(config.root)
        return SiteReading(config, repository=address, last=last, options=options)
    except StoreError as error:
        typer.echo(f"pairbench: {error}", err=True)
        return None


def _nothing(config: "Config", kept: "tuple[KeptBreakdown, ...]") -> "SiteFacts":
    from pairbench.model.site import SiteFacts
    from pairbench.report.site.breakdowns import head_of
    from pairbench.workflow.site.gather import shown_store

    return SiteFacts(
        store=shown_store(config),
        repository=None,
        runs=(),
        rows=(),
        events=(),
        problems=(),
        breakdowns=tuple(map(head_of, kept)),
    )


def _files(
    reading: "SiteReading | None",
    facts: "SiteFacts",
    kept: "tuple[KeptBreakdown, ...]",
    *,
    figures: bool,
    address: str | None,
) -> "Iterator[File]":
    """Yield every file of the site; what all operators add up to is known, and so written, after them."""
    from pairbench.report.site.assets import assets
    from pairbench.report.site.breakdowns import breakdowns
    from pairbench.report.site.feed import feed
    from pairbench.report.site.machine_readable import badges, index_json
    from pairbench.report.site.operator_page import drawn_of, operator, operator_figures
    from pairbench.report.site.overview import overview
    from pairbench.report.site.pages import environment
    from pairbench.report.site.regressions import regressions
    from pairbench.report.site.runs import compare, run, runs

    folder = catalogue_folder("dashboards")
    templates = environment(folder / "templates")
    yield from assets(folder / "assets")
    if reading is not None:
        for one in reading.operators():
            yield from operator(templates, facts, one, drawn=drawn_of(one) if figures else ())
            if figures:
                yield from operator_figures(one)
        facts = reading.facts
    yield overview(templates, facts)
    yield regressions(templates, facts)
    yield compare(templates, facts)
    yield runs(templates, facts)
    if reading is not None:
        for each in reading.runs():
            yield from run(templates, facts, each)
    yield from breakdowns(templates, facts, kept)
    yield index_json(facts)
    yield feed(facts, address=address)
    yield from badges(facts)


def _check_address(option: str, url: str | None) -> None:
    """Refuse what is no address on the web.

    Raises:
        UsageError: it is not.
    """
    from urllib.parse import urlsplit

    from pairbench.errors import UsageError

    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc):
        raise UsageError(f"{option} {url!r} is no address, expected one like https://example.org/team/operators")
