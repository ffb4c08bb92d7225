"""A case's calls made ready to be timed: compiled or captured, warmed, with clocks for their device latencies."""

import time
import zlib
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import Ended, TimeCase, WorkerConfig
from pairbench.execute.worker.autotuned import choices
from pairbench.execute.worker.calls import Call, make_call
from pairbench.execute.worker.devices import SEEDS, synchronize
from pairbench.execute.worker.faults import SuiteFaultError
from pairbench.execute.worker.graphs import CaptureError, Replay, Rotation, rotate
from pairbench.execute.worker.guard import guarded
from pairbench.execute.worker.inputs import build_inputs
from pairbench.execute.worker.timing.measure import Timed
from pairbench.execute.worker.timing.telemetry import TelemetryRecorder, open_nvml
from pairbench.execute.worker.timing.timers import CudaTimer, DeviceClock, HostTimer, Timer
from pairbench.execute.worker.timing.values import Values
from pairbench.execute.worker.timing.watch import FirstCalls, Watch
from pairbench.execute.worker.trees import refill
from pairbench.model.operator import Operator
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry

_ROOM = 1.2
"""Free memory to keep, as a multiple of what the largest call needs: a nearly full allocator is fragmented."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A case whose calls are ready to be timed."""

    job: TimeCase
    operator: Operator
    device: torch.device
    inputs: dict[str, Any]
    calls: dict[Entry, Call]
    timed: list[Timed]
    """The entries that have a call, in the job's order."""
    timer: Timer
    recorder: TelemetryRecorder
    rng: np.random.Generator
    """The random generator that orders the samples within blocks."""
    values: Values
    watch: Watch


def make_ready(
    job: TimeCase, operator: Operator, config: WorkerConfig, heartbeat: Heartbeat, device: torch.device
) -> Generator[Ended, None, Ready]:
    """Yield the ends of entries that have no call; return the others', compiled or captured, each called once."""
    inputs = build_inputs(operator, job.case, device, SEEDS[0])
    first_calls = FirstCalls(
        {name: value for name, value in inputs.items() if name not in operator.state},
        lambda: refill(inputs, build_inputs(operator, job.case, device, SEEDS[0], like=inputs)),
    )
    timer: Timer = CudaTimer(device) if device.type == "cuda" else HostTimer()
    calls: dict[Entry, Call] = {}
    first_call_ns: dict[Entry, float] = {}
    autotuned: dict[Entry, tuple[str, ...]] = {}
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for index, entry in enumerate(job.entries):

        def step(entry: Entry = entry) -> tuple[Call, float, tuple[str, ...]]:
            started = time.perf_counter_ns()
            with choices() as chosen:
                call = make_call(operator, operator.implementations[entry.implementation], entry.mode, inputs)
                call.reset()
                call.run()
                synchronize(device)
            first_call_ns = float(time.perf_counter_ns() - started)
            if isinstance(call.run, Replay):
                rotation = rotate(call.run)
                call = replace(call, run=rotation, reset=rotation.before)
            first_calls.look()
            return call, first_call_ns, tuple(chosen)

        made = guarded(job, index, heartbeat, step)
        if isinstance(made, Ended):
            yield made
        else:
            calls[entry], first_call_ns[entry], autotuned[entry] = made
    clocks: dict[Entry, DeviceClock] = {}
    if isinstance(timer, CudaTimer):
        clocks = yield from _device_clocks(job, calls, timer, heartbeat, first_calls)
    if why := first_calls.changed():
        raise SuiteFaultError(Status.FAILED, f"one of the implementations {why}")
    timed = [
        Timed(
            index=index,
            entry=entry,
            run=calls[entry].run,
            reset=calls[entry].reset,
            observed=calls[entry].observed,
            device_clock=clocks.get(entry),
            first_call_ns=first_call_ns[entry],
            autotuned=autotuned[entry],
        )
        for index, entry in enumerate(job.entries)
        if entry in calls
    ]
    nvml, _ = open_nvml(config.device.uuid)
    beside = [found for item in config.device.beside if (found := open_nvml(item.uuid)[0])]
    seed = zlib.crc32(f"{job.case.key}:{config.settings.seed}:{job.round}".encode())
    values = Values.of(operator, job.case, device, inputs)
    constants = {name: inputs[name] for name in operator.constants}
    return Ready(
        job=job,
        operator=operator,
        device=device,
        inputs=inputs,
        calls=calls,
        timed=timed,
        timer=timer,
        recorder=TelemetryRecorder(nvml, beside),
        rng=np.random.default_rng(seed),
        values=values,
        watch=Watch(values, constants),
    )


def _device_clocks(
    job: TimeCase, calls: dict[Entry, Call], timer: CudaTimer, heartbeat: Heartbeat, first_calls: FirstCalls
) -> Generator[Ended, None, dict[Entry, DeviceClock]]:
    """Return the clocks of the calls that are no replays themselves; they replay graphs where those leave room for the calls.

    Calls that change an input as they are captured end, and are taken out. The graphs share their memory: each with its own, ten forms of a
    video decoder held all 140 GB of an H200.
    """
    pool = torch.cuda.graph_pool_handle()
    replays: dict[Entry, Replay | Rotation] = {}
    needed = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    for index, entry in enumerate(job.entries):
        if entry not in calls or entry.mode == "graph" or entry not in job.capturable:
            continue
        replay = guarded(job, index, heartbeat, lambda call=calls[entry]: _replay(call, pool))  # type: ignore[misc]
        ended = guarded(job, index, heartbeat, first_calls.look)
        if ended is not None:
            del calls[entry]
            yield ended
        elif replay is not None and not isinstance(replay, Ended):
            replays[entry] = replay
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] < _ROOM * needed:
        replays = {}
    return {
        entry: DeviceClock(timer, call.run, replays.get(entry), getattr(replays.get(entry), "before", call.reset))
        for entry, call in calls.items()
        if entry.mode != "graph"
    }


def _replay(call: Call, pool: tuple[int, int]) -> Replay | Rotation | None:
    try:
        return rotate(call.capture(pool))
    except CaptureError:
        return None
