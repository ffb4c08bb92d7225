"""The verb `pairbench backfill`."""

from typing import Annotated

import typer

from pairbench.cli.options import (
    CatalogueOption,
    DeviceOption,
    FormatOption,
    ImplementationsOption,
    ModeOption,
    RoundsOption,
    Select,
    StoreOption,
    Tf32Option,
    TierOption,
    TimeoutOption,
)
from pairbench.cli.say import configure, put, say
from pairbench.errors import UsageError


def backfill(
    range_: Annotated[
        str,
        typer.Argument(
            metavar="RANGE", help="Commits as `git log` takes them: v1.0..main, or main for all of its history."
        ),
    ],
    select: Select = None,
    every: Annotated[
        int | None,
        typer.Option(
            "--every", min=1, metavar="N", help="Take every Nth commit, the newest among them.", show_default=False
        ),
    ] = None,
    tags: Annotated[bool, typer.Option("--tags", help="Take the commits that have a tag.")] = False,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            min=1,
            metavar="N",
            help="Take N commits at most, where they tell most: both ends, those that change an implementation, then the middle between "
            "neighbours that differ.",
            show_default=False,
        ),
    ] = None,
    catalogue: CatalogueOption = False,
    implementation: ImplementationsOption = None,
    device: DeviceOption = "auto",
    tier: TierOption = None,
    mode: ModeOption = None,
    rounds: RoundsOption = None,
    tf32: Tf32Option = None,
    timeout: TimeoutOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Measure commits of the past, and store them as runs of their commits. Takes all commits of the range, merges as one, oldest first.

    Each commit has a folder of its own; your checkout is left alone. All are measured by this pairbench, under this Python, now. What the
    store has already of a commit, on this device model and in this environment, is left out, so that the same command goes on where
    it was interrupted. Commits that cannot be loaded are skipped and named.

    Example: pairbench backfill v1.0..main suites/norm.py --steps 20 --device cuda:0
    """
    from pairbench.features.ab.arguments import read_arguments
    from pairbench.features.backfill import Which, backfill, render_backfilled

    if (every is not None) + tags + (steps is not None) > 1:
        raise UsageError("--every, --tags and --steps each say which commits to take; name one of them")
    config = configure(
        output, catalogue=catalogue, tier=tier, mode=mode, rounds=rounds, tf32=tf32, timeout=timeout, store=store
    )
    # With a commit named as the other side, no SELECT is taken for one.
    arguments = read_arguments(config, range_, ["HEAD", *(select or [])], tuple(implementation or ()))
    done = backfill(config, arguments, device, Which(every=every, tags=tags, steps=steps))
    put(render_backfilled(done.filled, done.skipped, output), nl=False)
    left = done.commits - len(done.filled) - len(done.skipped)
    if done.interrupted:
        say(f"pairbench: interrupted with {left} commits to go; the same command goes on from here")
    if done.not_in_store:
        say(
            f"pairbench: the store took no more: {done.not_in_store}; `pairbench store push` sends what is kept, the same command goes on"
        )
    if done.exit_code:
        raise typer.Exit(done.exit_code)
