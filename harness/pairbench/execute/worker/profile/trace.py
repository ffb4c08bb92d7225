"""The profiler's raw trace of some calls, and its names of events."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile
from torch.profiler import ProfilerActivity

from pairbench.own_folders import held_folder

HOST_CALLS = ("cuda_runtime", "cuda_driver")
DEVICE_ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
SYNCHRONISATION = "Synchronize"
"""Ending of the names of CUDA calls that wait for the device."""
SENTINEL_KERNEL = "spin_kernel"
"""Name of the kernel that `run_sentinel` runs; a trace without it is not complete."""


class TraceError(Exception):
    """A trace is not complete."""


def run_sentinel() -> None:
    """Run one kernel that must be in the trace, and wait for it."""
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()


def recording(activities: Sequence[ProfilerActivity], *, memory: bool = False) -> profile:
    """Return a profiler. `torch.profiler.profile` would load torch's compiler to read one setting, which took 8 s on the host of an H100."""
    return profile(
        use_cpu=ProfilerActivity.CPU in activities,
        use_device="cuda" if ProfilerActivity.CUDA in activities else None,
        profile_memory=memory,
        use_kineto=True,
    )


def raw_trace(
    run: Callable[[], Any], activities: Sequence[ProfilerActivity], *, memory: bool = False, keep: Path | None = None
) -> list[Any]:
    """Return the events of a profiled call in Chrome's trace format, and copy them to the file `keep`; outputs live until the recording has ended."""
    with recording(activities, memory=memory) as session:
        outputs = run()
    del outputs
    with held_folder() as folder:
        path = folder / "trace.json"
        session.export_chrome_trace(str(path))
        events: list[Any] = json.loads(path.read_bytes())["traceEvents"]
        if keep is not None:
            shutil.copyfile(path, keep)
    return events
