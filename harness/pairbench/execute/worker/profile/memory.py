"""Memory and operators of one call: peak bytes above the inputs, allocations, dispatched ATen operators."""

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from pairbench.execute.worker.dispatch import TransparentMode
from pairbench.execute.worker.profile.trace import raw_trace

Run = Callable[[], Any]


class _CountOps(TransparentMode):
    """Counts the ATen operators that are dispatched while it is active; those inside of flex attention are not."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += getattr(func, "namespace", "") == "aten"
        return func(*args, **(kwargs or {}))


def count_ops(run: Run) -> int:
    """Return how many ATen operators one call dispatches; what a compiled region fused away is not dispatched."""
    with _CountOps() as counter:
        run()
    return counter.count


def cuda_memory(run: Run) -> tuple[int, int]:
    """Return the peak of allocated bytes above what was there, and the number of allocations, of one call on the GPU."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()
    torch.cuda.reset_peak_memory_stats()
    outputs = run()
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    del outputs
    allocations = after["allocation.all.allocated"] - before["allocation.all.allocated"]
    return after["allocated_bytes.all.peak"] - before["allocated_bytes.all.current"], allocations


def host_memory(run: Run) -> tuple[int, int]:
    """Return the peak of allocated bytes above what was there, and the allocations, of one call on a CPU.

    Both come from the allocations that the profiler records.
    """
    events = raw_trace(run, (ProfilerActivity.CPU,), memory=True)
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]")
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak, sum(change > 0 for _, change in changes)
