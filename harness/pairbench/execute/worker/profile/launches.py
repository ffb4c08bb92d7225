"""The launches of one call, counted in the profiler's raw trace, in a worker that never times anything.

A profiler may lose records, and an empty trace looks like a call that launches nothing. So a count is believed only if the sentinel kernels before and after the
calls are in the trace, and if 1, 2 and 4 calls give exactly 1, 2 and 4 times as much of everything.
"""

import functools
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from pairbench.execute.worker.profile.trace import (
    DEVICE_ACTIVITIES,
    HOST_CALLS,
    SENTINEL_KERNEL,
    SYNCHRONISATION,
    TraceError,
    raw_trace,
    run_sentinel,
)
from pairbench.model.outcome import Launches
from pairbench.model.record import KernelCount

CALLS = (1, 2, 4)
_ACTIVITIES = (ProfilerActivity.CUDA,)
"""Operators are left out: they are most of a trace and of the time to profile a call."""

GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")


@dataclass(kw_only=True)
class Counts:
    launches: int = 0
    graph_launches: int = 0
    syncs: int = 0
    memcpys: int = 0
    memcpy_bytes: int = 0
    memsets: int = 0
    kernels: Counter[str] = field(default_factory=Counter)
    kernel_ns: Counter[str] = field(default_factory=Counter)

    def exact(self) -> tuple[Any, ...]:
        host = (self.launches, self.graph_launches, self.syncs)
        return (*host, self.memcpys, self.memcpy_bytes, self.memsets, tuple(sorted(self.kernels.items())))

    def times(self, factor: int) -> tuple[Any, ...]:
        *numbers, kernels = self.exact()
        return (*(number * factor for number in numbers), tuple((name, count * factor) for name, count in kernels))


def unusable() -> str | None:
    """Start the profiler and return why it cannot count here, or None. Its first session may record nothing, so one with real kernels is thrown away."""
    try:
        raw_trace(lambda: (torch.zeros(16, device="cuda").add_(1), torch.cuda.synchronize()), _ACTIVITIES)
        (counts,) = _trace(lambda: torch.zeros(16, device="cuda"), (1,))
    except (RuntimeError, TraceError) as error:
        return (
            f"the profiler records no device activity ({error}); if other tools hold CUPTI, end them, and if the driver "
            "keeps profiling to administrators (NVreg_RestrictProfilingToAdminUsers), allow it"
        )
    if (counts.kernels.total(), counts.syncs) != (1, 0):
        return f"of one kernel and no wait the profiler shows {counts.kernels.total()} and {counts.syncs}"
    return None


def count_launches(run: Callable[[], Any], reset: Callable[[], None] | None = None) -> Launches:
    """Count the launches of one call; those of a `reset` before each call are not counted: there are sentinels around each call then."""
    try:
        counted = _trace(run, CALLS) if reset is None else [_each(reset, run, calls) for calls in CALLS]
    except TraceError as error:
        return Launches(status="unreliable", reason=str(error))
    one = counted[0]
    for calls, several in zip(CALLS, counted, strict=True):
        if several.exact() != one.times(calls):
            return Launches(
                status="unreliable",
                reason=f"{calls} calls do not give {calls} times the counts of one: {_difference(one, several, calls)}",
            )
    last = counted[-1]
    return Launches(
        status="exact",
        launches=one.launches + one.graph_launches,
        kernels=one.kernels.total(),
        graph_launches=one.graph_launches,
        memcpys=one.memcpys,
        memcpy_bytes=one.memcpy_bytes,
        memsets=one.memsets,
        syncs=one.syncs,
        kernel_counts=tuple(
            KernelCount(name=name, count=count, total_ns=last.kernel_ns[name] / CALLS[-1])
            for name, count in one.kernels.most_common()
        ),
    )


def _each(reset: Callable[[], None], run: Callable[[], Any], calls: int) -> Counts:
    """Count some calls, without the reset before each of them, in one session."""
    turns = itertools.cycle((run, reset))

    def turn() -> None:
        next(turns)()

    reset()
    spans = _trace(turn, (1,) * (2 * calls - 1))[::2]
    names = [item.name for item in fields(Counts)]
    return Counts(**{name: functools.reduce(operator.add, [getattr(one, name) for one in spans]) for name in names})


def _difference(one: Counts, several: Counts, calls: int) -> str:
    names = ("launches", "graph launches", "syncs", "memcpys", "memcpy bytes", "memsets", "kernels")
    pairs = zip(names, one.times(calls), several.exact(), strict=True)
    return "; ".join(
        f"{name} {actual} instead of {expected}" for name, expected, actual in pairs if expected != actual
    )[:300]


def _trace(run: Callable[[], Any], groups: tuple[int, ...]) -> list[Counts]:
    """Run groups of calls with sentinels around each, in one session, and count each group."""

    def marked() -> None:
        run_sentinel()
        for calls in groups:
            for _ in range(calls):
                run()
                torch.cuda.synchronize()
            run_sentinel()

    torch.cuda.synchronize()
    events = raw_trace(marked, _ACTIVITIES)
    return [count_events(part, calls) for part, calls in zip(split_events(events, groups), groups, strict=True)]


def split_events(events: Iterable[dict[str, Any]], groups: tuple[int, ...]) -> list[list[dict[str, Any]]]:
    """Split a trace by its groups of calls: the device's events between two sentinels, and the host's between their launches."""
    spans = sorted((event for event in events if event.get("ph") == "X"), key=lambda event: float(event["ts"]))
    host = [event for event in spans if event.get("cat") in HOST_CALLS]
    device = [event for event in spans if event.get("cat") in DEVICE_ACTIVITIES]
    sentinels = [event for event in device if event["cat"] == "kernel" and SENTINEL_KERNEL in event["name"]]
    if len(sentinels) != len(groups) + 1:
        raise TraceError(f"{len(sentinels)} of {len(groups) + 1} sentinel kernels are in the profiler's trace")
    launched = {_correlation(event): event["ts"] for event in host}
    try:
        marks = [(event["ts"], launched[_correlation(event)]) for event in sentinels]
    except KeyError:
        raise TraceError("the launch of a sentinel kernel is not in the profiler's trace") from None
    return [
        [
            *(event for event in device if first[0] < event["ts"] < last[0]),
            *(event for event in host if first[1] < event["ts"] < last[1]),
        ]
        for first, last in itertools.pairwise(marks)
    ]


def count_events(events: Iterable[dict[str, Any]], calls: int) -> Counts:
    """Count the events between two sentinels; the synchronisations that the harness adds, after the first sentinel and after each call, must be there."""
    counts = Counts()
    launches: set[Any] = set()
    graphs: set[Any] = set()
    for event in events:
        if event["cat"] in HOST_CALLS:
            if event["name"].startswith(GRAPH_LAUNCHES):
                graphs.add(_correlation(event))
            counts.syncs += event["name"].endswith(SYNCHRONISATION)
        elif event["cat"] == "kernel":
            launches.add(_correlation(event))
            counts.kernels[event["name"]] += 1
            counts.kernel_ns[event["name"]] += round(event["dur"] * 1000)
        elif event["cat"] == "gpu_memcpy":
            counts.memcpys += 1
            counts.memcpy_bytes += int(event.get("args", {}).get("bytes", 0))
        else:
            counts.memsets += 1
    if counts.syncs < calls + 1:
        raise TraceError(
            f"{counts.syncs} of the harness's own {calls + 1} synchronisations are in the profiler's trace"
        )
    counts.syncs -= calls + 1
    counts.graph_launches = len(graphs)
    # By the kernels' correlation ids and not by the host calls' names: the profiler does not know all of those.
    counts.launches = len(launches - graphs)
    return counts


def _correlation(event: dict[str, Any]) -> Any:
    return event.get("args", {}).get("correlation")
