"""One call in torch's profiler, in a worker that never times anything: its launches, its memory, its operators, and whether profiling changes its outputs.

A profiler may lose records, and an empty trace looks like a call that launches nothing. So a count is believed only if the sentinel kernels before and after the
calls are in the trace, and if 1, 2 and 4 calls give exactly 1, 2 and 4 times as much of everything.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import math
import re
import shutil
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import add
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch.autograd.profiler import profile
from torch.profiler import ProfilerActivity

from pairbench.errors import DeclarationError
from pairbench.execute.protocol import Heartbeat, ProfileCase
from pairbench.execute.worker.calls import SEEDS, Call, build_inputs, make_call, synchronize
from pairbench.execute.worker.graphs import Reset, Run
from pairbench.execute.worker.guard import each_entry
from pairbench.execute.worker.modules import TransparentMode, noting
from pairbench.execute.worker.trees import copy_tree, has_room, tensors
from pairbench.execute.worker.verify.case import oracle_or_why
from pairbench.execute.worker.verify.judge import Known, judge, same_outputs
from pairbench.model.breakdown import KernelBuild, KernelCount
from pairbench.model.operator import Operator
from pairbench.model.outcome import Launches, Profile
from pairbench.model.plan import Entry
from pairbench.own_folders import held_folder

HOST_CALLS = ("cuda_runtime", "cuda_driver")
DEVICE_ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
SYNCHRONISATION = "Synchronize"  # ending of the names of CUDA calls that wait for the device
SENTINEL_KERNEL = "spin_kernel"  # name of the kernel that `run_sentinel` runs; a trace without it is not complete
CALLS = (1, 2, 4)
_ACTIVITIES = (ProfilerActivity.CUDA,)  # operators are left out: most of a trace, and of the time to profile a call

GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")
_NUMBERS = ("launches", "graph_launches", "syncs", "memcpys", "memcpy_bytes", "memsets")
_PRODUCT = re.compile(
    r"(^|_)(|add|b|badd|addb)mm($|_)|(^|_)(add)?mv$|(^|_)v?dot$|(^|_)(bi)?linear($|_)|matmul|einsum|tensordot|^inner$"
    r"|conv(?!ert)|attention|(^|_)(rnn|lstm|gru)"
)
"""Names of ATen operators that multiply matrices or convolve, those included that stay whole in inference mode."""
_ROUNDED_BY_TF32 = (torch.float32, torch.complex64)
_NOTHING = torch.empty(0, dtype=torch.bool)


class TraceError(Exception):
    """A trace is not complete."""


def run_sentinel() -> None:
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()


def recording(activities: Sequence[ProfilerActivity], *, memory: bool = False) -> profile:
    """Return a profiler. `torch.profiler.profile` would load torch's compiler to read one setting, which took 8 s on the host of an H100."""
    cpu = ProfilerActivity.CPU in activities
    device = "cuda" if ProfilerActivity.CUDA in activities else None
    return profile(use_cpu=cpu, use_device=device, profile_memory=memory, use_kineto=True)


def raw_trace(
    run: Run, activities: Sequence[ProfilerActivity], *, memory: bool = False, keep: Path | None = None
) -> list[Any]:
    """Return the events of a profiled call in Chrome's trace format, and copy them to the file `keep`; outputs live until the recording has ended."""
    with recording(activities, memory=memory) as session:
        outputs = run()
    del outputs
    with held_folder() as folder:
        path = folder / "trace.json"
        session.export_chrome_trace(str(path))
        events: list[Any] = json.loads(path.read_bytes())["traceEvents"]
        if keep is not None:
            shutil.copyfile(path, keep)
    return events


class Counts(NamedTuple):
    numbers: Counter[str]  # how many there are of each of `_NUMBERS`
    kernels: Counter[str]
    kernel_ns: Counter[str]
    builds: Counter[tuple[str, int | None, int | None, int | None]]
    """Number of kernels of each name, registers a thread, bytes of shared memory, and warps a block."""

    def exact(self, times: int = 1) -> dict[str, Any]:
        """Return all that has to be so many times as much in so many calls."""
        kernels = tuple((name, count * times) for name, count in sorted(self.kernels.items()))
        return {**{name: self.numbers[name] * times for name in _NUMBERS}, "kernels": kernels}


def unusable() -> str | None:
    """Start the profiler and return why it cannot count here, or None. Its first session may record nothing, so one with real kernels is thrown away."""
    try:
        raw_trace(lambda: (torch.zeros(16, device="cuda").add_(1), torch.cuda.synchronize()), _ACTIVITIES)
        (counts,) = _trace(lambda: torch.zeros(16, device="cuda"), (1,))
    except (RuntimeError, TraceError) as error:
        driver = "the driver keeps profiling to administrators (NVreg_RestrictProfilingToAdminUsers), allow it"
        advice = f"if other tools hold CUPTI, end them, and if {driver}"
        return f"the profiler records no device activity ({error}); {advice}"
    if (found := (counts.kernels.total(), counts.numbers["syncs"])) != (1, 0):
        return f"of one kernel and no wait the profiler shows {found[0]} and {found[1]}"
    return None


def count_launches(run: Run, reset: Reset | None = None) -> Launches:
    """Count the launches of one call; those of a `reset` before each call are not counted: there are sentinels around each call then."""
    try:
        counted = _trace(run, CALLS) if reset is None else [_each(reset, run, calls) for calls in CALLS]
    except TraceError as error:
        return Launches(status="unreliable", reason=str(error))
    one, last = counted[0], counted[-1]
    for calls, several in zip(CALLS, counted, strict=True):
        found = several.exact()
        wrong = [(name, right) for name, right in one.exact(calls).items() if right != found[name]]
        if said := [f"{name.replace('_', ' ')} {found[name]} instead of {right}" for name, right in wrong]:
            why = f"{calls} calls do not give {calls} times the counts of one: {'; '.join(said)[:300]}"
            return Launches(status="unreliable", reason=why)
    numbers = {**one.exact(), "kernels": one.kernels.total()}
    numbers["launches"] += numbers["graph_launches"]
    return Launches(
        status="exact",
        **numbers,
        kernel_counts=tuple(
            KernelCount(name=name, count=count, total_ns=last.kernel_ns[name] / CALLS[-1])
            for name, count in one.kernels.most_common()
        ),
        kernel_builds=tuple(
            KernelBuild(name=name, registers=registers, shared_bytes=shared_bytes, warps=warps)
            for name, registers, shared_bytes, warps in one.builds
        ),
    )


def _each(reset: Reset, run: Run, calls: int) -> Counts:
    """Count some calls, without the reset before each of them, in one session."""
    turns = itertools.cycle((run, reset))
    reset()
    spans = _trace(lambda: next(turns)(), (1,) * (2 * calls - 1))[::2]  # noqa: PLW0108 (another at each turn)
    return Counts(*(functools.reduce(add, several) for several in zip(*spans, strict=True)))


def _trace(run: Run, groups: tuple[int, ...]) -> list[Counts]:
    """Run groups of calls in one session of the profiler, with a sentinel kernel before and after each, and return the counts of each group."""

    def marked() -> None:
        run_sentinel()
        for calls in groups:
            for _ in range(calls):
                run()
                torch.cuda.synchronize()
            run_sentinel()

    torch.cuda.synchronize()
    events = raw_trace(marked, _ACTIVITIES)
    return [count_events(part, calls) for part, calls in zip(split_events(events, groups), groups, strict=True)]


def split_events(events: Iterable[dict[str, Any]], groups: tuple[int, ...]) -> list[list[dict[str, Any]]]:
    """Split a trace by its groups of calls: the device's events between two sentinels, and the host's between their launches."""
    spans = sorted((event for event in events if event.get("ph") == "X"), key=lambda event: float(event["ts"]))
    host = [event for event in spans if event.get("cat") in HOST_CALLS]
    device = [event for event in spans if event.get("cat") in DEVICE_ACTIVITIES]
    sentinels = [event for event in device if event["cat"] == "kernel" and SENTINEL_KERNEL in event["name"]]
    if len(sentinels) != len(groups) + 1:
        raise TraceError(f"{len(sentinels)} of {len(groups) + 1} sentinel kernels are in the profiler's trace")
    launched = {_correlation(event): event["ts"] for event in host}
    try:
        marks = [(event["ts"], launched[_correlation(event)]) for event in sentinels]
    except KeyError:
        raise TraceError("the launch of a sentinel kernel is not in the profiler's trace") from None
    return [
        [
            *(event for event in device if first[0] < event["ts"] < last[0]),
            *(event for event in host if first[1] < event["ts"] < last[1]),
        ]
        for first, last in itertools.pairwise(marks)
    ]


def count_events(events: Iterable[dict[str, Any]], calls: int) -> Counts:
    """Count the events between two sentinels; the synchronisations that the harness adds, after the first sentinel and after each call, must be there."""
    numbers, kernels, kernel_ns, builds = Counter[str](), Counter[str](), Counter[str](), Counter[Any]()
    launches: set[Any] = set()
    graphs: set[Any] = set()
    for event in events:
        if event["cat"] in HOST_CALLS:
            if event["name"].startswith(GRAPH_LAUNCHES):
                graphs.add(_correlation(event))
            numbers["syncs"] += event["name"].endswith(SYNCHRONISATION)
        elif event["cat"] == "kernel":
            launches.add(_correlation(event))
            kernels[event["name"]] += 1
            kernel_ns[event["name"]] += round(event["dur"] * 1000)
            about = event.get("args", {})
            warps = math.ceil(math.prod(about["block"]) / 32) if "block" in about else None
            builds[event["name"], about.get("registers per thread"), about.get("shared memory"), warps] += 1
        elif event["cat"] == "gpu_memcpy":
            numbers["memcpys"] += 1
            numbers["memcpy_bytes"] += int(event.get("args", {}).get("bytes", 0))
        else:
            numbers["memsets"] += 1
    if numbers["syncs"] < calls + 1:
        known = f"{numbers['syncs']} of the harness's own {calls + 1} synchronisations"
        raise TraceError(f"{known} are in the profiler's trace")
    numbers["syncs"] -= calls + 1
    # By the kernels' correlation ids and not by the host calls' names: the profiler does not know all of those.
    numbers.update(graph_launches=len(graphs), launches=len(launches - graphs))
    return Counts(numbers, kernels, kernel_ns, builds)


def _correlation(event: dict[str, Any]) -> Any:
    return event.get("args", {}).get("correlation")


@contextlib.contextmanager
def _compiled() -> Iterator[list[Any]]:
    """Give the kernels that Triton, or code of torch's compiler, launches meanwhile, with `name`, `n_regs`, `n_spills` and, in Triton's own, `asm`."""
    found = list[Any]()

    def note_launchers(tuner: Any) -> None:
        for one in tuner.launchers:
            known = {key: getattr(one, key, None) for key in ("n_regs", "n_spills")}
            found.append(SimpleNamespace(name=tuner.inductor_meta.get("kernel_name"), metadata=one.config, **known))

    inductor = noting("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", "run", note_launchers)
    with noting("triton.compiler.compiler", "CompiledKernel", "launch_metadata", found.append), inductor:
        yield found


def with_compiled(build: KernelBuild, compiled: Iterable[Any]) -> KernelBuild:
    """Return how a kernel was compiled, with what Triton knows of it."""
    for one in compiled:
        if one.name == build.name and getattr(one, "n_regs", None) in (build.registers, None):
            machine_code = getattr(one, "asm", {}).get("cubin")
            code = machine_code and digest_of_code(machine_code)
            stages = getattr(one.metadata, "num_stages", None)
            return replace(build, spills=getattr(one, "n_spills", None), stages=stages, code=code)
    return build


def digest_of_code(cubin: bytes) -> str | None:
    """Return a digest of the machine code in an ELF file, without its lines and paths; None where there is none."""
    try:
        (at,), (size, count, names) = struct.unpack_from("<Q", cubin, 0x28), struct.unpack_from("<3H", cubin, 0x3A)
        sections = [struct.unpack_from("<IIQQQQ", cubin, at + place * size) for place in range(count)]
        texts = [one for one in sections if cubin[sections[names][4] + one[0] :].startswith(b".text.")]
    except (struct.error, IndexError):
        return None
    code = b"".join(cubin[offset : offset + length] for *_, offset, length in texts)
    return hashlib.sha256(code).hexdigest()[:16] if code else None


def profiled_otherwise(call: Call, inputs: dict[str, Any], device: torch.device) -> str | None:
    """Return a sentence where a profiled call, or one whose operators are counted, gives another output, else None. Outputs too large to copy are not compared."""

    def observed() -> Any:
        if call.operator.state and not call.operator.reset:
            call.refill(inputs)  # else outputs depend on how many calls there were
        return call.observe()

    plain = observed()
    if not has_room(plain, copies=3):
        return None
    expected, kept = copy_tree(plain), dict[str, Any]()
    with recording([ProfilerActivity.CPU]):
        kept["profiled"] = copy_tree(observed())
    count_ops(lambda: kept.update({"watched operator by operator": copy_tree(observed())}))
    synchronize(device)
    tolerance_for, known = call.operator.tolerance_for, Known(inputs)
    for name, outputs in kept.items():
        if same_outputs(outputs, expected) or not judge(outputs, expected, None, tolerance_for, known).mismatch:
            continue
        # Elements beyond the tolerance may still be right; the oracle is asked only here, for it takes long.
        truth, _ = oracle_or_why(call.operator, inputs)
        if wrong := judge(outputs, expected, truth, tolerance_for, known).mismatch:
            return f"computes something else when it is {name}: {wrong}; its counts would be those of another call"
    return None


class _CountOps(TransparentMode):
    """Counts the ATen operators that are dispatched while it is active; those inside of flex attention are not."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.float32_products = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += getattr(func, "namespace", "") == "aten"
        if not self.float32_products and _PRODUCT.search(func.name().rpartition("::")[2].partition(".")[0]):
            self.float32_products = next(iter(tensors([args, kwargs])), _NOTHING).dtype in _ROUNDED_BY_TF32
        return func(*args, **(kwargs or {}))


def count_ops(run: Run) -> tuple[int, bool]:
    """Return how many ATen operators one call dispatches, and whether one is a product or convolution of float32. Operators fused by a compiler or inside a Triton kernel are not dispatched."""
    with _CountOps() as counter:
        run()
    return counter.count, counter.float32_products


def cuda_memory(run: Run) -> tuple[int, int]:
    """Return the peak of allocated bytes above those before, and the number of allocations, of one call on the GPU."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()
    torch.cuda.reset_peak_memory_stats()
    outputs = run()
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    del outputs
    allocations = after["allocation.all.allocated"] - before["allocation.all.allocated"]
    return after["allocated_bytes.all.peak"] - before["allocated_bytes.all.current"], allocations


def host_memory(run: Run) -> tuple[int, int]:
    """Return the peak of allocated bytes above those before, and the number of allocations, of one call on a CPU, as the profiler records them."""
    events = raw_trace(run, (ProfilerActivity.CPU,), memory=True)
    noted = sorted((event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]")
    changes = [change for _, change in noted]
    return max(itertools.accumulate(changes, initial=0)), sum(change > 0 for change in changes)


def profile_entries(job: ProfileCase, operator: Operator, heartbeat: Heartbeat, device: torch.device) -> Iterator[Any]:
    inputs = build_inputs(operator, job.case, device, SEEDS[0])
    unavailable = unusable() if device.type == "cuda" else None

    def step(entry: Entry) -> Profile:
        variant = operator.implementations[entry.implementation]
        # What a graph needs is allocated once, while it is captured, and held from then on.
        warm = make_call(operator, variant, "eager" if entry.mode == "graph" else entry.mode, inputs)
        warm.reset()
        warm.run()
        warm.reset()
        call, counted = warm, Launches(status="not_applicable")
        if device.type != "cuda":
            peak, allocations = host_memory(call.run)
        else:
            with _compiled() as compiled:
                peak, allocations = cuda_memory(warm.run)
            if entry.mode == "graph":
                call = make_call(operator, variant, entry.mode, inputs)
                call.reset()
                _, allocations = cuda_memory(call.run)
            reset = call.reset if operator.reset or variant.consumes else None
            missing = Launches(status="unavailable", reason=unavailable)
            counted = missing if unavailable else count_launches(call.run, reset)
            builds = tuple(with_compiled(one, compiled) for one in counted.kernel_builds or ())
            counted = replace(counted, kernel_builds=builds or None)
        if why := profiled_otherwise(call, inputs, device):
            raise DeclarationError(why)
        call.reset()
        ops, float32_products = count_ops(call.run)
        return Profile(
            entry=entry,
            launches=counted,
            ops=ops,
            float32_precision=("tf32" if operator.tf32 else "ieee") if float32_products else None,
            peak_bytes=peak,
            saved_bytes=call.training.saved_bytes() if call.training else None,
            allocations=allocations,
            reason=counted.reason,
        )

    yield from each_entry(job, heartbeat, step)
