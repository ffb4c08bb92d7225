import itertools
from collections.abc import Callable

import pytest

from pairbench.execute.worker import trusted
from pairbench.execute.worker.timing import timers
from pairbench.execute.worker.timing.timers import TelemetryRecorder, Throttling
from pairbench.model.outcome import TimedRound
from tests.execute.worker.timing.conftest import FakeClock, FakeTimer, timed


class Nvml(TelemetryRecorder):
    """Says of each reading whether the GPU throttles, and whether there are others beside it."""

    def __init__(self, *throttles: bool, several: bool = False) -> None:
        super().__init__(None, [object()] * several)  # type: ignore[list-item]
        self._throttles = iter(throttles)

    def throttling(self) -> bool:
        return next(self._throttles, False)


@pytest.fixture(autouse=True)
def always_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "_READING_S", 0.0)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the seconds of each rest; the clock moves on by them, and by nothing else."""
    rests: list[float] = []

    def sleep(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(trusted, "sleep", sleep)
    monkeypatch.setattr(trusted, "perf_counter_ns", lambda: round(1e9 * sum(rests)))
    return rests


def blocks_of(recorder: TelemetryRecorder, *clocks: FakeClock) -> list[bool]:
    found = Throttling(recorder, clocks)  # type: ignore[arg-type]
    for _ in range(4):
        for clock in clocks:
            clock.sample()
        found.end_block()
    return found.blocks


@pytest.mark.parametrize(
    ("nvml", "several", "clocks", "labels"),
    [
        # A slower spin of any entry labels its block and no other; NVML, which is late, labels nothing then.
        ((), False, [("spin", (False, True)), ("spin", (False, False, False, True))], [False, True, False, True]),
        ((False, True, True, True, True), False, [("spin", (False, True))], [False, True, False, False]),
        # NVML labels where no spin is timed, as of a call that waits, and where GPUs beside it work as well.
        ((False, False, True), False, [], [False, True, False, False]),
        ((False, False, True), False, [(None, ())], [False, True, False, False]),
        ((False, False, True), True, [("spin", ())], [False, True, False, False]),
    ],
)
def test_a_block_is_labelled_by_spins_or_else_by_nvml(
    nvml: tuple[bool, ...], several: bool, clocks: list[tuple[str | None, tuple[bool, ...]]], labels: list[bool]
) -> None:
    made = [FakeClock(lambda: 1.0, slower) for _, slower in clocks]
    for clock, (name, _) in zip(made, clocks, strict=True):
        clock.name = name
    assert blocks_of(Nvml(*nvml, several=several), *made) == labels


def test_the_gpu_rests_as_long_as_the_turn_before_took_once_it_has_throttled(slept: list[float]) -> None:
    found = Throttling(Nvml(False, False, True), ())
    for took_ns in (1_000_000, 2_000_000, 3_000_000, 4_000_000):
        found.rest()
        found.turn_ns = took_ns
        found.end_block()
    assert found.blocks == [False, True, False, False]
    assert slept == [0.002, 0.003] and found.rested_ns == 5_000_000


def test_where_a_gpu_never_throttles_or_calls_are_long_there_is_no_rest(
    take: Callable[..., TimedRound], slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    take(timed(baseline=lambda: 100, a=lambda: 50))
    assert slept == []
    # They throttle while they run, whatever was before.
    monkeypatch.setattr(FakeTimer, "lead_in", lambda *_: 0)
    found = take(timed(baseline=lambda: 100, a=lambda: 50), itertools.chain([False, True], itertools.repeat(False)))
    assert sum(found.throttled) == 1 and slept == []


def test_rests_are_not_of_the_case_s_time(take: Callable[..., TimedRound], slept: list[float]) -> None:
    """Rests that double what a round takes leave as many blocks as it has without them."""

    def slow() -> float:
        trusted.sleep(0.005)
        return 1.0

    entries = timed(baseline=slow, a=slow)
    found = take(entries, itertools.chain([False, True], itertools.repeat(False)), least=1000, most=1000, seconds=1.0)
    # A turn is a call before the clock and one under it, so that a block of two takes 20 ms.
    assert len(found.throttled) == 50 and found.measuring_s == pytest.approx(1.0)
    rests = [seconds for seconds in slept if seconds != 0.005]
    assert rests == pytest.approx([0.01] * 2 * 49)
