"""Timing one case in a worker: make its calls ready, time them, and verify the very calls that were timed once more."""

import time
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import Ended, TimeCase, WorkerConfig
from pairbench.execute.stopping import Stopping
from pairbench.execute.worker.calls import Call, make_call
from pairbench.execute.worker.devices import SEEDS, synchronize
from pairbench.execute.worker.faults import explain
from pairbench.execute.worker.graphs import CaptureError, Replay, Rotation, capture, rotate
from pairbench.execute.worker.guard import guarded
from pairbench.execute.worker.inputs import build_inputs
from pairbench.execute.worker.timing.measure import EntryFailedError, EntryTimeoutError, Timed, time_entries
from pairbench.execute.worker.timing.telemetry import TelemetryRecorder, open_nvml
from pairbench.execute.worker.timing.timers import CudaTimer, DeviceClock, HostTimer, Timer
from pairbench.execute.worker.trees import copy_tree, refill
from pairbench.execute.worker.verify.case import oracle_or_why
from pairbench.execute.worker.verify.judge import judge
from pairbench.model.operator import Operator
from pairbench.model.outcome import TIME_CAP, EntrySamples, Status, TimedRound
from pairbench.model.plan import Entry

_RECHECK_SEED = 2
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


def time_case(
    job: TimeCase, operator: Operator, config: WorkerConfig, heartbeat: Heartbeat, device: torch.device
) -> Iterator[Any]:
    """Yield the ends of entries, and the `TimedRound` of those that can be timed."""
    ready = yield from make_ready(job, operator, config, heartbeat, device)
    if not ready.timed:
        return
    try:
        if config.settings.timer == "do_bench":
            result = time_with_do_bench(
                ready.timed, round_index=job.round, recorder=ready.recorder, heartbeat=heartbeat
            )
        else:
            result = time_entries(
                ready.timed,
                round_index=job.round,
                timer=ready.timer,
                stopping=Stopping.of(config.settings),
                recorder=ready.recorder,
                heartbeat=heartbeat,
                rng=ready.rng,
            )
    except (EntryTimeoutError, EntryFailedError) as error:
        yield end_of(job, config, error)
        return
    yield from recheck(ready, heartbeat)
    yield result


def end_of(job: TimeCase, config: WorkerConfig, error: EntryTimeoutError | EntryFailedError) -> Ended:
    """Return the end of the entry that could not be timed."""
    status, reason = (
        explain(error.__cause__)
        if error.__cause__ is not None
        else (Status.TIMEOUT, f"over the {config.settings.timeout_s:g} s that one implementation has in a stage")
    )
    return Ended(entry=job.entries[error.index], status=status, reason=f"{reason}, while being timed")


def make_ready(
    job: TimeCase, operator: Operator, config: WorkerConfig, heartbeat: Heartbeat, device: torch.device
) -> Generator[Ended, None, Ready]:
    """Yield the ends of entries that have no call; return the others', compiled or captured, each called once."""
    inputs = build_inputs(operator, job.case, device, SEEDS[0])
    timer: Timer = CudaTimer(device) if device.type == "cuda" else HostTimer()
    calls: dict[Entry, Call] = {}
    first_call_ns: dict[Entry, float] = {}
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for index, entry in enumerate(job.entries):

        def step(entry: Entry = entry) -> tuple[Call, float]:
            started = time.perf_counter_ns()
            call = make_call(operator, operator.implementations[entry.implementation], entry.mode, inputs)
            call.run()
            synchronize(device)
            first_call_ns = float(time.perf_counter_ns() - started)
            return (replace(call, run=rotate(call.run)) if isinstance(call.run, Replay) else call), first_call_ns

        made = guarded(job, index, heartbeat, step)
        if isinstance(made, Ended):
            yield made
        else:
            calls[entry], first_call_ns[entry] = made
    clocks = _device_clocks(job, calls, timer, heartbeat) if isinstance(timer, CudaTimer) else {}
    timed = [
        Timed(
            index=index,
            entry=entry,
            run=calls[entry].run,
            device_clock=clocks.get(entry),
            first_call_ns=first_call_ns[entry],
        )
        for index, entry in enumerate(job.entries)
        if entry in calls
    ]
    nvml, _ = open_nvml(config.device.uuid)
    beside = [handle for item in config.device.beside if (handle := open_nvml(item.uuid)[0])]
    seed = zlib.crc32(f"{job.case.key}:{config.settings.seed}:{job.round}".encode())
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
    )


def _device_clocks(
    job: TimeCase, calls: dict[Entry, Call], timer: CudaTimer, heartbeat: Heartbeat
) -> dict[Entry, DeviceClock]:
    """Return the clocks of the calls that are no replays themselves; they replay graphs where those leave room for the calls.

    The graphs share their memory. Each with its own, ten forms of a video decoder held all 140 GB of an H200.
    """
    pool = torch.cuda.graph_pool_handle()
    replays: dict[Entry, Replay | Rotation] = {}
    needed = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    for index, entry in enumerate(job.entries):
        if entry not in calls or entry.mode == "graph" or entry not in job.capturable:
            continue
        replay = guarded(job, index, heartbeat, lambda call=calls[entry]: _replay(call, pool))  # type: ignore[misc]
        if replay is not None and not isinstance(replay, Ended):
            replays[entry] = replay
    torch.cuda.empty_cache()
    if torch.cuda.mem_get_info()[0] < _ROOM * needed:
        replays = {}
    return {
        entry: DeviceClock(timer, call.run, replays.get(entry))
        for entry, call in calls.items()
        if entry.mode != "graph"
    }


def _replay(call: Call, pool: tuple[int, int]) -> Replay | Rotation | None:
    try:
        return rotate(capture(call.run, pool))
    except CaptureError:
        return None


def recheck(ready: Ready, heartbeat: Heartbeat) -> Iterator[Ended]:
    """Verify the timed calls once more, on fresh inputs at the same addresses; yield the ends of those that are wrong."""
    fresh = build_inputs(ready.operator, ready.job.case, ready.device, _RECHECK_SEED + ready.job.round)
    baseline = make_call(ready.operator, ready.operator.baseline, "eager", copy_tree(fresh))
    expected = copy_tree(baseline.observe())
    for index, entry in enumerate(ready.job.entries):
        if (call := ready.calls.get(entry)) is None:
            continue

        def step(call: Call = call) -> str | None:
            for _ in range(call.captures):
                refill(ready.inputs, fresh)
                call.refill(fresh)
                outputs = call.observe()
                synchronize(ready.device)
                if judge(outputs, expected, None, ready.operator.tolerance_for).mismatch:
                    # Only the oracle can judge strays. It is computed only here, for it costs more than all that was timed.
                    truth, _ = oracle_or_why(ready.operator, fresh)
                    if wrong := judge(outputs, expected, truth, ready.operator.tolerance_for).mismatch:
                        return wrong
            return None

        mismatch = guarded(ready.job, index, heartbeat, step)
        if isinstance(mismatch, Ended):
            yield mismatch
        elif mismatch is not None:
            reason = f"its timed call is wrong on fresh inputs at the same addresses: {mismatch}"
            yield Ended(entry=entry, status=Status.MISMATCHED, reason=reason)


def time_with_do_bench(
    entries: list[Timed], *, round_index: int, recorder: TelemetryRecorder, heartbeat: Heartbeat
) -> TimedRound:
    """Time each entry with `do_bench`'s defaults and keep its single times; nothing is interleaved."""
    import triton.testing  # here, because a machine without Triton can use every other timer

    began = time.perf_counter_ns()
    taken = []
    for timed in entries:
        with heartbeat.entry(timed.index):
            at = time.perf_counter_ns() - began
            times = triton.testing.do_bench(timed.run, return_mode="all")
            recorder.throttling()
            taken.append(_samples(timed, at, [value * 1e6 for value in times]))
    return TimedRound(
        round=round_index,
        timer="do_bench",
        entries=tuple(taken),
        throttled=(False,) * max(len(samples.call_ns) for samples in taken),
        remeasured=0,
        stop_reason=TIME_CAP,
        telemetry=recorder.summary(),
        measuring_s=(time.perf_counter_ns() - began) / 1e9,
    )


def _samples(timed: Timed, at: int, times: list[float]) -> EntrySamples:
    return EntrySamples(
        entry=timed.entry,
        position=(0,) * len(times),
        at_ns=(at,) * len(times),
        call_ns=tuple(times),
        host_ns=None,
        device_ns=None,
        device_timer=None,
        first_call_ns=timed.first_call_ns,
    )
