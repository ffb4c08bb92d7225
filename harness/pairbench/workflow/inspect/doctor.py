"""What this machine can measure, and what it lacks."""

from typing import Any

from pairbench.config import Config
from pairbench.execute.parent.pool import available_memory
from pairbench.execute.parent.scout import diagnose_device, probe_environment, survey
from pairbench.model.environment import Environment, Finding
from pairbench.workflow.setup import open_context, pick_devices


def examine(config: Config, wanted: str) -> list[dict[str, Any]]:
    """Return a row for each thing that was looked at, device by device.

    Args:
        config: The settings.
        wanted: The value of `--device`.

    Raises:
        UsageError: there is no such device.
    """
    rows: list[dict[str, Any]] = []
    with open_context(config) as context:
        for device in pick_devices(wanted, survey(context, ()).devices):
            findings = [*_known(probe_environment(context, device)), *diagnose_device(context, device)]
            rows += [
                {"device": device.selector, "what": f.name, "state": f.state, "detail": f.detail, "advice": f.advice}
                for f in findings
            ]
    return rows


def _known(environment: Environment) -> list[Finding]:
    ceilings = ", ".join(f"{name} {value:.4g}" for name, value in environment.rest["observed"]["ceilings"].items())
    versions = f"torch {environment.torch}, triton {environment.triton or 'none'}, Python {environment.python}"
    if environment.device.kind == "cuda":
        versions += f", CUDA {environment.cuda}, cuDNN {environment.cudnn}, driver {environment.driver or 'unknown'}"
    return [
        Finding(name="Device", state="ok", detail=environment.device.name),
        Finding(name="Versions", state="ok", detail=versions),
        Finding(name="Ceilings", state="ok", detail=ceilings),
        Finding(name="Host memory", state="ok", detail=f"{available_memory(1.0) / 2**30:.1f} GiB free"),
    ]
