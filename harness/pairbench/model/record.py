"""The rows that a run stores: a `Record` for each result, and the raw `Samples` that its latencies were derived from.

The fields are the columns of the store, in its order; `store.schema` derives the parquet types from them, and
`results/README.md` documents them. Units stand in the names. None means not applicable, or not measured, and then `reason`,
`launch_status` or `environment` says why. A `Series` is what records of several runs have in common.

Of the four latencies `device` is what the GPU needs, with the host's work hidden: a replay of the captured call, which has no gaps
between launches. `stream` is the same for the call's own launches, gaps included; `host` is what the CPU needs to issue the call; `call`
is what the caller of a single call sees. On a GPU the result is the device's, wherever it could be taken: it repeats between runs, and
the call's does not where the host limits it. On a CPU there is the call's alone.
"""

import functools
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pairbench.model.breakdown import KernelBuild, KernelCount
from pairbench.model.environment import withheld
from pairbench.model.plain import Value

if TYPE_CHECKING:
    from pairbench.stats import Interval  # with NumPy, which a command's help does without

Function = TypeVar("Function", bound=Callable[..., Any])
Values = Callable[[str], Sequence[Any]]  # of a column


def column(description: str) -> Any:
    """Declare a field that is a column of the store."""
    return field(default=None, metadata={"description": description})


class Record(Value):
    """One row: run x device x case x implementation x mode."""

    run_id: str = column("the invocation; sorts by time")
    confirms: str | None = column("the run whose suspects this one measured again; null for a run of its own")
    started_at: str = column("when the run started, ISO 8601, UTC")
    commit: str | None = column("git commit of the suite's checkout; null outside one")
    commit_at: str | None = column("when that commit was made, ISO 8601, UTC")
    branch: str | None = column("git branch; null when detached or outside a checkout")
    dirty: bool | None = column("whether the checkout had uncommitted changes")
    commit_subject: str | None = column("first line of the commit's message")
    commit_author: str | None = column("name of the commit's author")
    commit_number: int | None = column(
        "commits in its history, itself included: the difference of two runs of a branch is how many lie between them; null in a shallow clone"
    )
    pull_request: int | None = column(
        "number of the pull or merge request, as CI or the commit's message says; null where neither does"
    )
    suite: str = column("the suite file, relative to where pairbench ran")
    operator: str | None = column("the operator; null where the suite could not be loaded")
    definition_hash: str | None = column(
        "hash of the definition: inputs, axes, oracle, tolerance, state; a new one starts a new series"
    )
    implementation_hash: str | None = column("hash of the implementation: its source, its helpers and its `prepare`")
    case: str | None = column("key of the case")
    axes: str | None = column("the case's axes as JSON")
    tier: str | None = column("smoke, real or headline")
    dtype: str | None = column("the axis `dtype`, where there is one")
    float32_precision: str | None = column(
        "precision of the case's float32 products and convolutions: `ieee`, or `tf32` where TF32 was allowed, by the axis `tf32` or else by the "
        "setting; null where no implementation of the case is seen to dispatch any"
    )
    implementation: str | None = column("`baseline` or the variant's name")
    role: str | None = column("baseline or variant")
    mode: str | None = column("eager, compile or graph")

    device_kind: str = column("cuda or cpu")
    device_name: str = column("model of the GPU or CPU")
    device_uuid: str | None = column("the GPU's UUID; null on a CPU")
    driver: str | None = column("GPU driver version")
    cuda: str | None = column("CUDA version of the torch build")
    cudnn: str | None = column("cuDNN version in use")
    torch: str = column("torch version")
    triton: str | None = column("Triton version; null where it is not installed")
    python: str = column("Python version")
    hostname: str = column("the machine's name")
    cpu: str = column("CPU model")
    environment_hash: str = column("hash of everything in the environment that can move a latency")
    environment: str = column("the rest of the environment as JSON")

    status: str = column("measured, mismatched, failed, timeout, oom or skipped")
    reason: str | None = column("why, in a sentence; null where plainly measured")

    consumes: tuple[str, ...] | None = column(
        "inputs that a call may overwrite, as declared: its caller loses them; null where none are"
    )

    max_abs_error: float | None = column("largest |output - oracle|")
    mean_abs_error: float | None = column("mean |output - oracle|")
    rel_l2_error: float | None = column("L2 norm of (output - oracle) over that of the oracle")
    oracle_ratio: float | None = column(
        "max error over (baseline's max error + half an output spacing); the rule allows 2"
    )
    mismatched_fraction: float | None = column("part of the output's elements beyond the tolerance to the baseline")
    rtol: float | None = column("relative tolerance that was applied")
    atol: float | None = column(
        "absolute tolerance that was applied, RMS part included; where it goes by row, that of the element nearest to its limit"
    )
    margin: float | None = column(
        "part of the tolerance left at the worst element: 1 equal to the baseline, below 0 a mismatch"
    )

    timer: str | None = column(
        "how a sample was taken: cuda_event, do_bench or perf_counter; of imported runs `asv`, or `pytest-benchmark` and its timer's name; never compared across"
    )
    device_timer: str | None = column(
        "how the device latency was taken: graph_replay, or spin where it is that of the stream, because the call cannot be captured or its replay "
        "is not believed; null where it could not be taken"
    )
    device_p50_ns: float | None = column(
        "median latency on the device, cold L2, with the host's work hidden; on a GPU the result"
    )
    device_p50_ns_low: float | None = column("lower end of its 95 % interval")
    device_p50_ns_high: float | None = column("upper end of its 95 % interval")
    device_p95_ns: float | None = column("95th percentile of the device latency")
    device_p95_ns_low: float | None = column("lower end of its 95 % interval")
    device_p95_ns_high: float | None = column("upper end of its 95 % interval")
    device_round_p50_ns: tuple[float, ...] | None = column("median device latency of each round")
    device_round_p95_ns: tuple[float, ...] | None = column("95th percentile of the device latency of each round")
    stream_p50_ns: float | None = column(
        "median latency of the call's own launches on the device, cold L2, with the host's work hidden: what eager code needs where the host keeps up; "
        "null where the host cannot be hidden, and in mode graph"
    )
    stream_p50_ns_low: float | None = column("lower end of its 95 % interval")
    stream_p50_ns_high: float | None = column("upper end of its 95 % interval")
    stream_p95_ns: float | None = column("95th percentile of that latency")
    stream_p95_ns_low: float | None = column("lower end of its 95 % interval")
    stream_p95_ns_high: float | None = column("upper end of its 95 % interval")
    stream_round_p50_ns: tuple[float, ...] | None = column("median of it in each round")
    stream_round_p95_ns: tuple[float, ...] | None = column("95th percentile of it in each round")
    call_p50_ns: float | None = column(
        "median latency of a call, cold L2 on a GPU, as its caller sees it; on a CPU the result"
    )
    call_p50_ns_low: float | None = column("lower end of its 95 % interval")
    call_p50_ns_high: float | None = column("upper end of its 95 % interval")
    call_p95_ns: float | None = column("95th percentile of the latency of a call")
    call_p95_ns_low: float | None = column("lower end of its 95 % interval")
    call_p95_ns_high: float | None = column("upper end of its 95 % interval")
    call_round_p50_ns: tuple[float, ...] | None = column("median call latency of each round")
    call_round_p95_ns: tuple[float, ...] | None = column("95th percentile of the call latency of each round")
    host_p50_ns: float | None = column(
        "median time until the call returns to its caller, with nothing queued before it: what issuing it takes the host; "
        "of the round in which that was shortest, for what else runs slows whole rounds"
    )
    host_p50_ns_low: float | None = column("lower end of its 95 % interval")
    host_p50_ns_high: float | None = column("upper end of its 95 % interval")
    host_p95_ns: float | None = column("95th percentile of that time, in the same round")
    host_p95_ns_low: float | None = column("lower end of its 95 % interval")
    host_p95_ns_high: float | None = column("upper end of its 95 % interval")
    host_round_p50_ns: tuple[float, ...] | None = column("median host time of each round")
    host_round_p95_ns: tuple[float, ...] | None = column("95th percentile of the host time of each round")
    host_round_lower_mean_ns: tuple[float, ...] | None = column(
        "mean of the lower half of the host times of each round, by which variants are judged relative to their baselines; null on a CPU"
    )
    bound: str | None = column(
        "what limits a stream of calls, `device` or `host`: the one that takes longer; null where one is not known, as on a CPU"
    )
    first_call_ns: float | None = column(
        "latency of the very first call, with nothing compiled before: compilation, JIT and library set-up included; on a GPU beside other cases that are verified"
    )
    warm_first_call_ns: float | None = column(
        "the same in a fresh process that finds on disk what was compiled before; median of the rounds"
    )
    compilations: int | None = column("functions, or parts of them, that torch.compile compiled; only in mode compile")
    recompilations: int | None = column("how many of these because what was compiled before did not fit")
    graph_breaks: int | None = column("places where compiled code goes back to Python")
    compile_notes: tuple[str, ...] | None = column("where it breaks and why, and why it compiled again")
    graph_capturable: bool | None = column("whether a CUDA graph can hold the call; null where that was not tried")
    graph_capture_reason: str | None = column("the call that forbids it, and where it is")
    reuses_output: bool | None = column(
        "whether a call returns memory that an earlier call returned and somebody still holds, inputs and what was prepared apart: the "
        "earlier result changes; null in mode graph, whose replays all do, and where it was not looked for"
    )
    deterministic: bool | None = column(
        "whether three calls on the same inputs gave the same to the bit; null where that is not known"
    )
    repeat_error: float | None = column("how far they were apart: the largest difference of an element; 0 where equal")
    autotuned: tuple[str, ...] | None = column(
        "configurations that Triton's autotuner chose in the processes that were timed, like `add: BLOCK=128, num_warps=4`, with the number "
        "of rounds where these differ; null where none was at work"
    )
    n_samples: int | None = column("timed calls behind the latencies")
    n_rounds: int | None = column("fresh worker processes that they come from; the independent unit")
    round_p50_ns: tuple[float, ...] | None = column("the same as call_round_p50_ns, under the name of all versions")
    round_p95_ns: tuple[float, ...] | None = column("the same as call_round_p95_ns, under the name of all versions")
    stop_reason: str | None = column(
        "what ended the measuring: precise, time_cap or sample_cap; the most limiting round's"
    )

    speedup: float | None = column("baseline's median call latency over this one's, same mode")
    speedup_low: float | None = column("lower end of its 95 % interval")
    speedup_high: float | None = column("upper end of its 95 % interval")
    device_speedup: float | None = column(
        "baseline's median device latency over this one's, same mode; on a GPU the result; where one of the two alone is replayed, that of the streams"
    )
    device_speedup_low: float | None = column("lower end of its 95 % interval")
    device_speedup_high: float | None = column("upper end of its 95 % interval")
    stream_speedup: float | None = column("baseline's median latency in a stream over this one's, same mode")
    stream_speedup_low: float | None = column("lower end of its 95 % interval")
    stream_speedup_high: float | None = column("upper end of its 95 % interval")
    host_speedup: float | None = column("baseline's median host time over this one's, same mode")
    host_speedup_low: float | None = column("lower end of its 95 % interval")
    host_speedup_high: float | None = column("upper end of its 95 % interval")
    speedup_over_best: float | None = column(
        "median latency of the best alternative over this variant's: the device's on a GPU where both have it, else the call's; null where the "
        "speedups over the baseline are"
    )
    speedup_over_best_low: float | None = column("lower end of its 95 % interval")
    speedup_over_best_high: float | None = column("upper end of its 95 % interval")
    best_alternative: str | None = column(
        "the fastest of the baseline, its compiled form and the variants of kind `library`, this variant left out: `baseline`, `baseline (compile)` or a variant's name"
    )

    launches_per_call: int | None = column("launches that the host makes: kernels and graphs")
    kernels_per_call: int | None = column("kernels that run on the device, nodes of graphs included")
    graph_launches_per_call: int | None = column("launches of CUDA graphs")
    memcpys_per_call: int | None = column("memory copies on the device or across the bus, nodes of graphs included")
    memcpy_bytes_per_call: int | None = column("bytes that they move")
    memsets_per_call: int | None = column("memsets on the device")
    syncs_per_call: int | None = column("waits of the host for the device")
    ops_per_call: int | None = column("ATen operators dispatched; exact on every device")
    launch_status: str | None = column("exact, unreliable, unavailable or not_applicable")
    kernels: tuple[KernelCount, ...] | None = column("kernels per call: name, count, total_ns")
    kernel_builds: tuple[KernelBuild, ...] | None = column(
        "how each of these was compiled: registers a thread, shared memory and warps a block; of kernels in Triton also spilled words "
        "a thread, stages, and a digest of the machine code"
    )

    peak_bytes: int | None = column("peak memory above the inputs during a call")
    allocations_per_call: int | None = column("allocations of a call")
    saved_bytes: int | None = column(
        "what a forward keeps for backward, inputs and parameters left out; null where no gradients are declared"
    )

    flops: float | None = column("operations that the case demands (declared cost)")
    bytes_moved: float | None = column("bytes that the case demands (declared cost)")
    tflops: float | None = column("flops over the device latency, or the call latency on a CPU")
    gbps: float | None = column("bytes_moved over that latency, 1e9 bytes a second")
    roofline_fraction: float | None = column(
        "least time by the measured ceilings over that latency; by the rate of the case's dtype (more than 1 is reached "
        "by computing in another), by the highest where no axis says it; of several GPUs their roof together"
    )

    sm_clock_mhz: float | None = column("median SM clock while timing")
    temperature_c: float | None = column("highest GPU temperature while timing")
    power_w: float | None = column("median power while timing")
    throttle_reasons: str | None = column("throttle reasons seen while timing, comma-separated; empty for none")
    remeasured_blocks: int | None = column("blocks of the case measured again because the GPU throttled")


class Samples(Value):
    """Raw samples of one implementation of one case in one mode in one round, in the order they were taken."""

    run_id: str = column("the invocation")
    device_name: str = column("model of the GPU or CPU")
    device_uuid: str | None = column("the GPU's UUID; null on a CPU")
    suite: str = column("the suite file")
    operator: str = column("the operator")
    case: str = column("key of the case")
    implementation: str = column("`baseline` or the variant's name")
    mode: str = column("eager, compile or graph")
    timer: str = column("how a sample was taken")
    round: int = column("the worker process, counted from 0")
    stop_reason: str = column("what ended this round's measuring of the case")
    block: tuple[int, ...] = column("block of each sample; samples of one block are paired across implementations")
    position: tuple[int, ...] = column("place in the block's random order")
    at_ns: tuple[int, ...] = column(
        "when each was taken, from the start of the case's timing in this round; of imported runs what the samples before took"
    )
    call_ns: tuple[float, ...] = column("call latency")
    host_ns: tuple[float, ...] | None = column("time until the call returned")
    device_ns: tuple[float, ...] | None = column("device latency; null where it could not be taken")
    stream_ns: tuple[float | None, ...] | None = column(
        "latency of the call's own launches on the device; null in the blocks in which it was not taken"
    )
    throttled: tuple[bool, ...] = column(
        "taken while the GPU throttled; left out of the statistics where measured again"
    )
    outlier: tuple[bool, ...] = column(
        "beyond three interquartile ranges from the quartiles; a label, nothing is left out for it"
    )


def columns(row: type[Record] | type[Samples]) -> dict[str, str]:
    """Return the columns of a row type with their descriptions, in order."""
    return {item.name: item.metadata["description"] for item in fields(row)}


@dataclass(frozen=True, kw_only=True, order=True)
class Series:
    """The identity of a series: one implementation of one case in one mode on one device model, over runs.

    The definition's hash is no part of it; records of different definitions are never compared.
    """

    device_name: str
    suite: str
    case: str
    """Key of the case, which begins with the operator's name."""
    implementation: str
    mode: str

    @classmethod
    def of(cls, record: Record) -> "Series | None":
        """Return the series that a record belongs to; None for that of a suite which could not be loaded."""
        if record.case is None or record.implementation is None or record.mode is None:
            return None
        return _series(record.device_name, record.suite, record.case, record.implementation, record.mode)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Series | None":
        """Return the series of a row of the store; None as for `of`."""
        return None if None in (values := {name: row[name] for name in COLUMNS}).values() else cls(**values)

    @property
    def operator(self) -> str:
        """The operator's name."""
        return self.case.partition("[")[0]

    @property
    def name(self) -> str:
        """The name of the series on the command line, which adds the device where several devices have the series."""
        return f"{self.suite}::{self.case}-{self.implementation}-{self.mode}"


@functools.lru_cache(maxsize=2**16)  # a history has each of them in every run
def _series(device_name: str, suite: str, case: str, implementation: str, mode: str) -> Series:
    return Series(device_name=device_name, suite=suite, case=case, implementation=implementation, mode=mode)


COLUMNS = tuple(item.name for item in fields(Series))  # the columns of a record that identify its series


class LazyRecords:
    """Records as columns, each made when it is asked for: a site goes through a hundred thousand, and needs few of them whole."""

    def __init__(
        self, size: int, values: Values, make: Callable[[int], Record], column: Callable[[str], Any] | None = None
    ) -> None:
        self._size, self._make = size, functools.cache(make)
        self.values = functools.cache(values)
        """Return a column's values."""
        self.column: Callable[[str], Any] = column or self.values
        """Return a column as it was read: an array of pyarrow, or a list."""
        self.derived: dict[tuple[Any, ...], Any] = {}  # what functions that are `derived` computed from these records

    @classmethod
    def of(cls, records: Iterable[Record]) -> "LazyRecords":
        """Return records that are there already."""
        rows = tuple(records)
        return cls(len(rows), lambda name: [getattr(row, name) for row in rows], rows.__getitem__)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: int) -> Record:
        return self._make(range(self._size)[place])


def derived(function: Function) -> Function:
    """Make a function of records, and of names of columns, compute its value once for each."""

    def once(records: LazyRecords, *names: str) -> Any:
        if (key := (function, *names)) not in records.derived:
            records.derived[key] = function(records, *names)
        return records.derived[key]

    return cast("Function", once)


class Latency(Value):
    """One of the four latencies, with the names of its columns in ns: percentiles over all rounds, percentiles by round, and the speedup."""

    name: str
    rounds: tuple[str, str]
    speedup: str

    @property
    def p50(self) -> str:
        """Name of the column with the median, in ns."""
        return f"{self.name}_p50_ns"

    @property
    def p95(self) -> str:
        """Name of the column with the 95th percentile, in ns."""
        return f"{self.name}_p95_ns"


DEVICE = Latency(name="device", rounds=("device_round_p50_ns", "device_round_p95_ns"), speedup="device_speedup")
STREAM = Latency(name="stream", rounds=("stream_round_p50_ns", "stream_round_p95_ns"), speedup="stream_speedup")
# Without the name in front, as in the files of all versions.
CALL = Latency(name="call", rounds=("round_p50_ns", "round_p95_ns"), speedup="speedup")
HOST = Latency(name="host", rounds=("host_round_p50_ns", "host_round_p95_ns"), speedup="host_speedup")
LATENCIES = (DEVICE, STREAM, CALL, HOST)
HOST_JUDGED = "host_round_lower_mean_ns"
"""The column of host times by round that are compared relative to the baseline's, and that `ab` judges."""
ENDS = ("", "_low", "_high")  # suffixes of the columns of an estimate and of the ends of its interval

RESULT_COLUMNS = (
    *("device_kind", "timer", "device_timer", "bound", "host_p50_ns"),
    *(f"{metric}{end}" for one in (DEVICE, CALL) for metric in (one.p50, one.p95) for end in ENDS),
    *(f"{one.speedup}{end}" for one in (DEVICE, CALL) for end in ENDS),
    STREAM.speedup,
)
"""The columns of a record that showing its result needs."""


def result_of(record: Record) -> Latency:
    """Return the latency that is the result: the device's on a GPU, wherever it could be taken, else the call's."""
    return DEVICE if record.device_kind != "cpu" and 0 < (record.device_p50_ns or 0) < math.inf else CALL


def sampled_as(record: Record, known: Container[str]) -> str:
    """Return the name of the latency whose raw samples, if these are among the known ones, a record's result is derived from."""
    # Where a replay was not believed, the device's latency is derived from samples of the stream.
    name = result_of(record).name
    return STREAM.name if name == DEVICE.name and record.device_timer == "spin" and STREAM.name in known else name


def p50_of(record: Record, latency: Latency | None = None) -> "Interval | None":
    """Return a median in ns with its 95 % interval, that of the result if no latency is named; None where there is none."""
    # The ends of the interval are NaN where they are not known.
    return interval_of(record, (latency or result_of(record)).p50)


def p95_of(record: Record, latency: Latency | None = None) -> "Interval | None":
    """Return the 95th percentile in ns with its interval, by default of the result; None where it is not known."""
    return interval_of(record, (latency or result_of(record)).p95)


def speedup_of(record: Record | None) -> "Interval | None":
    """Return a record's speedup with its interval: of the device's latency where that is known, else of the call's."""
    # None where it has none, and where it is withheld: see `environment.withheld`.
    if record is None or withheld(record.device_kind, record.environment):
        return None
    of_device = interval_of(record, DEVICE.speedup) if record.device_kind != "cpu" else None
    return of_device or interval_of(record, CALL.speedup)


def speedup_over(record: Record, other: Record | None) -> "Interval | None":
    """Return how many times as fast a record is as another of its case, with the widest interval that both speedups allow; None where one is not known."""
    mine, theirs = speedup_of(record), speedup_of(other)
    if other is not None and other.role == "baseline":
        return mine
    if mine is None or theirs is None:
        return None
    return type(mine)(mine.estimate / theirs.estimate, mine.low / theirs.high, mine.high / theirs.low)


def speedup_is_of(record: Record) -> Latency:
    """Return the latency that a record's speedup is of: the call's where the baseline has none on the device."""
    return DEVICE if record.device_kind != "cpu" and interval_of(record, DEVICE.speedup) else CALL


def interval_of(record: Record, column: str) -> "Interval | None":
    """Return a column's estimate and its interval, whose ends are NaN where they are unknown; None where the estimate is not positive and finite."""
    from pairbench.stats import Interval

    value, low, high = _with_ends(column)(record)
    if value is None or not 0 < value < math.inf:
        return None
    return Interval(value, math.nan if low is None else low, math.nan if high is None else high)


def interval_columns(column: str, interval: "Interval") -> dict[str, float | None]:
    """Return the columns of an estimate and of the ends of its interval, null where it has none."""
    low, high = (None if math.isnan(end) else end for end in interval[1:])
    return {column: interval.estimate, f"{column}_low": low, f"{column}_high": high}


@functools.cache  # a site calls it millions of times
def _with_ends(column: str) -> Callable[[Record], tuple[float | None, float | None, float | None]]:
    return attrgetter(column, f"{column}_low", f"{column}_high")
