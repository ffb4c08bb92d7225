"""The verbs `pairbench store`: push, compact, check and prune."""

from typing import Annotated

import typer

from pairbench.cli.options import FormatOption, StoreOption
from pairbench.cli.say import configure, put, say

store_verbs = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@store_verbs.callback()
def _store() -> None:
    """Look after a store: publish what it did not take, merge old records, name damage, remove old samples.

    Example: pairbench store check
    """


@store_verbs.command()
def push(store: StoreOption = None, output: FormatOption = "table") -> None:
    """Publish results that a store did not take when they were measured, each into the store that it was meant for, or all into --store.

    They wait in a folder of yours, which the run has named. Published again, nothing is doubled. Exit code: 4 where something
    still waits, which is said; else 0.

    Example: pairbench store push --store s3://bucket/results
    """
    from pairbench.features.upkeep import WAITS, push_waiting
    from pairbench.report.render import render_rows

    rows = push_waiting(configure(output, store=store), given=store is not None)
    if not rows and output != "json":
        put("Nothing waits to be published")
        return
    shown = rows if output == "json" else [{name: row[name] for name in row if name != "reason"} for row in rows]
    put(render_rows("pushed", shown, output), nl=False)
    for row in rows:
        if "reason" in row:
            say(f"pairbench: {row['reason']}")
    if any(row["outcome"] == WAITS for row in rows):
        raise typer.Exit(4)


@store_verbs.command()
def compact(
    store: StoreOption = None,
    keep: Annotated[
        int,
        typer.Option("--keep", min=0, help="How many of the newest runs of each device model keep files of their own."),
    ] = 100,
    output: FormatOption = "table",
) -> None:
    """Merge the records of old runs into one file a device model and month, so that `trend` reads pieces of few files. Loses nothing.

    Every row stays as it is, and samples are left alone. It may be killed at any time, done again (then nothing is left to do), and go on
    beside runs and readers. A month that is not over is left until it has 16 such runs. Exit code: 1 where a file cannot be read, which is
    named and stays; else 0.

    Example: pairbench store compact --store s3://bucket/results
    """
    from pairbench.features.upkeep import compact_store
    from pairbench.report.render import render_rows

    rows, damaged = [], False
    for done in compact_store(configure(output, store=store), keep=keep):
        for problem in done.problems:
            damaged = True
            say(f"pairbench: {problem}")
        if done.files:
            say(f"pairbench: {done.folder}: {done.runs} runs merged")
            rows.append(
                {
                    "folder": done.folder,
                    "runs": done.runs,
                    "files_fewer": done.files,
                    "bytes_before": done.size,
                    "bytes": done.now,
                }
            )
    if rows or output == "json":
        put(render_rows("compacted", rows, output), nl=False)
    else:
        put("Nothing is left to compact")
    if damaged:
        raise typer.Exit(1)


@store_verbs.command()
def check(store: StoreOption = None, output: FormatOption = "table") -> None:
    """Read every file of a store and name what is damaged. Changes nothing.

    Also named: files of others, of a newer pairbench, left over by a killed process, of runs that go on or were killed, and samples whose
    run has no records. Exit code: 1 where something is damaged; else 0.

    Example: pairbench store check --store results
    """
    from pairbench.features.upkeep import check_store
    from pairbench.report.render import render_rows
    from pairbench.store.upkeep import DAMAGED

    config = configure(output, store=store)
    checked, rows = check_store(config)
    if rows or output == "json":
        put(render_rows("found", rows, output), nl=False)
    damaged = sum(row["what"] == DAMAGED for row in rows)
    told = f"{damaged} of them damaged" if damaged else "none of them damaged"
    say(f"pairbench: store {config.shown_store!r}: {checked.files:,} files of {_megabytes(checked.size)} read, {told}")
    if damaged:
        raise typer.Exit(1)


@store_verbs.command()
def prune(
    older: Annotated[
        str,
        typer.Option("--older", help="How long ago a run began whose samples go: days, weeks or years, such as 90d."),
    ],
    samples: Annotated[
        bool, typer.Option("--samples", help="Remove raw samples, the only thing that can be removed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this it is only said what would go.")] = False,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Remove raw samples of old runs, the bulk of a store; without --yes it is only said what would go.

    Records stay, and all that shows or compares them. What needs samples goes with them: `export`, distributions on the site, and device
    intervals of files that pairbench wrote before schema version 4. Exit code: 4 where something could not be removed; else 0.

    Example: pairbench store prune --samples --older 90d --yes
    """
    from pairbench.errors import UsageError
    from pairbench.features.upkeep import prune_store
    from pairbench.report.render import render_rows

    if not samples:
        raise UsageError("store prune was not told what to remove, expected --samples; records are never removed")
    found, stay = prune_store(configure(output, store=store), older=older, sure=yes)
    rows = [{"folder": one.folder, "files": len(one.files), "bytes": one.size} for one in found]
    if rows or output == "json":
        put(render_rows("old samples", rows, output), nl=False)
    count, size = sum(len(one.files) for one in found), sum(one.size for one in found)
    what = f"{count:,} files of samples, {_megabytes(size)},"
    if stay:
        say(f"pairbench: {len(stay):,} of {what} could not be removed, {stay[0]} the first")
        raise typer.Exit(4)
    if yes:
        say(f"pairbench: {what} were removed")
    else:
        say(f"pairbench: {what} are older than {older}; nothing was removed, --yes does it")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
