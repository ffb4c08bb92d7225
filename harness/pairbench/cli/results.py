"""`pairbench results`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairbench.cli.files import write_text
from pairbench.cli.options import FormatOption, Select, StoreOption
from pairbench.execute.garbage import collector_at_rest
from pairbench.workflow.setup import choose, configure, open_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pairbench.model.plan import OperatorDescription
    from pairbench.model.record import Record
    from pairbench.workflow.setup import Chosen

_TIERS = ("real", "headline")


def results(
    select: Select = None,
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
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 where a selected operator was not measured at all.")
    ] = False,
) -> None:
    """Write a page of what a store says of every pair. What won, what lost, and what was published about it.

    For each operator and device model: baseline and best variant with the speedup and its interval, launches, memory, part
    of the roof, the modes beside one another, published figures (`claims=` of the operator) beside ours, where variants
    lose, and what was refused or skipped, with reasons. Of each series the newest record counts.

    Exit codes: 2 where there is no store or a suite cannot be loaded; 3 under --strict where something was not measured.

    Example: pairbench results --store results/reference --format markdown --output suites/RESULTS.md
    """
    from pairbench.analyze.results.operator import results_of
    from pairbench.errors import SelectionError
    from pairbench.report.results.page import results_page

    config = configure(output, store=store)
    tiers = _tiers(tier)
    with open_context(config) as context:
        chosen = choose(config, context, select)
    operators = _selected(chosen)
    if not operators and not chosen.survey.broken:
        raise SelectionError(f"{' '.join(select or [])!r} selects nothing; `pairbench list` shows everything")
    with collector_at_rest():
        records, problems = _records(config.store)
        found = [
            one
            for device in sorted({device for device, _, _ in records}, key=lambda name: _place(records, name))
            for operator in operators
            if (one := results_of(operator, records.get((device, operator.suite, operator.name), ()), tiers))
        ]
    measured = {(one.operator.suite, one.operator.name) for one in found}
    unmeasured = [
        one
        for one in operators
        if (one.suite, one.name) not in measured and any(case.tier in tiers for case in one.cases)
    ]
    shown = [*(select or []), *(f"--tier {name}" for name in tier or [])]
    command = " ".join(["pairbench results", *shown, *([f"--store {store}"] if store else []), "--format markdown"])
    page = results_page(found, unmeasured, output, command=command, tiers=tiers)
    if target is None:
        typer.echo(page, nl=False)
    else:
        write_text(target, page)
    for problem in (*problems, *(suite.reason for suite in chosen.survey.broken)):
        typer.echo(f"pairbench: {problem}", err=True)
    if chosen.survey.broken:
        raise typer.Exit(2)
    if strict and (unmeasured or not found):
        raise typer.Exit(3)


def _tiers(asked: list[str] | None) -> tuple[str, ...]:
    from pairbench.errors import UsageError
    from pairbench.model.case import TIERS

    timed = [tier for tier in TIERS if tier != "edge"]
    for tier in asked or ():
        if tier not in timed:
            raise UsageError(f"--tier {tier!r} is unknown, expected one of {', '.join(timed)}")
    return tuple(asked or _TIERS)


def _selected(chosen: "Chosen") -> "list[OperatorDescription]":
    """Return the operators that are asked for; of one by some of its cases, those alone."""
    from dataclasses import replace

    if not chosen.selections:
        return list(chosen.survey.operators)
    narrowed = (
        replace(
            operator,
            cases=tuple(
                case for case in operator.cases if any(item.takes(operator, case) for item in chosen.selections)
            ),
        )
        for operator in chosen.survey.operators
    )
    return [operator for operator in narrowed if operator.cases]


def _records(store: str) -> "tuple[dict[tuple[str, str, str], Sequence[Record]], tuple[str, ...]]":
    """Return the records of a store by device model, suite and operator, and what could not be read.

    Raises:
        StoreError: there is no such store, or it is empty.
    """
    from pairbench.analyze.results.operator import COLUMNS
    from pairbench.store.whole import WholeStore

    whole = WholeStore(store, {*COLUMNS, "device_kind"})
    return dict(whole.by_operator({*COLUMNS, "device_kind"})), whole.problems


def _place(records: "dict[tuple[str, str, str], Sequence[Record]]", device: str) -> tuple[bool, str]:
    """Return what sorts GPUs before CPUs."""
    kinds = {rows[0].device_kind for (name, _, _), rows in records.items() if name == device and rows}
    return "cuda" not in kinds, device
