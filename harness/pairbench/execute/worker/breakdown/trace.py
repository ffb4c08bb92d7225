"""Reads a raw trace (the nesting of host calls, the launch of each device activity) and adds calls up by module, operator, kernel and line. Events in, values out."""

import bisect
import functools
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from pairbench.execute.worker import profile
from pairbench.execute.worker.process_state import has_kernel
from pairbench.model.breakdown import DeviceWait, WorkTotal

COPIES = frozenset(
    f"aten::{name}"
    for name in (
        *("_to_copy", "copy_", "clone", "cat", "stack", "roll", "constant_pad_nd", "repeat", "slice_scatter"),
        *("index_copy_", "index_put_", "scatter_", "select_scatter", "masked_scatter_"),
    )
)

_WAITS = ("_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_dim", "bincount")
WAITS = frozenset(f"aten::{name}" for name in _WAITS)
"""Operators whose result the host has to see before it can go on."""

WINDOW = "pairbench::call"
MODULE = "pairbench::module:"  # prefix of the mark around one call of a module, before the module's name
_Key = tuple[str, tuple[str, ...], str | None, int | None, bool]
"""Module, operators, kernel, index of the line, and whether these are known."""

WorkItem = tuple[_Key, float, bool]  # key of a piece of work, its time in ns, whether the host launched it by itself


@dataclass
class Span:
    """One host call, from `start` to `end` in ns of the trace's clock."""

    category: str
    name: str
    start: float
    end: float
    parent: "Span | None" = None
    inside_ns: float = 0.0  # time in ns of the spans directly inside

    @property
    def own_ns(self) -> float:
        return max(0.0, self.end - self.start - self.inside_ns)

    @property
    def is_op(self) -> bool:
        return self.category == "cpu_op"

    def path(self) -> "list[Span]":
        return [*(self.parent.path() if self.parent else ()), self]


class Activity(NamedTuple):
    """A kernel, copy or fill on the device, from `start` to `end` in ns of the trace's clock."""

    category: str
    name: str
    start: float
    end: float
    launch: Span | None

    @property
    def ns(self) -> float:
        return self.end - self.start


@dataclass(kw_only=True)
class Window:
    span: Span
    spans: list[Span] = field(default_factory=list)
    """The host's spans during the call, by their beginning, the window itself first."""
    activities: list[Activity] = field(default_factory=list)
    """The activities that the call launched, in the order of their launches."""

    def waits(self) -> list[Span]:
        calls = (span for span in self.spans if span.category in profile.HOST_CALLS)
        return [span for span in calls if span.name.endswith(profile.SYNCHRONISATION)]


Launched = dict[Any, tuple[Span, Window | None]]
"""Host calls that may have launched something, each with its window, by correlation or by number of the operator."""


def read_windows(events: Iterable[dict[str, Any]], calls: int, *, sentinels: int = 0) -> list[Window]:
    """Return the calls in a trace; raise a TraceError where the mark of a call, or a sentinel kernel, is missing."""
    complete = [event for event in events if event.get("ph") == "X"]
    threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for event in complete:
        if event.get("cat") in ("cpu_op", "user_annotation", *profile.HOST_CALLS):
            threads[event.get("pid"), event.get("tid")].append(event)
    # CUDA records its calls of the calling thread under another thread number than torch: they belong to that thread.
    calling = next((thread for thread in threads.values() if any(event["name"] == WINDOW for event in thread)), None)
    windows: list[Window] = []
    launched_by: Launched = {}
    whole = []
    for thread in threads.values():
        if calling is not None and all(event["cat"] in profile.HOST_CALLS for event in thread):
            calling.extend(thread)
        else:
            whole.append(thread)
    for thread in whole:
        _nest(thread, windows, launched_by)
    if len(windows) != calls:
        raise profile.TraceError(f"{len(windows)} of {calls} calls are in the profiler's trace")
    windows.sort(key=lambda window: window.span.start)
    device = [event for event in complete if event.get("cat") in profile.DEVICE_ACTIVITIES]
    seen = sum(profile.SENTINEL_KERNEL in event["name"] for event in device)
    if seen < sentinels:
        raise profile.TraceError(f"{seen} of {sentinels} sentinel kernels are in the profiler's trace")
    _assign(device, windows, launched_by)
    return windows


def _nest(events: list[dict[str, Any]], windows: list[Window], launched_by: Launched) -> None:
    """Append the calls of a thread, and note the spans that may have launched something."""
    stack: list[Span] = []
    window: Window | None = None
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        start = event["ts"] * 1e3
        while stack and stack[-1].end <= start:
            if window is not None and stack[-1] is window.span:
                window = None
            stack.pop()
        arguments, parent = event.get("args", {}), stack[-1] if stack else None
        span = Span(event["cat"], event["name"], start, start + event["dur"] * 1e3, parent)
        if parent is not None:
            span.end = min(span.end, parent.end)  # rounding may put it a nanosecond behind its parent's
            parent.inside_ns += span.end - span.start
        stack.append(span)
        if span.name == WINDOW:
            window = Window(span=span)
            windows.append(window)
        if window is not None:
            window.spans.append(span)
        if span.category in profile.HOST_CALLS:
            launched_by["correlation", arguments.get("correlation")] = span, window
        elif "External id" in arguments:
            launched_by["External id", arguments["External id"]] = span, window


def _assign(device: list[dict[str, Any]], windows: list[Window], launched_by: Launched) -> None:
    starts = [window.span.start for window in windows]
    for event in device:
        if profile.SENTINEL_KERNEL in event["name"]:
            continue
        arguments, start = event.get("args", {}), event["ts"] * 1e3
        known = (launched_by.get((key, arguments.get(key))) for key in ("correlation", "External id"))
        launch, window = next(filter(None, known), (None, None))
        if launch is None:
            # The profiler does not know every way to launch. The device is waited for behind each call, so what begins
            # behind the beginning of one is that call's.
            index = bisect.bisect_right(starts, start) - 1
            window = windows[index] if index >= 0 else None
        if window is not None:
            end = start + event["dur"] * 1e3
            window.activities.append(Activity(event["cat"], event["name"], start, end, launch))
    for window in windows:
        window.activities.sort(key=lambda item: (item.launch.start if item.launch else item.start, item.start))


def module_of(path: list[Span]) -> str:
    return next((span.name.removeprefix(MODULE) for span in reversed(path) if span.name.startswith(MODULE)), "")


def operators_of(path: Iterable[Span]) -> tuple[str, ...]:
    return tuple(span.name.removeprefix("aten::") for span in path if span.is_op)


def spots_by_span(window: Window, seen: list[str], indices: list[int]) -> dict[int, int]:
    """Return the line's index of each span (by `id`) whose operator was seen: the n-th dispatch is the n-th seen, if their numbers agree."""
    dispatched: dict[str, list[Span]] = defaultdict(list)
    for span in window.spans:
        if span.is_op and (span.name in COPIES or span.name in WAITS) and _is_dispatched(span):
            dispatched[span.name].append(span)
    spots: dict[str, list[int]] = defaultdict(list)
    for op, index in zip(seen, indices, strict=True):
        spots[op].append(index)
    pairs = (zip(spans, spots[op], strict=True) for op, spans in dispatched.items() if len(spans) == len(spots[op]))
    return {id(span): index for span, index in itertools.chain.from_iterable(pairs)}


def _is_dispatched(span: Span) -> bool:
    """Return whether a dispatch mode sees this operator: all operators around it are compositions."""
    outer = [one.name for one in span.path()[:-1] if one.is_op]
    # An operator in one of the same name is what an overload that is a composition comes down to.
    return all(_is_composite(name) and name != above for name, above in zip(outer, ["", *outer], strict=False))


@functools.cache
def _is_composite(name: str) -> bool:
    if "::" not in name:  # a compiler's mark around its own work
        return True
    schemas = torch._C._jit_get_schemas_for_operator(name)
    overloads = [f"{name}.{schema.overload_name}".removesuffix(".") for schema in schemas]
    return any(has_kernel(overload, "CompositeImplicitAutograd") for overload in overloads)


def host_work(window: Window, spot_of: dict[int, int]) -> Iterator[WorkItem]:
    for span in window.spans:
        yield _key(span.path(), None, spot_of), span.own_ns, False


def labelled(window: Window, marked: Window, spot_of: dict[int, int]) -> Iterator[WorkItem]:
    """Yield the device's activities of a call; the n-th of a name has the labels of the n-th of that name in the marked trace."""
    labels: dict[str, deque[Activity]] = defaultdict(deque)
    for activity in marked.activities:
        labels[activity.name].append(activity)
    graphs = graph_launches(window)
    for activity in window.activities:
        same = labels[activity.name]
        same_activity = same.popleft() if same else None
        launched = activity.category == "kernel" and id(activity.launch) not in graphs
        if same_activity is None or same_activity.launch is None:
            yield ("", (), activity.name, None, False), activity.ns, launched
        else:
            yield _key(same_activity.launch.path(), activity.name, spot_of), activity.ns, launched


def graph_launches(window: Window) -> set[int]:
    launches = [activity.launch for activity in window.activities if activity.launch is not None]
    return {id(launch) for launch in launches if launch.name.startswith(profile.GRAPH_LAUNCHES)}


def _key(path: list[Span], kernel: str | None, spot_of: dict[int, int]) -> _Key:
    spot = next((spot_of[id(span)] for span in path if id(span) in spot_of), None)
    return module_of(path), operators_of(path), kernel, spot, True


def pieces(work_items: list[WorkItem]) -> tuple[WorkTotal, ...]:
    sums: dict[_Key, list[float]] = {}
    for key, ns, launched in work_items:
        total = sums.setdefault(key, [0, 0, 0.0])
        total[0] += bool(key[1] or key[2])  # the time between operators is no operator
        total[1] += launched
        total[2] += ns
    return tuple(
        WorkTotal(
            module=module, ops=ops, kernel=kernel, spot=spot, known=known, count=int(count), launches=int(alone), ns=ns
        )
        for (module, ops, kernel, spot, known), (count, alone, ns) in sums.items()
    )


def waits(window: Window, spot_of: dict[int, int]) -> tuple[DeviceWait, ...]:
    seen = Counter((span.name, _key(span.path(), None, spot_of)) for span in window.waits())
    return tuple(DeviceWait(name=name, module=at[0], ops=at[1], spot=at[3], count=n) for (name, at), n in seen.items())
