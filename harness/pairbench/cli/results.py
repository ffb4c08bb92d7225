"""The verb `pairbench results`."""

from pathlib import Path
from typing import Annotated

import typer

from pairbench.cli.options import CatalogueOption, FormatOption, Select, StoreOption
from pairbench.cli.say import configure, put, say, write

_TIERS = ("real", "headline")


def results(
    select: Select = None,
    catalogue: CatalogueOption = False,
    tier: Annotated[
        list[str] | None,
        typer.Option(
            "--tier", help="smoke, real or headline; repeatable. Default: real and headline.", show_default=False
        ),
    ] = None,
    store: StoreOption = None,
    output: FormatOption = "table",
    target: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to. Default: standard output.", show_default=False),
    ] = None,
    pages: Annotated[
        Path | None,
        typer.Option(
            "--pages",
            metavar="FOLDER",
            help="Write a Markdown page for each operator into this folder, too, and leave the summary to the main page.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 where a selected operator was not measured at all.")
    ] = False,
) -> None:
    """Write a page of results for every pair. With speedups, losses, and published figures beside ours.

    For each operator and device model: baseline and best variant with the speedup and its interval, launches, memory, part
    of the roof, the modes beside one another, published figures (`claims=` of the operator) beside ours, where variants
    lose, and what was refused or skipped, with reasons. Of each series the newest record counts.

    Exit codes: 2 where there is no store or a suite cannot be loaded; 3 under --strict where something was not measured.

    Example: pairbench results --store results/reference --format markdown --output suites/RESULTS.md --pages build/results
    """
    from pairbench.features.results.page import operator_pages, results_page, stored_results

    config = configure(output, catalogue=catalogue, store=store)
    tiers = _tiers(tier)
    found = stored_results(config, select or [], tiers)
    shown = [*(select or []), *(f"--tier {name}" for name in tier or [])]
    command = " ".join(["pairbench results", *shown, *([f"--store {store}"] if store else []), "--format markdown"])
    command += " --pages FOLDER" if pages else ""
    page = results_page(
        found.measured, found.unmeasured, output, command=command, tiers=tiers, summary=pages is not None
    )
    if pages:
        for name, text in operator_pages(found.measured, command=command).items():
            write(pages / f"{name}.md", text, make_folder=True, option="--pages")
    if target is None:
        put(page, nl=False)
    else:
        write(target, page)
    for problem in (*found.problems, *found.broken):
        say(f"pairbench: {problem}")
    if found.broken:
        raise typer.Exit(2)
    if strict and (found.unmeasured or not found.measured):
        raise typer.Exit(3)


def _tiers(named: list[str] | None) -> tuple[str, ...]:
    from pairbench.errors import UsageError
    from pairbench.model.case import TIERS

    timed = [tier for tier in TIERS if tier != "edge"]
    for tier in named or ():
        if tier not in timed:
            raise UsageError(f"--tier {tier!r} is unknown, expected one of {', '.join(timed)}")
    return tuple(named or _TIERS)
