"""`pairbench diverge`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairbench.cli.options import CaseOption, DeviceOption, FormatOption, OneOperator, TimeoutOption
from pairbench.errors import SelectionError
from pairbench.model.divergence import CaseDivergence, Divergence, NoDivergence
from pairbench.model.environment import Device
from pairbench.model.plan import Entry, PlannedCase
from pairbench.plan import equipped
from pairbench.workflow.run.one_case import one_case, one_device
from pairbench.workflow.setup import choose, configure, open_context

if TYPE_CHECKING:
    from pairbench.execute.parent.pool import WorkerContext


def diverge(
    operator: OneOperator,
    variant: Annotated[str, typer.Option("--variant", "-v", help="Which variant to hold against the baseline.")],
    case: CaseOption = None,
    device: DeviceOption = "auto",
    everything: Annotated[
        bool, typer.Option("--all", help="Show every call of every module, however many there are.")
    ] = False,
    timeout: TimeoutOption = None,
    output: FormatOption = "table",
) -> None:
    """Name the first module whose output leaves the tolerance. Also show how errors grow from module to module.

    Baseline and variant run on the same inputs; outputs of modules of one name are compared call by call, also with those
    of the baseline in float64. Exits with 1 where the operator's output is wrong, or a module is off and clearly further from
    float64 than the baseline's.

    Example: pairbench diverge my_model.py::decoder --variant fused --case dtype=bfloat16
    """
    from pairbench.report.divergence import render_divergence
    from pairbench.workflow.progress import open_progress
    from pairbench.workflow.run.devices import on_devices, plan_for

    config = configure(output, tier=["all"], mode=["eager"], timeout=timeout)
    answers: list[Divergence | NoDivergence] = []
    with open_context(config) as context, open_progress() as progress:
        chosen = choose(config, context, [operator])
        where = one_device(device, chosen.survey.devices)
        planned = one_case(plan_for(context, chosen, where, edge=True), chosen, case, where)
        entry = _entry(planned, variant)
        where = equipped(where, chosen.survey.devices, [replace(planned, entries=(entry,))])
        progress.expect(where, 1)

        def work(found: Device) -> None:
            progress.step(found, "diverge", planned.case.key)
            answers.append(_diverge(context, found, planned, entry))
            progress.stepped(found)

        on_devices(context, (where,), progress, work)
    if context.interrupted.is_set():
        raise typer.Exit(130)
    (found,) = answers
    whole = CaseDivergence(operator=planned.operator, case=planned.case, device=where, result=found)
    if isinstance(found, NoDivergence) and output != "json":
        typer.echo(f"pairbench: {found.reason}", err=True)
    else:
        typer.echo(render_divergence(whole, output, everything=everything), nl=False)
    if isinstance(found, NoDivergence):
        raise typer.Exit(1 if found.bad else 2)
    if not found.layers:
        raise typer.Exit(2)
    if found.bad:
        raise typer.Exit(1)


def _entry(planned: PlannedCase, variant: str) -> Entry:
    known = {entry.implementation: entry for entry in planned.entries if entry.role == "variant"}
    if variant not in known:
        raise SelectionError(f"{planned.operator.name} has no variant {variant!r}, expected one of {', '.join(known)}")
    return known[variant]


def _diverge(context: "WorkerContext", device: Device, planned: PlannedCase, entry: Entry) -> Divergence | NoDivergence:
    from pairbench.execute.parent.steps import inspect
    from pairbench.execute.protocol import DivergeCase, Ended

    if entry in planned.skipped:
        return NoDivergence(entry=entry, reason=planned.skipped[entry], bad=False)
    job = DivergeCase(
        path=Path(planned.operator.path), operator=planned.operator.name, case=planned.case, entries=(entry,)
    )
    # Triton's interpreter computes what the kernels do, which is all that is asked here.
    for _, answer in inspect(context, device, [job], interpret=device.kind == "cpu"):
        if isinstance(answer, Ended):
            return NoDivergence(entry=entry, reason=f"{answer.status}: {answer.reason}", bad=answer.status.bad)
        assert isinstance(answer, Divergence | NoDivergence)
        return answer
    return NoDivergence(entry=entry, reason="the worker gave no answer; please report this", bad=True)
