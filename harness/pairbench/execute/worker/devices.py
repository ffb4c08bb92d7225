"""The devices of this machine, as torch sees them."""

import platform
import sys
from pathlib import Path

import torch

from pairbench.model.environment import Device


def torch_device(device: Device) -> torch.device:
    """Return the device as this worker sees it: its first visible GPU, or the CPU."""
    return torch.device("cuda", 0) if device.kind == "cuda" else torch.device("cpu")


def find_devices() -> tuple[Device, ...]:
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    found = [
        Device(
            selector=f"cuda:{index}",
            kind="cuda",
            name=properties.name,
            uuid=f"GPU-{properties.uuid}",
            capability=(properties.major, properties.minor),
            memory_bytes=properties.total_memory,
        )
        for index, properties in zip(gpus, map(torch.cuda.get_device_properties, gpus), strict=True)
    ]
    return (*found, Device(selector="cpu", kind="cpu", name=cpu_name()))


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


SEEDS = (0, 1)
"""Seeds of the inputs. The second seed's values are put at the addresses of the first one's, so that a cached answer shows."""


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device; of the host, those available without swapping."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return sys.maxsize
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), sys.maxsize)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release_memory() -> None:
    """Give unused memory of the GPU back: another worker may need it."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
