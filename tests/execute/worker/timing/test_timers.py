import ctypes
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pairbench.execute.worker.graphs import _CAPTURES
from pairbench.execute.worker.timing import timers
from pairbench.execute.worker.timing.timers import SHORTEST_SPIN, CudaTimer, DeviceClock, HostTimer, SpinSample

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


class FakeRuntime:
    """A CUDA runtime that may have lines of the L2 set aside."""

    def __init__(self, limit: int, error: int = 0) -> None:
        self.limit, self.error, self.resets = limit, error, 0

    def cudaDeviceGetLimit(  # noqa: N802 (the name is CUDA's)
        self, target: Any, which: int
    ) -> int:
        assert which == 6
        ctypes.cast(target, ctypes.POINTER(ctypes.c_size_t))[0] = self.limit
        return self.error

    def cudaCtxResetPersistingL2Cache(self) -> int:  # noqa: N802
        self.resets += 1
        return 0


@pytest.mark.parametrize(("limit", "error", "resets"), [(0, 0, 0), (1 << 20, 0, 1), (1 << 20, 100, 0)])
def test_only_lines_that_may_be_there_are_given_back(
    monkeypatch: pytest.MonkeyPatch, limit: int, error: int, resets: int
) -> None:
    runtime = FakeRuntime(limit, error)
    monkeypatch.setattr(timers, "open_runtime", lambda: (runtime, None))
    timers.reset_persisting()
    assert runtime.resets == resets


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
