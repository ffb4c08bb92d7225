"""The verb `pairbench ab`."""

from typing import Annotated

import typer

from pairbench.cli.options import (
    CatalogueOption,
    DeviceOption,
    FormatOption,
    ImplementationsOption,
    MinEffectOption,
    ModeOption,
    Tf32Option,
    TierOption,
    TimeoutOption,
)
from pairbench.cli.say import annotate_github, configure, put, say
from pairbench.model.comparison import policy_of


def ab(
    base: Annotated[
        str, typer.Argument(help="The commit, branch or tag to compare with, of the repository that holds the suites.")
    ],
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[HEAD] [SELECT]...",
            help="HEAD: the commit, branch or tag to judge; left out, the working tree, uncommitted changes included. SELECT as for run.",
            show_default=False,
        ),
    ] = None,
    catalogue: CatalogueOption = False,
    implementation: ImplementationsOption = None,
    device: DeviceOption = "auto",
    tier: TierOption = None,
    mode: ModeOption = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="How many times every case is timed, each in two fresh processes, one a commit. Default: 5.",
            show_default=False,
        ),
    ] = None,
    min_effect: MinEffectOption = None,
    tf32: Tf32Option = None,
    timeout: TimeoutOption = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Folder or URL of a store of its own, to keep both sides' records and raw samples. Default: none is kept.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail, with 3, also where something is undecided or cannot be compared.")
    ] = False,
    output: FormatOption = "table",
) -> None:
    """Compare two commits, measured interleaved on one device. They alternate block by block, each in a process of its own.

    The most sensitive gate for a pull request, for drift affects both sides alike. Outputs are compared too. Both commits are
    measured by this pairbench under this Python, and nothing is put in the store of runs.

    Example: pairbench ab main suites/conv.py --device cuda:0
    """
    from pairbench.features.ab.arguments import read_arguments
    from pairbench.features.ab.measure import compare_commits, keep, open_store
    from pairbench.report.comparison import render_comparison
    from pairbench.report.render import to_json
    from pairbench.report.rows import precision_remark

    policy = policy_of(min_effect)
    options = {"tier": tier, "mode": mode, "rounds": rounds, "tf32": tf32, "timeout": timeout, "store": store}
    config = configure(output, catalogue=catalogue, **options)
    arguments = read_arguments(config, base, rest or [], tuple(implementation or ()))
    kept = None if store is None else open_store(config, configure())
    found = compare_commits(config, arguments, device, policy)
    if output == "json":
        put(to_json(found.plain(strict=strict)), nl=False)
    else:
        put(render_comparison(found.comparison, output), nl=False)
    for line in precision_remark(record for side in found.records for record in side):
        say(f"pairbench: {line}")
    annotate_github(found.comparison)
    for reason in found.broken:
        say(f"pairbench: {reason}")
    if kept is not None:
        keep(found, kept)
        say(f"pairbench: both sides are kept: pairbench show --runs --store {kept.name}")
    if code := found.comparison.exit_code(strict=strict) or (2 if found.broken else 0):
        raise typer.Exit(code)
