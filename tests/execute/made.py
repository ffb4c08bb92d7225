"""What workers answer, made up."""

from typing import Any

from pairbench.model.environment import Device
from pairbench.model.outcome import EntrySamples, Telemetry, TimedRound
from pairbench.model.plan import Entry

CPU = Device(selector="cpu", kind="cpu", name="a CPU")


def timed_round(*entries: Entry, index: int = 0, blocks: int = 1, **changes: Any) -> TimedRound:
    """Return a round of entries whose calls took 1 ns in each block."""
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
