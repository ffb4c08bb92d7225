"""Where the time of one call goes, as a worker found it in a trace: work by module, operator and kernel."""

from collections.abc import Mapping
from dataclasses import dataclass

from pairbench.model.case import Case
from pairbench.model.environment import Device
from pairbench.model.plan import Entry, OperatorDescription


@dataclass(frozen=True, kw_only=True)
class ModuleCalls:
    """A module that the call went through."""

    name: str
    """Qualified, from the argument that holds it: `model.blocks.0.self_attn`."""
    class_name: str
    calls: int
    """Of one call of the implementation."""


@dataclass(frozen=True, kw_only=True)
class WorkTotal:
    """Everything that one module spent in one operator and kernel, of one call."""

    module: str
    """The innermost module; empty outside of all."""
    ops: tuple[str, ...]
    """ATen operators from the one that Python called to the innermost one; empty for Python itself and for custom kernels."""
    kernel: str | None = None
    """None on a CPU."""
    spot: int | None = None
    """The line that made it, as an index of the breakdown's spots."""
    known: bool = True
    """Whether it is known what launched it; else module and operators are empty."""
    count: int
    """Kernels, or operators on a CPU."""
    launches: int = 0
    """Kernels that the host launched one by one; those inside a graph are not."""
    ns: float


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A line of code that copies, casts, or waits for the device, with everything it does in one call."""

    what: str
    """`cast`, `copy`, `cache` (a write into the operator's state), `transfer` (between devices), or `sync`."""
    op: str
    detail: str
    """Such as `float32 -> bfloat16`."""
    file: str
    """Relative to the suite's folder, where it is below it."""
    line: int
    function: str
    code: str
    called_from: str = ""
    """File and line of the call, where the line is in a function that is called from several."""
    modules: tuple[str, ...]
    """Those that were running, in order."""
    count: int
    bytes: int
    """That are written."""


@dataclass(frozen=True, kw_only=True)
class DeviceWait:
    """A call of the CUDA runtime that waits for the device."""

    name: str
    module: str
    ops: tuple[str, ...]
    spot: int | None
    count: int


@dataclass(frozen=True, kw_only=True)
class Idle:
    """What a GPU did between the first and the last kernel of one call."""

    span_ns: float
    busy_ns: float
    starved_ns: float
    """Idle because the kernel that came next had not been launched yet: the host was busy with something else."""
    after_sync_ns: float
    """The part of `starved_ns` that followed a wait of the host for the device, which empties the queue."""


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Where one call of an implementation spends its time; all counts and times are those of one call."""

    entry: Entry
    calls: int
    """That were recorded; the quickest is the one that is told of."""
    modules: tuple[ModuleCalls, ...]
    """In the order of their first call."""
    pieces: tuple[WorkTotal, ...]
    spots: tuple[SourceLine, ...]
    graph_launches: int = 0
    waits: tuple[DeviceWait, ...] = ()
    idle: Idle | None = None
    """None on a CPU."""
    whole_ns: float
    """What the pieces should add up to, by another way: the time that the device was busy, or a CPU's clock around the call."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NoBreakdown:
    """An implementation that could not be broken down, and why."""

    entry: Entry
    reason: str
    bad: bool
    """Whether that is a failure, rather than something that does not go here."""


@dataclass(frozen=True, kw_only=True)
class CaseBreakdown:
    """The breakdowns of one case's implementations."""

    operator: OperatorDescription
    case: Case
    device: Device
    parts: tuple[Breakdown | NoBreakdown, ...]


@dataclass(frozen=True, kw_only=True)
class KeptBreakdown:
    """The breakdowns of one case as they lie in a store."""

    breakdown_id: str
    made_at: str
    device_name: str
    environment_hash: str
    versions: Mapping[str, str]
    """Driver, cuda, cudnn, torch, triton, python: those that are known."""
    commit: str | None
    suite: str
    operator: str
    case: str
    parts: tuple[Breakdown, ...]
    """Of the implementations that could be broken down."""
