"""Traces made up, as the profiler of a GPU writes them."""

from typing import Any

from pairbench.execute.worker.breakdown.trace import MODULE, WINDOW

Event = dict[str, Any]


class Trace:
    """A host that goes on by a microsecond with everything it does, and a device that does as it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 0.0
        self.correlation = 0

    def host(self, category: str, name: str, *inside: Any, **arguments: Any) -> None:
        """Add something that the host does around what is inside it: functions without arguments."""
        began = self.now
        event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": began, "args": arguments}
        self.events.append(event)
        self.now += 1
        for step in inside:
            step()
        self.now += 1
        event["dur"] = self.now - began

    def call(self, *inside: Any) -> None:
        self.host("user_annotation", WINDOW, *inside)

    def module(self, name: str, *inside: Any) -> Any:
        return lambda: self.host("user_annotation", f"{MODULE}{name}", *inside)

    def op(self, name: str, *inside: Any) -> Any:
        return lambda: self.host("cpu_op", f"aten::{name}", *inside, **{"External id": len(self.events)})

    def wait(self, until: float) -> Any:
        def waited() -> None:
            self.host("cuda_runtime", "cudaStreamSynchronize", lambda: setattr(self, "now", until))

        return waited

    def launch(self, kernel: str, at: float, dur: float = 5.0, *, nodes: int = 0, category: str = "kernel") -> Any:
        """Launch a kernel, or a graph of some, that the device runs at a time."""

        def launched() -> None:
            self.correlation += 1
            name = "cudaGraphLaunch" if nodes else "cudaLaunchKernel"
            self.host("cuda_runtime", name, correlation=self.correlation)
            for node in range(nodes or 1):
                self.device(kernel, at + node * dur, dur, self.correlation, category)

        return launched

    def device(
        self, name: str, at: float, dur: float = 5.0, correlation: int = 0, category: str = "kernel", **more: Any
    ) -> None:
        event = {"ph": "X", "cat": category, "name": name, "ts": at, "dur": dur}
        self.events.append({**event, "args": {"correlation": correlation, **more}, "pid": 0, "tid": 7})
