"""What happens inside of one call: its time by module, operator and kernel, and the modules in which a variant's outputs begin to differ."""

from collections.abc import Mapping

from pairbench.model.case import Case
from pairbench.model.environment import Device
from pairbench.model.plain import Value
from pairbench.model.plan import Entry, OperatorDescription


class KernelCount(Value):
    """A device kernel that one call runs."""

    name: str
    count: int
    total_ns: float  # time on the device per call in ns, all launches; profiled, so an indication and never a latency


class KernelBuild(Value):
    """How a kernel of a call was compiled; None for what is not known."""

    name: str
    registers: int | None = None  # registers a thread
    shared_bytes: int | None = None  # shared memory a block, that which the launch adds included
    warps: int | None = None  # warps a block
    spills: int | None = None
    """Words of 4 bytes a thread that did not fit into registers; of kernels in Triton alone, like `stages`."""
    stages: int | None = None
    code: str | None = None  # digest of the machine code, without lines and paths of its source

    @property
    def words(self) -> str:
        """What is known, such as `40 registers, 0 spills, 4 warps`."""
        words = ("registers", "spills", "bytes of shared memory", "warps", "stages")
        values = (self.registers, self.spills, self.shared_bytes, self.warps, self.stages)
        return ", ".join(f"{value} {word}" for value, word in zip(values, words, strict=True) if value is not None)


class ModuleCalls(Value):
    name: str  # qualified name, from the argument that holds the module: `model.blocks.0.self_attn`
    class_name: str
    calls: int


class WorkTotal(Value):
    module: str  # name of the innermost module; empty for work outside of all modules
    ops: tuple[str, ...]
    """ATen operators from the one that Python called to the innermost one; empty for Python itself and for custom kernels."""
    kernel: str | None = None
    spot: int | None = None
    """The line that caused the work, as an index of the breakdown's `spots`; None where that is not known."""
    known: bool = True  # whether it is known what launched the work; otherwise `module` and `ops` are empty
    count: int
    launches: int = 0  # number of kernels that the host launched one by one; kernels inside a graph do not count
    ns: float


class SourceLine(Value):
    """A line of code that copies, casts, or waits for the device, with the sum of what it does in one call."""

    what: str
    """Kind of work: `cast`, `copy`, `cache` (a write into the operator's state), `transfer` (between devices), or `sync`."""
    op: str
    detail: str
    file: str  # path relative to the suite's folder where it is below it, else without folders of this machine
    line: int
    function: str
    code: str
    called_from: str = ""  # file and line of the call, for a line in a function that several lines call; else empty
    modules: tuple[str, ...]
    count: int
    bytes: int


class DeviceWait(Value):
    name: str
    module: str
    ops: tuple[str, ...]
    spot: int | None
    count: int


class Idle(Value):
    """How a GPU spent the time between the first and the last kernel of one call, in ns."""

    span_ns: float
    busy_ns: float
    starved_ns: float  # time in ns in which the device was idle because the host had not yet launched the next kernel
    after_sync_ns: float  # part of `starved_ns` right after a wait of the host for the device, which empties the queue


class Breakdown(Value):
    entry: Entry
    calls: int  # number of calls that were recorded; the breakdown is that of the quickest
    modules: tuple[ModuleCalls, ...]
    pieces: tuple[WorkTotal, ...]
    spots: tuple[SourceLine, ...]
    graph_launches: int = 0
    waits: tuple[DeviceWait, ...] = ()
    idle: Idle | None = None  # the device's busy and idle time; None on a CPU
    whole_ns: float  # ns that the `pieces` should add up to: the device's busy time, or a CPU's clock around the call
    notes: tuple[str, ...] = ()


class NotInspected(Value):
    """An entry that could not be broken down or compared module by module."""

    entry: Entry
    reason: str
    bad: bool


class InspectedCase(Value):
    operator: OperatorDescription
    case: Case
    device: Device

    def named(self) -> dict[str, str]:
        """Return what documents name it by."""
        suite, operator = self.operator.suite, self.operator.name
        return {"suite": suite, "operator": operator, "case": self.case.key, "device": self.device.name}


class CaseBreakdown(InspectedCase):
    parts: tuple[Breakdown | NotInspected, ...]


class KeptBreakdown(Value):
    breakdown_id: str
    made_at: str
    device_name: str
    environment_hash: str
    versions: Mapping[str, str]
    commit: str | None
    suite: str
    operator: str
    case: str
    parts: tuple[Breakdown, ...]


class Gap(Value):
    """How far a variant's tensors are from the baseline's; distances leave out elements that are not finite in both."""

    max_abs: float
    rel_l2: float | None  # relative L2 distance to the baseline; None where the baseline has nothing but zeros
    beyond: float
    within: bool


class Layer(Value):
    """One call of a module that both trees have, baseline against variant."""

    module: str
    class_name: str
    call: int
    dtypes: tuple[str, str]
    gap: Gap | None
    incomparable: str | None = None
    baseline_oracle: float | None = None
    """Relative L2 error of the baseline's output against float64, as of the variant's below; None without an oracle."""
    variant_oracle: float | None = None
    worse: bool = False
    """Whether the variant is clearly further from float64 than the baseline: more than twice as far, and half a spacing on top."""
    contained: bool = False
    """Whether the output is beyond tolerance while that of the module around it is not, as with another memory layout."""

    @property
    def off(self) -> bool:
        return self.gap is not None and not self.gap.within


class Divergence(Value):
    entry: Entry
    layers: tuple[Layer, ...]
    """Calls of modules in the order in which the baseline's finish: inner modules come before outer ones."""
    inputs: Gap | None = None
    """Distance of the inputs of the `first` module; None where there is no such module, or they cannot be compared."""
    only_baseline: tuple[str, ...] = ()
    only_variant: tuple[str, ...] = ()
    uncalled: tuple[tuple[str, int, int], ...] = ()
    """Modules in both trees that are not called equally often: name, calls by the baseline, calls by the variant."""
    oracle_missing: str | None = None
    output_mismatch: str | None = None

    @property
    def first(self) -> Layer | None:
        """The first module whose output is beyond the operator's tolerance, and so is that of the module around it."""
        return next((layer for layer in self.layers if layer.off and not layer.contained), None)

    @property
    def first_worse(self) -> Layer | None:
        """The first module that is clearly further from float64 than the baseline's."""
        return next((layer for layer in self.layers if layer.worse and not layer.contained), None)

    @property
    def bad(self) -> bool:
        """Whether the variant is wrong; rounding alone, which does not move outputs away from float64, is not."""
        off = self.first is not None and (self.oracle_missing is not None or self.first_worse is not None)
        return off or self.output_mismatch is not None


class CaseDivergence(InspectedCase):
    result: Divergence | NotInspected
