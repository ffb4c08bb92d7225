"""The stages of a case inside a worker: verify, time, profile; every entry comes back exactly once.

To time is to prepare the calls, time them, and verify the very calls that were timed once more. In interleaved timing one case stays open, timed a block at a time.
"""

import contextlib
import functools
import importlib.abc
import importlib.machinery
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from pairbench.errors import DeclarationError
from pairbench.execute import protocol
from pairbench.execute.garbage import keep_what_is_there, no_collection
from pairbench.execute.protocol import NOBODY, CaseJob, Heartbeat, ParentLine, TimeCase, WorkerConfig
from pairbench.execute.stopping import Stopping
from pairbench.execute.worker.calls import (
    SEEDS,
    build_inputs,
    is_compiled,
    making,
    release_memory,
    synchronize,
    torch_device,
)
from pairbench.execute.worker.flags import order_attention, pin_flags
from pairbench.execute.worker.guard import SuiteFaultError, TooLargeError, explain, guarded, is_out_of_memory, of_case
from pairbench.execute.worker.judge.sent import answer_judge, outside_references
from pairbench.execute.worker.process_state import compiler_limits
from pairbench.execute.worker.profile import profile_entries
from pairbench.execute.worker.timing.measure import Blocks, EntryEndedError, Timed, of_entry, time_entries
from pairbench.execute.worker.timing.new_values import draw_seed, renew
from pairbench.execute.worker.timing.ready import Ready, make_ready, on_one_core
from pairbench.execute.worker.timing.recheck import judge_timed
from pairbench.execute.worker.trusted import left_running
from pairbench.execute.worker.verify.audit import audit_automatic, audit_declared, audit_other_inputs
from pairbench.execute.worker.verify.case import References, check_baseline, make_expected, why_random, why_useless
from pairbench.execute.worker.verify.outputs import exchange_outputs
from pairbench.execute.worker.verify.sparing import Held, is_short, less_held
from pairbench.model.case import Case
from pairbench.model.operator import Operator
from pairbench.model.outcome import TIME_CAP, Status, TimedRound, Verification

_TOLD_S = 0.05  # seconds from which the time to make a case's inputs is reported
_VARIES_LITTLE = "the baseline's outputs for other inputs would pass as well: they differ by less than the tolerance"
_MORE_SEEDS = range(100, 104)
"""Seeds of further inputs, on which outputs that are the same for all seeds of verification are compared once more."""
Verifying = protocol.VerifyCase | protocol.HoldCase
Expecting = Generator[Any, None, References]
_CONFIG = "torch._dynamo.config"


def run_stage(
    job: CaseJob, operator: Operator, config: WorkerConfig, heartbeat: Heartbeat, line: ParentLine | None = None
) -> Iterator[Any]:
    """Yield the results of one stage of one case; `line` leads to the parent, for jobs that are judged outside."""
    device, before_s = begin_case(config, job, operator), making.seconds
    given = operator, heartbeat, device
    match job:
        case protocol.VerifyCase():
            stage = _verify(job, *given, line)
        case TimeCase():
            stage = time_case(job, operator, config, heartbeat, line)
        case protocol.ProfileCase():
            stage = profile_entries(job, *given)
        case protocol.FingerprintOutputs() | protocol.SaveOutputs() | protocol.CompareOutputs():
            stage = exchange_outputs(job, *given)
        case protocol.BreakDownCase():
            from pairbench.execute.worker.breakdown.passes import break_down

            stage = break_down(job, *given)
        case protocol.DivergeCase():
            from pairbench.execute.worker.diverge import diverge

            stage = diverge(job, operator, config, heartbeat)
    yield from of_case(stage)
    measures = isinstance(job, protocol.VerifyCase | TimeCase | protocol.ProfileCase)
    if measures and (took_s := making.seconds - before_s) >= _TOLD_S:
        yield protocol.InputsMade(seconds=took_s)
    release_memory()  # the next job of this case may be another worker's


def begin_case(config: WorkerConfig, job: CaseJob, operator: Operator) -> torch.device:
    """Set the case's precision, forget what was compiled and cached for earlier cases, and return the device."""
    pin_flags(tf32=job.case.tf32(config.settings.tf32))  # also where a suite has changed it as it was loaded
    known = operator.implementations
    reset_compiler(needed=any(is_compiled(known[entry.implementation], entry.mode) for entry in job.entries))
    if operator.direction:
        # A compiled backward writes over what was saved for it, and so refuses a graph that is retained, unless it is told before.
        import torch._functorch.config

        if hasattr(torch._functorch.config, "donated_buffer"):  # not in releases before it was there
            torch._functorch.config.donated_buffer = operator.direction != "bwd"
    device = torch_device(config.device)
    order_attention(device)
    keep_what_is_there()  # nothing of this case is
    release_memory()
    return device


def expected_of(job: Verifying, operator: Operator, heartbeat: Heartbeat, device: torch.device) -> Expecting:
    """Return the expected outputs of a case for each seed, and yield the results of its automatic impostors; none where nothing can be judged by them."""
    references = yield from _references(job, operator, heartbeat, device)
    if not references:
        return ()
    tried = job.automatic_impostors and references[0].outputs is not None
    results = audit_automatic(operator, references[0]) if tried else []
    yield from results
    if let_through := [result.impostor for result in results if not result.rejected]:
        reason = f"the tolerance lets impostors through ({', '.join(let_through)}), so it cannot tell right from wrong; tighten it"
        yield protocol.Ended(entry=None, status=Status.FAILED, reason=reason)
        return ()
    more = (build_inputs(operator, job.case, device, seed) for seed in _MORE_SEEDS)
    if tried and (other := audit_other_inputs(operator, job.case, references, more)) is not None:
        if other.rejected:
            yield other
        else:
            return tuple(replace(one, varies_little=_VARIES_LITTLE) for one in references)
    return references


def _verify(
    job: protocol.VerifyCase, operator: Operator, heartbeat: Heartbeat, device: torch.device, line: ParentLine | None
) -> Iterator[Any]:
    references: References
    if job.outside and line is not None:
        inputs = [_made(operator, device, job.case, seed) for seed in SEEDS]
        references = outside_references(inputs, heartbeat, line)
    else:
        references = yield from expected_of(job, operator, heartbeat, device)
    if not references:
        return
    held = Held(operator, job.case, device, references, functools.partial(_made, operator, device))
    del references
    refused: protocol.Ended | Verification | None = None
    for index, entry in enumerate(job.entries):
        if refused is not None and entry.role == "variant":
            yield from protocol.without_baseline((entry,), refused.status, str(refused.reason))
            continue
        found = guarded(job, index, heartbeat, functools.partial(held.verify, entry))
        yield found
        if entry.role == "baseline" and entry.mode == "eager" and found.status is not Status.VERIFIED:
            refused = found
    # Last, for an impostor may do worse than be wrong.
    for index, name in enumerate(job.declared_impostors, start=len(job.entries)):
        with heartbeat.entry(index):
            outcome = audit_declared(operator, name, held.references, device)
        yield outcome


def _made(operator: Operator, device: torch.device, case: Case, seed: int) -> dict[str, Any]:
    try:
        inputs = build_inputs(operator, case, device, seed)
    except BaseException as error:  # of the suite's, as in `guarded`
        status, reason = explain(error)
        # What a declaration lacks is no failure of the function.
        told = reason if isinstance(error, DeclarationError) else f"inputs() failed: {reason}"
        raise SuiteFaultError(status, told) from error
    if why := left_running():
        raise SuiteFaultError(Status.FAILED, f"inputs() {why}")
    return inputs


def _references(job: Verifying, operator: Operator, heartbeat: Heartbeat, device: torch.device) -> Expecting:
    baselines = [index for index, entry in enumerate(job.entries) if entry.role == "baseline"]
    try:
        with heartbeat.entry(baselines[0] if baselines else NOBODY):
            references, useless = _held_or_sparing(job, operator, device)
            wrong = useless or check_baseline(references[0], operator.tolerance_for)
            useless = useless or why_random(operator, references[0], off_the_oracle=bool(wrong))
    except SuiteFaultError:
        raise
    except BaseException as error:  # of the suite's, as in `guarded`
        status, wrong = explain(error)
    else:
        why = useless or left_running()
        status, wrong = (Status.FAILED, why) if why else (Status.MISMATCHED, wrong)
        if wrong is None:
            return references
    # Impostors alone have no entry to end; the end of the case is theirs.
    whole = protocol.Ended(entry=None, status=status, reason=wrong)
    yield from protocol.without_baseline(job.entries, status, wrong) or [whole]
    return ()


def _held_or_sparing(job: Verifying, operator: Operator, device: torch.device) -> tuple[References, str | None]:
    """Return the references of both seeds, held if there is room, and why the outputs cannot tell right from wrong, or None; a TooLargeError where a judge outside lacks memory."""
    case = job.case
    make = functools.partial(_made, operator, device)
    first = [make(case, SEEDS[0])]
    short = is_short(first[0], device)
    if short and isinstance(job, protocol.HoldCase) and device.type == "cuda":
        raise TooLargeError(Status.OOM, "out of memory beside the worker that is judged")
    if not short:
        try:
            # No generator: what raises may be StopIteration.
            references = tuple([make_expected(operator, given) for given in (first.pop(), make(case, SEEDS[1]))])
            if not any("out of memory" in (one.oracle_missing or "") for one in references):
                more = (build_inputs(operator, case, device, seed) for seed in _MORE_SEEDS)
                return references, why_useless(operator, case, references, more)
        except BaseException as error:
            if not is_out_of_memory(error) and getattr(error, "status", None) is not Status.OOM:
                raise
        references = ()
    first.clear()
    release_memory()
    return less_held(operator, case, make, bare=False)


def reset_compiler(*, needed: bool) -> None:
    """Forget compilations of earlier cases, and fail instead of falling back to eager after too many; if `needed`, load the compiler now."""
    if needed or _CONFIG in sys.modules:
        # An idle reset takes seconds the first time, and a GPU's driver: only where anything was compiled since the last one.
        frames = sys.modules.get("torch._dynamo.convert_frame")
        if frames is not None and getattr(frames, "FRAME_COUNTER", 1) > 0:
            torch._dynamo.reset()
        _limit(torch._dynamo.config)
    elif _LIMITS not in sys.meta_path:
        sys.meta_path.insert(0, _LIMITS)


def _limit(config: ModuleType) -> None:
    for name, value in compiler_limits.items():
        if hasattr(config, name):
            setattr(config, name, value)


class _LimitsOnLoad(importlib.abc.MetaPathFinder):
    """Sets the limits as soon as the compiler is loaded, so that they also hold for a call that compiles within itself."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _CONFIG:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_limit(module: ModuleType) -> None:
                load(module)
                _limit(module)

            spec.loader.exec_module = load_and_limit  # type: ignore[method-assign]
        return spec


_LIMITS = _LimitsOnLoad()


class InterleavedCases:
    def __init__(self, config: WorkerConfig, heartbeat: Heartbeat) -> None:
        self._config = config
        self._heartbeat = heartbeat
        self._open: tuple[Ready, Blocks] | None = None
        self._held = contextlib.ExitStack()

    def open(self, job: protocol.OpenCase, operator: Operator) -> Iterator[Any]:
        """Yield the ends of entries, or `Opened` if there are none; the case before is dropped."""
        self._drop()
        yield from of_case(self._get_ready(job, operator))

    def _get_ready(self, job: protocol.OpenCase, operator: Operator) -> Iterator[Any]:
        device = begin_case(self._config, job, operator)
        ready = yield from make_ready(job, operator, self._config, self._heartbeat)
        if len(ready.timed) < len(job.entries):
            return
        self._held.enter_context(no_collection())
        self._held.enter_context(on_one_core(device))
        try:
            self._open = ready, Blocks(ready)
        except EntryEndedError as error:
            yield end_of(job, self._config, error)
            return
        synchronize(device)
        yield protocol.Opened(lead_in=tuple(timed.lead_in for timed in ready.timed))

    def take(self, job: protocol.TakeBlock) -> Iterator[Any]:
        yield from of_case(self._take(job, *self._case()))

    def _take(self, job: protocol.TakeBlock, ready: Ready, blocks: Blocks) -> Iterator[Any]:
        for timed, lead_in in zip(ready.timed, job.lead_in, strict=True):
            timed.lead_in = lead_in
        try:
            throttled = blocks.take()
        except EntryEndedError as error:
            yield end_of(ready.job, self._config, error)
            return
        synchronize(ready.device)
        call_ns = tuple(timed.call_ns[-1] for timed in ready.timed)
        known_ns = (timed.complete_device_ns() for timed in ready.timed)
        device_ns = tuple(values[-1] if values else None for values in known_ns)
        yield protocol.TakenBlock(call_ns=call_ns, device_ns=device_ns, throttled=throttled, rested_s=blocks.rested_s)

    def close(self, job: protocol.CloseCase) -> Iterator[Any]:
        """Yield the ends of entries whose timed calls turn out wrong, and the `TimedRound`."""
        ready, blocks = self._case()
        result = blocks.result(ready.job.round, job.stop_reason)
        yield from of_case(judge_timed(ready, result.measuring_s, self._heartbeat))
        del ready, blocks
        self._drop()
        release_memory()
        yield result

    def _case(self) -> tuple[Ready, Blocks]:
        if self._open is None:
            raise RuntimeError("no case is open")
        return self._open

    def _drop(self) -> None:
        self._open = None
        self._held.close()


def time_case(
    job: TimeCase, operator: Operator, config: WorkerConfig, heartbeat: Heartbeat, line: ParentLine | None = None
) -> Iterator[Any]:
    """Yield the ends of entries, and the `TimedRound` of the others; `line` leads to the parent, for jobs that are judged outside."""
    outside = line if job.outside else None
    ready = yield from make_ready(job, operator, config, heartbeat)
    draw = draw_seed if outside is None else functools.partial(outside.ask, protocol.DrawSeed())
    do_bench = config.settings.timer == "do_bench"
    cannot = "do_bench cannot {} between its calls, which {}= asks for; leave out --timer do_bench"
    if do_bench:
        for timed in [one for one in ready.timed if ready.calls[one.entry].variant.consumes]:
            reason = cannot.format("restore inputs", "consumes")
            yield protocol.Ended(entry=timed.entry, status=Status.SKIPPED, reason=reason)
            ready.timed.remove(timed)
    if not ready.timed:
        return
    try:
        if do_bench and operator.reset:
            raise SuiteFaultError(Status.SKIPPED, cannot.format("put state back", "reset"))
        if do_bench:
            result = time_with_do_bench(ready)
        else:
            with on_one_core(ready.device):
                timing = functools.partial(time_entries, round_index=job.round, stopping=Stopping.of(config.settings))
                on_new = functools.partial(renew, ready, draw)
                result = ready.watch.named(lambda: timing(_anew(ready), renew=on_new, parent=outside))
    except EntryEndedError as error:
        yield end_of(job, config, error)
        return
    with no_collection(collect=False):  # a collection takes 60 ms, as long as judging several cases
        if outside is not None:
            judging_s = answer_judge(ready, result.measuring_s, outside)
        else:
            judging_s = yield from judge_timed(ready, result.measuring_s, heartbeat)
    yield replace(result, judging_s=judging_s)


def _anew(ready: Ready) -> Ready:
    callables = ("run", "reset", "observed", "copied", "device_clock", "stream_clock")
    names = ("index", "entry", *callables, "first_call_ns", "autotuned")
    ready.timed[:] = [Timed(**{name: getattr(timed, name) for name in names}) for timed in ready.timed]
    return ready


def end_of(job: TimeCase, config: WorkerConfig, error: EntryEndedError) -> protocol.Ended:
    status, reason = Status.TIMEOUT, f"over the {config.settings.timeout_s:g} s that one implementation has in a stage"
    if error.__cause__ is not None:
        status, reason = explain(error.__cause__)
    reason = f"{reason}, while being timed"
    # What another has left may be what raises. Not `isinstance`, which runs code of the exception's class.
    unnamed = None if issubclass(type(error.__cause__), DeclarationError | None) else reason
    return protocol.Ended(entry=job.entries[error.index], status=status, reason=reason, unnamed=unnamed)


def time_with_do_bench(ready: Ready) -> TimedRound:
    """Time each entry with `do_bench`'s defaults and keep its single times; nothing is interleaved."""
    import triton.testing  # here, because a machine without Triton can use every other timer

    began = time.perf_counter_ns()
    taken = []
    for timed in ready.timed:
        with of_entry(timed, ready.heartbeat), ready.watch.turn(0):
            at = time.perf_counter_ns() - began
            timed.reset()
            timed.call_ns = [ms * 1e6 for ms in triton.testing.do_bench(timed.run, return_mode="all")]
            timed.position, timed.at_ns = [0] * len(timed.call_ns), [at] * len(timed.call_ns)
            ready.recorder.throttling()
            taken.append(replace(timed.samples(), host_ns=None, device_ns=None, device_timer=None))
    return TimedRound(
        round=ready.job.round,
        timer="do_bench",
        entries=tuple(taken),
        throttled=(False,) * max(len(samples.call_ns) for samples in taken),
        remeasured=0,
        stop_reason=TIME_CAP,
        telemetry=ready.recorder.summary(),
        measuring_s=(time.perf_counter_ns() - began) / 1e9,
    )
