"""A timing loop with a clock that says what it is told."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from pairbench.execute.protocol import Heartbeat
from pairbench.execute.stopping import Stopping
from pairbench.execute.worker import flags, trusted
from pairbench.execute.worker.frozen import Frozen
from pairbench.execute.worker.timing.measure import Setup, Timed, time_entries
from pairbench.execute.worker.timing.timers import HostTimer, Sample, TelemetryRecorder
from pairbench.execute.worker.timing.values import Values, Watch
from pairbench.model.outcome import TimedRound
from tests.execute.made import entry, new_heartbeat


@pytest.fixture(autouse=True)
def _nothing_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeze nothing: tests put clocks of their own in the place of those that are watched, and pytest sets a variable for each phase of a test."""
    monkeypatch.setattr(trusted, "watch", Frozen())
    monkeypatch.delitem(flags._FLAGS, "environment")


class FakeTimer(HostTimer):
    """Takes the number that a call returns for its latency in ns."""

    name = "fake"
    settling = 0
    warm_up_s = 0.0

    def __init__(self) -> None:
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1

    def sample(self, run: Callable[[], Any], keep: Callable[[Any], Any] | None = None) -> Sample:
        outputs = run()
        return Sample(call_ns=float(outputs), host_ns=1.0, kept=keep(torch.tensor(outputs)) if keep else None)

    def lead_in(self, call_ns: float) -> int:
        return int(call_ns < 1e7)


class FakeClock:
    """Takes the device latency of each call from a function, instead of measuring it."""

    name: str | None = "fake"

    def __init__(self, latency: Callable[[], float | None], throttled: Iterable[bool] = ()) -> None:
        self._latency = latency
        self._throttled = iter(throttled)
        self.throttled = False

    def sample(self) -> float | None:
        self.throttled = next(self._throttled, False)
        return self._latency()


class FakeRecorder(TelemetryRecorder):
    def __init__(self, throttles: Iterator[bool]) -> None:
        super().__init__(None)
        self._throttles = throttles

    def throttling(self) -> bool:
        return next(self._throttles)


def timed(**runs: Any) -> list[Timed]:
    return [Timed(index=index, entry=entry(name), run=run) for index, (name, run) in enumerate(runs.items())]


def values_of(*numbers: float, size: int = 1, **changes: Any) -> Values:
    """Return sets of values that are a number each; zeros are in place."""
    sets = tuple({"x": torch.full((size,), float(number))} for number in numbers)
    plain: dict[str, Any] = {"shared": {"x": torch.zeros(size)}, "place_s": 0.0, "free_s": 0.0, "judged": True}
    return Values(sets=sets, **{**plain, **changes})


NO_VALUES: dict[str, Any] = {"shared": {}, "sets": ({},), "place_s": 0.0, "free_s": 0.0, "judged": False}
"""Those of a call without inputs."""


def setup(
    entries: list[Timed], values: Values, throttles: Iterator[bool] | None = None, heartbeat: Heartbeat | None = None
) -> Setup:
    return Setup(
        timed=entries,
        heartbeat=heartbeat or new_heartbeat(),
        timer=FakeTimer(),
        recorder=FakeRecorder(throttles or itertools.repeat(False)),
        rng=np.random.default_rng(0),
        values=values,
        watch=Watch(values),
    )


def take(
    entries: list[Timed],
    throttles: Iterator[bool] | None = None,
    values: Values | None = None,
    renew: Callable[[], bool] | None = None,
    heartbeat: Heartbeat | None = None,
    **changes: Any,
) -> TimedRound:
    """Time entries as a third round; keyword arguments replace what ends it."""
    made = setup(entries, values or Values(**NO_VALUES), throttles, heartbeat)
    stopping = Stopping(**{"target": 0.01, "least": 20, "most": 200, "seconds": 5.0, "unsure_seconds": 5.0, **changes})
    return time_entries(made, round_index=3, stopping=stopping, renew=renew)
