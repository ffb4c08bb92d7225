"""Reads the device, the driver, the versions and the settings into an `Environment`."""

import functools
import os
import platform
import socket
import statistics
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from pairbench.execute.worker.devices import cpu_name, torch_device
from pairbench.execute.worker.flags import read_flags, read_variables
from pairbench.execute.worker.timing.telemetry import open_nvml
from pairbench.execute.worker.timing.timers import TIMING_METHOD, CudaTimer, HostTimer, Timer, persisting_missing
from pairbench.model.environment import Device, Environment

_PACKAGES = ("numpy", "scipy", "nvidia-ml-py")
_KERNEL_PACKAGES = ("flash-attn-3", "fa3-fwd")
"""Recorded only where installed, so that other environments stay as they were."""


def probe(device: Device, *, ceilings: bool = True) -> Environment:
    gpu = device.kind == "cuda"
    nvml, missing = open_nvml(device.uuid)
    cudnn = torch.backends.cudnn.version() if gpu else None
    observed: dict[str, Any] = {"ceilings": measure_ceilings(torch_device(device)) if ceilings else {}}
    if gpu:
        observed["nvml"] = missing or "available"
        observed["persisting_l2_reset"] = persisting_missing() or "available"
        observed["foreign_processes"] = nvml.foreign_processes() if nvml else None
        if device.beside:
            observed["foreign_processes_beside"] = {
                item.selector: beside.foreign_processes() if (beside := open_nvml(item.uuid)[0]) else None
                for item in device.beside
            }
    rest: dict[str, Any] = {
        "flags": read_flags(),
        "variables": read_variables(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "packages": _versions(),
        "observed": observed,
    }
    if gpu:
        rest["gpu"] = {"timing_method": TIMING_METHOD, **_gpu_facts(), **(nvml.facts() if nvml else {})}
    else:
        rest["governor"] = read_governor()
    return Environment(
        device=device,
        driver=_driver() if gpu else None,
        cuda=torch.version.cuda if gpu else None,
        cudnn=str(cudnn) if cudnn else None,
        torch=str(torch.__version__),  # its own class is torch's, and whoever receives it would have to import torch
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


def _driver() -> str | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:  # no NVML: the probe's `observed.nvml` says so
        return None


def read_governor() -> str | None:
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
    kernels = {package: version for package in _KERNEL_PACKAGES if (version := _version(package))}
    return {"pairbench": own, **{package: _version(package) for package in _PACKAGES}, **kernels}


_SAMPLES = 10


def measure_ceilings(device: torch.device) -> dict[str, float]:
    """Return copy bandwidth in GB/s (read plus written) and dense matrix rates in TFLOP/s by dtype, on random data."""
    gpu = device.type == "cuda"
    timer: Timer = CudaTimer(device) if gpu else HostTimer()
    source = torch.rand((1 << 28) if gpu else (1 << 24), device=device)
    target = torch.empty_like(source)
    copied = 2 * source.numel() * source.element_size()
    found = {"copy_gbps": copied / _median_ns(timer, functools.partial(target.copy_, source))}
    for dtype, size in _matrices(gpu):
        left, right = (torch.rand(size, size, device=device).to(dtype) - 0.5 for _ in range(2))
        elapsed = _median_ns(timer, functools.partial(torch.matmul, left, right))
        found[f"{str(dtype).removeprefix('torch.')}_tflops"] = 2 * size**3 / elapsed / 1e3
    return found


def _matrices(gpu: bool) -> list[tuple[torch.dtype, int]]:
    if not gpu:
        return [(torch.float32, 1024), (torch.float64, 1024)]
    # Large enough to fill the chip, small enough that the slow float64 takes milliseconds.
    return [(torch.bfloat16, 8192), (torch.float16, 8192), (torch.float32, 4096), (torch.float64, 4096)]


def _median_ns(timer: Timer, run: Callable[[], Any]) -> float:
    run()
    samples = []
    for _ in range(_SAMPLES):
        timer.flush()
        samples.append(timer.sample(run).call_ns)
    return statistics.median(samples)
