"""The GPU's own readings through NVML: clocks, power, temperature, throttle reasons, processes that compute on it."""

import functools
import operator
import os
import statistics
from collections.abc import Sequence
from typing import Any

from pairbench.model.outcome import Telemetry

_THROTTLES = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""Bits of NVML's clock event reasons that mean throttling, with their names; idling and clocks set on purpose do not."""


class Nvml:
    """A GPU as NVML sees it. Readings that the driver refuses are None."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        self._nvml: Any = pynvml
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def _read(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None

    def reading(self) -> tuple[float | None, float | None, float | None, int | None]:
        """Return SM clock in MHz, temperature in Celsius, power in W, and the bits of the clock event reasons."""
        power = self._read("nvmlDeviceGetPowerUsage")
        return (
            self._read("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            self._read("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
            None if power is None else power / 1000,
            self._read("nvmlDeviceGetCurrentClocksThrottleReasons"),
        )

    def performance_state(self) -> int | None:
        """Return the performance state: 0 is the highest; None where it is not known."""
        state = self._read("nvmlDeviceGetPerformanceState")
        return None if state is None or not 0 <= state <= 15 else int(state)

    def facts(self) -> dict[str, Any]:
        """Return the settings that can move a latency."""
        ecc = self._read("nvmlDeviceGetEccMode")
        mig = self._read("nvmlDeviceGetMigMode")
        limit = self._read("nvmlDeviceGetEnforcedPowerLimit")
        return {
            "power_limit_w": None if limit is None else limit / 1000,
            "max_sm_clock_mhz": self._read("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM),
            "max_memory_clock_mhz": self._read("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_MEM),
            "persistence_mode": self._read("nvmlDeviceGetPersistenceMode"),
            "ecc": None if ecc is None else bool(ecc[0]),
            "mig": None if mig is None else bool(mig[0]),
            "pcie_generation": self._read("nvmlDeviceGetMaxPcieLinkGeneration"),
        }

    def compute_processes(self) -> list[int] | None:
        """Return the process ids that compute on the GPU, or None where NVML does not give them."""
        processes = self._read("nvmlDeviceGetComputeRunningProcesses")
        return None if processes is None else [int(process.pid) for process in processes]


def throttle_names(bits: int) -> tuple[str, ...]:
    """Return the names of the throttle reasons in NVML's bit field."""
    return tuple(name for bit, name in _THROTTLES.items() if bits & bit)


class TelemetryRecorder:
    """Reads the GPU between blocks, in the timing thread itself: a thread beside it would disturb the host latency.

    Of GPUs beside it only the reasons to throttle are taken: one that is slow holds up a call that uses several.
    """

    def __init__(self, nvml: Nvml | None, beside: Sequence[Nvml] = ()) -> None:
        self._nvml = nvml
        self._beside = beside
        self._readings: list[tuple[float | None, float | None, float | None]] = []
        self._reasons: dict[str, None] = {}
        self._states: dict[int, None] = {}

    @property
    def reads_several(self) -> bool:
        """Whether there are GPUs beside the one that is timed."""
        return bool(self._beside)

    def throttling(self) -> bool:
        """Take a reading and return whether the GPU throttles, or one beside it."""
        if self._nvml is None:
            return False
        clock, temperature, power, bits = self._nvml.reading()
        self._readings.append((clock, temperature, power))
        reasons = throttle_names(
            functools.reduce(operator.or_, [gpu.reading()[3] or 0 for gpu in self._beside], bits or 0)
        )
        self._reasons.update(dict.fromkeys(reasons))
        if (state := self._nvml.performance_state()) is not None:
            self._states[state] = None
        return bool(reasons)

    def summary(self) -> Telemetry:
        """Return the readings since the start as one value: medians, and the highest temperature."""
        if self._nvml is None:
            return Telemetry()

        def known(index: int) -> list[float]:
            return [value for reading in self._readings if (value := reading[index]) is not None]

        clocks, temperatures, powers = known(0), known(1), known(2)
        return Telemetry(
            sm_clock_mhz=statistics.median(clocks) if clocks else None,
            temperature_c=max(temperatures, default=None),
            power_w=statistics.median(powers) if powers else None,
            throttle_reasons=tuple(self._reasons),
            performance_states=tuple(self._states),
            foreign_processes=tuple(pid for pid in self._nvml.compute_processes() or () if pid != os.getpid()),
        )


def open_nvml(uuid: str | None) -> tuple[Nvml | None, str | None]:
    """Return the GPU's NVML handle, or None and the reason why there is none."""
    if uuid is None:
        return None, "not a GPU"
    try:
        return Nvml(uuid), None
    except ImportError:
        return None, "nvidia-ml-py is not installed"
    except Exception as error:  # NVML has its own exception tree, which exists only once it was imported
        return None, f"NVML: {error}"
