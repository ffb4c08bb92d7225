"""Time the entries of one case, interleaved: blocks of one sample of each in random order."""

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairbench.execute.stopping import Stopping
from pairbench.execute.telemetry import Recorder
from pairbench.execute.timers import DeviceClock, Timer
from pairbench.execute.watch import Watch
from pairbench.model.outcome import TIME_CAP, EntrySamples, TimedRound
from pairbench.model.plan import Entry

_WARM_UP_S = 0.1
_WARM_UP_BLOCKS = 3
_SHORT_NS = 20e6
_READING_S = 0.02
"""Between two readings of the GPU, about as often as NVML renews them."""


@dataclass(kw_only=True)
class Timed:
    """One entry in the timing loop with the samples that it has so far."""

    index: int
    """Of the entry in the job, for the watch."""
    entry: Entry
    run: Callable[[], Any]
    device_clock: DeviceClock | None = None
    short: bool = False
    """Whether an untimed call goes before each sample, for the host's sake.

    What ran before it in the block has filled the host's caches with other code. Behind a loop of 2048 launches, a
    Triton launch took the host 92 us instead of some 20, and the flush hides 60; a call that takes the device 1.3 ms
    showed 0.2 ms of it. Callers in a loop, and `do_bench`, find the host warm. From 20 ms up it is below 1 %.
    """
    position: list[int] = field(default_factory=list)
    at_ns: list[int] = field(default_factory=list)
    call_ns: list[float] = field(default_factory=list)
    host_ns: list[float | None] = field(default_factory=list)
    device_ns: list[float | None] = field(default_factory=list)

    def samples(self) -> EntrySamples:
        """Return the samples; a latency that is missing in any block is missing altogether."""
        clock = self.device_clock
        graph = self.entry.mode == "graph"
        device = self.call_ns if graph else self.device_ns
        complete = bool(device) and None not in device and (graph or (clock is not None and clock.name is not None))
        return EntrySamples(
            entry=self.entry,
            position=tuple(self.position),
            at_ns=tuple(self.at_ns),
            call_ns=tuple(self.call_ns),
            host_ns=None if None in self.host_ns else tuple(value for value in self.host_ns if value is not None),
            device_ns=tuple(value for value in device if value is not None) if complete else None,
            device_timer=("graph_replay" if graph or clock is None else clock.name) if complete else None,
        )


def time_entries(
    entries: list[Timed],
    *,
    round_index: int,
    timer: Timer,
    stopping: Stopping,
    recorder: Recorder,
    watch: Watch,
    rng: np.random.Generator,
) -> TimedRound:
    """Take blocks until the stopping criterion is met.

    A block during which the GPU throttles is labelled and measured again, as long as time is left for it.
    """
    throttled: list[bool] = []
    gc.collect()
    gc.disable()
    try:
        _warm_up(entries, timer, watch)
        began = time.perf_counter_ns()
        recorder.throttling()
        last_reading, unread, busy_ns = began, 0, 0
        reason: str | None = None
        check_at = 8
        while reason is None:
            block_began = time.perf_counter_ns()
            _take_block(entries, timer, watch, rng, began)
            now = time.perf_counter_ns()
            busy_ns += now - block_began
            unread += 1
            throttled.append(False)
            if now - last_reading >= _READING_S * 1e9:
                if recorder.throttling():
                    throttled[-unread:] = [True] * unread
                last_reading, unread = now, 0
            elapsed = (now - began) / 1e9
            if len(throttled) >= check_at or elapsed >= stopping.seconds:
                check_at = math.ceil(len(throttled) * 1.2)
                good = ~np.array(throttled)
                reason = stopping.reason(int(good.sum()), elapsed, _log_ratios(entries, good))
                if reason is None and elapsed >= stopping.seconds and int(good.sum()) < len(throttled) / 2:
                    reason = TIME_CAP  # throttled throughout: measuring again will not help
    finally:
        gc.enable()
    return TimedRound(
        round=round_index,
        timer=timer.name,
        entries=tuple(entry.samples() for entry in entries),
        throttled=tuple(throttled),
        remeasured=_remeasured(throttled),
        stop_reason=reason,
        telemetry=recorder.summary(),
        measuring_s=busy_ns / 1e9,
    )


def _warm_up(entries: list[Timed], timer: Timer, watch: Watch) -> None:
    """Run every entry until clocks, caches and the entry's own lazy set-up have settled."""
    share = _WARM_UP_S / len(entries)
    for timed in entries:
        with watch.entry(timed.index):
            until, found = time.perf_counter() + share, list[float]()
            while len(found) < _WARM_UP_BLOCKS or time.perf_counter() < until:
                timer.flush()
                found.append(timer.sample(timed.run).call_ns)
                if timed.device_clock is not None:
                    timed.device_clock.sample()
            timed.short = statistics.median(found) < _SHORT_NS


def _take_block(entries: list[Timed], timer: Timer, watch: Watch, rng: np.random.Generator, began: int) -> None:
    for position, place in enumerate(rng.permutation(len(entries))):
        timed = entries[place]
        with watch.entry(timed.index):
            at = time.perf_counter_ns() - began
            if timed.short:
                timed.run()
            timer.flush()
            sample = timer.sample(timed.run)
            timed.position.append(position)
            timed.at_ns.append(at)
            timed.call_ns.append(sample.call_ns)
            timed.host_ns.append(sample.host_ns)
            del sample  # with the outputs, so that the next call finds their memory free
            timed.device_ns.append(timed.device_clock.sample() if timed.device_clock is not None else None)
        if watch.exhausted(timed.index):
            raise EntryTimeoutError(timed.index)


class EntryTimeoutError(Exception):
    """An entry has used up the time that it has in this stage."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def _log_ratios(entries: list[Timed], good: NDArray[np.bool_]) -> list[NDArray[np.float64]]:
    """Return the log ratio of each variant to the baseline of its mode, over the blocks that count."""
    baselines = {timed.entry.mode: np.array(timed.call_ns) for timed in entries if timed.entry.role == "baseline"}
    return [
        np.log(np.array(timed.call_ns)[good] / baselines[timed.entry.mode][good])
        for timed in entries
        if timed.entry.role == "variant" and timed.entry.mode in baselines
    ]


def _remeasured(throttled: list[bool]) -> int:
    """Return how many throttled blocks are left out: all of them, unless the GPU throttled half of the time or more."""
    count = sum(throttled)
    return count if count * 2 < len(throttled) else 0
