"""Reads a raw trace: which host call was inside which, and what launched each of the device's activities. Events in, values out."""

import bisect
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pairbench.execute.worker.profile.trace import DEVICE_ACTIVITIES, HOST_CALLS, SENTINEL_KERNEL, SYNCHRONISATION

WINDOW = "pairbench::call"
MODULE = "pairbench::module:"
"""Prefix of the mark that stands for one call of a module; the module's name follows."""

_MARKS = ("user_annotation",)


class TraceError(Exception):
    """A trace is not complete."""


@dataclass(kw_only=True)
class Span:
    """One thing that the host did, from `start` to `end` in ns of the trace's clock."""

    category: str
    name: str
    start: float
    end: float
    correlation: Any = None
    parent: "Span | None" = None
    inside_ns: float = 0.0
    """Time that the spans directly inside take, in ns."""

    @property
    def own_ns(self) -> float:
        """The time in ns that no span inside accounts for."""
        return max(0.0, self.end - self.start - self.inside_ns)

    @property
    def is_op(self) -> bool:
        """Whether the span is an operator."""
        return self.category == "cpu_op"

    def path(self) -> "list[Span]":
        """Return what it was inside of, the outermost first, itself included."""
        spans: list[Span] = []
        span: Span | None = self
        while span is not None:
            spans.append(span)
            span = span.parent
        return spans[::-1]


@dataclass(frozen=True, kw_only=True)
class Activity:
    """A kernel, a copy or a fill on the device, from `start` to `end` in ns of the trace's clock."""

    category: str
    name: str
    start: float
    end: float
    launch: Span | None
    """The host's call that launched it; None where the trace does not have it."""

    @property
    def ns(self) -> float:
        """How long the activity took, in ns."""
        return self.end - self.start


@dataclass(kw_only=True)
class Window:
    """One call of the implementation."""

    span: Span
    spans: list[Span] = field(default_factory=list)
    """Everything that the host did during the call, in the order of beginning, the window itself first."""
    activities: list[Activity] = field(default_factory=list)
    """Everything that the call launched on the device, in the order of launching."""

    def waits(self) -> list[Span]:
        """Return the host's waits for the device."""
        return [span for span in self.spans if span.category in HOST_CALLS and span.name.endswith(SYNCHRONISATION)]


def read_windows(events: Iterable[dict[str, Any]], calls: int, *, sentinels: int = 0) -> list[Window]:
    """Return the calls in a trace.

    Raises:
        TraceError: a call's mark, or a kernel that is known to have run, is not there.
    """
    complete = [event for event in events if event.get("ph") == "X"]
    threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for event in complete:
        if event.get("cat") in ("cpu_op", *_MARKS, *HOST_CALLS):
            threads[event.get("pid"), event.get("tid")].append(event)
    windows: list[Window] = []
    launches: dict[Any, tuple[Span, Window | None]] = {}
    by_operator: dict[Any, tuple[Span, Window | None]] = {}
    for thread in _whole_threads(list(threads.values())):
        _nest(thread, windows, launches, by_operator)
    if len(windows) != calls:
        raise TraceError(f"{len(windows)} of {calls} calls are in the profiler's trace")
    windows.sort(key=lambda window: window.span.start)
    device = [event for event in complete if event.get("cat") in DEVICE_ACTIVITIES]
    seen = sum(SENTINEL_KERNEL in event["name"] for event in device)
    if seen < sentinels:
        raise TraceError(f"{seen} of {sentinels} sentinel kernels are in the profiler's trace")
    _assign(device, windows, launches, by_operator)
    return windows


def _whole_threads(threads: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Put what CUDA records under another number for a thread than torch does to the thread that makes the calls."""
    calling = next((thread for thread in threads if any(event["name"] == WINDOW for event in thread)), None)
    whole = []
    for thread in threads:
        if calling is not None and all(event["cat"] in HOST_CALLS for event in thread):
            calling.extend(thread)
        else:
            whole.append(thread)
    return whole


def _nest(
    events: list[dict[str, Any]],
    windows: list[Window],
    launches: dict[Any, tuple[Span, Window | None]],
    by_operator: dict[Any, tuple[Span, Window | None]],
) -> None:
    """Put the events of one thread inside one another."""
    stack: list[Span] = []
    window: Window | None = None
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        start = event["ts"] * 1e3
        while stack and stack[-1].end <= start:
            if window is not None and stack[-1] is window.span:
                window = None
            stack.pop()
        arguments = event.get("args", {})
        span = Span(
            category=event["cat"],
            name=event["name"],
            start=start,
            end=start + event["dur"] * 1e3,
            correlation=arguments.get("correlation"),
            parent=stack[-1] if stack else None,
        )
        if span.parent is not None:
            # Rounding may put the end of a span a nanosecond behind its parent's.
            span.end = min(span.end, span.parent.end)
            span.parent.inside_ns += span.end - span.start
        stack.append(span)
        if span.name == WINDOW:
            window = Window(span=span)
            windows.append(window)
        if window is not None:
            window.spans.append(span)
        if span.category in HOST_CALLS:
            launches[span.correlation] = (span, window)
        elif "External id" in arguments:
            by_operator[arguments["External id"]] = (span, window)


def _assign(
    device: list[dict[str, Any]],
    windows: list[Window],
    launches: dict[Any, tuple[Span, Window | None]],
    by_operator: dict[Any, tuple[Span, Window | None]],
) -> None:
    """Give every activity of the device to the window that launched it."""
    starts = [window.span.start for window in windows]
    for event in device:
        if SENTINEL_KERNEL in event["name"]:
            continue
        arguments, start = event.get("args", {}), event["ts"] * 1e3
        launch, window = (
            launches.get(arguments.get("correlation")) or by_operator.get(arguments.get("External id")) or (None, None)
        )
        if launch is None:
            # The profiler does not know every way to launch. The device is waited for behind each call, so what begins
            # behind the beginning of one is that call's.
            index = bisect.bisect_right(starts, start) - 1
            window = windows[index] if index >= 0 else None
        if window is not None:
            window.activities.append(
                Activity(
                    category=event["cat"],
                    name=event["name"],
                    start=start,
                    end=start + event["dur"] * 1e3,
                    launch=launch,
                )
            )
    for window in windows:
        window.activities.sort(key=lambda item: (item.launch.start if item.launch else item.start, item.start))


def module_of(path: Iterable[Span]) -> str:
    """Return the innermost module on a path; empty outside of all."""
    return next((span.name.removeprefix(MODULE) for span in reversed(list(path)) if span.name.startswith(MODULE)), "")


def operators_of(path: Iterable[Span]) -> tuple[str, ...]:
    """Return the operators on a path, without their namespace if it is ATen's."""
    return tuple(span.name.removeprefix("aten::") for span in path if span.is_op)
