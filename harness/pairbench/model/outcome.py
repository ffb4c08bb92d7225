"""The outcome of an entry: its correctness, samples and launches, or why it ended without them; and how outputs of two commits agree."""

from collections.abc import Sequence
from enum import StrEnum

from pairbench.model.breakdown import KernelBuild, KernelCount
from pairbench.model.case import Case
from pairbench.model.environment import OWN_TIMERS
from pairbench.model.plain import Value
from pairbench.model.plan import Entry, OperatorDescription
from pairbench.stats import percentile


class Status(StrEnum):
    """How an entry ended. `verified` is an end in `pairbench verify` only, and never in a store."""

    VERIFIED = "verified"
    MEASURED = "measured"
    MISMATCHED = "mismatched"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OOM = "oom"
    SKIPPED = "skipped"

    @property
    def bad(self) -> bool:
        return self in (Status.MISMATCHED, Status.FAILED, Status.TIMEOUT, Status.OOM)


class Correctness(Value):
    """Distances of an implementation's outputs, the worst over outputs, seeds and runs."""

    max_abs_error: float | None
    mean_abs_error: float | None
    rel_l2_error: float | None
    oracle_ratio: float | None
    """Max error over (baseline's max error + half an output spacing); None without an oracle or float outputs."""
    mismatched_fraction: float
    rtol: float
    atol: float
    margin: float  # part of the tolerance left at the worst element: 1 where all are equal, below 0 for a mismatch


class Compilation(Value):
    compilations: int
    recompilations: int  # number of these compilations that were made because earlier ones did not fit the inputs
    graph_breaks: int
    notes: tuple[str, ...] = ()


class Verification(Value):
    entry: Entry
    status: Status
    reason: str | None = None
    correctness: Correctness | None = None
    first_call_ns: float | None = None
    uncapturable: str | None = None
    capturable: bool | None = None
    compilation: Compilation | None = None
    reuses_output: bool | None = None  # whether a call returns memory that an earlier one returned; None where not seen
    repeat_error: float | None = None
    """Largest difference between the outputs of three calls on the same inputs, 0 where they are equal to the bit; None where that is not known."""


class ImpostorResult(Value):
    impostor: str
    declared: bool
    rejected: bool
    reason: str
    tried: bool = True


class Telemetry(Value):
    """The GPU's own readings while a case was timed; all None on a CPU or without NVML."""

    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    performance_states: tuple[int, ...] = ()
    foreign_processes: tuple[int, ...] = ()


class EntrySamples(Value):
    """Raw samples of one entry in one round, one for each of the round's blocks, in ns."""

    entry: Entry
    position: tuple[int, ...]
    at_ns: tuple[int, ...]
    call_ns: tuple[float, ...]
    host_ns: tuple[float, ...] | None
    device_ns: tuple[float, ...] | None
    device_timer: str | None
    stream_ns: tuple[float | None, ...] | None = None
    """Latencies of the call's own launches; None in blocks in which it was not taken, and for all of them where it cannot be."""
    first_call_ns: float | None = None
    """Latency of the first call in this round's fresh process, in ns; what was compiled before is found on disk."""
    autotuned: tuple[str, ...] = ()
    """Configurations that Triton's autotuner chose in this round's process, like `add: BLOCK=128, num_warps=4`."""

    @property
    def on_device_ns(self) -> tuple[float | None, ...] | None:
        """The samples that the device latency is derived from: those of the stream, which not all blocks have, where no replay is timed."""
        return (self.stream_ns if self.device_timer == "spin" else None) or self.device_ns


PRECISE, SAMPLE_CAP, TIME_CAP = "precise", "sample_cap", "time_cap"
STOP_REASONS = (PRECISE, SAMPLE_CAP, TIME_CAP)
"""Reasons that end the measuring of a case in a round, from the least to the most limiting."""
NOT_REACHED = "the run was interrupted before this was measured"
NOT_PROFILED = "the run was interrupted before this was profiled"
"""Reasons of entries that an interrupted run skipped, before they were measured or profiled."""
OUT_OF_BUDGET = "out of budget"  # the reason of entries for which a run had no budget left: they come first next time
NOT_TRIED = "not tried: something before it is wrong"
NOTHING_RIGHT = "not timed: none of its variants is right, so there is nothing to compare it with"
SLOWED, SLOWED_NS = 1.5, 5e3
"""Factor, and ns, by which quick calls of a baseline beside variants may take longer than slow ones in a process where none was called."""


def is_slowed(alone_ns: Sequence[float], beside_ns: Sequence[float]) -> bool:
    """Return whether calls beside variants take longer than those where none was called, by more than either spreads, and beyond what is allowed for."""
    enough = min(len(alone_ns), len(beside_ns)) >= 3  # which tell how far they spread
    return enough and percentile(beside_ns, 25) > SLOWED * percentile(alone_ns, 75) + SLOWED_NS


class TimedRound(Value):
    """The timing of one case in one round."""

    round: int
    timer: str
    entries: tuple[EntrySamples, ...]
    throttled: tuple[bool, ...]
    remeasured: int  # number of throttled blocks that were measured again, and so are left out of the statistics
    stop_reason: str
    telemetry: Telemetry
    measuring_s: float
    judging_s: float = 0.0
    """Seconds spent on making and placing other values for the inputs, and on judging outputs of timed calls."""
    alone_ns: tuple[float, ...] = ()
    """Latencies in ns of the baseline in a process that calls no variant, on a GPU the device's; empty where they were not taken."""

    def beside_ns(self, baseline: EntrySamples) -> tuple[float, ...]:
        """Return the latencies of the baseline beside the variants that those alone compare with; empty where there are none."""
        # On a GPU the host's part of a call differs between processes: 93 us beside honest variants, 36 us alone.
        return baseline.call_ns if self.timer == OWN_TIMERS["cpu"] else baseline.device_ns or ()


class Launches(Value):
    """The launches of one call, or the reason why they are not known."""

    status: str
    reason: str | None = None
    launches: int | None = None
    kernels: int | None = None
    graph_launches: int | None = None
    memcpys: int | None = None
    memcpy_bytes: int | None = None
    memsets: int | None = None
    syncs: int | None = None
    kernel_counts: tuple[KernelCount, ...] | None = None
    kernel_builds: tuple[KernelBuild, ...] | None = None


class Profile(Value):
    """The launches, dispatched operators and allocations of one call; None for what is not known."""

    entry: Entry
    launches: Launches
    ops: int | None = None
    peak_bytes: int | None = None
    allocations: int | None = None
    saved_bytes: int | None = None
    float32_precision: str | None = None
    reason: str | None = None


class Outcome(Value):
    """The result of one entry of one case at the end of a run; each planned entry has exactly one."""

    operator: OperatorDescription
    case: Case
    entry: Entry
    status: Status
    reason: str | None = None
    verification: Verification | None = None
    rounds: tuple[TimedRound, ...] = ()
    profile: Profile | None = None


class Agreement(StrEnum):
    """How two sides' outputs for the same seeded inputs agree."""

    EQUAL = "equal"
    WITHIN = "within"  # the outputs differ in some bits, and are everywhere within the operator's tolerance
    DIFFERENT = "different"
    UNKNOWN = "unknown"


class OutputsCompared(Value):
    entry: Entry
    agreement: Agreement
    reason: str | None = None
    correctness: Correctness | None = None
