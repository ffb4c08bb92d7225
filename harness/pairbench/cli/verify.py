"""The verb `pairbench verify`."""

from typing import Annotated

import typer

from pairbench.cli.options import (
    CatalogueOption,
    DeviceOption,
    FormatOption,
    ImplementationsOption,
    ModeOption,
    Select,
    Tf32Option,
    TierOption,
    TimeoutOption,
)
from pairbench.cli.say import configure, put, say
from pairbench.workflow.setup import open_request


def verify(
    select: Select = None,
    catalogue: CatalogueOption = False,
    implementation: ImplementationsOption = None,
    device: DeviceOption = "auto",
    tier: TierOption = None,
    mode: ModeOption = None,
    impostors: Annotated[
        bool,
        typer.Option(
            "--impostors",
            help="Audit the tolerances too: every impostor (a deliberately wrong implementation) must be rejected.",
        ),
    ] = False,
    tf32: Tf32Option = None,
    timeout: TimeoutOption = None,
    output: FormatOption = "table",
) -> None:
    """Verify every variant against its baseline, and time nothing. Edge cases are included.

    Triton kernels run through Triton's interpreter where there is no GPU.

    Example: pairbench verify suites/conv.py --impostors
    """
    from pairbench.report.render import render_rows, to_json
    from pairbench.report.rows import MEANINGS
    from pairbench.workflow.devices import verify_devices

    config = configure(output, catalogue=catalogue, tier=tier, mode=mode, tf32=tf32, timeout=timeout)
    with open_request(config, select, device, implementation or ()) as request:
        verified = verify_devices(request, impostors=impostors)
    broken, rows = request.chosen.survey.broken, verified.rows()
    for suite in broken:
        say(f"pairbench: {suite.reason}")
    if output == "json":
        document = {"verifications": rows, "broken_suites": broken}
        put(to_json({**document, "impostors": verified.impostor_rows()} if impostors else document), nl=False)
    else:
        shown = [{name: value for name, value in row.items() if name not in _DETAILS} for row in rows]
        put(render_rows("verifications", shown, output), nl=False)
        if any(row["oracle_ratio"] is not None for row in shown):
            put(f"oracle_ratio: {MEANINGS['oracle ratio']}")
        if impostors:
            put(render_rows("impostors", verified.impostor_summary(), output), nl=False)
        put(verified.statuses())
    if broken:
        raise typer.Exit(2)
    if request.context.interrupted.is_set():
        raise typer.Exit(130)
    if verified.bad:
        raise typer.Exit(1)


_DETAILS = (
    "suite",
    "operator",
    "mean_abs_error",
    "rel_l2_error",
    "rtol",
    "atol",
    "mismatched_fraction",
    "first_call_ns",
    "uncapturable",
    "reuses_output",
)
