"""The verbs that look into one call: `breakdown` and `diverge`."""

from pathlib import Path
from typing import Annotated

from typer import Option

from pairbench.cli.options import Given, remark, verb
from pairbench.cli.say import put
from pairbench.errors import UsageError

_MODES = ("eager", "graph")


@verb(
    "operator case catalogue implementation mode device expand trace keep tf32 timeout store output",
    tier=["all"],
)
def breakdown(
    given: Given,
    implementation: Annotated[
        list[str] | None,
        Option("--implementation", "-i", help="baseline, a variant, or all; repeatable. Default: baseline."),
    ] = None,
    mode: Annotated[str, Option("--mode", help="eager or graph.")] = "eager",
    expand: Annotated[
        bool,
        Option("--expand", help="Show each module of a list by itself, instead of one line for modules of one kind."),
    ] = False,
    trace: Annotated[
        Path | None,
        Option(metavar="FILE.json", help="Also write the profiler's trace, for chrome://tracing or Perfetto."),
    ] = None,
    keep: Annotated[bool, Option("--keep", help="Also store it, so that the dashboard shows it.")] = False,
) -> int | None:
    """Show where one call spends its time. By module, kind of work and kernel, and by source line for copies, casts and syncs.

    The call runs under a profiler, which slows it down: read the shares, and take no time here for a latency. Times are
    those of ATen operators on a CPU, and of kernels on a GPU.

    Example: pairbench breakdown suites/conv.py::causal_conv3d --case dtype=bfloat16 -i all --trace conv.json
    """
    from pairbench.features.breakdown.breakdown import WantedBreakdown, break_down, render_breakdown
    from pairbench.model.breakdown import Breakdown, NoBreakdown

    if mode not in _MODES:
        raise UsageError(f"--mode {mode!r} cannot be broken down, expected one of {', '.join(_MODES)}")
    wanted = WantedBreakdown(
        operator=given.operator,
        case=given.case,
        device=given.device,
        implementations=tuple(implementation or ("baseline",)),
        trace=trace,
        keep=keep,
    )
    found, kept = break_down(given.config, wanted)
    put(render_breakdown(found, given.output, expand=expand), nl=False)
    if kept:
        remark(f"kept as {kept}")
    if any(isinstance(part, NoBreakdown) and part.bad for part in found.parts):
        return 1
    return 0 if any(isinstance(part, Breakdown) for part in found.parts) else 2


@verb("operator variant case catalogue device everything tf32 timeout output", tier=["all"], mode=["eager"])
def diverge(
    given: Given,
    variant: Annotated[
        str, Option("--variant", "-v", "--implementation", "-i", help="The variant to compare with the baseline.")
    ],
    everything: Annotated[
        bool, Option("--all", help="Show every call of every module, however many there are.")
    ] = False,
) -> int | None:
    """Find the first module whose output is out of tolerance. Also show how errors grow from module to module.

    Baseline and variant run on the same inputs. The outputs of modules with the same name are compared call by call, and both
    with the baseline in float64. Exit code: 1 where the operator's output is out of tolerance, or a module's output is and is
    clearly further from float64 than the baseline's.

    Example: pairbench diverge my_model.py::decoder --variant fused --case dtype=bfloat16
    """
    from pairbench.features.diverge import find_divergence, render_divergence
    from pairbench.model.breakdown import NoDivergence
    from pairbench.workflow.one_case import Wanted

    wanted = Wanted(operator=given.operator, case=given.case, device=given.device)
    whole = find_divergence(given.config, wanted, variant)
    found = whole.result
    if isinstance(found, NoDivergence) and given.output != "json":
        remark(found.reason)
    else:
        put(render_divergence(whole, given.output, everything=everything), nl=False)
    if isinstance(found, NoDivergence):
        return 1 if found.bad else 2
    return int(found.bad) if found.layers else 2
