"""The profiler's raw trace of some calls, and the names that it has for things."""

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
"""Categories of the host's calls of CUDA."""
DEVICE_ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of what runs on the device."""
SYNCHRONISATION = "Synchronize"
"""Ending of the names of CUDA calls that wait for the device."""
SENTINEL_KERNEL = "spin_kernel"
"""Name of the kernel that `run_sentinel` runs; a trace without it is not complete."""


def run_sentinel() -> None:
    """Run one kernel that must be in the trace, and wait for it."""
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()


def recording(activities: Sequence[ProfilerActivity], *, memory: bool = False) -> profile:
    """Return what records the activities of the calls inside of it.

    `torch.profiler.profile` is a shell around it that loads torch's compiler as it starts, only to read one of its settings. That
    took 8 s on the host of an H100.

    Args:
        activities: What to record.
        memory: Record every allocation, too.
    """
    return profile(
        use_cpu=ProfilerActivity.CPU in activities,
        use_device="cuda" if ProfilerActivity.CUDA in activities else None,
        profile_memory=memory,
        use_kineto=True,
    )


def raw_trace(
    run: Callable[[], Any], activities: Sequence[ProfilerActivity], *, memory: bool = False, keep: Path | None = None
) -> list[Any]:
    """Return the events that torch's profiler writes of a call, as Chrome's trace format has them.

    Args:
        run: what to record; what it returns is kept until the recording has ended.
        activities: what of.
        memory: record every allocation, too.
        keep: also leave the trace in this file.
    """
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
