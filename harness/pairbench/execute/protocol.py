"""What a parent asks of a worker and what comes back: frozen values, pickled over a socket pair.

A job gives any number of results and then `Done`. A worker that cannot go on (its GPU is broken) says `Broken` and
ends; one that ends without saying so crashed.
"""

from dataclasses import dataclass
from pathlib import Path

from pairbench.model.case import Case
from pairbench.model.environment import Device
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry
from pairbench.model.settings import Settings


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """A checkout whose code a worker must leave alone, and the copy of another commit that it uses instead."""

    checkout: Path
    copy: Path


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """First message to a worker."""

    device: Device
    settings: Settings
    memory_bytes: int
    """That the worker may take of the host's memory."""
    stand_in: StandIn | None = None


@dataclass(frozen=True, kw_only=True)
class FindDevices:
    """Asks for the devices: a tuple of `Device`, GPUs first, the CPU last."""


@dataclass(frozen=True, kw_only=True)
class Describe:
    """Asks for the `OperatorDescription`s of a suite file, or one `BrokenSuite`."""

    suite: str
    path: Path


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Asks for the `Environment`."""


@dataclass(frozen=True, kw_only=True)
class Diagnose:
    """Asks for the `Finding`s about the device."""


@dataclass(frozen=True, kw_only=True)
class CaseJob:
    """A job about one case of one operator."""

    path: Path
    operator: str
    case: Case
    entries: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True)
class VerifyCase(CaseJob):
    """Asks for a `Verification` of each entry, and then an `ImpostorResult` of each impostor.

    The watch counts the declared impostors on from the entries.
    """

    automatic_impostors: bool
    declared_impostors: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TimeCase(CaseJob):
    """Asks for a `TimedRound`."""

    round: int
    capturable: tuple[Entry, ...]
    """Entries whose device latency may be taken from a replay of their graph."""


@dataclass(frozen=True, kw_only=True)
class ProfileCase(CaseJob):
    """Asks for a `Profile` of each entry."""


@dataclass(frozen=True, kw_only=True)
class OpenCase(TimeCase):
    """Asks to get a case ready and warm for timing in turns with another worker: `Opened`, if every entry gets there.

    The case stays open until it is closed, or another job comes that is not about turns.
    """


@dataclass(frozen=True, kw_only=True)
class TakeTurn:
    """Asks for one block of the open case: a `Turn`, after which the worker's device has nothing left to do."""

    lead_in: tuple[int, ...]
    """Untimed calls before each sample, of the open case's entries in their order: alike on both sides."""


@dataclass(frozen=True, kw_only=True)
class CloseCase:
    """Asks for the `TimedRound` of the open case, its calls judged once more."""

    stop_reason: str


@dataclass(frozen=True, kw_only=True)
class TellOutputs(CaseJob):
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
    """Where to leave the profiler's trace of the one entry."""


@dataclass(frozen=True, kw_only=True)
class DivergeCase(CaseJob):
    """Asks for the `Divergence` of its one entry from the baseline."""


AnyCaseJob = (
    VerifyCase | TimeCase | ProfileCase | TellOutputs | SaveOutputs | CompareOutputs | BreakDownCase | DivergeCase
)


Job = FindDevices | Describe | Probe | Diagnose | AnyCaseJob | TakeTurn | CloseCase


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Every entry of the case is ready and warm."""

    lead_in: tuple[int, ...]
    """Untimed calls that this worker would put before each sample."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One block, of the open case's entries in their order."""

    call_ns: tuple[float, ...]
    throttled: int
    """Blocks, this one and the last ones before it, in which the GPU is now known to have throttled."""


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """Equal for two trees of tensors if they are equal to the bit, and hardly ever else."""

    entry: Entry | None
    """None: of the inputs."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Ended:
    """An entry ended without a result of its own; with no entry, the whole case did."""

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
    """The worker's GPU is unusable after what the last result tells; it ends now."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """The job is finished."""
