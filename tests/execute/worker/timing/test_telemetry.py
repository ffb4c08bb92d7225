"""What NVML says, in words; NVML itself is a stand-in that answers from a list."""

import os
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pynvml
import pytest

from pairbench.execute.worker.timing.timers import Nvml, TelemetryRecorder, open_nvml, throttle_names


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
