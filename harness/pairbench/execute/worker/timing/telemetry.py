"""The GPU's own readings through NVML (clocks, power, temperature, throttle reasons, processes), and its rests once it has throttled."""

import functools
import operator
import os
import statistics
from collections.abc import Sequence
from typing import Any

from pairbench.execute.worker import trusted
from pairbench.execute.worker.timing.timers import DeviceClock
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

    def foreign_processes(self) -> list[int] | None:
        """Return the ids of other processes that compute on the GPU, or None where NVML does not give them."""
        processes = self._read("nvmlDeviceGetComputeRunningProcesses")
        return None if processes is None else [int(process.pid) for process in processes if process.pid != os.getpid()]


def throttle_names(bits: int) -> tuple[str, ...]:
    return tuple(name for bit, name in _THROTTLES.items() if bits & bit)


class TelemetryRecorder:
    """Reads the GPU between blocks, in the timing thread: another thread would disturb the host latency. Of GPUs beside it only throttling is read."""

    def __init__(self, nvml: Nvml | None, beside: Sequence[Nvml] = ()) -> None:
        self._nvml = nvml
        self._beside = beside
        self._readings: list[tuple[float | None, float | None, float | None]] = []
        self._reasons: dict[str, None] = {}
        self._states: dict[int, None] = {}

    @property
    def reads_several(self) -> bool:
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
            foreign_processes=tuple(self._nvml.foreign_processes() or ()),
        )


def open_nvml(uuid: str | None) -> tuple[Nvml | None, str | None]:
    if uuid is None:
        return None, "not a GPU"
    try:
        return Nvml(uuid), None
    except ImportError:
        return None, "nvidia-ml-py is not installed"
    except Exception as error:  # NVML has its own exception tree, which exists only once it was imported
        return None, f"NVML: {error}"


_READING_S = 0.02
"""Seconds between two readings of the GPU, about as often as NVML renews them."""
_REST = 1.0
"""Rest before a turn once the GPU has throttled, as a multiple of the last turn's time. On an H200 rounds of a 1.5 ms product spread by 2.1 % without rests, by 0.06 % with 1 and with 2."""


class Throttling:
    """Labels the blocks of one case in one round.

    NVML reports throttling up to 0.1 s late. Where the clocks of the entries time a spin before each sample, they see at once that it is slower, and label the block;
    elsewhere, and where GPUs beside it work as well, NVML does.
    """

    def __init__(self, recorder: TelemetryRecorder, clocks: Sequence[DeviceClock]) -> None:
        self._recorder = recorder
        self._clocks = clocks
        self.blocks: list[bool] = []
        """Whether the GPU throttled, for each block; where NVML labels them, blocks since its last reading are labelled at the next one."""
        self.rested_ns = 0
        self._hot = False
        self._turn_ns = 0
        recorder.throttling()
        self._last_reading, self._unread = trusted.perf_counter_ns(), 0

    def rest(self) -> None:
        if self._hot:
            began = trusted.perf_counter_ns()
            trusted.sleep(_REST * self._turn_ns / 1e9)
            self.rested_ns += trusted.perf_counter_ns() - began

    def end_turn(self, took_ns: int) -> None:
        self._turn_ns = took_ns

    def end_block(self) -> int:
        """Label the newest block, and return the number of newest blocks in which the GPU is now known to have throttled."""
        self.blocks.append(False)
        self._unread += 1
        throttled = int(any(clock.throttled for clock in self._clocks))
        now = trusted.perf_counter_ns()
        if now - self._last_reading >= _READING_S * 1e9:
            clocks_see_it = not self._recorder.reads_several and any(clock.name is not None for clock in self._clocks)
            if self._recorder.throttling() and not clocks_see_it:
                throttled = self._unread
            self._last_reading, self._unread = now, 0
        if throttled:
            self.blocks[-throttled:] = [True] * throttled
            self._hot = True
        return throttled
