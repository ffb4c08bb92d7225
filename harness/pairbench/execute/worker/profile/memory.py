"""Memory and operators of one call (peak bytes above the inputs, allocations, dispatched ATen operators), and whether profiling changes its outputs."""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from pairbench.execute.worker.calls import Call
from pairbench.execute.worker.devices import synchronize
from pairbench.execute.worker.dispatch import TransparentMode
from pairbench.execute.worker.profile.trace import raw_trace, recording
from pairbench.execute.worker.trees import copy_tree, has_room, tensors
from pairbench.execute.worker.verify.case import oracle_or_why
from pairbench.execute.worker.verify.judge import Known, judge, same_outputs


def profiled_otherwise(call: Call, inputs: dict[str, Any], device: torch.device) -> str | None:
    """Return a sentence where a profiled call, or one whose operators are counted, gives another output, else None. Outputs too large to copy are not compared."""

    def observed() -> Any:
        if call.operator.state and not call.operator.reset:
            call.refill(inputs)  # else outputs depend on how many calls there were
        return call.observe()

    plain = observed()
    if not has_room(plain, copies=3):
        return None
    expected, kept = copy_tree(plain), dict[str, Any]()
    with recording([ProfilerActivity.CPU]):
        kept["profiled"] = copy_tree(observed())
    count_ops(lambda: kept.update({"watched operator by operator": copy_tree(observed())}))
    synchronize(device)
    tolerance_for, known = call.operator.tolerance_for, Known(inputs)
    for name, outputs in kept.items():
        if same_outputs(outputs, expected) or not judge(outputs, expected, None, tolerance_for, known).mismatch:
            continue
        # Elements beyond the tolerance may still be right; the oracle is asked only here, for it takes long.
        truth, _ = oracle_or_why(call.operator, inputs)
        if wrong := judge(outputs, expected, truth, tolerance_for, known).mismatch:
            return f"computes something else when it is {name}: {wrong}; its counts would be those of another call"
    return None


Run = Callable[[], Any]


class _CountOps(TransparentMode):
    """Counts the ATen operators that are dispatched while it is active; those inside of flex attention are not."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.float32_products = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += getattr(func, "namespace", "") == "aten"
        if not self.float32_products and _PRODUCT.search(func.name().rpartition("::")[2].partition(".")[0]):
            self.float32_products = next(iter(tensors([args, kwargs])), _NOTHING).dtype in _ROUNDED_BY_TF32
        return func(*args, **(kwargs or {}))


_PRODUCT = re.compile(
    r"(^|_)(|add|b|badd|addb)mm($|_)|(^|_)(add)?mv$|(^|_)v?dot$|(^|_)(bi)?linear($|_)|matmul|einsum|tensordot|^inner$"
    r"|conv(?!ert)|attention|(^|_)(rnn|lstm|gru)"
)
"""Names of ATen operators that multiply matrices or convolve, those included that stay whole in inference mode."""
_ROUNDED_BY_TF32 = (torch.float32, torch.complex64)
_NOTHING = torch.empty(0, dtype=torch.bool)


def count_ops(run: Run) -> tuple[int, bool]:
    """Return how many ATen operators one call dispatches, and whether one is a product or convolution of float32. Operators fused by a compiler or inside a Triton kernel are not dispatched."""
    with _CountOps() as counter:
        run()
    return counter.count, counter.float32_products


def cuda_memory(run: Run) -> tuple[int, int]:
    """Return the peak of allocated bytes above those before, and the number of allocations, of one call on the GPU."""
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
    """Return the peak of allocated bytes above those before, and the number of allocations, of one call on a CPU, as the profiler records them."""
    events = raw_trace(run, (ProfilerActivity.CPU,), memory=True)
    changes = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]")
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak, sum(change > 0 for _, change in changes)
