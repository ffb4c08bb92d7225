"""`pairbench breakdown`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairbench.cli.options import CaseOption, DeviceOption, FormatOption, OneOperator, StoreOption, TimeoutOption
from pairbench.errors import SelectionError, UsageError
from pairbench.model.breakdown import Breakdown, CaseBreakdown, KeptBreakdown, NoBreakdown
from pairbench.model.environment import Commit, Device, Environment
from pairbench.model.plan import PlannedCase
from pairbench.plan import equipped
from pairbench.workflow.git.repository import read_commit
from pairbench.workflow.run.one_case import one_case, one_device
from pairbench.workflow.setup import choose, configure, open_context, stamp

if TYPE_CHECKING:
    from pairbench.execute.parent.pool import WorkerContext

_MODES = ("eager", "graph")


def breakdown(
    operator: OneOperator,
    case: CaseOption = None,
    implementation: Annotated[
        list[str] | None,
        typer.Option(
            "--implementation",
            "-i",
            help="baseline, a variant, or all; repeatable. Default: baseline.",
            show_default=False,
        ),
    ] = None,
    mode: Annotated[str, typer.Option("--mode", help="eager or graph.")] = "eager",
    device: DeviceOption = "auto",
    expand: Annotated[
        bool, typer.Option("--expand", help="Show each module of a list, instead of the sum of those that are alike.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE.json",
            help="Also write the profiler's trace, for chrome://tracing or Perfetto.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Also keep it in the store, from where the dashboard shows it.")
    ] = False,
    timeout: TimeoutOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Show where one call spends its time. By module, kind of work, kernel, and line that copies, casts or waits.

    The call is profiled, which slows it: shares count, and no time here is a latency. On a CPU times are those of operators,
    on a GPU those of kernels.

    Example: pairbench breakdown suites/conv.py::causal_conv3d --case dtype=bfloat16 -i all --trace conv.json
    """
    from pairbench.execute.parent.scout import probe_environment
    from pairbench.report.breakdown import render_breakdown
    from pairbench.store.breakdowns import write_breakdown
    from pairbench.workflow.progress import open_progress
    from pairbench.workflow.run.devices import on_devices, plan_for

    if mode not in _MODES:
        raise UsageError(f"--mode {mode!r} cannot be broken down, expected one of {', '.join(_MODES)}")
    config = configure(output, tier=["all"], mode=[mode], timeout=timeout, store=store)
    parts: list[Breakdown | NoBreakdown] = []
    with open_context(config) as context, open_progress() as progress:
        chosen = choose(config, context, [operator])
        where = one_device(device, chosen.survey.devices)
        planned = one_case(plan_for(context, chosen, where, edge=True), chosen, case, where)
        names = _names(planned, implementation)
        planned = replace(planned, entries=tuple(one for one in planned.entries if one.implementation in names))
        where = equipped(where, chosen.survey.devices, [planned])
        if trace is not None and len(names) > 1:
            raise UsageError(f"--trace takes one implementation at a time, got {', '.join(names)}")
        _check_folder(trace)
        progress.expect(where, 1)

        def work(found: Device) -> None:
            progress.step(found, "breakdown", planned.case.key)
            parts.extend(_break_down(context, found, planned, trace))
            progress.stepped(found)

        on_devices(context, (where,), progress, work)
        made = (probe_environment(context, where), read_commit(Path(planned.operator.path).parent)) if keep else ()
    if context.interrupted.is_set():
        raise typer.Exit(130)
    found = CaseBreakdown(operator=planned.operator, case=planned.case, device=where, parts=tuple(parts))
    typer.echo(render_breakdown(found, output, expand=expand), nl=False)
    if keep and any(isinstance(part, Breakdown) for part in parts):
        typer.echo(f"pairbench: kept as {write_breakdown(config.store, kept_of(found, *made))}", err=True)
    if any(isinstance(part, NoBreakdown) and part.bad for part in parts):
        raise typer.Exit(1)
    if not any(isinstance(part, Breakdown) for part in parts):
        raise typer.Exit(2)


def _names(planned: PlannedCase, wanted: list[str] | None) -> tuple[str, ...]:
    known = tuple(entry.implementation for entry in planned.entries)
    if "all" in (wanted or []):
        return known
    for name in wanted or []:
        if name not in known:
            raise SelectionError(
                f"{planned.operator.name} has no implementation {name!r}, expected one of {', '.join(known)}, or all"
            )
    return tuple(dict.fromkeys(wanted or ["baseline"]))


def _check_folder(trace: Path | None) -> None:
    if trace is not None and not trace.resolve().parent.is_dir():
        raise UsageError(f"--trace {str(trace)!r}: its folder does not exist")


def kept_of(found: CaseBreakdown, environment: Environment, commit: Commit | None) -> KeptBreakdown:
    """Return what is stored of a case's breakdowns that were made now."""
    import datetime as dt

    now = dt.datetime.now(dt.UTC)
    known = {name: getattr(environment, name) for name in ("driver", "cuda", "cudnn", "torch", "triton", "python")}
    return KeptBreakdown(
        breakdown_id=stamp(now),
        made_at=now.isoformat(timespec="milliseconds"),
        device_name=found.device.name,
        environment_hash=environment.hash,
        versions={name: version for name, version in known.items() if version},
        commit=commit.sha if commit else None,
        suite=found.operator.suite,
        operator=found.operator.name,
        case=found.case.key,
        parts=tuple(part for part in found.parts if isinstance(part, Breakdown)),
    )


def _break_down(
    context: "WorkerContext", device: Device, planned: PlannedCase, trace: Path | None
) -> list[Breakdown | NoBreakdown]:
    """Break down each implementation in a worker that never times."""
    from pairbench.execute.parent.steps import inspect
    from pairbench.execute.protocol import BreakDownCase, Ended

    entries = planned.entries
    left_out = {**planned.skipped, **planned.untimed}
    jobs = [
        BreakDownCase(
            path=Path(planned.operator.path),
            operator=planned.operator.name,
            case=planned.case,
            entries=(entry,),
            trace=trace.resolve() if trace else None,
        )
        for entry in entries
        if entry not in left_out
    ]
    found: dict[str, Breakdown | NoBreakdown] = {
        entry.implementation: NoBreakdown(entry=entry, reason=left_out[entry], bad=False)
        for entry in entries
        if entry in left_out
    }
    for job, answer in inspect(context, device, jobs):
        (entry,) = job.entries
        if isinstance(answer, Ended):
            reason = f"{answer.status}: {answer.reason}"
            found[entry.implementation] = NoBreakdown(entry=entry, reason=reason, bad=answer.status.bad)
        else:
            found[entry.implementation] = answer
    return [found[entry.implementation] for entry in entries]
