"""Reads the device, the driver, the versions and the settings into an `Environment`, inside a worker."""

import os
import platform
import socket
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from pairbench.execute.ceilings import measure_ceilings
from pairbench.execute.flags import read_flags, read_variables
from pairbench.execute.telemetry import open_nvml
from pairbench.model.environment import Device, Environment

_PACKAGES = ("numpy", "scipy", "nvidia-ml-py")


def torch_device(device: Device) -> torch.device:
    """Return the device as this worker sees it: its one visible GPU, or the CPU."""
    return torch.device("cuda", 0) if device.kind == "cuda" else torch.device("cpu")


def find_devices() -> tuple[Device, ...]:
    """Return the GPUs that this process may use, and the CPU last."""
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    return (*(_gpu(index) for index in gpus), Device(selector="cpu", kind="cpu", name=cpu_name()))


def _gpu(index: int) -> Device:
    properties = torch.cuda.get_device_properties(index)
    return Device(
        selector=f"cuda:{index}",
        kind="cuda",
        name=properties.name,
        uuid=f"GPU-{properties.uuid}",
        capability=(properties.major, properties.minor),
        memory_bytes=properties.total_memory,
    )


def cpu_name() -> str:
    """Return the CPU model."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def probe(device: Device) -> Environment:
    """Return the environment of a device, its measured ceilings included."""
    gpu = device.kind == "cuda"
    nvml, missing = open_nvml(device.uuid)
    cudnn = torch.backends.cudnn.version() if gpu else None
    observed: dict[str, Any] = {"ceilings": measure_ceilings(torch_device(device))}
    if gpu:
        observed["nvml"] = missing or "available"
        observed["foreign_processes"] = _foreign(nvml.compute_processes()) if nvml else None
    rest: dict[str, Any] = {
        "flags": read_flags(),
        "variables": read_variables(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "packages": _versions(),
        "observed": observed,
    }
    if gpu:
        rest["gpu"] = {**_gpu_facts(), **(nvml.facts() if nvml else {})}
    else:
        rest["governor"] = _governor()
    return Environment(
        device=device,
        driver=_driver() if gpu else None,
        cuda=torch.version.cuda if gpu else None,
        cudnn=str(cudnn) if cudnn else None,
        torch=torch.__version__,
        triton=_version("triton"),
        python=sys.version.split()[0],
        hostname=socket.gethostname(),
        cpu=cpu_name(),
        rest=rest,
    )


def _gpu_facts() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
    }


def _foreign(processes: list[int] | None) -> list[int] | None:
    return None if processes is None else [pid for pid in processes if pid != os.getpid()]


def _driver() -> str | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # no NVML: the probe's `observed.nvml` says so
        return None


def _governor() -> str | None:
    try:
        return Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions() -> dict[str, str | None]:
    # Its own version by the attribute: what runs from a checkout is not always installed.
    own = getattr(sys.modules["pairbench"], "__version__", None)
    return {"pairbench": own, **{package: _version(package) for package in _PACKAGES}}
