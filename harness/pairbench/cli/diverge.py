"""The verb `pairbench diverge`."""

from typing import Annotated

import typer

from pairbench.cli.options import (
    CaseOption,
    CatalogueOption,
    DeviceOption,
    FormatOption,
    OneOperator,
    Tf32Option,
    TimeoutOption,
)
from pairbench.cli.say import configure, put, say


def diverge(
    operator: OneOperator,
    variant: Annotated[str, typer.Option("--variant", "-v", help="The variant to compare with the baseline.")],
    case: CaseOption = None,
    catalogue: CatalogueOption = False,
    device: DeviceOption = "auto",
    everything: Annotated[
        bool, typer.Option("--all", help="Show every call of every module, however many there are.")
    ] = False,
    tf32: Tf32Option = None,
    timeout: TimeoutOption = None,
    output: FormatOption = "table",
) -> None:
    """Find the first module whose output is out of tolerance. Also show how errors grow from module to module.

    Baseline and variant run on the same inputs. The outputs of modules with the same name are compared call by call, and both
    with the baseline in float64. Exit code: 1 where the operator's output is out of tolerance, or a module's output is and is
    clearly further from float64 than the baseline's.

    Example: pairbench diverge my_model.py::decoder --variant fused --case dtype=bfloat16
    """
    from pairbench.features.diverge import find_divergence, render_divergence
    from pairbench.model.divergence import NoDivergence
    from pairbench.workflow.one_case import Wanted

    config = configure(output, catalogue=catalogue, tier=["all"], mode=["eager"], tf32=tf32, timeout=timeout)
    whole = find_divergence(config, Wanted(operator=operator, case=case, device=device), variant)
    found = whole.result
    if isinstance(found, NoDivergence) and output != "json":
        say(f"pairbench: {found.reason}")
    else:
        put(render_divergence(whole, output, everything=everything), nl=False)
    if isinstance(found, NoDivergence):
        raise typer.Exit(1 if found.bad else 2)
    if not found.layers:
        raise typer.Exit(2)
    if found.bad:
        raise typer.Exit(1)
