"""Timing one case in a worker: prepare its calls, time them, and verify the very calls that were timed once more."""

import functools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from pairbench.execute.garbage import no_collection
from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import DrawSeed, Ended, ParentLine, TimeCase, WorkerConfig
from pairbench.execute.stopping import Stopping
from pairbench.execute.worker.faults import SuiteFaultError, explain
from pairbench.execute.worker.judge.sent import answer_judge
from pairbench.execute.worker.timing.measure import EntryFailedError, EntryTimeoutError, Timed, of_entry, time_entries
from pairbench.execute.worker.timing.new_values import draw_seed, renew
from pairbench.execute.worker.timing.ready import make_ready, on_one_core
from pairbench.execute.worker.timing.recheck import judge_timed
from pairbench.execute.worker.timing.telemetry import TelemetryRecorder
from pairbench.execute.worker.timing.values import Watch
from pairbench.model.operator import Operator
from pairbench.model.outcome import TIME_CAP, EntrySamples, Status, TimedRound


def time_case(
    job: TimeCase,
    operator: Operator,
    config: WorkerConfig,
    heartbeat: Heartbeat,
    device: torch.device,
    line: ParentLine | None = None,
) -> Iterator[Any]:
    """Yield the ends of entries, and the `TimedRound` of the others; `line` leads to the parent, for jobs that are judged outside."""
    outside = line if job.outside else None
    ready = yield from make_ready(job, operator, config, heartbeat, device)
    draw = draw_seed if outside is None else functools.partial(outside.ask, DrawSeed())
    if config.settings.timer == "do_bench":
        for timed in [one for one in ready.timed if ready.calls[one.entry].variant.consumes]:
            reason = (
                "do_bench cannot restore inputs between its calls, which consumes= asks for; leave out --timer do_bench"
            )
            yield Ended(entry=timed.entry, status=Status.SKIPPED, reason=reason)
            ready.timed.remove(timed)
    if not ready.timed:
        return
    try:
        if config.settings.timer == "do_bench" and operator.reset:
            reason = (
                "do_bench cannot put state back between its calls, which reset= asks for; leave out --timer do_bench"
            )
            raise SuiteFaultError(Status.SKIPPED, reason)
        if config.settings.timer == "do_bench":
            result = time_with_do_bench(
                ready.timed, round_index=job.round, recorder=ready.recorder, heartbeat=heartbeat, watch=ready.watch
            )
        else:
            with on_one_core(device):
                timing = functools.partial(
                    time_entries,
                    round_index=job.round,
                    timer=ready.timer,
                    stopping=Stopping.of(config.settings),
                    recorder=ready.recorder,
                    heartbeat=heartbeat,
                    rng=ready.rng,
                    values=ready.values,
                    watch=ready.watch,
                    renew=functools.partial(renew, ready, heartbeat, draw),
                    parent=outside,
                )
                result = ready.watch.named(lambda: timing(_anew(ready.timed)))
    except (EntryTimeoutError, EntryFailedError) as error:
        yield end_of(job, config, error)
        return
    with no_collection(collect=False):  # a collection takes 60 ms, as long as judging several cases
        if outside is not None:
            judging_s = answer_judge(ready, result.measuring_s, heartbeat, outside)
        else:
            judging_s = yield from judge_timed(ready, result.measuring_s, heartbeat)
    yield replace(result, judging_s=judging_s)


def _anew(entries: list[Timed]) -> list[Timed]:
    """Replace entries by copies without samples, in place."""
    callables = ("run", "reset", "observed", "copied", "device_clock", "stream_clock")
    names = ("index", "entry", *callables, "first_call_ns", "autotuned")
    entries[:] = [Timed(**{name: getattr(timed, name) for name in names}) for timed in entries]
    return entries


def end_of(job: TimeCase, config: WorkerConfig, error: EntryTimeoutError | EntryFailedError) -> Ended:
    status, reason = (
        explain(error.__cause__)
        if error.__cause__ is not None
        else (Status.TIMEOUT, f"over the {config.settings.timeout_s:g} s that one implementation has in a stage")
    )
    return Ended(entry=job.entries[error.index], status=status, reason=f"{reason}, while being timed")


def time_with_do_bench(
    entries: list[Timed], *, round_index: int, recorder: TelemetryRecorder, heartbeat: Heartbeat, watch: Watch
) -> TimedRound:
    """Time each entry with `do_bench`'s defaults and keep its single times; nothing is interleaved."""
    import triton.testing  # here, because a machine without Triton can use every other timer

    began = time.perf_counter_ns()
    taken = []
    for timed in entries:
        with of_entry(timed, heartbeat), watch.turn(0):
            at = time.perf_counter_ns() - began
            timed.reset()
            timed.call_ns = [ms * 1e6 for ms in triton.testing.do_bench(timed.run, return_mode="all")]
            recorder.throttling()
            taken.append(_samples(timed, at))
    return TimedRound(
        round=round_index,
        timer="do_bench",
        entries=tuple(taken),
        throttled=(False,) * max(len(samples.call_ns) for samples in taken),
        remeasured=0,
        stop_reason=TIME_CAP,
        telemetry=recorder.summary(),
        measuring_s=(time.perf_counter_ns() - began) / 1e9,
    )


def _samples(timed: Timed, at: int) -> EntrySamples:
    return EntrySamples(
        entry=timed.entry,
        position=(0,) * len(timed.call_ns),
        at_ns=(at,) * len(timed.call_ns),
        call_ns=tuple(timed.call_ns),
        host_ns=None,
        device_ns=None,
        device_timer=None,
        first_call_ns=timed.first_call_ns,
        autotuned=timed.autotuned,
    )
