"""Reads the device, the driver, the versions and the settings into an `Environment`, and tries what measuring depends on for real, with advice on what is missing."""

import contextlib
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
from pairbench.execute.worker.calls import cpu_name, torch_device
from pairbench.execute.worker.flags import read_flags, read_variables
from pairbench.execute.worker.graphs import capture
from pairbench.execute.worker.timing import timers
from pairbench.model.environment import Device, Environment, Finding

_PACKAGES = ("numpy", "scipy", "nvidia-ml-py")
_KERNEL_PACKAGES = ("flash-attn-3", "fa3-fwd")
"""Recorded only where installed, so that other environments stay as they were."""
_SAMPLES = 10


def probe(device: Device, *, ceilings: bool = True) -> Environment:
    gpu = device.kind == "cuda"
    nvml, missing = timers.open_nvml(device.uuid)
    cudnn = torch.backends.cudnn.version() if gpu else None
    observed: dict[str, Any] = {"ceilings": measure_ceilings(torch_device(device)) if ceilings else {}}
    if gpu:
        observed["nvml"] = missing or "available"
        observed["persisting_l2_reset"] = timers.open_runtime()[1] or "available"
        observed["foreign_processes"] = nvml.foreign_processes() if nvml else None
        if device.beside:
            observed["foreign_processes_beside"] = {
                item.selector: beside.foreign_processes() if (beside := timers.open_nvml(item.uuid)[0]) else None
                for item in device.beside
            }
    rest: dict[str, Any] = {
        "flags": read_flags(),
        "variables": read_variables(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        # Its own version by the attribute: what runs from a checkout is not always installed.
        "packages": {
            "pairbench": getattr(sys.modules["pairbench"], "__version__", None),
            **{package: _version(package) for package in _PACKAGES},
            **{package: version for package in _KERNEL_PACKAGES if (version := _version(package))},
        },
        "observed": observed,
    }
    if gpu:
        properties = torch.cuda.get_device_properties(0)
        rest["gpu"] = {
            "timing_method": timers.TIMING_METHOD,
            "multiprocessors": properties.multi_processor_count,
            "l2_bytes": properties.L2_cache_size,
            "memory_bytes": properties.total_memory,
            "capability": f"{properties.major}.{properties.minor}",
            **(nvml.facts() if nvml else {}),
        }
    else:
        rest["governor"] = _governor()
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


def _driver() -> str | None:
    with contextlib.suppress(Exception):  # no NVML: the probe's `observed.nvml` says so
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    return None


def _governor() -> str | None:
    with contextlib.suppress(OSError):
        return Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    return None


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def measure_ceilings(device: torch.device) -> dict[str, float]:
    """Return copy bandwidth in GB/s (read plus written) and dense matrix rates in TFLOP/s by dtype, on random data."""
    gpu = device.type == "cuda"
    timer: timers.Timer = timers.CudaTimer(device) if gpu else timers.HostTimer()
    source = torch.rand((1 << 28) if gpu else (1 << 24), device=device)
    target = torch.empty_like(source)
    copied = 2 * source.numel() * source.element_size()
    found = {"copy_gbps": copied / _median_ns(timer, functools.partial(target.copy_, source))}
    # Large enough to fill the chip, small enough that the slow float64 takes milliseconds.
    on_gpu = {torch.bfloat16: 8192, torch.float16: 8192, torch.float32: 4096, torch.float64: 4096}
    for dtype, size in (on_gpu if gpu else {torch.float32: 1024, torch.float64: 1024}).items():
        left, right = (torch.rand(size, size, device=device).to(dtype) - 0.5 for _ in range(2))
        elapsed = _median_ns(timer, functools.partial(torch.matmul, left, right))
        found[f"{str(dtype).removeprefix('torch.')}_tflops"] = 2 * size**3 / elapsed / 1e3
    return found


def _median_ns(timer: timers.Timer, run: Callable[[], Any]) -> float:
    run()
    samples = []
    for _ in range(_SAMPLES):
        timer.flush()
        samples.append(timer.sample(run).call_ns)
    return statistics.median(samples)


def diagnose(device: Device) -> Iterator[Finding]:
    gpu = device.kind == "cuda"
    if importlib.util.find_spec("triton") is None:
        advice = "pip install triton: its variants are skipped, --timer do_bench is refused"
        yield _finding("Triton", "missing", "not installed", advice)
    elif gpu:
        yield _finding("Triton", "ok", "compiles for this GPU")
    else:
        yield _finding("Triton", "limited", "no GPU: kernels are verified through the interpreter and not timed")
    if found := next((name for name in ("g++", "clang++", "c++") if shutil.which(name)), None):
        yield _finding("C++ compiler", "ok", f"{found}: mode compile works on a CPU")
    else:
        yield _finding("C++ compiler", "missing", "none on the PATH", "install g++: torch.compile needs it on a CPU")
    kept, detail = what_holds()
    yield _finding("Isolation", "ok" if kept else "limited", detail)
    if gpu:
        yield from _diagnose_gpu(device)
    elif (governor := _governor()) is None:
        yield _finding("CPU clock", "limited", "the governor cannot be read; clocks may move while measuring")
    elif governor == "performance":
        yield _finding("CPU clock", "ok", "governor performance")
    else:
        advice = "cpupower frequency-set -g performance"
        yield _finding("CPU clock", "limited", f"governor {governor}: clocks move", advice)


def _finding(name: str, state: str, detail: str, advice: str | None = None) -> Finding:
    return Finding(name=name, state=state, detail=detail, advice=advice)


def _diagnose_gpu(device: Device) -> Iterator[Finding]:
    # Here, because it loads all that judges, which reading an environment does not need.
    from pairbench.execute.worker.profile import unusable

    values = torch.zeros(16, device=torch_device(device))
    capture(lambda: values + 1)()
    torch.cuda.synchronize()
    yield _finding("CUDA graphs", "ok", "captured and replayed: device latencies hide the host")
    if problem := unusable():
        yield _finding("Launch counts", "missing", problem, "records will say `unavailable`")
    else:
        yield _finding("Launch counts", "ok", "the profiler sees every kernel of a known call")
    nvml, missing = timers.open_nvml(device.uuid)
    if nvml is None:
        advice = "no clocks, power or throttling in the records; install nvidia-ml-py"
        yield _finding("NVML", "missing", missing or "", advice)
        return
    clock, temperature, power, reasons = nvml.reading()
    throttling = f", throttling: {', '.join(names)}" if (names := timers.throttle_names(reasons or 0)) else ""
    yield _finding("NVML", "ok", f"{clock} MHz, {temperature} C, {power} W{throttling}")
    others = nvml.foreign_processes()
    if others:
        advice = "two processes on one GPU make latencies three times as long; end them"
        yield _finding("Foreign processes", "limited", f"{len(others)} compute on this GPU: {others}", advice)
    elif others is None:
        yield _finding("Foreign processes", "unknown", "NVML does not tell")
    else:
        yield _finding("Foreign processes", "ok", "none on this GPU")
