"""The verb `pairbench bisect`."""

from typing import Annotated

import typer

from pairbench.cli.options import (
    CatalogueOption,
    DeviceOption,
    FormatOption,
    MinEffectOption,
    StoreOption,
    Tf32Option,
    TimeoutOption,
)
from pairbench.cli.say import configure, put
from pairbench.errors import UsageError
from pairbench.model.comparison import policy_of


def bisect(
    select: Annotated[
        str,
        typer.Argument(metavar="SELECT", help="The one case to look at: a case key, or an operator that has one case."),
    ],
    good: Annotated[
        str, typer.Option(help="The earlier commit, branch or tag, before the change.", show_default=False)
    ],
    bad: Annotated[str, typer.Option(help="The later commit, branch or tag, after it.")] = "HEAD",
    implementation: Annotated[
        str | None,
        typer.Option(
            "--implementation",
            "-i",
            help="The variant to look at, where there are several; or baseline.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="A count to look at in place of the latency: launches, kernels, graph_launches, memcpys, memcpy_bytes, memsets, syncs, ops, "
            "allocations or peak_bytes. Counts need no statistics.",
            show_default=False,
        ),
    ] = None,
    catalogue: CatalogueOption = False,
    device: DeviceOption = "auto",
    mode: Annotated[
        str | None, typer.Option(help="eager, compile or graph. Default: eager.", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="How many rounds confirm the ends; three times as many where those leave it open. Default: 5.",
            show_default=False,
        ),
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Give up after so many rounds of commits.")] = 200,
    min_effect: MinEffectOption = None,
    tf32: Tf32Option = None,
    timeout: TimeoutOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Find the commit that moved a series: which one, and with what probability. Each round is one of `ab` against the good end.

    Both ends are measured first. Then the commit is measured of which a round tells most, until one has 99 %, and that one against
    its parent at last. Commits that cannot be loaded, or are wrong, are skipped and named. Nothing is stored; calibrations of the store say
    how far rounds spread. Exits with 3 where there is no change between the ends, or no commit is sure enough.

    Example: pairbench bisect 'suites/norm.py::rms_norm*4096*' -i triton --good v1.2 --bad main --device cuda:0
    """
    from pairbench.features.ab.arguments import read_arguments
    from pairbench.features.bisect.search import SearchOptions, bisect_commits, render_bisection

    policy = policy_of(min_effect)
    config = configure(
        output,
        catalogue=catalogue,
        mode=[mode] if mode else None,
        rounds=rounds or 5,
        tf32=tf32,
        timeout=timeout,
        store=store,
    )
    # What git knows by the name of a case is no commit here.
    arguments = read_arguments(config, good, [bad, select], (implementation,) if implementation else ())
    if arguments.head is None:
        raise UsageError(
            f"--bad {bad!r} is no commit, branch or tag of {arguments.repository}; `git log` lists what there is"
        )
    asked = SearchOptions(
        arguments=arguments,
        device=device,
        implementation=implementation,
        metric=_column(metric),
        most=most,
        policy=policy,
    )
    found = bisect_commits(config, asked)
    put(render_bisection(found, output), nl=False)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _column(metric: str | None) -> str | None:
    """Return the column that a count is in.

    Raises:
        UsageError: there is no such count.
    """
    from pairbench.analyze.compare.exact import METRICS

    if metric is None:
        return None
    short = {name.removesuffix("_per_call"): name for name in METRICS}
    if metric in METRICS or metric in short:
        return short.get(metric, metric)
    raise UsageError(f"--metric {metric!r} is unknown, expected one of {', '.join(short)}")
