"""`pairbench verify`."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from pairbench.cli.options import (
    DeviceOption,
    FormatOption,
    ImplementationsOption,
    ModeOption,
    Select,
    TierOption,
    TimeoutOption,
)
from pairbench.workflow.setup import choose, configure, open_context, pick_devices


def verify(
    select: Select = None,
    implementation: ImplementationsOption = None,
    device: DeviceOption = "auto",
    tier: TierOption = None,
    mode: ModeOption = None,
    impostors: Annotated[
        bool, typer.Option("--impostors", help="Audit the tolerances too: show that every impostor is rejected.")
    ] = False,
    timeout: TimeoutOption = None,
    output: FormatOption = "table",
) -> None:
    """Prove every variant equal to its baseline; time nothing. Edge cases are included.

    Triton kernels run through Triton's interpreter where there is no GPU.

    Example: pairbench verify suites/conv.py --impostors
    """
    from pairbench.workflow.progress import open_progress
    from pairbench.workflow.run.devices import verify_devices

    config = configure(output, tier=tier, mode=mode, timeout=timeout)
    with open_context(config) as context, open_progress() as progress:
        chosen = choose(config, context, select, implementation or ())
        devices = pick_devices(device, chosen.survey.devices)
        found = verify_devices(context, chosen, devices, progress, impostors=impostors)
    _print(
        found.rows(),
        found.impostor_rows() if impostors else None,
        [asdict(suite) for suite in chosen.survey.broken],
        output,
    )
    if chosen.survey.broken:
        raise typer.Exit(2)
    if context.interrupted.is_set():
        raise typer.Exit(130)
    if found.bad:
        raise typer.Exit(1)


def _print(
    rows: list[dict[str, Any]], audit: list[dict[str, Any]] | None, broken: list[dict[str, Any]], output: str
) -> None:
    from pairbench.report.render import render_rows, to_json

    for suite in broken:
        typer.echo(f"pairbench: {suite['reason']}", err=True)
    if output == "json":
        document: dict[str, Any] = {"verifications": rows, "broken_suites": broken}
        typer.echo(to_json(document if audit is None else {**document, "impostors": audit}), nl=False)
        return
    shown = [{name: value for name, value in row.items() if name not in _DETAILS} for row in rows]
    typer.echo(render_rows("verifications", shown, output), nl=False)
    if audit is not None:
        passed = [row for row in audit if not row["rejected"]]
        typer.echo(render_rows("impostors", passed or _summed(audit), output), nl=False)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    typer.echo(", ".join(f"{count} {status}" for status, count in counts.items()) or "nothing to verify")


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
)


def _summed(audit: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row an operator: all of its impostors were rejected."""
    counts: dict[str, dict[str, int]] = {}
    for row in audit:
        found = counts.setdefault(row["operator"], {"automatic": 0, "declared": 0})
        found["declared" if row["declared"] else "automatic"] += 1
    return [
        {"operator": operator, "rejected_automatic": n["automatic"], "rejected_declared": n["declared"]}
        for operator, n in counts.items()
    ]
