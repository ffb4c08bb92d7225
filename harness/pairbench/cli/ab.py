"""`pairbench ab`."""

from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from pairbench.cli.options import (
    DeviceOption,
    FormatOption,
    ImplementationsOption,
    MinEffectOption,
    ModeOption,
    TierOption,
    TimeoutOption,
)
from pairbench.cli.verdicts import annotate_github, policy_of
from pairbench.workflow.setup import configure, open_context


def ab(
    base: Annotated[str, typer.Argument(help="A commit, branch or tag of the repository that holds the suites.")],
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[HEAD] [SELECT]...",
            help="HEAD: another; left out, the working tree as it is, uncommitted changes included. SELECT as for run.",
            show_default=False,
        ),
    ] = None,
    implementation: ImplementationsOption = None,
    device: DeviceOption = "auto",
    tier: TierOption = None,
    mode: ModeOption = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="Pairs of fresh worker processes that time every case. Default: 5.", show_default=False),
    ] = None,
    min_effect: MinEffectOption = None,
    tf32: Annotated[
        bool | None,
        typer.Option("--tf32/--no-tf32", help="Let float32 use TF32, on both sides alike.", show_default=False),
    ] = None,
    timeout: TimeoutOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail, with 3, also where something is undecided or cannot be compared.")
    ] = False,
    output: FormatOption = "table",
) -> None:
    """Compare two commits that take turns on one device. Each has its own process, and a turn is a block of samples.

    The most sensitive gate for a pull request: what drifts is in both sides alike. Outputs are compared too. Both sides are
    measured by the pairbench that runs, under the Python that runs it, and nothing is put in the store.

    Example: pairbench ab main suites/conv.py --device cuda:0
    """
    from pairbench.errors import UsageError
    from pairbench.report.comparison.render import render_comparison
    from pairbench.workflow.ab.arguments import load_part, read_arguments
    from pairbench.workflow.ab.measure import measure_side_by_side
    from pairbench.workflow.git.worktrees import open_checkouts
    from pairbench.workflow.progress import open_progress

    policy = policy_of(min_effect)
    config = configure(output, tier=tier, mode=mode, rounds=rounds, tf32=tf32, timeout=timeout)
    if config.settings.timer != "auto":
        raise UsageError("setting 'timer' is 'do_bench', which cannot take turns; ab needs 'auto'")
    if "rounds" not in config.given:
        config = replace(config, settings=replace(config.settings, rounds=_ROUNDS))
    request = read_arguments(config, base, rest or [], tuple(implementation or ()))
    with (
        open_context(config) as context,
        open_checkouts(request.repository, request.base, request.head) as (before, now, scratch),
        open_progress() as progress,
    ):
        progress.notify(f"pairbench: {_told(now)} against {_told(before)}")
        parts = (load_part(config, context, request, before), load_part(config, context, request, now))
        found = measure_side_by_side(context, parts, device, scratch, progress, policy)
    if output == "json":
        typer.echo(_document(found, strict), nl=False)
    else:
        typer.echo(render_comparison(found.comparison, output), nl=False)
    annotate_github(found.comparison)
    for reason in found.broken:
        typer.echo(f"pairbench: {reason}", err=True)
    if code := found.comparison.exit_code(strict=strict) or (2 if found.broken else 0):
        raise typer.Exit(code)


_ROUNDS = 5
"""More than a run has: a round is one pair of ratios, and few tell little of how far pairs spread."""


def _told(checkout: Any) -> str:
    return f"{checkout.asked} ({checkout.commit.sha[:7]})"


def _document(found: Any, strict: bool) -> str:
    """Return the comparison and what it rests on as one JSON document."""
    from pairbench.report.comparison.render import document
    from pairbench.report.render import to_json
    from pairbench.report.table import expanded

    reference, current = ([expanded(record) for record in side] for side in found.records)
    outputs = [{**asdict(series), **asdict(compared)} for series, compared in found.outputs.items()]
    return to_json(
        {
            **document(found.comparison),
            "strict": strict,
            "outputs": outputs,
            "reference_records": reference,
            "current_records": current,
        }
    )
