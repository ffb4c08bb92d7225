"""Where one call spends its time: the profiler's trace of it, its modules, and the lines that copy, cast and wait.

Three passes, since each would disturb the others: one whose trace shows which module and operator launched each kernel; on a GPU one that records the call
alone, for times and gaps; one that sees every dispatched operator with its line. The n-th kernel of a name in one trace is the n-th of that name in the other.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import BreakDownCase, Ended
from pairbench.execute.worker.breakdown.lines import gather, see
from pairbench.execute.worker.breakdown.trace import (
    MODULE,
    WINDOW,
    Activity,
    Window,
    graph_launches,
    host_work,
    labelled,
    pieces,
    read_windows,
    spots_by_span,
    waits,
)
from pairbench.execute.worker.calls import Call, make_call, why_invalid
from pairbench.execute.worker.devices import SEEDS, synchronize
from pairbench.execute.worker.graphs import CaptureError, Replay
from pairbench.execute.worker.guard import each_entry
from pairbench.execute.worker.input_trees import restore
from pairbench.execute.worker.inputs import build_inputs
from pairbench.execute.worker.modules import names_of, roots, watching
from pairbench.execute.worker.profile import launches
from pairbench.execute.worker.profile.trace import TraceError, raw_trace, run_sentinel
from pairbench.model.breakdown import Breakdown, Idle, ModuleCalls
from pairbench.model.operator import Operator
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry

_SHORT_S = 0.1
_CALLS = 5
"""Calls to record where one takes less than `_SHORT_S`."""


def break_down(job: BreakDownCase, operator: Operator, heartbeat: Heartbeat, device: torch.device) -> Iterator[Any]:
    inputs = build_inputs(operator, job.case, device, SEEDS[0])
    unusable = launches.unusable() if device.type == "cuda" else None

    def step(entry: Entry) -> Breakdown | Ended:
        if unusable:
            return Ended(entry=entry, status=Status.FAILED, reason=unusable)
        variant = operator.implementations[entry.implementation]
        if why := why_invalid(variant, inputs):
            return Ended(entry=entry, status=Status.SKIPPED, reason=why)
        try:
            call = make_call(operator, variant, entry.mode, inputs)
        except CaptureError as error:
            reason = f"cannot be captured as a CUDA graph: {error}"
            return Ended(entry=entry, status=Status.SKIPPED, reason=reason)
        return _Subject(job, call, device).breakdown(entry)

    yield from each_entry(job, heartbeat, step)


_Recorded = tuple[Window, float]


class _Subject:
    def __init__(self, job: BreakDownCase, call: Call, device: torch.device) -> None:
        self._job = job
        self._call = call
        self._device = device
        self._eager: Callable[[], Any] = call.run.call if isinstance(call.run, Replay) else call.run
        self._names = names_of(roots(call.given))
        self._marks = _Marks()

    def breakdown(self, entry: Entry) -> Breakdown:
        self._warm()
        seconds = self._warm()  # how often to record, and nothing else
        calls = _CALLS if seconds < _SHORT_S else 1
        on_gpu, replayed = self._device.type == "cuda", isinstance(self._call.run, Replay)
        with watching(self._names, self._marks):
            recorded = self._record(self._eager, 1 if on_gpu else calls, None if replayed else self._job.trace)
        modules = tuple(
            ModuleCalls(name=name, class_name=self._marks.classes[name], calls=count // len(recorded))
            for name, count in self._marks.calls.items()
        )
        self._restore()
        folders = (os.environ.get(name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"))
        compiled = tuple(folder for folder in folders if folder)  # where compilers write code
        sightings = see(self._eager, self._names, self._state(), skipped=compiled)
        spots, spot_indices = gather(sightings, self._job.path.parent)
        marked, whole_ns = quickest = min(recorded, key=_length)
        spot_of = spots_by_span(marked, [seen.op for seen in sightings], spot_indices)
        work_items = list(host_work(marked, spot_of))
        notes = []
        if on_gpu:
            recorded = self._record(self._call.run, calls, self._job.trace if replayed else None)
            quickest = min(recorded, key=_length)
            work_items = list(labelled(quickest[0], marked, spot_of))
            whole_ns = busy_ns(quickest[0].activities)
            if (clean := len(quickest[0].activities)) != (seen := len(marked.activities)):
                notes.append(
                    f"The call makes {clean} kernels and copies, the one that shows their modules made {seen}."
                )
        if len({len(window.activities) for window, _ in recorded}) > 1:
            notes.append("The recorded calls launched different numbers of kernels.")
        return Breakdown(
            entry=entry,
            calls=calls,
            modules=modules,
            pieces=pieces(work_items),
            spots=spots,
            graph_launches=graph_launches(quickest[0]),
            waits=waits(marked, spot_of) if entry.mode != "graph" else (),
            idle=idle_of(quickest[0]),
            whole_ns=whole_ns,
            notes=tuple(notes),
        )

    def _warm(self) -> float:
        self._restore()
        started = time.perf_counter()
        self._call.run()
        synchronize(self._device)
        return time.perf_counter() - started

    def _state(self) -> dict[str, Any]:
        return {name: self._call.kwargs[name] for name in self._call.operator.state}

    def _restore(self) -> None:
        restore(self._state(), {name: self._call.shared[name] for name in self._call.operator.state})
        self._call.reset()
        synchronize(self._device)

    def _record(self, run: Callable[[], Any], calls: int, keep: Path | None) -> list[_Recorded]:
        on_gpu = self._device.type == "cuda"
        activities = (ProfilerActivity.CPU, ProfilerActivity.CUDA) if on_gpu else (ProfilerActivity.CPU,)
        clocks_ns: list[float] = []

        def marked() -> None:
            for _ in range(calls):
                self._restore()
                if on_gpu:
                    run_sentinel()
                started = time.perf_counter_ns()
                with record_function(WINDOW):
                    run()
                clocks_ns.append(time.perf_counter_ns() - started)
                synchronize(self._device)
            if on_gpu:
                run_sentinel()

        events = raw_trace(marked, activities, keep=keep)
        try:
            windows = read_windows(events, calls, sentinels=calls + 1 if on_gpu else 0)
        except TraceError as error:
            raise RuntimeError(f"the profiler's trace is not complete: {error}; run it again") from error
        return list(zip(windows, clocks_ns, strict=True))


class _Marks:
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.classes: dict[str, str] = {}
        self._open: list[Any] = []

    def enter(self, name: str, module: torch.nn.Module, inputs: Any) -> None:  # noqa: ARG002 (a Watcher)
        self.calls[name] += 1
        self.classes[name] = type(module).__name__
        mark = record_function(f"{MODULE}{name}")
        mark.__enter__()
        self._open.append(mark)

    def leave(self, name: str, module: torch.nn.Module, outputs: Any) -> None:  # noqa: ARG002 (a Watcher)
        self._open.pop().__exit__(None, None, None)


def _length(recorded: _Recorded) -> float:
    """Return how long a call took on the device in ns, or on the host where there is no device."""
    window, clock_ns = recorded
    ends = [activity.end for activity in window.activities]
    return max(ends) - min(activity.start for activity in window.activities) if ends else clock_ns


_CLOCKS_NS = 5_000.0
"""How far the clocks of host and device in a trace may differ, in ns."""


def busy_ns(activities: list[Activity]) -> float:
    """Return for how long at least one of some activities was running, in ns."""
    total = end = 0.0
    for activity in sorted(activities, key=lambda item: item.start):
        total += max(0.0, activity.end - max(activity.start, end))
        end = max(end, activity.end)
    return total


def idle_of(window: Window) -> Idle | None:
    """Return how long the device idled between the first and last activity of a call; None without activities."""
    activities = sorted(window.activities, key=lambda item: item.start)
    if not activities:
        return None
    waits = [wait.end for wait in window.waits()]
    starved = after_sync = 0.0
    end = activities[0].end
    for activity in activities[1:]:
        gap = activity.start - end
        # Launched before the device ran dry: the gap is the device's own, some hundred nanoseconds a kernel.
        if gap > 0 and activity.launch is not None and activity.launch.start > end:
            starved += gap
            if any(end - _CLOCKS_NS <= wait <= activity.start for wait in waits):
                after_sync += gap
        end = max(end, activity.end)
    return Idle(
        span_ns=end - activities[0].start, busy_ns=busy_ns(activities), starved_ns=starved, after_sync_ns=after_sync
    )
