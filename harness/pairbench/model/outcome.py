"""What became of an entry: how right it was, how fast, what it launched; and how it ended if it did not get that far."""

from dataclasses import dataclass, field
from enum import StrEnum

from pairbench.model.case import Case
from pairbench.model.plan import Entry, OperatorDescription
from pairbench.model.record import KernelCount


class Status(StrEnum):
    """How an entry ended. `verified` stands for itself in `pairbench verify`, and never in a store."""

    VERIFIED = "verified"
    MEASURED = "measured"
    MISMATCHED = "mismatched"
    FAILED = "failed"
    TIMEOUT = "timeout"
    OOM = "oom"
    SKIPPED = "skipped"

    @property
    def bad(self) -> bool:
        """Whether the entry did not do what its declaration promises."""
        return self in (Status.MISMATCHED, Status.FAILED, Status.TIMEOUT, Status.OOM)


@dataclass(frozen=True, kw_only=True)
class Correctness:
    """Distances of an implementation's outputs, the worst over outputs, seeds and runs."""

    max_abs_error: float | None
    mean_abs_error: float | None
    rel_l2_error: float | None
    oracle_ratio: float | None
    """Max error over (baseline's max error + half an output spacing); None without an oracle or float outputs."""
    mismatched_fraction: float
    rtol: float
    atol: float
    margin: float
    """Part of the tolerance left at the worst element."""


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """What torch.compile did for the calls of one entry."""

    compilations: int
    """Functions, or parts of them, that were compiled; each time counts."""
    recompilations: int
    """How many of these because what was compiled before did not fit."""
    graph_breaks: int
    """Places where compiled code goes back to Python."""
    notes: tuple[str, ...] = ()
    """Where it breaks and why, and why it compiled again."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What the verify stage found for one entry."""

    entry: Entry
    status: Status
    reason: str | None = None
    correctness: Correctness | None = None
    first_call_ns: float | None = None
    uncapturable: str | None = None
    """Why the call cannot be captured as a CUDA graph; None where it can, or where that was not tried."""
    capturable: bool | None = None
    """Whether it can be captured; None where that was not tried."""
    compilation: Compilation | None = None
    """In mode compile."""


@dataclass(frozen=True, kw_only=True)
class ImpostorResult:
    """Whether one impostor was rejected in one case."""

    impostor: str
    declared: bool
    rejected: bool
    reason: str
    """Why it was rejected, or what let it through."""
    tried: bool = True
    """False where its `valid` says that it is not wrong in this case."""


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """The GPU's own readings while a case was timed; all None on a CPU or without NVML."""

    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle_reasons: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class EntrySamples:
    """Raw samples of one entry in one round, aligned with the round's blocks."""

    entry: Entry
    position: tuple[int, ...]
    at_ns: tuple[int, ...]
    call_ns: tuple[float, ...]
    host_ns: tuple[float, ...] | None
    device_ns: tuple[float, ...] | None
    device_timer: str | None
    first_call_ns: float | None = None
    """Of this round's fresh process, with what was compiled before on disk."""


PRECISE, SAMPLE_CAP, TIME_CAP = "precise", "sample_cap", "time_cap"
STOP_REASONS = (PRECISE, SAMPLE_CAP, TIME_CAP)
"""What ends the measuring of a case in a round, from the least to the most limiting."""
NOT_REACHED = "the run was interrupted before this was measured"
NOT_PROFILED = "the run was interrupted before this was profiled"
"""Why an entry was skipped that would have been measured."""


@dataclass(frozen=True, kw_only=True)
class TimedRound:
    """The timing of one case in one round."""

    round: int
    timer: str
    entries: tuple[EntrySamples, ...]
    throttled: tuple[bool, ...]
    """Of each block."""
    remeasured: int
    """Throttled blocks that were measured again, and so are left out of the statistics."""
    stop_reason: str
    telemetry: Telemetry
    measuring_s: float
    """Time spent inside timed calls and their flushes."""
    changed: dict[Entry, str] = field(default_factory=dict)
    """Entries whose timed calls no longer gave the right output on fresh inputs, with the reason."""


@dataclass(frozen=True, kw_only=True)
class Launches:
    """What one call launches, exact, or the reason why it is not known."""

    status: str
    """exact, unreliable, unavailable or not_applicable."""
    reason: str | None = None
    launches: int | None = None
    kernels: int | None = None
    graph_launches: int | None = None
    memcpys: int | None = None
    memcpy_bytes: int | None = None
    memsets: int | None = None
    syncs: int | None = None
    kernel_counts: tuple[KernelCount, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What one call launches, dispatches and allocates."""

    entry: Entry
    launches: Launches
    ops: int | None = None
    peak_bytes: int | None = None
    allocations: int | None = None
    reason: str | None = None
    """Why something above is missing."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Everything known of one entry of one case at the end: exactly one for each that was planned."""

    operator: OperatorDescription
    case: Case
    entry: Entry
    status: Status
    reason: str | None = None
    verification: Verification | None = None
    rounds: tuple[TimedRound, ...] = ()
    profile: Profile | None = None
