"""What a parent asks of a worker and what comes back: frozen values over a socket pair, see `wire.py`.

A job gives any number of results and then `Done`. A worker that cannot go on (its GPU is broken) says `Broken` and
ends; one that ends without saying so crashed.
"""

from dataclasses import dataclass
from pathlib import Path

from pairbench.model.case import Case
from pairbench.model.environment import Device
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry, OperatorDescription
from pairbench.model.settings import Settings


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """A checkout whose code a worker must leave alone, and the copy of another commit that it uses instead."""

    checkout: Path
    copy: Path


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """The first message to a worker: its device, its settings, its memory."""

    device: Device
    settings: Settings
    memory_bytes: int
    """Bytes of the host's memory that the worker may take."""
    stand_in: StandIn | None = None


@dataclass(frozen=True, kw_only=True)
class FindDevices:
    """Asks for the `FoundDevices`."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Asks for nothing: it is done when the worker has loaded torch."""


@dataclass(frozen=True, kw_only=True)
class Describe:
    """Asks for the `DescribedSuite` of a suite file, or a `BrokenSuite`."""

    suite: str
    path: Path
    deep: bool = False
    """Whether descriptions have a `code_digest`, which costs a second reading of the code."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Asks for the `Environment`."""

    ceilings: bool = True
    """Whether the ceilings of the roofline are measured, which takes up to a second."""


@dataclass(frozen=True, kw_only=True)
class Diagnose:
    """Asks for the `Finding`s about the device, as `pairbench doctor` shows them."""


@dataclass(frozen=True, kw_only=True)
class CaseJob:
    """A job about one case of one operator."""

    path: Path
    operator: str
    case: Case
    entries: tuple[Entry, ...]
    hashes: tuple[str, ...] = ()
    """Hashes of the described operator, which the code that the worker loads must have; none where nothing is recorded."""


@dataclass(frozen=True, kw_only=True)
class VerifyCase(CaseJob):
    """Asks for a `Verification` of each entry, and then an `ImpostorResult` of each impostor.

    In the heartbeat the declared impostors are numbered on from the entries.
    """

    automatic_impostors: bool
    declared_impostors: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TimeCase(CaseJob):
    """Asks for a `TimedRound`."""

    round: int
    capturable: tuple[Entry, ...]
    """Entries that can be captured, so that their device latency may be taken from a replay."""
    sparing: bool = False
    """Whether judging has had its part of the run, so that calls of rounds after the first are seldom made on new values."""
    thorough: bool = False
    """Whether a later round is judged like the first one, because entries ended in the round before: more calls of the others fit now."""
    earlier_ns: tuple[float, ...] = ()
    """How quick the calls of each entry were in earlier rounds, in ns; empty in the first one."""


@dataclass(frozen=True, kw_only=True)
class ProfileCase(CaseJob):
    """Asks for a `Profile` of each entry."""


@dataclass(frozen=True, kw_only=True)
class OpenCase(TimeCase):
    """Asks to make a case ready and warm for interleaved timing with another worker: `Opened`, if every entry gets there.

    The case stays open until it is closed, or until a job comes that is not part of interleaved timing.
    """


@dataclass(frozen=True, kw_only=True)
class TakeBlock:
    """Asks for one block of the open case: a `TakenBlock`, after which the worker's device is idle."""

    lead_in: tuple[int, ...]
    """Untimed calls before each sample, one number for each entry of the open case, in order; both sides make the same."""


@dataclass(frozen=True, kw_only=True)
class CloseCase:
    """Asks for the `TimedRound` of the open case, after its calls were verified once more."""

    stop_reason: str


@dataclass(frozen=True, kw_only=True)
class FingerprintOutputs(CaseJob):
    """Asks for a `Fingerprint` of the inputs, and of each entry's outputs for them."""


@dataclass(frozen=True, kw_only=True)
class SaveOutputs(CaseJob):
    """Asks for the outputs of its one entry in a file."""

    file: Path


@dataclass(frozen=True, kw_only=True)
class CompareOutputs(CaseJob):
    """Asks for the `OutputsCompared` of its one entry's outputs with those in a file."""

    file: Path


@dataclass(frozen=True, kw_only=True)
class BreakDownCase(CaseJob):
    """Asks for the `Breakdown` of each entry."""

    trace: Path | None
    """The file that gets the profiler's trace of the one entry; None to keep no trace."""


@dataclass(frozen=True, kw_only=True)
class DivergeCase(CaseJob):
    """Asks for the `Divergence` of its one entry from the baseline."""


AnyCaseJob = (
    VerifyCase
    | TimeCase
    | ProfileCase
    | FingerprintOutputs
    | SaveOutputs
    | CompareOutputs
    | BreakDownCase
    | DivergeCase
)


Job = FindDevices | Wait | Describe | Probe | Diagnose | AnyCaseJob | TakeBlock | CloseCase


@dataclass(frozen=True, kw_only=True)
class FoundDevices:
    """The devices that a worker sees, GPUs first, the CPU last."""

    devices: tuple[Device, ...]


@dataclass(frozen=True, kw_only=True)
class DescribedSuite:
    """The operators of a suite file."""

    operators: tuple[OperatorDescription, ...]


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Every entry of the case is ready and warm."""

    lead_in: tuple[int, ...]
    """Untimed calls that this worker would make before each sample, one number for each entry, in order."""


@dataclass(frozen=True, kw_only=True)
class TakenBlock:
    """One block: a sample of each entry of the open case, in order."""

    call_ns: tuple[float, ...]
    device_ns: tuple[float | None, ...]
    """Device latencies; None for an entry that has none."""
    throttled: int
    """Number of newest blocks, this one included, in which the GPU is now known to have throttled."""
    rested_s: float
    """Seconds that the GPU has rested in the open case so far, because it had throttled."""


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """A digest of a tree of tensors: equal for two trees that are equal to the bit, and hardly ever otherwise."""

    entry: Entry | None
    """The entry whose outputs it is a fingerprint of; None for the inputs."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Ended:
    """An entry ended without a result of its own; where `entry` is None, the whole case did."""

    entry: Entry | None
    status: Status
    reason: str


def without_baseline(entries: tuple[Entry, ...], status: Status, reason: str) -> list["Ended"]:
    """Return the ends of a case's entries whose baseline ended."""
    why = f"nothing to verify against: the baseline {status} ({reason})"
    return [
        Ended(entry=entry, status=status, reason=reason)
        if entry.role == "baseline"
        else Ended(entry=entry, status=Status.SKIPPED, reason=why)
        for entry in entries
    ]


@dataclass(frozen=True, kw_only=True)
class Broken:
    """The worker's GPU became unusable during the last result's work; the worker ends now."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """The job is finished."""
