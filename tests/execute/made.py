"""What workers answer, made up."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pairbench.execute.protocol import VerifyCase
from pairbench.model.case import make_case
from pairbench.model.environment import Device
from pairbench.model.outcome import EntrySamples, Telemetry, TimedRound
from pairbench.model.plan import Entry

CPU = Device(selector="cpu", kind="cpu", name="a CPU")


def timed_round(*entries: Entry, index: int = 0, blocks: int = 1, **changes: Any) -> TimedRound:
    """Return a timed round of some entries, each with one call of 1 ns in each block."""
    samples: dict[str, Any] = {
        "position": (0,) * blocks,
        "at_ns": (0,) * blocks,
        "call_ns": (1.0,) * blocks,
        "host_ns": None,
        "device_ns": None,
        "device_timer": None,
    }
    plain: dict[str, Any] = {
        "timer": "t",
        "throttled": (False,) * blocks,
        "remeasured": 0,
        "stop_reason": "precise",
        "telemetry": Telemetry(),
        "measuring_s": 0.5,
    }
    made = tuple(EntrySamples(entry=entry, **samples) for entry in entries)
    return TimedRound(round=index, entries=made, **{**plain, **changes})


def verify_job(suite: Path, *names: str, automatic_impostors: bool = False) -> VerifyCase:
    """Return a job about implementations of the operator `op` of a suite file."""
    return VerifyCase(
        path=suite,
        operator="op",
        case=make_case("op", {"rows": 4}, "smoke"),
        entries=tuple(Entry(implementation=name, mode="eager") for name in names),
        automatic_impostors=automatic_impostors,
        declared_impostors=(),
    )


def gone(pid: int) -> bool:
    """Return whether a process ends within ten seconds."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


class FakeWorkers(AbstractContextManager["FakeWorkers"]):
    """Stands in for workers without a judge: the next is made when one has ended."""

    judge = None

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._worker: Any = None

    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None: ...
    def wait(self) -> None: ...

    def get(self) -> Any:
        if self._worker is None or not self._worker.alive:
            self._worker = self._make()
        return self._worker
