"""Reads the device, the driver, the versions and the settings into an `Environment`, and tries what measuring depends on for real, with advice on what is missing."""

import functools
import importlib.util
import os
import platform
import shutil
import socket
import statistics
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from pairbench.execute.isolation import what_holds
from pairbench.execute.worker.devices import cpu_name, torch_device
from pairbench.execute.worker.flags import read_flags, read_variables
from pairbench.execute.worker.graphs import capture
from pairbench.execute.worker.profile import unusable
from pairbench.execute.worker.timing.telemetry import open_nvml, throttle_names
from pairbench.execute.worker.timing.timers import TIMING_METHOD, CudaTimer, HostTimer, Timer, persisting_missing
from pairbench.model.environment import Device, Environment, Finding

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


def diagnose(device: Device) -> Iterator[Finding]:
    yield from _triton(device)
    yield _compiler()
    kept, detail = what_holds()
    yield Finding(name="Isolation", state="ok" if kept else "limited", detail=detail)
    if device.kind == "cuda":
        yield from _gpu(device)
    else:
        yield _governor()


def _triton(device: Device) -> Iterator[Finding]:
    if importlib.util.find_spec("triton") is None:
        yield Finding(
            name="Triton",
            state="missing",
            detail="not installed",
            advice="pip install triton: its variants are skipped, --timer do_bench is refused",
        )
    elif device.kind == "cpu":
        yield Finding(
            name="Triton", state="limited", detail="no GPU: kernels are verified through the interpreter and not timed"
        )
    else:
        yield Finding(name="Triton", state="ok", detail="compiles for this GPU")


def _compiler() -> Finding:
    found = next((name for name in ("g++", "clang++", "c++") if shutil.which(name)), None)
    if found:
        return Finding(name="C++ compiler", state="ok", detail=f"{found}: mode compile works on a CPU")
    return Finding(
        name="C++ compiler",
        state="missing",
        detail="none on the PATH",
        advice="install g++: torch.compile needs it on a CPU",
    )


def _governor() -> Finding:
    governor = read_governor()
    if governor is None:
        return Finding(
            name="CPU clock", state="limited", detail="the governor cannot be read; clocks may move while measuring"
        )
    if governor == "performance":
        return Finding(name="CPU clock", state="ok", detail="governor performance")
    return Finding(
        name="CPU clock",
        state="limited",
        detail=f"governor {governor}: clocks move",
        advice="cpupower frequency-set -g performance",
    )


def _gpu(device: Device) -> Iterator[Finding]:
    values = torch.zeros(16, device=torch_device(device))
    capture(lambda: values + 1)()
    torch.cuda.synchronize()
    yield Finding(name="CUDA graphs", state="ok", detail="captured and replayed: device latencies hide the host")
    problem = unusable()
    yield Finding(
        name="Launch counts",
        state="missing" if problem else "ok",
        detail=problem or "the profiler sees every kernel of a known call",
        advice="records will say `unavailable`" if problem else None,
    )
    nvml, missing = open_nvml(device.uuid)
    if nvml is None:
        yield Finding(
            name="NVML",
            state="missing",
            detail=missing or "",
            advice="no clocks, power or throttling in the records; install nvidia-ml-py",
        )
        return
    clock, temperature, power, reasons = nvml.reading()
    now = f"{clock} MHz, {temperature} C, {power} W" + (
        f", throttling: {', '.join(throttle_names(reasons))}" if reasons and throttle_names(reasons) else ""
    )
    yield Finding(name="NVML", state="ok", detail=now)
    others = nvml.foreign_processes()
    yield Finding(
        name="Foreign processes",
        state="unknown" if others is None else "limited" if others else "ok",
        detail="NVML does not tell"
        if others is None
        else f"{len(others)} compute on this GPU: {others}"
        if others
        else "none on this GPU",
        advice="two processes on one GPU make latencies three times as long; end them" if others else None,
    )
