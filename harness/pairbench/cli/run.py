"""The verb `pairbench run`."""

import contextlib
import time
from typing import TYPE_CHECKING, Annotated

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
from pairbench.cli.say import configure, put, report_problems, say
from pairbench.errors import PairbenchError, UsageError
from pairbench.own_folders import held_folder
from pairbench.workflow.setup import open_request

if TYPE_CHECKING:
    from pairbench.workflow.confirm import Confirmed
    from pairbench.workflow.record import DoneRun
    from pairbench.workflow.requested import Narrowed

# A second's worth of importing, done while workers load torch.
_MEANWHILE = ("pairbench.workflow.record", "pyarrow.parquet", "scipy.special")


def run(
    select: Select = None,
    catalogue: CatalogueOption = False,
    implementation: ImplementationsOption = None,
    device: DeviceOption = "auto",
    tier: TierOption = None,
    mode: ModeOption = None,
    rounds: RoundsOption = None,
    timer: Annotated[
        str | None,
        typer.Option(
            help="auto, or do_bench for Triton's own function (never compared with auto).", show_default=False
        ),
    ] = None,
    tf32: Tf32Option = None,
    timeout: TimeoutOption = None,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Afterwards compare with the newest comparable runs of the default branch, measure suspected regressions again, "
            "and fail only for those that are confirmed.",
        ),
    ] = False,
    skip_existing: Annotated[
        bool,
        typer.Option(
            "--skip-existing",
            help="Leave out the cases that the store has already: same inputs, code, device model and environment, and as many "
            "rounds. Goes on where an interrupted run stopped.",
        ),
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Wall time of the command: 90s, 10m, 1h, or none. Cases that were never measured come first, then the oldest; as many "
            "as fit are measured in full, the others are skipped as out of budget. What is left goes to further rounds of the cases with the "
            "widest intervals. A case that has begun is finished, so expect some seconds more; what --confirm measures again "
            "comes on top.",
            show_default=False,
        ),
    ] = None,
    changed_since: Annotated[
        str | None,
        typer.Option(
            "--changed-since",
            metavar="COMMIT",
            help="Measure only the operators that differ from those of a commit, branch or tag: their definition, an "
            "implementation, or code of the suites that they reach, uncommitted changes included. A few untouched ones are measured "
            "beside them, to tell whether the machine moved; the others are named and do not count as missing. A change of pairbench, "
            "of pyproject.toml or of the environment is no change of an operator.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    no_store: Annotated[
        bool,
        typer.Option("--no-store", help="Show the results and keep nothing, so that no later command sees this run."),
    ] = False,
    output: FormatOption = "table",
) -> None:
    """Verify, time and profile every pair, and store the results.

    Example: pairbench run my_ops.py --device cuda:0 --rounds 5
    """
    began = time.monotonic()
    if no_store and (store or confirm or skip_existing):
        raise UsageError(
            "--no-store keeps nothing and reads nothing: it goes with none of --store, --confirm, --skip-existing"
        )
    confirmed = None
    with contextlib.ExitStack() as stack:
        if no_store:
            store = str(stack.enter_context(held_folder()))
        config = configure(
            output,
            catalogue=catalogue,
            tier=tier,
            mode=mode,
            rounds=rounds,
            timer=timer,
            tf32=tf32,
            timeout=timeout,
            store=store,
            budget=budget,
        )
        request = stack.enter_context(open_request(config, select, device, implementation or (), meanwhile=_MEANWHILE))
        if changed_since is not None:
            from pairbench.features.since import changed_since as narrowed_to_changed

            request = narrowed_to_changed(request, changed_since)
        narrowed = request.chosen.narrowed
        from pairbench.workflow.record import record_run

        done = record_run(request, skip_existing=skip_existing, began=began)
        error = done.error
        if confirm and done.records and not (done.interrupted or done.kept or error):
            from pairbench.workflow.confirm import confirm_run

            try:
                confirmed = confirm_run(request, done.run_id)
            except PairbenchError as failed:
                error = failed
    # Whatever went wrong, what was measured is shown first.
    _show(done, confirmed, narrowed, output=output, store=None if no_store else config.shown_store)
    for suite in request.chosen.survey.broken:
        say(f"pairbench: {suite.reason}")
    if done.kept and confirm:
        say("pairbench: nothing was judged, for the run is not in the store as a whole")
    if confirmed:
        report_problems(confirmed.judged)
        error = error or (confirmed.again.error if confirmed.again else None)
    if error is not None:
        raise error
    if code := max(done.exit_code, confirmed.exit_code if confirmed else 0):
        raise typer.Exit(code)


def _show(
    done: "DoneRun", confirmed: "Confirmed | None", narrowed: "Narrowed | None", *, output: str, store: str | None
) -> None:
    """Print a run, and what it means beside earlier ones if that was asked."""
    from pairbench.report.render import to_json
    from pairbench.report.rows import precision_remark, render

    if output == "json":
        document = {
            "run_id": done.run_id,
            "store": store,
            "summary": done.summary(),
            "records": done.plain_records(),
            "notes": precision_remark(done.records),
            **({"since": narrowed.plain()} if narrowed else {}),
            **(confirmed.plain() if confirmed else {}),
        }
        put(to_json(document), nl=False)
        for line in done.kept.lines() if done.kept else ():
            say(f"pairbench: {line}")
        return
    put(render(done.records, output), nl=False)
    for line in narrowed.lines() if narrowed else ():
        put(f"\n{line}", nl=False)
    put("\n" + "\n".join(done.closing_lines(store)))
    if confirmed:
        put(f"\n{confirmed.render(output)}", nl=False)
