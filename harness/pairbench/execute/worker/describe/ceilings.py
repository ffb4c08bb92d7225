"""What the device can do at best, measured: the two lines of the roofline."""

import functools
import statistics
from collections.abc import Callable
from typing import Any

import torch

from pairbench.execute.worker.timing.timers import CudaTimer, HostTimer, Timer

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
