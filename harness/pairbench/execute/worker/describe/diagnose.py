"""The capabilities of this machine: each tried for real, with advice on the missing ones."""

import importlib.util
import shutil
from collections.abc import Iterator

import torch

from pairbench.execute.isolation import what_holds
from pairbench.execute.worker.describe.probe import read_governor
from pairbench.execute.worker.devices import torch_device
from pairbench.execute.worker.graphs import capture
from pairbench.execute.worker.profile.launches import unusable
from pairbench.execute.worker.timing.telemetry import open_nvml, throttle_names
from pairbench.model.environment import Device, Finding


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
