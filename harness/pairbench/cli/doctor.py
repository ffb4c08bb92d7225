"""`pairbench doctor`."""

from typing import Any

import typer

from pairbench.cli.options import DeviceOption, FormatOption, StoreOption
from pairbench.workflow.setup import configure, open_context, pick_devices


def doctor(device: DeviceOption = "auto", store: StoreOption = None, output: FormatOption = "table") -> None:
    """Say what this machine can measure, and what it lacks. Also what to do about that.

    Example: pairbench doctor --device all
    """
    from pairbench.execute.parent.pool import available_memory
    from pairbench.execute.parent.scout import diagnose_device, probe_environment, survey
    from pairbench.model.finding import Finding
    from pairbench.report.render import render_rows

    config = configure(output, store=store)
    rows: list[dict[str, Any]] = []
    with open_context(config) as context:
        for found in pick_devices(device, survey(context, ()).devices):
            environment = probe_environment(context, found)
            ceilings = ", ".join(
                f"{name} {value:.4g}" for name, value in environment.rest["observed"]["ceilings"].items()
            )
            versions = f"torch {environment.torch}, triton {environment.triton or 'none'}, Python {environment.python}"
            if found.kind == "cuda":
                versions += (
                    f", CUDA {environment.cuda}, cuDNN {environment.cudnn}, driver {environment.driver or 'unknown'}"
                )
            findings = [
                Finding(name="Device", state="ok", detail=found.name),
                Finding(name="Versions", state="ok", detail=versions),
                Finding(name="Ceilings", state="ok", detail=ceilings),
                Finding(name="Host memory", state="ok", detail=f"{available_memory(1.0) / 2**30:.1f} GiB free"),
                *diagnose_device(context, found),
            ]
            rows += [
                {"device": found.selector, "what": f.name, "state": f.state, "detail": f.detail, "advice": f.advice}
                for f in findings
            ]
    typer.echo(render_rows("doctor", rows, output), nl=False)
