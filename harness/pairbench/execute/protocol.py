"""What a parent asks of a worker and what comes back: frozen values over a socket pair, see `wire.py`.

A job gives any number of results and then `Done`. A worker that cannot go on (its GPU is broken) says `Broken` and
ends; one that ends without saying so crashed.

A worker that loops for ever, or was killed, cannot say which implementation did it. So before each step it writes the
entry's index and the deadline into shared memory, the `Heartbeat`; a pipe would cost a system call for each sample.
"""

import mmap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pairbench.model.case import Case
from pairbench.model.environment import Device, Settings
from pairbench.model.outcome import Correctness, Status
from pairbench.model.plain import Value
from pairbench.model.plan import Entry, OperatorDescription

HARNESS_LACKED = "the harness ran out of memory as it verified this, not the call"
JUDGE_LACKED = "the harness ran out of memory as it judged what was timed"
"""Begin the reasons of entries that could not be verified, or judged, for want of memory."""
JUDGED_OUTSIDE = "<judged outside>"
"""What a worker says in the place of a verdict that it does not know; the parent puts the judge's there."""
SIZE = 4096
NOBODY = -1  # the case's own code is running: inputs, baseline outputs, oracle


class StandIn(Value):
    """A checkout whose code a worker must leave alone, and the copy of another commit that it uses instead."""

    checkout: Path
    copy: Path


class WorkerConfig(Value):
    """The first message to a worker: its device, its settings, its memory."""

    device: Device
    settings: Settings
    memory_bytes: int
    stand_in: StandIn | None = None


class FindDevices(Value):
    """Asks for the `FoundDevices`."""


class Wait(Value):
    """Asks for nothing: it is done when the worker has loaded torch."""


class Describe(Value):
    """Asks for the `DescribedSuite` of a suite file, or a `BrokenSuite`."""

    suite: str
    path: Path
    deep: bool = False  # whether to return each operator's `code_digest`, for which its code is read a second time


class Probe(Value):
    """Asks for the `Environment` of the worker's device: its hardware, software and ceilings."""

    ceilings: bool = True  # whether the ceilings of the roofline are measured, which takes up to a second


class Diagnose(Value):
    """Asks for the `Finding`s about the device, as `pairbench doctor` shows them."""


class CaseJob(Value):
    """A job about one case of one operator."""

    path: Path
    operator: str
    case: Case
    entries: tuple[Entry, ...]
    hashes: tuple[str, ...] = ()
    """Hashes of the described operator, which the loaded code must have; empty where nothing is recorded."""


class VerifyCase(CaseJob):
    """Asks for a `Verification` of each entry, then an `ImpostorResult` of each impostor. In the heartbeat, declared impostors have the indices after those of the entries."""

    automatic_impostors: bool
    declared_impostors: tuple[str, ...]
    outside: bool = False
    """Whether outputs are judged by another process: they are sent to it, and the worker never has what they should be."""
    beside: bool = False
    """Whether other workers verify beside this one: a case for which they leave too little memory ends as `oom`, to be verified again with nobody beside it."""


class TimeCase(CaseJob):
    """Asks for a `TimedRound`."""

    round: int
    capturable: tuple[Entry, ...]  # those that can be captured, so that their device latency may be taken from a replay
    outside: bool = False
    sparing: bool = False
    """Whether judging has had its part of the run, so that calls of rounds after the first are seldom made on new values."""
    thorough: bool = False
    """Whether a later round is judged like the first one, because entries ended in the round before: more calls of the others fit now."""
    earlier_ns: tuple[float, ...] = ()  # quickest call of each entry in earlier rounds, in ns; empty in the first round


class ProfileCase(CaseJob):
    """Asks for a `Profile` of each entry."""


class OpenCase(TimeCase):
    """Asks for `Opened` once all entries are warm for interleaved timing; the case stays open until it is closed or another kind of job comes."""


class TakeBlock(Value):
    """Asks for one block of the open case: a `TakenBlock`, after which the worker's device is idle."""

    lead_in: tuple[int, ...]
    """Untimed calls before each sample, for each entry of the open case in order; both sides make the same."""


class CloseCase(Value):
    """Asks for the `TimedRound` of the open case, after its calls were verified once more."""

    stop_reason: str


class FingerprintOutputs(CaseJob):
    """Asks for a `Fingerprint` of the inputs, and of each entry's outputs for them."""


class SaveOutputs(CaseJob):
    """Asks for the outputs of its one entry in a file."""

    file: Path


class CompareOutputs(CaseJob):
    """Asks for the `OutputsCompared` of its one entry's outputs with those in a file."""

    file: Path


class BreakDownCase(CaseJob):
    """Asks for the `Breakdown` of each entry."""

    trace: Path | None  # file for the profiler's trace of the one entry; None keeps no trace


class DivergeCase(CaseJob):
    """Asks for the `Divergence` of its one entry from the baseline."""


class HoldCase(CaseJob):
    """Asks the judge to compute what a case's outputs should be: an `ImpostorResult` of each automatic impostor, or an `Ended` where nothing can be judged."""

    automatic_impostors: bool


class TooLarge(Value):
    """There may be too little memory to judge a case in another process: the worker judges it itself."""


class HoldsMuch(Value):
    """The judge holds so much of a GPU's memory for a case that a call in the worker may lack it."""


class Inputs(Value):
    """What a worker's inputs add up to, for each seed of verification; no variant was called yet. It is answered with whether these are the judge's.

    As a job it asks the judge for a `Judged`: whether inputs of the case that is held are its own.
    """

    sums: tuple[tuple[str, str], ...]


class Outputs(Value):
    """Outputs of a call, to be judged. They are answered with whether they are right; what should be there is never said.

    As a job they ask the judge for a `Judged` of outputs of the case that is held.
    """

    index: int  # index of the entry, or of the declared impostor behind the entries
    seed: int  # place of the seed of the inputs among `devices.SEEDS`
    described: str  # description of the outputs, as `worker.judge.plain.write` returns it


class TimeAlone(TimeCase):
    """Asks the judge for the `Alone` of a case that is going to be timed, or was, and to hold the case."""

    takes: bool = False  # whether the baseline is timed; else there are no latencies


class JudgeTimed(Value):
    """Asks the judge for an `Ended` of each entry whose timed calls are wrong or too quick on seen values; the worker that timed them answers its `Request`s."""

    timed: "TimedCase"
    first_seed: int | None  # the seed of the first set of values, where it was drawn for this round


Job = FindDevices | Wait | Describe | Probe | Diagnose | CaseJob | TakeBlock | CloseCase | Inputs | Outputs | JudgeTimed


class ParentLine(Protocol):
    """A worker's line to its parent during a job."""

    outputs: int | None  # open file of the memory through which outputs go to a judge outside

    def ask(self, message: Any) -> Any: ...
    def answered(self) -> Any: ...
    def send(self, message: Any) -> None:
        """Send a message that has no answer, or one that `answered` waits for."""


class Judged(Value):
    """The judge's verdict on an entry so far: the worst of all its outputs that were judged."""

    mismatch: str | None
    correctness: Correctness | None = None
    note: str | None = None


class DrawSeed(Value):
    """Asks the parent for the seed of inputs that no call has seen."""


class Taken(Value):
    """Samples of the blocks that ended since the last such message, one entry after the other in each."""

    call_ns: tuple[float, ...]
    position: tuple[int, ...]
    at_ns: tuple[int, ...]
    turn_ns: tuple[int, ...]
    """Time of each turn without what the worker looks at when it is over: threads that are given time to end, inputs that are compared."""
    now_ns: int  # the worker's clock at the end of the last of these blocks, as `at_ns`
    since_ns: int  # the worker's clock when it had the answer to the last of these messages that asks for one
    asks: bool
    """Whether the worker waits for an answer, so that the parent can tell how much time has passed before and after."""
    host_ns: tuple[float, ...] = ()
    """The host's latency of each call in ns; none on a CPU, where it is that of the call, as of the next two."""
    device_ns: tuple[float | None, ...] = ()
    stream_ns: tuple[float | None, ...] = ()


class TimedEntry(Value):
    """What is known of the calls of one entry once they were timed."""

    index: int
    call_ns: tuple[float, ...]
    fresh_ns: tuple[float, ...]
    lead_in: int
    warm_up_ns: float
    kept: tuple[int, ...]  # number of the set of values, for each output that was kept
    began_on_new: bool
    """Whether the inputs of the first sample had values that no call had seen before, and a copy of its output was kept."""
    captures: int = 0  # whose replays were timed


class TimedCase(Value):
    """A case was timed. It is answered with the first `Request`."""

    entries: tuple[TimedEntry, ...]
    measuring_s: float
    sets: int


class Request(Value):
    """What the judge asks of the worker that timed a case: outputs that were kept, or calls on other values. It is answered with an `Answer`."""

    kind: str  # `kept`, `first`, `again`, `pairs`, `replays`, or `end` where nothing more is asked
    index: int = 0
    place: int = 0  # place of the output among those that were kept of the entry
    seeds: tuple[int, ...] = ()


class Answer(Value):
    """The answer to a `Request`: outputs and latencies, or how the entry ended."""

    described: str = ""
    known_ns: tuple[float, ...] = ()
    new_ns: tuple[float, ...] = ()
    ended: "Ended | None" = None


class Alone(Value):
    """Latencies of the baseline in a process in which no variant was ever called, in ns, on a GPU the device's; empty where they cannot be taken."""

    latency_ns: tuple[float, ...]
    plain: bool
    """Whether nothing comes before a call that may take long: no state is put back, no input restored, no graph built for a backward."""


class FoundDevices(Value):
    """The devices that a worker sees, GPUs first, the CPU last."""

    devices: tuple[Device, ...]


class DescribedSuite(Value):
    operators: tuple[OperatorDescription, ...]


class Opened(Value):
    lead_in: tuple[int, ...]  # untimed calls that this worker would make before each sample, for each entry in order


class TakenBlock(Value):
    """One block: a sample of each entry of the open case, in order."""

    call_ns: tuple[float, ...]
    device_ns: tuple[float | None, ...]
    throttled: int  # number of newest blocks, this one included, in which the GPU is now known to have throttled
    rested_s: float  # seconds that the GPU has rested in the open case so far, because it had throttled


class Fingerprint(Value):
    """A digest of a tree of tensors: equal for two trees that are equal to the bit, and hardly ever otherwise."""

    entry: Entry | None  # the entry whose outputs it is a fingerprint of; None for the inputs
    text: str


class Ended(Value):
    """An entry ended without a result of its own; where `entry` is None, the whole case did."""

    entry: Entry | None
    status: Status
    reason: str
    unnamed: str | None = None
    """What an implementation did, as a verb with its object, where the worker does not know which of them it was."""


class InputsMade(Value):
    """Making the inputs of a case took so long in a stage, in seconds, that the run may say so."""

    seconds: float


def without_baseline(entries: tuple[Entry, ...], status: Status, reason: str) -> list["Ended"]:
    """Return the ends of all entries of a case whose baseline failed: variants are skipped."""
    skipped = Status.SKIPPED, f"nothing to verify against: the baseline {status} ({reason})"
    ends = ((entry, (status, reason) if entry.role == "baseline" else skipped) for entry in entries)
    return [Ended(entry=entry, status=ended, reason=why) for entry, (ended, why) in ends]


class Broken(Value):
    """The worker's GPU became unusable during the last result's work; the worker ends now."""


class Done(Value):
    """The job is finished."""


class Heartbeat:
    """The worker's end. Time adds up for each entry over its steps, until `begin_job` starts a new stage."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._index, self._deadline = _fields(memory)
        self._allowed_s = self._waited_s = 0.0
        self._spent_s: dict[int, float] = {}

    def begin_job(self, allowed_s: float) -> None:
        """Give every entry a fresh allowance; the case's own code has the same."""
        self._allowed_s, self._spent_s = allowed_s, {}
        self._mark(NOBODY)

    def go_on(self) -> None:
        """Continue the stage after a pause; the seconds that each entry has used of its time limit still count."""
        self._mark(NOBODY)

    @contextmanager
    def entry(self, index: int) -> Iterator[None]:
        """Blame what happens inside on an entry."""
        started = self._mark(index) - self._waited_s
        try:
            yield
        finally:
            self._spent_s[index] = self._spent_s.get(index, 0.0) + time.monotonic() - started - self._waited_s
            self._mark(NOBODY)

    @property
    def running(self) -> int:
        return self._index[0]

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Stop the entry's time while the worker waits for an answer of its parent; what goes wrong is still the entry's."""
        index, deadline, began = self._index[0], self._deadline[0], time.monotonic()
        self._write(index, float("inf"))
        try:
            yield
        finally:
            waited = time.monotonic() - began
            self._waited_s += waited
            self._write(index, deadline + waited)

    def exhausted(self, index: int) -> bool:
        return self._spent_s.get(index, 0.0) >= self._allowed_s

    def let_go(self) -> None:
        """Write to memory of its own from now on, as a process must that a worker's code has forked."""
        self._index, self._deadline = _fields(bytearray(SIZE))

    def _mark(self, index: int) -> float:
        now = time.monotonic()
        self._write(index, now + self._allowed_s - self._spent_s.get(index, 0.0))
        return now

    def rest(self) -> None:
        self._write(NOBODY, float("inf"))

    def _write(self, index: int, deadline: float) -> None:
        # Each is one aligned store, so the parent sees no half of it; `struct.pack_into` clears its fields first, and a
        # parent that looked just then saw a deadline of 0, and ended a worker for a timeout that never was.
        self._deadline[0] = deadline
        self._index[0] = index


def read_heartbeat(memory: mmap.mmap) -> tuple[int, float]:
    """Return the index of the entry that runs, and the `time.monotonic` after which it is over time."""
    index, deadline = _fields(memory)
    return index[0], deadline[0]


def _fields(memory: mmap.mmap | bytearray) -> "tuple[memoryview[int], memoryview[float]]":
    view = memoryview(memory)
    return view[:8].cast("q"), view[8:16].cast("d")
