"""Timing by Triton's own `do_bench`, for those who want its numbers: one implementation after the other."""

import time

from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.worker.timing.measure import Timed
from pairbench.execute.worker.timing.telemetry import TelemetryRecorder
from pairbench.model.outcome import TIME_CAP, EntrySamples, TimedRound


def time_with_do_bench(
    entries: list[Timed], *, round_index: int, recorder: TelemetryRecorder, heartbeat: Heartbeat
) -> TimedRound:
    """Time each entry with `do_bench`'s defaults and keep its single times; nothing is interleaved."""
    import triton.testing  # here, because a machine without Triton can use every other timer

    began = time.perf_counter_ns()
    found = []
    for timed in entries:
        with heartbeat.entry(timed.index):
            at = time.perf_counter_ns() - began
            times = triton.testing.do_bench(timed.run, return_mode="all")
            recorder.throttling()
            found.append(_samples(timed, at, [value * 1e6 for value in times]))
    return TimedRound(
        round=round_index,
        timer="do_bench",
        entries=tuple(found),
        throttled=(False,) * max(len(samples.call_ns) for samples in found),
        remeasured=0,
        stop_reason=TIME_CAP,
        telemetry=recorder.summary(),
        measuring_s=(time.perf_counter_ns() - began) / 1e9,
    )


def _samples(timed: Timed, at: int, times: list[float]) -> EntrySamples:
    return EntrySamples(
        entry=timed.entry,
        position=(0,) * len(times),
        at_ns=(at,) * len(times),
        call_ns=tuple(times),
        host_ns=None,
        device_ns=None,
        device_timer=None,
        first_call_ns=timed.first_call_ns,
    )
