import ctypes
import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pynvml
import pytest

from pairbench.execute.worker import trusted
from pairbench.execute.worker.graphs import _CAPTURES
from pairbench.execute.worker.timing import timers
from pairbench.execute.worker.timing.timers import (
    SHORTEST_SPIN,
    CudaTimer,
    DeviceClock,
    HostTimer,
    Nvml,
    SpinSample,
    TelemetryRecorder,
    Throttling,
    open_nvml,
    throttle_names,
)
from tests.execute.worker.timing.conftest import FakeClock, FakeRecorder, take, timed

LATENCIES = [1e3, 69e3, 70e3, 199e3, 200e3, 19e6, 20e6, 1e9]


def cuda_timer() -> CudaTimer:
    """Return one that has touched no GPU."""
    return CudaTimer.__new__(CudaTimer)


def test_shorter_calls_have_a_longer_lead_in_and_every_capture_is_timed() -> None:
    lead_ins = [cuda_timer().lead_in(latency) for latency in LATENCIES]
    assert lead_ins == [7, 7, 7, 7, 1, 1, 0, 0]
    assert [HostTimer().lead_in(latency) for latency in LATENCIES] == [1, 1, 1, 1, 1, 1, 0, 0]
    for calls in (1 + lead_in for lead_in in lead_ins):
        assert len({(sample * calls + calls - 1) % _CAPTURES for sample in range(_CAPTURES)}) == _CAPTURES


class Spinning:
    """A timer of calls whose host work takes so long, or waits for the device."""

    def __init__(self, host_s: float | None, late: Sequence[int] = (), throttled: Sequence[int] = ()) -> None:
        self.host_s = host_s
        self.late = late
        self.throttled = throttled
        self.spins: list[int] = []

    def flush(self) -> None:
        """Do nothing."""

    def sample_behind_spin(self, _: object, cycles: int) -> SpinSample:
        self.spins.append(cycles)
        spin_s = cycles / 2e9
        host_s = spin_s if self.host_s is None or len(self.spins) in self.late else self.host_s
        return SpinSample(
            device_ns=7.0, hidden=spin_s > host_s, host_s=host_s, throttled=len(self.spins) in self.throttled
        )


@pytest.mark.parametrize(
    ("name", "host_s", "latency", "spins"),
    [
        pytest.param("spin", 0.01, 7.0, [SHORTEST_SPIN, 30_000_000], id="hidden at the second try"),
        pytest.param(
            "spin", None, None, [SHORTEST_SPIN, 2 * SHORTEST_SPIN, 4 * SHORTEST_SPIN], id="waits for the device"
        ),
        pytest.param("spin", 5.3, None, [SHORTEST_SPIN], id="longer than any spin"),
        pytest.param("graph_replay", 5.3, 7.0, [SHORTEST_SPIN], id="a replay, however long it takes to be issued"),
    ],
)
def test_the_spin_grows_until_it_hides_the_host(
    name: str, host_s: float | None, latency: float | None, spins: list[int]
) -> None:
    timer = Spinning(host_s)
    clock = DeviceClock(timer, lambda: None, name=name)  # type: ignore[arg-type]
    assert clock.sample() == latency
    assert timer.spins == spins
    assert clock.name == (None if latency is None else name)
    assert clock.sample() == latency
    assert timer.spins[len(spins) :] == ([] if latency is None else spins[-1:])


@pytest.mark.parametrize("name", ["spin", "graph_replay"])
def test_a_host_that_is_late_now_and_then_has_the_sample_taken_again_behind_the_same_spin(
    name: str,
) -> None:
    timer = Spinning(0.0, late=(2, 3, 5, 6, 7, 8, 9, 10))
    clock = DeviceClock(timer, lambda: None, name=name)  # type: ignore[arg-type]
    assert [clock.sample() for _ in range(3)] == [7.0] * 3
    assert timer.spins == [SHORTEST_SPIN] * 10 + [2 * SHORTEST_SPIN], "six in a row are no accident"


def test_a_clock_says_whether_its_newest_spin_was_slower() -> None:
    clock = DeviceClock(Spinning(0.0, throttled=(2,)), lambda: None)  # type: ignore[arg-type]
    assert [(clock.sample(), clock.throttled)[1] for _ in range(3)] == [False, True, False]
    waits = DeviceClock(Spinning(None, throttled=range(100)), lambda: None)  # type: ignore[arg-type]
    assert [(waits.sample(), waits.throttled) for _ in range(2)][1] == (None, False), "it has no newest spin"


def test_the_host_timer() -> None:
    timer = HostTimer()
    timer.flush()
    found = timer.sample(lambda: time.sleep(0.01) or "out", keep=lambda outputs: f"{outputs}!")  # type: ignore[func-returns-value]
    assert found.call_ns == found.host_ns and 1e7 <= found.call_ns < 1e9 and found.kept == "out!"


@pytest.mark.parametrize(("limit", "error", "resets"), [(0, 0, 0), (1 << 20, 0, 1), (1 << 20, 100, 0)])
def test_only_lines_that_may_be_there_are_given_back(
    monkeypatch: pytest.MonkeyPatch, limit: int, error: int, resets: int
) -> None:
    def get_limit(target: Any, which: int) -> int:
        assert which == 6
        ctypes.cast(target, ctypes.POINTER(ctypes.c_size_t))[0] = limit
        return error

    runtime = mock.Mock(cudaDeviceGetLimit=get_limit)
    monkeypatch.setattr(timers, "open_runtime", lambda: (runtime, None))
    timers.reset_persisting()
    assert runtime.cudaCtxResetPersistingL2Cache.call_count == resets


def test_without_a_runtime_or_its_call_nothing_happens_and_the_reason_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    maps, others = tmp_path / "maps", tmp_path / "others"
    others.write_text("7f00-7f01 r-xp 0000 00:00 0    /usr/lib/libc.so.6\n")
    found = timers.open_runtime(others)
    assert found == (None, "no libcudart is loaded")
    assert "cannot be read" in str(timers.open_runtime(tmp_path / "none")[1])
    library = next(
        line.split(maxsplit=5)[5]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "/libc.so" in line or "/libm.so" in line
    )
    (tmp_path / "libcudart.so.1").symlink_to(library)
    maps.write_text(f"7f00-7f01 r-xp 0000 00:00 0    {tmp_path}/libcudart.so.1\n")
    runtime, why = timers.open_runtime(maps)
    assert runtime is None and str(why).endswith("has no cudaDeviceGetLimit")
    monkeypatch.setattr(timers, "open_runtime", lambda: found)
    timers.reset_persisting()


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        # Idling, clocks set by the user, sync boost and display clock.
        *((bits, ()) for bits in (0x0, 0x10, 0x100, pynvml.nvmlClocksThrottleReasonGpuIdle)),
        (pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting, ()),
        (pynvml.nvmlClocksThrottleReasonSwPowerCap, ("sw_power_cap",)),
        (pynvml.nvmlClocksThrottleReasonHwSlowdown, ("hw_slowdown",)),
        (pynvml.nvmlClocksThrottleReasonSwThermalSlowdown, ("sw_thermal_slowdown",)),
        (0x8 | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown, ("hw_slowdown", "hw_thermal_slowdown")),
        (pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown | 0x1, ("hw_power_brake_slowdown",)),
    ],
)
def test_throttle_reasons_have_names_and_idling_is_none(bits: int, names: tuple[str, ...]) -> None:
    assert throttle_names(bits) == names


class FakeNvml(Nvml):
    def __init__(self, *readings: tuple[float | None, float | None, float | None, int | None]) -> None:
        self._readings = iter(readings)

    def reading(self) -> tuple[float | None, float | None, float | None, int | None]:
        return next(self._readings)

    def performance_state(self) -> int | None:
        return 2

    def _read(self, name: str, *arguments: Any) -> Any:
        assert name == "nvmlDeviceGetComputeRunningProcesses"
        return [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=4242)]


def test_a_recorder_sums_up_and_a_gpu_beside_the_own_one_that_throttles_counts() -> None:
    recorder = TelemetryRecorder(FakeNvml((1900, 40, 300, 0), (1500, 60, 500, 0x4), (1800, 50, 400, 0x40 | 0x4)))
    assert [recorder.throttling() for _ in range(3)] == [False, True, True]
    found = recorder.summary()
    assert (found.sm_clock_mhz, found.temperature_c, found.power_w) == (1800, 60, 400)
    assert found.throttle_reasons == ("sw_power_cap", "hw_thermal_slowdown")
    assert found.performance_states == (2,) and found.foreign_processes == (4242,)
    own = FakeNvml((1900, 40, 300, 0), (1800, 50, 400, 0x4))
    beside = FakeNvml((900, 90, 700, 0x40), (1700, 60, 500, None))
    recorder = TelemetryRecorder(own, [beside])
    assert [recorder.throttling() for _ in range(2)] == [True, True]
    found = recorder.summary()
    assert (found.sm_clock_mhz, found.temperature_c, found.power_w) == (1850, 50, 350), "the own GPU's alone"
    assert found.throttle_reasons == ("hw_thermal_slowdown", "sw_power_cap")


@pytest.mark.parametrize(
    ("reading", "known"),
    [((None, 40, None, None), (None, 40, None, ())), (None, (None, None, None, None))],
)
def test_what_the_driver_refuses_is_unknown_and_so_is_all_without_nvml(reading: Any, known: Any) -> None:
    recorder = TelemetryRecorder(FakeNvml(reading) if reading else None)
    assert not recorder.throttling()
    found = recorder.summary()
    assert (found.sm_clock_mhz, found.temperature_c, found.power_w, found.throttle_reasons) == known


@pytest.mark.parametrize(
    ("uuid", "error", "why"),
    [
        (None, None, "not a GPU"),
        ("GPU-0", ImportError(), "nvidia-ml-py is not installed"),
        ("GPU-0", RuntimeError("Driver Not Loaded"), "NVML: Driver Not Loaded"),
    ],
)
def test_why_there_is_no_nvml(
    monkeypatch: pytest.MonkeyPatch, uuid: str | None, error: Exception | None, why: str
) -> None:
    monkeypatch.setattr(Nvml, "__init__", mock.Mock(side_effect=error))
    assert open_nvml(uuid) == (None, why)


def read_as(*throttles: bool, several: bool = False) -> FakeRecorder:
    """Return a recorder that says of each reading whether the GPU throttles, and whether there are others beside it."""
    made = FakeRecorder(itertools.chain(throttles, itertools.repeat(False)))
    made.beside = [FakeNvml()] * several
    return made


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
    assert blocks_of(read_as(*nvml, several=several), *made) == labels


def test_the_gpu_rests_as_long_as_the_turn_before_took_once_it_has_throttled(slept: list[float]) -> None:
    found = Throttling(read_as(False, False, True), ())
    for took_ns in (1_000_000, 2_000_000, 3_000_000, 4_000_000):
        found.rest()
        found.turn_ns = took_ns
        found.end_block()
    assert found.blocks == [False, True, False, False]
    assert slept == [0.002, 0.003] and found.rested_ns == 5_000_000


def test_where_a_gpu_never_throttles_or_calls_are_long_there_is_no_rest(slept: list[float]) -> None:
    take(timed(baseline=lambda: 100, a=lambda: 50))
    assert slept == []
    # They throttle while they run, whatever was before.
    found = take(timed(baseline=lambda: 1e8, a=lambda: 5e7), itertools.chain([False, True], itertools.repeat(False)))
    assert sum(found.throttled) == 1 and slept == []


def test_rests_are_not_of_the_case_s_time(slept: list[float]) -> None:
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
