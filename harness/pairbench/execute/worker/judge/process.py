"""The judge: a process that loads a suite and calls its baseline, its oracle and its declarations, and never a variant.

The worker that calls the variants sends it outputs as bytes (`judge/plain.py`); the parent carries questions and answers between the two, and takes verdicts from
the judge alone. Expected outputs, tolerances, the choice of timed calls and the new values are here, where no variant can read or change them.

In `try` and in `ab`, and in cases that need much of a GPU's memory, judging is in the worker: `verify.case.ExpectedOutputs` and `timing.ready.Ready`
take the places of `judge.sent.OutsideReference` and `judge.elsewhere.Elsewhere`.
"""

import gc
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pairbench.errors import DeclarationError
from pairbench.execute import protocol
from pairbench.execute.garbage import no_collection
from pairbench.execute.protocol import NOBODY, Heartbeat
from pairbench.execute.worker import trusted
from pairbench.execute.worker.calls import make_call, release_memory
from pairbench.execute.worker.guard import SuiteFaultError, TooLargeError, is_out_of_memory, of_case
from pairbench.execute.worker.judge.elsewhere import Elsewhere
from pairbench.execute.worker.judge.plain import as_judged, read
from pairbench.execute.worker.judge.sent import sums
from pairbench.execute.worker.stages import begin_case, expected_of
from pairbench.execute.worker.timing.recheck import judge_case
from pairbench.execute.worker.timing.timers import CudaTimer, DeviceClock, HostTimer
from pairbench.execute.worker.trees import copy_inputs
from pairbench.execute.worker.verify.case import ExpectedOutputs, strays_note
from pairbench.execute.worker.verify.judge import OutputVerdict, worst
from pairbench.model.operator import Operator
from pairbench.model.outcome import Status

_WARM_UP_S, _SECONDS = 0.003, 0.01
"""Seconds in which the baseline warms up, and in which it is timed alone, if `_FEWEST` calls fit into them."""
_FEWEST, _FEWEST_LONG, _LONG_NS, _MOST = 6, 3, 50e6, 200
"""Fewest timed calls, fewest where a call takes `_LONG_NS` or more, that length, and most timed calls."""
_PART = 0.25
"""Part of a GPU's free memory that inputs and a call of the baseline may take here, and part of its whole memory beyond which this process says that it `HoldsMuch`."""
_OTHER_DATA = np.zeros(1 << 15)
"""Read before each call, as other implementations read theirs beside it: without, calls of 5 us alone read 2.2 times as quick as beside honest variants."""


class Judge:
    def __init__(self, config: protocol.WorkerConfig, heartbeat: Heartbeat, line: protocol.ParentLine) -> None:
        self._config = config
        self._heartbeat = heartbeat
        self._line = line
        self._references = tuple[ExpectedOutputs, ...]()
        self._verdicts = dict[int, list[OutputVerdict]]()
        self._timed: Elsewhere | None = None
        self._fits = dict[tuple[str, str], bool]()
        """Whether there is room on a GPU for the baseline's calls here, beside those of the worker, by operator and case."""

    def hold(self, job: protocol.HoldCase | protocol.TimeAlone, operator: Operator) -> Iterator[Any]:
        """Yield the results of a case by itself, and hold it in the place of the case before."""
        self._references, self._verdicts, self._timed = (), {}, None
        self._tolerance_for = operator.tolerance_for
        device = begin_case(self._config, replace(job, entries=()), operator)  # nothing is compiled here
        try:
            if isinstance(job, protocol.TimeAlone):
                self._timed = Elsewhere(job, operator, device, self._line)
                yield from of_case(self._time_alone(job, self._timed))
            else:
                yield from of_case(self._expect(job, operator, device))
        finally:
            release_memory()  # of a GPU, for the worker

    def _expect(self, job: protocol.HoldCase, operator: Operator, device: torch.device) -> Iterator[Any]:
        try:
            references = yield from expected_of(job, operator, self._heartbeat, device)
        except TooLargeError:
            yield protocol.TooLarge()
            return
        if not references:
            return
        try:
            self._references = tuple([_as_judged(reference) for reference in references])
            if device.type == "cuda" and torch.cuda.memory_allocated() > _PART * torch.cuda.mem_get_info()[1]:
                yield protocol.HoldsMuch()
        except DeclarationError as error:
            yield from protocol.without_baseline(job.entries, Status.FAILED, str(error))

    def _time_alone(self, job: protocol.TimeAlone, timed: Elsewhere) -> Iterator[Any]:
        operator, on_gpu = timed.operator, timed.device.type == "cuda"
        eager = [index for index, one in enumerate(job.entries) if (one.role, one.mode) == ("baseline", "eager")]
        baseline = eager[0] if eager else NOBODY
        with self._heartbeat.entry(baseline):
            if on_gpu and not self._has_room(timed):
                self._timed = None  # its inputs are not to be held beside the worker's
                yield protocol.TooLarge()
                return
            alone_ns = tuple[float, ...]()
            if baseline != NOBODY and job.takes:
                try:
                    with no_collection(collect=False):
                        alone_ns = _alone_ns(operator, timed.inputs, timed.device)
                except BaseException as error:
                    if not on_gpu or not is_out_of_memory(error):
                        raise
        consumes = any(variant.consumes for variant in operator.implementations.values())
        # A turn on a GPU has replays besides.
        more = on_gpu or operator.direction or operator.state or operator.reset or consumes
        yield protocol.Alone(latency_ns=alone_ns, plain=not more)

    def _has_room(self, timed: Elsewhere) -> bool:
        case = _named(timed)
        if case not in self._fits:
            free, _ = torch.cuda.mem_get_info()
            torch.cuda.reset_peak_memory_stats()
            try:
                make_call(timed.operator, timed.operator.baseline, "eager", copy_inputs(timed.inputs)).observe()
            except BaseException as error:
                if not is_out_of_memory(error):
                    raise
            self._fits[case] = torch.cuda.max_memory_allocated() < _PART * free
        return self._fits[case]

    def serve(self, job: protocol.Inputs | protocol.Outputs | protocol.JudgeTimed) -> Iterator[Any]:
        steps: dict[type, Any] = {
            protocol.Inputs: self._compare,
            protocol.Outputs: self._outputs,
            protocol.JudgeTimed: self._judge_timed,
        }
        yield from of_case(steps[type(job)](job))

    def _compare(self, job: protocol.Inputs) -> Iterator[protocol.Judged]:
        ours = sums(reference.inputs for reference in self._case())
        theirs = dict(job.sums)
        other = next((name for name, total in ours if theirs.get(name) != total), None)
        what = other and f"inputs() makes other values of {other.partition(':')[2]!r} in another process"
        rest = "for the same seed, so nobody can say what is right of them: draw them with `make`, and let them depend on nothing but its seed and the axes"
        yield protocol.Judged(mismatch=what and f"{what} {rest}")

    def _outputs(self, job: protocol.Outputs) -> Iterator[protocol.Judged]:
        references = self._case()
        if self._line.outputs is None or not 0 <= job.seed < len(references):
            raise SuiteFaultError(Status.FAILED, "its worker sent outputs of no inputs")
        verdicts, missing = self._verdicts.setdefault(job.index, []), references[0].oracle_missing
        with self._heartbeat.entry(job.index):
            outputs = read(job.described, self._line.outputs)
            verdicts.append(references[job.seed].judge(outputs, self._tolerance_for))
        wrong = next((item.mismatch for item in verdicts if item.mismatch), None)  # once wrong, an entry stays so
        mismatch = wrong and wrong + (f" ({missing})" if missing else "")
        note = references[0].note or strays_note(verdicts)
        yield protocol.Judged(mismatch=mismatch, correctness=worst(verdicts), note=note)

    def _judge_timed(self, job: protocol.JudgeTimed) -> Iterator[protocol.Ended | protocol.TooLarge]:
        if self._timed is None:
            raise RuntimeError("no case is held")
        timed, lacks, on_gpu = self._timed, False, self._timed.device.type == "cuda"
        timed.take(job)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        with no_collection(collect=False):
            try:
                for ended in judge_case(timed, job.timed.measuring_s, self._heartbeat):
                    lacks |= ended.reason.startswith(protocol.JUDGE_LACKED)
                    yield ended
            finally:
                timed.take_ahead()  # else it would be taken for the next job
        # Where little is needed here, it is the worker that has taken the memory, which is no reason to have it judge.
        if lacks and on_gpu and torch.cuda.max_memory_allocated() > _PART * torch.cuda.mem_get_info()[1]:
            self._fits[_named(timed)], self._timed = False, None
            del timed
            gc.collect()  # what was computed is part of cycles, and the worker needs its memory
            yield protocol.TooLarge()
        release_memory()

    def _case(self) -> tuple[ExpectedOutputs, ...]:
        if not self._references:
            raise RuntimeError("no case is held")
        return self._references


def _named(timed: Elsewhere) -> tuple[str, str]:
    return timed.operator.name, str(timed.job.case.key)


def _as_judged(reference: ExpectedOutputs) -> ExpectedOutputs:
    outputs, oracle = (None if one is None else as_judged(one) for one in (reference.outputs, reference.oracle))
    return replace(reference, outputs=outputs, oracle=oracle)


def _alone_ns(operator: Operator, inputs: dict[str, Any], device: torch.device) -> tuple[float, ...]:
    """Return the latencies of some calls of the eager baseline in ns, on a GPU those on the device, after calls that warm it up."""
    call = make_call(operator, operator.baseline, "eager", inputs)
    # Launches hidden behind a spin take no less than a replay of them, so without a capture a slowed baseline may be missed, and no honest one is accused.
    clock = DeviceClock(CudaTimer(device), call.run, call.reset) if device.type == "cuda" else None
    timer = HostTimer()

    def once() -> float:
        if clock is not None:
            return clock.sample() or math.inf
        call.reset()
        _OTHER_DATA.sum()
        return timer.sample(call.run).call_ns

    began = trusted.perf_counter()
    while (warm_ns := once()) < _LONG_NS and trusted.perf_counter() < began + _WARM_UP_S:
        pass
    taken, fewest = list[float](), _FEWEST if warm_ns < _LONG_NS else _FEWEST_LONG
    began = trusted.perf_counter()
    while len(taken) < fewest or (len(taken) < _MOST and trusted.perf_counter() < began + _SECONDS):
        taken.append(once())
    return () if clock is not None and clock.name is None else tuple(taken)  # where the host cannot be hidden
