"""What a host of the fleet measures on, whether it is fit for that, and whether others keep it busy just now."""

import platform
import shutil
import subprocess
from dataclasses import dataclass

from pairbench.config import Config
from pairbench.execute.parent.host_load import LoadMeter, count_cores
from pairbench.execute.parent.scout import diagnose_device, probe_environment, survey
from pairbench.model.environment import Device, Finding
from pairbench.model.load import HostLoad
from pairbench.model.unit import Offer
from pairbench.workflow.setup import open_context, pick_devices

_SMI_S = 20


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A host as it is when its worker starts."""

    name: str
    offers: tuple[Offer, ...]
    findings: tuple[tuple[str, Finding], ...]
    """What `pairbench doctor` finds, by the device's selector."""


def examine_host(config: Config, devices: str) -> Examined:
    """Look at the devices of this host as `pairbench doctor` does.

    Args:
        config: The settings.
        devices: Values of `--device`, with commas between them.

    Raises:
        UsageError: there is no such device.
    """
    with open_context(config) as context:
        known = survey(context, ()).devices
        chosen = [device for word in devices.split(",") for device in pick_devices(word.strip(), known)]
        chosen = list(dict.fromkeys(chosen))
        offers = tuple(_offer(device, probe_environment(context, device).hash) for device in chosen)
        findings = [(device.selector, found) for device in chosen for found in diagnose_device(context, device)]
    host = platform.node()
    part = {"auto", "all"}.isdisjoint(devices.split(",")) and len(chosen) < len(known) - (known[0].kind == "cuda")
    return Examined(name=f"{host} {devices}" if part else host, offers=offers, findings=tuple(findings))


def _offer(device: Device, environment_hash: str) -> Offer:
    return Offer(
        identity=device.uuid or f"cpu-{platform.node()}",
        kind=device.kind,
        model=device.slug,
        selector=device.selector,
        environment_hash=environment_hash,
    )


class BusyWatch:
    """Tells between units whether others use the processors or the GPUs of this host."""

    def __init__(self, offers: tuple[Offer, ...]) -> None:
        self._offers = offers
        self._meter = LoadMeter()

    def begin(self) -> None:
        """Forget what happened until now, as a unit that was measured meanwhile."""
        self._meter = LoadMeter()

    def held_up(self) -> str | None:
        """Return who else is at work here since it was last asked; None where nobody is."""
        load = HostLoad(cores=count_cores(), before=self._meter.foreign_cores())
        reasons = [load.disturbs(kind) for kind in sorted({offer.kind for offer in self._offers})]
        if why := next(filter(None, reasons), None):
            return why.partition(":")[0]
        gpus = {offer.identity for offer in self._offers if offer.kind == "cuda"}
        found = sorted(pid for gpu, pid in compute_processes() if gpu in gpus) if gpus else []
        return f"processes {', '.join(found[:5])} compute on its GPU" if found else None


def compute_processes() -> list[tuple[str, str]]:
    """Return UUID and process of whatever computes on this host's GPUs; nothing where the driver does not tell.

    By `nvidia-smi`, for NVML would stay loaded in the worker.
    """
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_SMI_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return processes_of(done.stdout) if done.returncode == 0 else []


def processes_of(text: str) -> list[tuple[str, str]]:
    """Return the pairs in what `nvidia-smi --query-compute-apps=gpu_uuid,pid` prints."""
    pairs = (tuple(part.strip() for part in line.split(",")) for line in text.splitlines())
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()]
