"""What workers are asked and what they answer, made up."""

import mmap
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pairbench.execute.protocol import SIZE, Heartbeat, VerifyCase, WorkerConfig
from pairbench.model.case import make_case
from pairbench.model.environment import Device, Settings
from pairbench.model.operator import Operator
from pairbench.model.outcome import EntrySamples, Telemetry, TimedRound
from pairbench.model.plan import Entry, ImplementationDescription, PlannedCase
from tests.builders import described

CPU = Device(selector="cpu", kind="cpu", name="a CPU")
GPU = Device(selector="cuda:0", kind="cuda", name="a GPU", uuid="GPU-0")
CONFIG = WorkerConfig(device=CPU, settings=Settings(), memory_bytes=2**40)


def entry(name: str, mode: str = "eager") -> Entry:
    return Entry(implementation=name, mode=mode)


BASELINE, VARIANT = entry("baseline"), entry("v")


def planned(
    rows: int = 4, names: tuple[str, ...] = ("baseline", "a", "b"), modes: tuple[str, ...] = ("eager",), **more: Any
) -> PlannedCase:
    """Return a case of an operator with some implementations, planned in some modes."""
    implementations = tuple(ImplementationDescription(name=name, needs=(), hash=name) for name in names)
    entries = tuple(entry(name, mode) for mode in modes for name in names)
    case = make_case("op", {"rows": rows}, "smoke")
    return PlannedCase(operator=described(implementations=implementations), case=case, entries=entries, **more)


def new_heartbeat() -> Heartbeat:
    """Return a watch of an hour."""
    made = Heartbeat(mmap.mmap(-1, SIZE))
    made.begin_job(3600)
    return made


def declare(variant: Any = lambda x: 1 + x, **changes: Any) -> Operator:
    """Return an operator that adds one to eight numbers, and its one variant `v`; keyword arguments replace what is declared."""
    plain: dict[str, Any] = {
        "baseline": lambda x: x + 1,
        "variants": {"v": variant},
        "inputs": lambda make, n: {"x": make.normal(n)},
        "cases": [{"n": 8}],
    }
    return Operator("op", **{**plain, **changes})


def job_of(kind: Callable[..., Any], operator: Operator, *names: str, **more: Any) -> Any:
    """Return a job about some implementations, or all, of an operator's first case."""
    entries = tuple(entry(name) for name in names or operator.implementations)
    return kind(path=Path("ops.py"), operator=operator.name, case=operator.cases[0], entries=entries, **more)


def about(*entries: Entry) -> dict[str, Any]:
    """Return the fields that every job about some entries of a case has."""
    case = make_case("op", {"rows": 4}, "smoke")
    return {"path": Path("ops.py"), "operator": "op", "case": case, "entries": entries}


def samples_of(entry: Entry, *call_ns: float, **changes: Any) -> EntrySamples:
    """Return samples of calls that took so long."""
    none: dict[str, Any] = dict.fromkeys(("host_ns", "device_ns", "device_timer"))
    none |= dict.fromkeys(("position", "at_ns"), (0,) * len(call_ns))
    return EntrySamples(entry=entry, call_ns=call_ns, **(none | changes))


def timed_round(*entries: Entry, index: int = 0, blocks: int = 1, **changes: Any) -> TimedRound:
    """Return a timed round of some entries, each with one call of 1 ns in each block."""
    plain: dict[str, Any] = {
        "entries": tuple(samples_of(entry, *(1.0,) * blocks) for entry in entries),
        "timer": "t",
        "throttled": (False,) * blocks,
        "remeasured": 0,
        "stop_reason": "precise",
        "telemetry": Telemetry(),
        "measuring_s": 0.5,
    }
    return TimedRound(round=index, **{**plain, **changes})


def verify_job(suite: Path, *names: str, automatic_impostors: bool = False) -> VerifyCase:
    """Return a job about implementations of the operator `op` of a suite file."""
    fields = {**about(*map(entry, names)), "path": suite}
    return VerifyCase(**fields, automatic_impostors=automatic_impostors, declared_impostors=())


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
