"""Clocks: how one sample of one call is taken on a GPU and on a CPU; and the GPU's own readings through NVML, and its rests once it has throttled.

Four latencies are kept apart. `device` is the GPU's time with the host's work hidden: a replay of the captured call. `stream` is the same for the call's own launches,
which leave the GPU 0.7 to 1.2 us of pause each. `host` is the CPU's time to issue the call, with an empty queue. `call` is what the caller of a single call sees:
the device, or the host's work as far as a flush does not hide it.
"""

import ctypes
import functools
import math
import operator
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from pairbench.execute.worker import trusted
from pairbench.execute.worker.graphs import Reset, Run, nothing
from pairbench.model.environment import OWN_TIMERS
from pairbench.model.outcome import Telemetry
from pairbench.model.plain import Value

_LIMIT = 0x06
_MAPS = Path("/proc/self/maps")
Keep = Callable[[Any], Any]
_LONG_NS = 20e6  # latency in ns from which a call shows nothing of what ran before it
_CLOCKED_SPIN = 200_000
"""Cycles at the end of a spin that are timed, about 0.1 ms: behind others, so that the host's launches are not in it."""
SHORTEST_SPIN = 100_000 + _CLOCKED_SPIN
_THROTTLED = 1.02
"""Multiple of a round's shortest clocked spin beyond which the GPU has lowered its clock. On an H200 99 % are within 1.4 % of it; at the power limit spins take up to 23 % longer."""
TIMING_METHOD = 2
"""Version of how a GPU is timed, a part of the environment: figures of two versions are not of one era. Since 2 a throttled GPU rests."""
_THROTTLES = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""Bits of NVML's clock event reasons that mean throttling, with their names; idling and clocks set on purpose do not."""
_READING_S = 0.02  # seconds between two readings of the GPU, about as often as NVML renews them
_REST = 1.0
"""Rest before a turn once the GPU has throttled, as a multiple of the last turn's time. On an H200 rounds of a 1.5 ms product spread by 2.1 % without rests, by 0.06 % with 1 and with 2."""


def reset_persisting() -> None:
    """Give back the L2 lines that a call has set aside (`cudaDeviceSetLimit`), which a flush does not evict.

    Without such a limit only asking is paid for. Neither cost has been measured on a GPU yet. The runtime is the one that torch has loaded.
    """
    runtime, _ = open_runtime()
    if runtime is None:
        return
    limit = ctypes.c_size_t(0)
    if runtime.cudaDeviceGetLimit(ctypes.byref(limit), _LIMIT) == 0 and limit.value != 0:
        runtime.cudaCtxResetPersistingL2Cache()


@functools.cache
def open_runtime(maps: Path = _MAPS) -> tuple[ctypes.CDLL | None, str | None]:
    """Return the CUDA runtime among the files in a process's memory map, as Linux writes it, or None and why there is none."""
    try:
        files = {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if "libcudart" in line}
    except OSError as error:
        return None, f"mapped files cannot be read: {error}"
    if not files:
        return None, "no libcudart is loaded"
    try:
        runtime = ctypes.CDLL(min(files))
    except OSError as error:
        return None, f"libcudart cannot be opened: {error}"
    for symbol in ("cudaDeviceGetLimit", "cudaCtxResetPersistingL2Cache"):
        if not hasattr(runtime, symbol):
            return None, f"{min(files)} has no {symbol}"
    return runtime, None


class Sample(Value):
    call_ns: float
    host_ns: float  # time in ns until the call returned; the device may still be at work that was queued before it
    kept: Any | None  # the result of `keep`; the outputs themselves are freed, for the next call's use


class HostTimer:
    """`perf_counter_ns` around the call: for CPUs, warm."""

    name = OWN_TIMERS["cpu"]
    settling = 25
    """Unrecorded blocks before the first one, for calls that ran by themselves are not warm yet: docs/decisions/stopping.md."""
    warm_up_s = 0.02  # seconds in which a case's calls run before the first sample, shared among its entries

    def flush(self) -> None:
        """Do nothing: a CPU is timed with the caches as they are."""

    def sample(self, run: Run, keep: Keep | None = None) -> Sample:
        """Time one call; its outputs are given to `keep` at once, before any wait."""
        start = trusted.perf_counter_ns()
        outputs = run()
        elapsed = float(trusted.perf_counter_ns() - start)
        return Sample(call_ns=elapsed, host_ns=elapsed, kept=keep(outputs) if keep else None)

    def lead_in(self, call_ns: float) -> int:
        """Return the number of untimed calls before each sample of a call of about this latency: one fills the caches with the call's own code and data."""
        return 1 if call_ns < _LONG_NS else 0

    def sample_host(self, run: Run, reset: Reset) -> None:
        """Return the host's time of one more call in ns, with a `reset` before each; None, for it is that of `sample`."""


class CudaTimer:
    """CUDA events around the call, behind a flush of the L2 cache and a lead-in: docs/decisions/flush.md and lead-in.md.

    No block needs to settle: device latencies of a first block are those of later ones (by the median of 1,112 series on an H100, to 0.1 %).
    """

    name = OWN_TIMERS["cuda"]
    settling = 0
    warm_up_s = 0.04

    _CALLS_BELOW = ((200e3, 8), (_LONG_NS, 2))
    """Calls per sample, the timed one included, below a latency in ns: powers of two, so that all captures of a `graphs.Rotation`, an odd number, get timed."""

    def __init__(self, device: torch.device) -> None:
        # Twice the L2 cache, and no less than Triton's 256 MiB, whose time is the host's head start as in `do_bench`.
        flushed = max(2 * int(torch.cuda.get_device_properties(device).L2_cache_size), 256 * 2**20)
        self._flush = torch.empty(flushed // 4, dtype=torch.int32, device=device)
        self._start, self._end, self._ahead, self._behind = (torch.cuda.Event(enable_timing=True) for _ in range(4))
        self._shortest_spin_ms = math.inf

    def flush(self) -> None:
        """Queue a flush, and evict the lines that a call has declared to persist in the L2."""
        reset_persisting()
        self._flush.zero_()

    def sample(self, run: Run, keep: Keep | None = None) -> Sample:
        trusted.record(self._start)
        began = trusted.perf_counter_ns()
        outputs = run()
        returned = trusted.perf_counter_ns()
        trusted.record(self._end)
        # A copy is queued right behind the end: what another stream has yet to write is not in it.
        kept = keep(outputs) if keep else None
        trusted.wait(self._end)
        call_ns = trusted.elapsed_ms(self._start, self._end) * 1e6
        return Sample(call_ns=call_ns, host_ns=float(returned - began), kept=kept)

    def lead_in(self, call_ns: float) -> int:
        return next((calls - 1 for limit, calls in self._CALLS_BELOW if call_ns < limit), 0)

    def sample_host(self, run: Run, reset: Reset) -> float:
        """Time how long one call takes until it returns, with an empty queue, right after an untimed one: with a full queue a launch waits for the device."""
        reset()
        run()
        reset()
        trusted.synchronize()
        began = trusted.perf_counter_ns()
        run()
        elapsed = float(trusted.perf_counter_ns() - began)
        trusted.synchronize()
        return elapsed

    def sample_behind_spin(self, run: Run, spin_cycles: int) -> "SpinSample":
        """Time one call whose host work is hidden behind a spinning kernel, whose last cycles, always as many, show the speed of the SMs' clock."""
        torch.cuda._sleep(spin_cycles - _CLOCKED_SPIN)
        trusted.record(self._ahead)
        torch.cuda._sleep(_CLOCKED_SPIN)
        trusted.record(self._behind)
        trusted.record(self._start)
        began = trusted.perf_counter()
        run()
        host_s = trusted.perf_counter() - began
        trusted.record(self._end)
        hidden = not trusted.query(self._behind)
        trusted.wait(self._end)
        spin_ms = trusted.elapsed_ms(self._ahead, self._behind)
        self._shortest_spin_ms = min(spin_ms, self._shortest_spin_ms)
        throttled = spin_ms > _THROTTLED * self._shortest_spin_ms
        device_ns = trusted.elapsed_ms(self._start, self._end) * 1e6
        return SpinSample(device_ns=device_ns, hidden=hidden, host_s=host_s, throttled=throttled)


class SpinSample(Value):
    device_ns: float
    hidden: bool  # whether the spin outlasted the host, without which the latency is too long
    host_s: float
    throttled: bool  # whether the end of the spin took longer than before, because the GPU has lowered its clock


Timer = HostTimer | CudaTimer


class DeviceClock:
    """Takes latencies on the device behind a spinning kernel (docs/decisions/spin.md): of the call's own launches, or of a replay of the captured call."""

    _LONGEST_SPIN = 400_000_000  # cycles of the longest spinning kernel, about 0.2 s
    _CYCLES_PER_S = 2e9  # a guess for the next spin: each guess that is too short costs another call
    _LONGEST_SPIN_S = 0.2
    _LATE = 5  # most samples in a row whose launch outlasts the spin, although one so long was enough before
    _WAITS = 2
    """Most samples in a row in which the host takes half as long again behind a longer spin: it then waits for the device, or for room in its queue."""

    def __init__(self, timer: CudaTimer, run: Run, reset: Reset = nothing, name: str = "spin") -> None:
        """Take no sample yet; `reset` comes before each run, and `name` is that of this clock in records: `spin`, or `graph_replay`."""
        self._timer = timer
        self._run = run
        self._replayed = name == "graph_replay"
        self._reset = reset
        self._spin = SHORTEST_SPIN
        self._enough = False
        self.throttled = False  # whether the GPU's clock was lower than before in the newest sample
        self.name: str | None = name  # None once the host turned out not to be hidden

    def sample(self) -> float | None:
        """Return one device latency in ns, or None where the host cannot be hidden (the call waits for the device)."""
        late, longer, host_s, self.throttled = 0, 0, math.inf, False
        while self.name is not None:
            self._reset()
            self._timer.flush()
            sample = self._timer.sample_behind_spin(self._run, self._spin)
            self.throttled = sample.throttled
            if sample.hidden:
                self._enough = True
                return sample.device_ns
            late += 1
            if self._enough and late <= self._LATE:
                continue
            self._enough, late = False, 0
            waited = not self._replayed and sample.host_s > 1.5 * host_s
            longer, host_s = longer + 1 if waited else 0, sample.host_s
            before, self._spin = self._spin, max(2 * self._spin, int(1.5 * sample.host_s * self._CYCLES_PER_S))
            if self._spin > self._LONGEST_SPIN or sample.host_s > self._LONGEST_SPIN_S or longer >= self._WAITS:
                if self._replayed:  # nothing in a graph waits for the host
                    self._spin = before
                    return sample.device_ns
                self.name = None  # a call of seconds is not made eleven times to learn what the first one showed
        return None


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
        self.beside = beside
        self._readings: list[tuple[float | None, float | None, float | None]] = []
        self._reasons: dict[str, None] = {}
        self._states: dict[int, None] = {}

    def throttling(self) -> bool:
        """Take a reading and return whether the GPU throttles, or one beside it."""
        if self._nvml is None:
            return False
        clock, temperature, power, bits = self._nvml.reading()
        self._readings.append((clock, temperature, power))
        beside = [gpu.reading()[3] or 0 for gpu in self.beside]
        reasons = throttle_names(functools.reduce(operator.or_, beside, bits or 0))
        self._reasons.update(dict.fromkeys(reasons))
        if (state := self._nvml.performance_state()) is not None:
            self._states[state] = None
        return bool(reasons)

    def summary(self) -> Telemetry:
        """Return the readings since the start as one value: medians, and the highest temperature."""
        if self._nvml is None:
            return Telemetry()
        clocks, temperatures, powers = (
            [value for reading in self._readings if (value := reading[place]) is not None] for place in range(3)
        )
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


class Throttling:
    """Labels the blocks of one case in one round, and has a GPU rest that has throttled: docs/decisions/rest.md.

    The clocks of entries that time a spin see at once that it is slower; elsewhere, and where GPUs beside it work as well, NVML labels, late.
    """

    def __init__(self, recorder: TelemetryRecorder, clocks: Sequence[DeviceClock]) -> None:
        self._recorder = recorder
        self._clocks = clocks
        self.blocks: list[bool] = []
        """Whether the GPU throttled, for each block; where NVML labels them, blocks since its last reading are labelled at the next one."""
        self.rested_ns = 0
        self._hot = False
        self.turn_ns = 0  # of the last turn
        recorder.throttling()
        self._last_reading, self._unread = trusted.perf_counter_ns(), 0

    def rest(self) -> None:
        if self._hot:
            began = trusted.perf_counter_ns()
            trusted.sleep(_REST * self.turn_ns / 1e9)
            self.rested_ns += trusted.perf_counter_ns() - began

    def end_block(self) -> int:
        """Label the newest block, and return the number of newest blocks in which the GPU is now known to have throttled."""
        self.blocks.append(False)
        self._unread += 1
        throttled = int(any(clock.throttled for clock in self._clocks))
        now = trusted.perf_counter_ns()
        if now - self._last_reading >= _READING_S * 1e9:
            clocks_see_it = not self._recorder.beside and any(clock.name is not None for clock in self._clocks)
            if self._recorder.throttling() and not clocks_see_it:
                throttled = self._unread
            self._last_reading, self._unread = now, 0
        if throttled:
            self.blocks[-throttled:] = [True] * throttled
            self._hot = True
        return throttled
