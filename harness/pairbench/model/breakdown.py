"""Where the time of one call goes, as a worker read it from a trace: work by module, operator and kernel."""

from collections.abc import Mapping
from dataclasses import dataclass

from pairbench.model.case import Case
from pairbench.model.environment import Device
from pairbench.model.plan import Entry, OperatorDescription


@dataclass(frozen=True, kw_only=True)
class ModuleCalls:
    """A module that one call of the implementation went through."""

    name: str
    """Qualified name, from the argument that holds the module: `model.blocks.0.self_attn`."""
    class_name: str
    calls: int


@dataclass(frozen=True, kw_only=True)
class WorkTotal:
    """The sum of the work that one module spends in one operator and kernel, in one call."""

    module: str
    """Name of the innermost module; empty for work outside of all modules."""
    ops: tuple[str, ...]
    """ATen operators from the one that Python called to the innermost one; empty for Python itself and for custom kernels."""
    kernel: str | None = None
    spot: int | None = None
    """The line that caused the work, as an index of the breakdown's `spots`; None where that is not known."""
    known: bool = True
    """Whether it is known what launched the work; otherwise `module` and `ops` are empty."""
    count: int
    launches: int = 0
    """Number of kernels that the host launched one by one; kernels inside a graph do not count."""
    ns: float


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A line of code that copies, casts, or waits for the device, with the sum of what it does in one call."""

    what: str
    """Kind of work: `cast`, `copy`, `cache` (a write into the operator's state), `transfer` (between devices), or `sync`."""
    op: str
    detail: str
    file: str
    """The file's path relative to the suite's folder where it is below it, else without folders of this machine."""
    line: int
    function: str
    code: str
    called_from: str = ""
    """File and line of the call where the line is in a function that several lines call; else empty."""
    modules: tuple[str, ...]
    count: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class DeviceWait:
    """Calls of one CUDA runtime function that wait for the device, by what waited."""

    name: str
    module: str
    ops: tuple[str, ...]
    spot: int | None
    count: int


@dataclass(frozen=True, kw_only=True)
class Idle:
    """How a GPU spent the time between the first and the last kernel of one call, in ns."""

    span_ns: float
    busy_ns: float
    starved_ns: float
    """Time in ns in which the device was idle because the host had not yet launched the next kernel."""
    after_sync_ns: float
    """The part of `starved_ns` right after a wait of the host for the device, which empties the queue."""


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Where one call of an implementation spends its time; all counts and times are those of one call."""

    entry: Entry
    calls: int
    """Number of calls that were recorded; the breakdown is that of the quickest."""
    modules: tuple[ModuleCalls, ...]
    pieces: tuple[WorkTotal, ...]
    spots: tuple[SourceLine, ...]
    graph_launches: int = 0
    waits: tuple[DeviceWait, ...] = ()
    idle: Idle | None = None
    """The device's busy and idle time; None on a CPU."""
    whole_ns: float
    """Time in ns that the `pieces` should add up to: the device's busy time, or a CPU's clock around the call."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NoBreakdown:
    """An implementation that could not be broken down, and why."""

    entry: Entry
    reason: str
    bad: bool


@dataclass(frozen=True, kw_only=True)
class CaseBreakdown:
    """The breakdowns of one case's implementations."""

    operator: OperatorDescription
    case: Case
    device: Device
    parts: tuple[Breakdown | NoBreakdown, ...]


@dataclass(frozen=True, kw_only=True)
class KeptBreakdown:
    """The breakdowns of one case as a store holds them."""

    breakdown_id: str
    made_at: str
    device_name: str
    environment_hash: str
    versions: Mapping[str, str]
    """Versions that are known, by name: driver, cuda, cudnn, torch, triton, python."""
    commit: str | None
    suite: str
    operator: str
    case: str
    parts: tuple[Breakdown, ...]
