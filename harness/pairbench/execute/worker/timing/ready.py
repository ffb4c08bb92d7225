"""A case's calls ready to be timed: compiled or captured, warmed, with clocks for their device latencies, and on one core."""

import contextlib
import ctypes
import functools
import os
import time
import zlib
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pairbench.execute.protocol import Ended, Heartbeat, TimeCase, WorkerConfig
from pairbench.execute.worker.calls import SEEDS, Call, build_inputs, make_call, synchronize, torch_device
from pairbench.execute.worker.graphs import Replay, Rotation, rotate
from pairbench.execute.worker.guard import UnnamedError, guarded, look_once
from pairbench.execute.worker.judge.plain import export
from pairbench.execute.worker.modules import noting
from pairbench.execute.worker.process_state import pinned
from pairbench.execute.worker.timing import timers
from pairbench.execute.worker.timing.measure import Setup, Timed, copy_where_room
from pairbench.execute.worker.timing.values import FirstCalls, Values, Watch
from pairbench.execute.worker.trees import copy_tree, named_tensors, refill, tensors
from pairbench.model.operator import Operator
from pairbench.model.plan import Entry

_USUAL = {"num_ctas": 1}  # settings that are named only where they differ from these
_FEWEST_CORES = 4  # fewest cores for pinning: with less, other work could not get out of the way
_ROOM = 1.2  # free memory to keep, as a multiple of what the largest call needs: a nearly full allocator is fragmented


@contextlib.contextmanager
def choices() -> Iterator[list[str]]:
    """Give a list that gets one text, like `add: BLOCK=128, num_warps=4`, for each autotuned kernel launched inside; replays of graphs add none."""
    noted: list[str] = []

    def note(tuner: Any) -> None:
        if (text := _text(tuner)) not in noted:
            noted.append(text)

    with noting("triton.runtime.autotuner", "Autotuner", "run", note):
        yield noted


def _text(tuner: Any) -> str:
    name = getattr(getattr(tuner, "base_fn", None), "__name__", "a kernel")
    chosen = tuner.best_config.all_kwargs().items()
    settings = [f"{key}={value}" for key, value in chosen if key not in _USUAL or value != _USUAL[key]]
    return f"{name}: {', '.join(settings)}"


@contextlib.contextmanager
def on_one_core(device: torch.device) -> Iterator[None]:
    """Keep this thread on its core, then let it go; only for a GPU, whose calls one thread issues. Other threads, as torch's, stay free.

    On an H200 the median host time of a call spread between processes by 1.5 to 2.8 % with its thread pinned, and by 2.7 to 6.2 % without.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else frozenset[int]()
    library = ctypes.CDLL(None)
    core = int(library.sched_getcpu()) if hasattr(library, "sched_getcpu") else -1  # the platform may not say
    with contextlib.ExitStack() as at_the_end:
        if device.type == "cuda" and len(allowed) >= _FEWEST_CORES and core in allowed:
            with contextlib.suppress(OSError):  # a container may forbid it
                os.sched_setaffinity(0, {core})
                pinned.update(now=frozenset({core}), before=frozenset(allowed))
                at_the_end.callback(os.sched_setaffinity, 0, allowed)
                at_the_end.callback(pinned.clear)
        yield


class Ready(Setup):
    job: TimeCase
    operator: Operator
    device: torch.device
    inputs: dict[str, Any]
    inputs_s: float
    calls: dict[Entry, Call]
    replays: dict[Entry, Replay | Rotation]
    """The captures whose replays are timed, by entry; their outputs are judged at the end of the round."""

    def captures(self, timed: Timed) -> int:
        """Return the number of an entry's captures whose replays are timed."""
        return len(self.replays[timed.entry].replays) if timed.entry in self.replays else 0


def make_ready(
    job: TimeCase, operator: Operator, config: WorkerConfig, heartbeat: Heartbeat
) -> Generator[Ended, None, Ready]:
    """Yield the ends of entries that have no call; return the others', compiled or captured, each called once."""
    device, began = torch_device(config.device), time.perf_counter()
    inputs = build_inputs(operator, job.case, device, SEEDS[0])
    synchronize(device)
    inputs_s = time.perf_counter() - began
    first_calls = FirstCalls(
        {name: value for name, value in inputs.items() if name not in operator.state},
        lambda: refill(inputs, build_inputs(operator, job.case, device, SEEDS[0], like=inputs)),
    )
    timer: timers.Timer = timers.CudaTimer(device) if device.type == "cuda" else timers.HostTimer()
    calls: dict[Entry, Call] = {}
    timed: dict[Entry, Timed] = {}
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for index, entry in enumerate(job.entries):

        def step(index: int = index, entry: Entry = entry) -> tuple[Call, Timed]:
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
            return call, Timed(
                index=index,
                entry=entry,
                run=call.run,
                reset=call.reset,
                observed=call.observed,
                first_call_ns=first_call_ns,
                autotuned=tuple(chosen),
                copied=functools.partial(copy_where_room, copy=export if job.outside else copy_tree),
            )

        made = guarded(job, index, heartbeat, step)
        if isinstance(made, Ended):
            yield made
        else:
            calls[entry], timed[entry] = made
    replays: dict[Entry, Replay | Rotation] = {}
    if device.type == "cuda":
        replays = yield from _capture(job, calls, inputs, heartbeat, first_calls)
    look_once(job)
    for entry, call in calls.items():
        if isinstance(timer, timers.CudaTimer) and entry.mode != "graph":  # those of a graph are the timer's own
            timed[entry].device_clock = clock = timers.DeviceClock(timer, call.run, call.reset)
            if (replay := replays.get(entry)) is not None:
                timed[entry].stream_clock = clock
                timed[entry].device_clock = timers.DeviceClock(timer, replay, replay.before, "graph_replay")
    if why := first_calls.changed():
        raise UnnamedError(why, "")
    nvml, _ = timers.open_nvml(config.device.uuid)
    beside = [found for item in config.device.beside if (found := timers.open_nvml(item.uuid)[0])]
    seed = zlib.crc32(f"{job.case.key}:{config.settings.seed}:{job.round}".encode())
    values = Values.of(operator, job.case, device, inputs, inputs_s)
    constants = {name: inputs[name] for name in operator.constants}
    return Ready(
        job=job,
        operator=operator,
        device=device,
        inputs=inputs,
        inputs_s=inputs_s,
        calls=calls,
        replays=replays | {entry: call.run for entry, call in calls.items() if isinstance(call.run, Replay | Rotation)},
        timed=[timed[entry] for entry in calls],
        heartbeat=heartbeat,
        timer=timer,
        recorder=timers.TelemetryRecorder(nvml, beside),
        rng=np.random.default_rng(seed),
        values=values,
        watch=Watch(values, constants),
    )


def _capture(
    job: TimeCase, calls: dict[Entry, Call], inputs: dict[str, Any], heartbeat: Heartbeat, first_calls: FirstCalls
) -> Generator[Ended, None, dict[Entry, Replay | Rotation]]:
    """Capture the calls that are no replays themselves; none where graphs, which share their memory, would not leave room for the calls. Calls that change an input meanwhile end."""
    pool = torch.cuda.graph_pool_handle()
    replays: dict[Entry, Replay | Rotation] = {}
    needed = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    for index, entry in enumerate(job.entries):
        if entry not in calls or entry.mode == "graph" or entry not in job.capturable:
            continue

        def step(call: Call = calls[entry]) -> Replay | Rotation | None:
            try:
                replay = rotate(call.capture(pool))
            except Exception:  # it could be captured when it was verified, but memory may be short now
                replay = None
            first_calls.look()
            return replay

        replay = guarded(job, index, heartbeat, step)
        if isinstance(replay, Ended):
            del calls[entry]
            yield replay
        elif replay is not None:
            replays[entry] = replay
    torch.cuda.empty_cache()
    # Replays are judged on other inputs, beside a copy of what the baseline's gives.
    baselines = [replay.replays[0].outputs for entry, replay in replays.items() if entry.role == "baseline"]
    beside = tensors([named_tensors(inputs), *baselines])
    room = _ROOM * needed + sum(tensor.nbytes for tensor in beside)
    return replays if torch.cuda.mem_get_info()[0] >= room else {}
