"""The verb `pairbench dashboard`."""

from pathlib import Path
from typing import Annotated

import typer

from pairbench.cli.options import StoreOption
from pairbench.cli.say import configure, put, say
from pairbench.execute.garbage import collector_at_rest

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
    publish: Annotated[
        str | None,
        typer.Option(
            "--publish",
            metavar="URL|FOLDER",
            help="Then copy it there, such as s3://bucket/pages: data first, the first page last. What else is there stays.",
            show_default=False,
        ),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Then show it to browsers on this machine, until Ctrl-C.")
    ] = False,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Then show it while runs write to the store: built again after each case, with what is measured now; until Ctrl-C.",
        ),
    ] = False,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Of --serve and --live; 0 takes a free one.")
    ] = 8000,
) -> None:
    """Write a site of the store, which opens from disk. Overview, operators, regressions and runs; it needs no network.

    Prints the path of its first page. Another build into the same folder writes only what changed. Exit code 4 where the store
    cannot be listed, or no run of it can be read, and then the site stays as it is; an empty store makes a site that says what to do.

    Example: pairbench dashboard --output site --serve
    """
    from pairbench.site.build import SiteOptions, build_site
    from pairbench.site.serve import serve as serve_folder
    from pairbench.store.location import fingerprint
    from pairbench.workflow.setup import store_of

    config = configure(store=store)
    _check_address("--repository", repository)
    _check_address("--address", address)
    folder = output if output is not None else config.root / _FOLDER
    options = SiteOptions(
        folder=folder,
        repository=repository,
        address=address,
        last=last,
        figures=figures,
        store_options=("--store", config.shown_store) if store is not None else (),
    )
    seen = fingerprint(store_of(config)) if live else None  # what is written from here on is built again
    with collector_at_rest():
        site = build_site(config, options)
    for problem in site.problems:
        say(f"pairbench: {problem}")
    done = site.published
    say(
        f"pairbench: {done.files:,} files, {len(done.written):,} of them new or changed, {len(done.removed):,} removed",
    )
    put(folder / "index.html")
    if publish is not None:
        _publish(folder, publish)
    if live:
        from pairbench.site.serve import serve_live

        serve_live(config, options, port, lambda text: say(f"pairbench: {text}"), seen)
    elif serve:
        serve_folder(folder, port, lambda text: say(f"pairbench: {text}"))


def _publish(folder: Path, target: str) -> None:
    from pairbench.site.build import upload

    done = upload(folder, target)
    say(
        f"pairbench: published to {done.name}: {done.files:,} files, {len(done.written):,} of them new or changed, "
        f"{len(done.removed):,} removed"
    )


def _check_address(option: str, url: str | None) -> None:
    """Refuse what is no address on the web.

    Raises:
        UsageError: it is not.
    """
    from urllib.parse import urlsplit

    from pairbench.errors import UsageError

    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc):
        raise UsageError(f"{option} {url!r} is no address, expected one like https://example.org/team/operators")
