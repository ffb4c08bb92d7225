"""The verb `pairbench store`, of which `push` is the only one yet."""

import typer

from pairbench.cli.options import FormatOption, StoreOption
from pairbench.cli.say import configure, put, say

store_verbs = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@store_verbs.callback()
def _store() -> None:
    """Look after a store: publish results that it did not take when they were measured.

    Example: pairbench store push
    """


@store_verbs.command()
def push(store: StoreOption = None, output: FormatOption = "table") -> None:
    """Publish results that a store did not take when they were measured, each into the store that it was meant for, or all into --store.

    They wait in a folder of yours, which the run has named. Published again, nothing is doubled. Exit code: 4 where something
    still waits, which is said; else 0.

    Example: pairbench store push --store s3://bucket/results
    """
    from pairbench.report.render import render_rows
    from pairbench.workflow.push import WAITS, push_waiting

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
