"""The stages of a case inside a worker: verify, time, profile; every entry comes back exactly once. In interleaved timing one case stays open, timed a block at a time."""

import contextlib
import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from pairbench.errors import DeclarationError
from pairbench.execute import protocol
from pairbench.execute.garbage import keep_what_is_there, no_collection
from pairbench.execute.heartbeat import NOBODY, Heartbeat
from pairbench.execute.protocol import CloseCase, OpenCase, Opened, TakeBlock, TakenBlock, WorkerConfig
from pairbench.execute.worker.calls import why_invalid
from pairbench.execute.worker.devices import SEEDS, synchronize, torch_device
from pairbench.execute.worker.faults import SuiteFaultError, explain, is_out_of_memory
from pairbench.execute.worker.flags import order_attention, pin_flags
from pairbench.execute.worker.guard import guarded, of_case
from pairbench.execute.worker.inputs import build_inputs, making
from pairbench.execute.worker.judge.sent import outside_references
from pairbench.execute.worker.process_state import compiler_limits
from pairbench.execute.worker.profile import profile_entries
from pairbench.execute.worker.timing.case import end_of, time_case
from pairbench.execute.worker.timing.measure import Blocks, EntryFailedError, EntryTimeoutError
from pairbench.execute.worker.timing.ready import Ready, make_ready, on_one_core
from pairbench.execute.worker.timing.recheck import judge_timed
from pairbench.execute.worker.trusted import left_running
from pairbench.execute.worker.verify.audit import audit_automatic, audit_declared
from pairbench.execute.worker.verify.case import (
    Expected,
    Reference,
    check_baseline,
    make_expected,
    why_anything_passes,
    why_random,
)
from pairbench.execute.worker.verify.outputs import compare_outputs, fingerprint_outputs, save_outputs
from pairbench.execute.worker.verify.sparing import Held, is_short, less_held
from pairbench.model.case import Case
from pairbench.model.operator import Operator
from pairbench.model.outcome import Status, Verification
from pairbench.model.plan import Entry

_TOLD_S = 0.05
"""Seconds from which the time to make a case's inputs is reported."""
_MORE_SEEDS = range(100, 104)
"""Seeds far from those of verification, for inputs that tell whether small outputs are the same by chance."""


def run_stage(
    job: protocol.CaseJob,
    operator: Operator,
    config: protocol.WorkerConfig,
    heartbeat: Heartbeat,
    line: protocol.ParentLine | None = None,
) -> Iterator[Any]:
    """Yield the results of one stage of one case; `line` leads to the parent, for jobs that are judged outside."""
    device, made_s = begin_case(config, job, operator), making.seconds
    match job:
        case protocol.VerifyCase():
            yield from of_case(_verify(job, operator, heartbeat, device, line))
        case protocol.TimeCase():
            yield from of_case(time_case(job, operator, config, heartbeat, device, line))
        case protocol.ProfileCase():
            yield from of_case(profile_entries(job, operator, heartbeat, device))
        case protocol.FingerprintOutputs():
            yield from of_case(fingerprint_outputs(job, operator, heartbeat, device))
        case protocol.SaveOutputs():
            yield from of_case(save_outputs(job, operator, heartbeat, device))
        case protocol.CompareOutputs():
            yield from of_case(compare_outputs(job, operator, heartbeat, device))
        case protocol.BreakDownCase():
            from pairbench.execute.worker.breakdown.passes import break_down

            yield from of_case(break_down(job, operator, heartbeat, device))
        case protocol.DivergeCase():
            from pairbench.execute.worker.diverge import diverge

            yield from of_case(diverge(job, operator, config, heartbeat, device))
    if (
        isinstance(job, protocol.VerifyCase | protocol.TimeCase | protocol.ProfileCase)
        and (took_s := making.seconds - made_s) >= _TOLD_S
    ):
        yield protocol.InputsMade(seconds=took_s)
    # The next job of this case may be another worker's.
    release(device)


def begin_case(config: protocol.WorkerConfig, job: protocol.CaseJob, operator: Operator) -> torch.device:
    """Set the case's precision, forget what was compiled and cached for earlier cases, and return the device."""
    pin_flags(tf32=job.case.tf32(config.settings.tf32))  # also where a suite has changed it as it was loaded
    reset_compiler(needed=any(entry.mode == "compile" for entry in job.entries))
    if operator.direction:
        # A compiled backward writes over what was saved for it, and so refuses a graph that is retained, unless it is told before.
        import torch._functorch.config

        if hasattr(torch._functorch.config, "donated_buffer"):  # not in releases before it was there
            torch._functorch.config.donated_buffer = operator.direction != "bwd"
    device = torch_device(config.device)
    order_attention(device)
    keep_what_is_there()  # nothing of this case is
    release(device)
    return device


def release(device: torch.device) -> None:
    """Give unused memory of the device back: another worker may need it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def expected_of(
    job: protocol.VerifyCase | protocol.HoldCase, operator: Operator, heartbeat: Heartbeat, device: torch.device
) -> Generator[Any, None, tuple[Expected, ...]]:
    """Return the expected outputs of a case for each seed, and yield the results of its automatic impostors; none where nothing can be judged by them."""
    references, ended = _references(job, operator, heartbeat, device)
    yield from ended
    if not references:
        return ()
    tried = job.automatic_impostors and references[0].outputs is not None
    results = audit_automatic(operator, references[0]) if tried else []
    yield from results
    if let_through := [result.impostor for result in results if not result.rejected]:
        reason = f"the tolerance lets impostors through ({', '.join(let_through)}), so it cannot tell right from wrong; tighten it"
        yield protocol.Ended(entry=None, status=Status.FAILED, reason=reason)
        return ()
    return references


def _verify(
    job: protocol.VerifyCase,
    operator: Operator,
    heartbeat: Heartbeat,
    device: torch.device,
    line: protocol.ParentLine | None,
) -> Iterator[Any]:
    references: tuple[Reference, ...]
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
        variant = operator.implementations[entry.implementation]
        if refused is not None and entry.role == "variant":
            yield from protocol.without_baseline((entry,), refused.status, str(refused.reason))
            continue

        def step(entry: Entry = entry, variant: Any = variant) -> Verification:
            if variant.valid is not None and (why := why_invalid(variant, held.references[0].inputs)):
                return Verification(entry=entry, status=Status.SKIPPED, reason=why)
            return held.verify(variant, entry)

        found = guarded(job, index, heartbeat, step)
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
        raise SuiteFaultError(
            status, reason if isinstance(error, DeclarationError) else f"inputs() failed: {reason}"
        ) from error
    if why := left_running():
        raise SuiteFaultError(Status.FAILED, f"inputs() {why}")
    return inputs


def _references(
    job: protocol.VerifyCase | protocol.HoldCase, operator: Operator, heartbeat: Heartbeat, device: torch.device
) -> tuple[tuple[Expected, ...], list[protocol.Ended]]:
    """Return the expected outputs for each seed; where the baseline itself is wrong, the end of every entry instead."""
    baselines = [index for index, entry in enumerate(job.entries) if entry.role == "baseline"]
    try:
        with heartbeat.entry(baselines[0] if baselines else NOBODY):
            beside = isinstance(job, protocol.VerifyCase) and job.beside
            references, useless = _held_or_sparing(operator, job.case, device, beside=beside)
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
            return references, []
    # Impostors alone have no entry to end; the end of the case is theirs.
    return (), protocol.without_baseline(job.entries, status, wrong) or [
        protocol.Ended(entry=None, status=status, reason=wrong)
    ]


def _held_or_sparing(
    operator: Operator, case: Case, device: torch.device, *, beside: bool
) -> tuple[tuple[Expected, ...], str | None]:
    """Return the references of both seeds, held if there is room, and why the outputs cannot tell right from wrong, or None.

    Raises:
        SuiteFaultError: memory is short, and other workers run beside this one.
    """
    make = functools.partial(_made, operator, device)
    first = [make(case, SEEDS[0])]
    short = is_short(first[0], device)
    if short and beside:
        raise SuiteFaultError(Status.OOM, "out of memory beside other workers that verify")
    if not short:
        try:
            # No generator: what raises may be StopIteration.
            references = tuple([make_expected(operator, given) for given in (first.pop(), make(case, SEEDS[1]))])
            if not any("out of memory" in (one.oracle_missing or "") for one in references):
                more = (build_inputs(operator, case, device, seed) for seed in _MORE_SEEDS)
                return references, why_anything_passes(operator, case, references, more)
        except BaseException as error:
            if not is_out_of_memory(error) and getattr(error, "status", None) is not Status.OOM:
                raise
        references = ()
    first.clear()
    release(device)
    return less_held(operator, case, make, bare=False)


_CONFIG = "torch._dynamo.config"


def reset_compiler(*, needed: bool) -> None:
    """Forget compilations of earlier cases, and fail instead of falling back to eager after too many; if `needed`, load the compiler now."""
    if needed or _CONFIG in sys.modules:
        if _has_compiled():
            torch._dynamo.reset()
        _limit(torch._dynamo.config)
    elif _LIMITS not in sys.meta_path:
        sys.meta_path.insert(0, _LIMITS)


def _has_compiled() -> bool:
    """Return whether anything was compiled since the last reset: an idle reset takes seconds the first time, and a GPU's driver."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    return frames is not None and getattr(frames, "FRAME_COUNTER", 1) > 0


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
            spec.loader.exec_module = functools.partial(_load, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _load(load: Callable[[ModuleType], None], module: ModuleType) -> None:
    load(module)
    _limit(module)


_LIMITS = _LimitsOnLoad()


@dataclass(frozen=True, kw_only=True)
class _Open:
    job: OpenCase
    ready: Ready
    blocks: Blocks


class InterleavedCases:
    def __init__(self, config: WorkerConfig, heartbeat: Heartbeat) -> None:
        self._config = config
        self._heartbeat = heartbeat
        self._open: _Open | None = None
        self._held = contextlib.ExitStack()

    def open(self, job: OpenCase, operator: Operator) -> Iterator[Any]:
        """Yield the ends of entries, or `Opened` if there are none; the case before is dropped."""
        self._drop()
        yield from of_case(self._get_ready(job, operator))

    def _get_ready(self, job: OpenCase, operator: Operator) -> Iterator[Any]:
        device = begin_case(self._config, job, operator)
        ready = yield from make_ready(job, operator, self._config, self._heartbeat, device)
        if len(ready.timed) < len(job.entries):
            return
        self._held.enter_context(no_collection())
        self._held.enter_context(on_one_core(device))
        try:
            blocks = Blocks(
                ready.timed,
                timer=ready.timer,
                recorder=ready.recorder,
                heartbeat=self._heartbeat,
                rng=ready.rng,
                values=ready.values,
                watch=ready.watch,
            )
        except EntryFailedError as error:
            yield end_of(job, self._config, error)
            return
        synchronize(device)
        self._open = _Open(job=job, ready=ready, blocks=blocks)
        yield Opened(lead_in=tuple(timed.lead_in for timed in ready.timed))

    def take(self, job: TakeBlock) -> Iterator[Any]:
        yield from of_case(self._take(job, self._case()))

    def _take(self, job: TakeBlock, case: _Open) -> Iterator[Any]:
        for timed, lead_in in zip(case.ready.timed, job.lead_in, strict=True):
            timed.lead_in = lead_in
        try:
            throttled = case.blocks.take()
        except (EntryTimeoutError, EntryFailedError) as error:
            yield end_of(case.job, self._config, error)
            return
        synchronize(case.ready.device)
        device_ns = (timed.complete_device_ns() for timed in case.ready.timed)
        yield TakenBlock(
            call_ns=tuple(timed.call_ns[-1] for timed in case.ready.timed),
            device_ns=tuple(values[-1] if values else None for values in device_ns),
            throttled=throttled,
            rested_s=case.blocks.rested_s,
        )

    def close(self, job: CloseCase) -> Iterator[Any]:
        """Yield the ends of entries whose timed calls turn out wrong, and the `TimedRound`."""
        case = self._case()
        result, device = case.blocks.result(case.job.round, job.stop_reason), case.ready.device
        yield from of_case(judge_timed(case.ready, result.measuring_s, self._heartbeat))
        del case
        self._drop()
        release(device)
        yield result

    def _case(self) -> _Open:
        if self._open is None:
            raise RuntimeError("no case is open")
        return self._open

    def _drop(self) -> None:
        self._open = None
        self._held.close()
