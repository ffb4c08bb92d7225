"""The verbs `pairbench store`: push, compact, check and prune."""

from typing import Annotated

import typer
from typer import Option

from pairbench.cli.options import Given, remark, verb
from pairbench.cli.say import put, put_rows
from pairbench.errors import UsageError

store_verbs = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@store_verbs.callback()
def _store() -> None:
    """Look after a store: publish what it did not take, merge old records, name damage, remove old samples.

    Example: pairbench store check
    """


@store_verbs.command()
@verb("store output")
def push(given: Given) -> int | None:
    """Publish results that a store did not take when they were measured, each into the store that it was meant for, or all into --store.

    They wait in a folder of yours, which the run has named. Published again, nothing is doubled. Exit code: 4 where something
    still waits, which is said; else 0.

    Example: pairbench store push --store s3://bucket/results
    """
    from pairbench.features.upkeep import WAITS, push_waiting

    rows = push_waiting(given.config, given=given.store is not None)
    if not rows and given.output != "json":
        put("Nothing waits to be published")
        return 0
    shown = [{name: row[name] for name in row if name != "reason"} for row in rows]
    put_rows("pushed", rows if given.output == "json" else shown, given.output)
    remark(*(row["reason"] for row in rows if "reason" in row))
    return 4 if any(row["outcome"] == WAITS for row in rows) else 0


@store_verbs.command()
@verb("store keep output")
def compact(
    given: Given,
    keep: Annotated[
        int, Option(min=0, help="How many of the newest runs of each device model keep files of their own.")
    ] = 100,
) -> int | None:
    """Merge the records of old runs into one file a device model and month, so that `trend` reads pieces of few files. Loses nothing.

    Every row stays as it is, and samples are left alone. It may be killed at any time, done again (then nothing is left to do), and go on
    beside runs and readers. A month that is not over is left until it has 16 such runs. Exit code: 1 where a file cannot be read, which is
    named and stays; else 0.

    Example: pairbench store compact --store s3://bucket/results
    """
    from pairbench.features.upkeep import compact_store

    rows, damaged = [], False
    for done in compact_store(given.config, keep=keep):
        damaged = damaged or bool(done.problems)
        remark(*done.problems)
        if done.files:
            remark(f"{done.folder}: {done.runs} runs merged")
            sizes = {"files_fewer": done.files, "bytes_before": done.size, "bytes": done.now}
            rows.append({"folder": done.folder, "runs": done.runs, **sizes})
    if rows or given.output == "json":
        put_rows("compacted", rows, given.output)
    else:
        put("Nothing is left to compact")
    return int(damaged)


@store_verbs.command()
@verb("store output")
def check(given: Given) -> int | None:
    """Read every file of a store and name what is damaged. Changes nothing.

    Also named: files of others, of a newer pairbench, left over by a killed process, of runs that go on or were killed, and samples whose
    run has no records. Exit code: 1 where something is damaged; else 0.

    Example: pairbench store check --store results
    """
    from pairbench.features.upkeep import check_store
    from pairbench.store.upkeep import DAMAGED

    checked, rows = check_store(given.config)
    if rows or given.output == "json":
        put_rows("found", rows, given.output)
    damaged = sum(row["what"] == DAMAGED for row in rows)
    remark(
        f"store {given.config.shown_store!r}: {checked.files:,} files of {_megabytes(checked.size)} read, "
        f"{damaged or 'none'} of them damaged"
    )
    return int(damaged > 0)


@store_verbs.command()
@verb("older samples yes store output")
def prune(
    given: Given,
    older: Annotated[str, Option(help="How long ago a run began whose samples go: days, weeks or years, such as 90d.")],
    samples: Annotated[
        bool, Option("--samples", help="Remove raw samples, the only thing that can be removed.")
    ] = False,
    yes: Annotated[bool, Option("--yes", help="Do it. Without this it is only said what would go.")] = False,
) -> int | None:
    """Remove raw samples of old runs, the bulk of a store; without --yes it is only said what would go.

    Records stay, and all that shows or compares them. What needs samples goes with them: `export`, distributions on the site, and device
    intervals of files that pairbench wrote before schema version 4. Exit code: 4 where something could not be removed; else 0.

    Example: pairbench store prune --samples --older 90d --yes
    """
    from pairbench.features.upkeep import prune_store

    if not samples:
        raise UsageError("store prune was not told what to remove, expected --samples; records are never removed")
    found, left = prune_store(given.config, older=older, sure=yes)
    rows = [{"folder": folder.folder, "files": len(folder.files), "bytes": folder.size} for folder in found]
    if rows or given.output == "json":
        put_rows("old samples", rows, given.output)
    count, size = sum(len(folder.files) for folder in found), sum(folder.size for folder in found)
    files = f"{count:,} files of samples, {_megabytes(size)},"
    if left:
        remark(f"{len(left):,} of {files} could not be removed, {left[0]} the first")
        return 4
    remark(f"{files} were removed" if yes else f"{files} are older than {older}; nothing was removed, --yes does it")
    return 0


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
