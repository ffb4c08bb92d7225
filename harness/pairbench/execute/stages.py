"""The three stages of a case inside a worker: verify, time, profile. Every entry comes back exactly once."""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pairbench.execute import launches, memory
from pairbench.execute.audit import audit_automatic, audit_declared
from pairbench.execute.calls import Call, CaptureError, Replay, capture, make_call, reset_compiler, rotate
from pairbench.execute.do_bench import time_with_do_bench
from pairbench.execute.faults import explain
from pairbench.execute.inputs import build_inputs
from pairbench.execute.judge import judge
from pairbench.execute.measure import EntryTimeoutError, Timed, time_entries
from pairbench.execute.probe import torch_device
from pairbench.execute.protocol import CaseJob, Ended, Hello, ProfileCase, TimeCase, VerifyCase, without_baseline
from pairbench.execute.stopping import Stopping
from pairbench.execute.telemetry import Recorder, open_nvml
from pairbench.execute.timers import CudaTimer, DeviceClock, HostTimer, Timer
from pairbench.execute.trees import copy_tree, refill
from pairbench.execute.verify import (
    SEEDS,
    Reference,
    SuiteFaultError,
    check_baseline,
    make_reference,
    synchronize,
    verify_entry,
)
from pairbench.execute.watch import NOBODY, Watch
from pairbench.model.operator import Operator
from pairbench.model.outcome import Launches, Profile, Status, Verification
from pairbench.model.plan import Entry

_RECHECK_SEED = 2


def run_stage(job: CaseJob, operator: Operator, hello: Hello, watch: Watch) -> Iterator[Any]:
    """Yield the results of one stage of one case."""
    reset_compiler()
    device = torch_device(hello.device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    try:
        match job:
            case VerifyCase():
                yield from _verify(job, operator, watch, device)
            case TimeCase():
                yield from _time(job, operator, hello, watch, device)
            case ProfileCase():
                yield from _profile(job, operator, watch, device)
    except SuiteFaultError as error:
        yield Ended(entry=None, status=error.status, reason=error.reason)
    except Exception as error:
        status, reason = explain(error)
        yield Ended(entry=None, status=status, reason=reason)


def _guarded(job: CaseJob, index: int, watch: Watch, step: Callable[[], Any]) -> Any:
    """Run one entry's step; what it raises becomes that entry's end."""
    entry = job.entries[index]
    try:
        with watch.entry(index):
            return step()
    except SuiteFaultError:
        raise
    except (Exception, SystemExit) as error:
        status, reason = explain(error)
        return Ended(entry=entry, status=status, reason=reason)


def _verify(job: VerifyCase, operator: Operator, watch: Watch, device: torch.device) -> Iterator[Any]:
    references, ended = _references(job, operator, watch, device)
    yield from ended
    if not references:
        return
    found = audit_automatic(operator, references[0]) if job.automatic_impostors else []
    yield from found
    if let_through := [result.impostor for result in found if not result.rejected]:
        reason = f"the tolerance lets impostors through ({', '.join(let_through)}), so it cannot tell right from wrong; tighten it"
        yield Ended(entry=None, status=Status.FAILED, reason=reason)
        return
    for index, entry in enumerate(job.entries):
        variant = operator.implementations[entry.implementation]

        def step(entry: Entry = entry, variant: Any = variant) -> Verification:
            if variant.valid is not None and (valid := variant.valid(**copy_tree(references[0].inputs))) is not True:
                why = valid or "its `valid` says that it computes something else"
                return Verification(entry=entry, status=Status.SKIPPED, reason=f"not valid here: {why}")
            return verify_entry(operator, variant, entry, references, device)

        yield _guarded(job, index, watch, step)
    # Last, for an impostor may do worse than be wrong.
    for index, name in enumerate(job.declared_impostors, start=len(job.entries)):
        with watch.entry(index):
            outcome = audit_declared(operator, name, references, device)
        yield outcome


def _references(
    job: VerifyCase, operator: Operator, watch: Watch, device: torch.device
) -> tuple[tuple[Reference, ...], list[Ended]]:
    """Return what is right for each seed; without a baseline to believe, the end of every entry instead."""
    baselines = [index for index, entry in enumerate(job.entries) if entry.role == "baseline"]
    try:
        inputs = [build_inputs(operator, job.case, device, seed) for seed in SEEDS]
    except (Exception, SystemExit) as error:
        status, reason = explain(error)
        raise SuiteFaultError(status, f"inputs() failed: {reason}") from error
    try:
        with watch.entry(baselines[0] if baselines else NOBODY):
            references = tuple(make_reference(operator, given) for given in inputs)
            wrong = check_baseline(references[0])
    except (Exception, SystemExit) as error:
        status, wrong = explain(error)
    else:
        status = Status.MISMATCHED
        if wrong is None:
            return references, []
    # Impostors alone have no entry to end; the end of the case is theirs.
    return (), without_baseline(job.entries, status, wrong) or [Ended(entry=None, status=status, reason=wrong)]


def _time(job: TimeCase, operator: Operator, hello: Hello, watch: Watch, device: torch.device) -> Iterator[Any]:
    inputs = build_inputs(operator, job.case, device, SEEDS[0])
    timer: Timer = CudaTimer(device) if device.type == "cuda" else HostTimer()
    calls: dict[Entry, Call] = {}
    timed: list[Timed] = []
    for index, entry in enumerate(job.entries):

        def step(entry: Entry = entry) -> Call:
            call = make_call(operator, operator.implementations[entry.implementation], entry.mode, inputs)
            call.run()
            synchronize(device)
            return replace(call, run=rotate(call.run)) if isinstance(call.run, Replay) else call

        call = _guarded(job, index, watch, step)
        if isinstance(call, Ended):
            yield call
            continue
        calls[entry] = call
        clock = None
        if isinstance(timer, CudaTimer) and entry.mode != "graph":
            replay = _guarded(job, index, watch, lambda call=call: _replay(call)) if entry in job.capturable else None  # type: ignore[misc]
            clock = DeviceClock(timer, call.run, None if isinstance(replay, Ended) else replay)
        timed.append(Timed(index=index, entry=entry, run=call.run, device_clock=clock))
    if not timed:
        return
    nvml, _ = open_nvml(hello.device.uuid)
    seed = zlib.crc32(f"{job.case.key}:{hello.settings.seed}:{job.round}".encode())
    stopping = Stopping.of(hello.settings)
    try:
        if hello.settings.timer == "do_bench":
            result = time_with_do_bench(timed, round_index=job.round, recorder=Recorder(nvml), watch=watch)
        else:
            result = time_entries(
                timed,
                round_index=job.round,
                timer=timer,
                stopping=stopping,
                recorder=Recorder(nvml),
                watch=watch,
                rng=np.random.default_rng(seed),
            )
    except EntryTimeoutError as error:
        entry = job.entries[error.index]
        reason = f"over the {hello.settings.timeout_s:g} s that one implementation has in a stage, while being timed"
        yield Ended(entry=entry, status=Status.TIMEOUT, reason=reason)
        return
    yield from _recheck(job, operator, calls, inputs, device, watch)
    yield result


def _replay(call: Call) -> Any:
    try:
        return rotate(capture(call.run))
    except CaptureError:
        return None


def _recheck(
    job: TimeCase,
    operator: Operator,
    calls: dict[Entry, Call],
    inputs: dict[str, Any],
    device: torch.device,
    watch: Watch,
) -> Iterator[Ended]:
    """Put fresh inputs at the addresses that were timed, call the very calls that were timed, and judge what comes."""
    fresh = build_inputs(operator, job.case, device, _RECHECK_SEED + job.round)
    baseline = make_call(operator, operator.baseline, "eager", copy_tree(fresh))
    expected = copy_tree(baseline.observe())
    for index, entry in enumerate(job.entries):
        if (call := calls.get(entry)) is None:
            continue

        def step(call: Call = call) -> str | None:
            for _ in range(call.captures):
                refill(inputs, fresh)
                call.refill(fresh)
                outputs = call.observe()
                synchronize(device)
                if wrong := judge(outputs, expected, None, operator.tolerance_for).mismatch:
                    return wrong
            return None

        found = _guarded(job, index, watch, step)
        if isinstance(found, Ended):
            yield found
        elif found is not None:
            reason = f"its timed call is wrong on fresh inputs at the same addresses, so it does not compute from them: {found}"
            yield Ended(entry=entry, status=Status.MISMATCHED, reason=reason)


def _profile(job: ProfileCase, operator: Operator, watch: Watch, device: torch.device) -> Iterator[Any]:
    inputs = build_inputs(operator, job.case, device, SEEDS[0])
    unavailable = launches.unusable() if device.type == "cuda" else None
    for index, entry in enumerate(job.entries):

        def step(entry: Entry = entry) -> Profile:
            return _profile_entry(operator, entry, inputs, device, unavailable)

        yield _guarded(job, index, watch, step)


def _profile_entry(
    operator: Operator, entry: Entry, inputs: dict[str, Any], device: torch.device, unavailable: str | None
) -> Profile:
    variant = operator.implementations[entry.implementation]
    if device.type != "cuda":
        call = make_call(operator, variant, entry.mode, inputs)
        call.run()
        peak, allocations = memory.host_memory(call.run)
        counted = Launches(status="not_applicable")
    else:
        warm = make_call(operator, variant, "eager" if entry.mode == "graph" else entry.mode, inputs)
        warm.run()
        # What a graph needs is allocated once, while it is captured, and held from then on.
        peak, allocations = memory.cuda_memory(warm.run)
        call = make_call(operator, variant, entry.mode, inputs) if entry.mode == "graph" else warm
        if entry.mode == "graph":
            _, allocations = memory.cuda_memory(call.run)
        counted = (
            Launches(status="unavailable", reason=unavailable) if unavailable else launches.count_launches(call.run)
        )
    return Profile(
        entry=entry,
        launches=counted,
        ops=memory.count_ops(call.run),
        peak_bytes=peak,
        allocations=allocations,
        reason=counted.reason,
    )
