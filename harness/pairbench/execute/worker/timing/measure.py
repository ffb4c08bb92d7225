"""Time the entries of one case, interleaved: blocks of one sample of each in random order."""

import contextlib
import functools
import secrets
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairbench.execute.garbage import no_collection
from pairbench.execute.protocol import Heartbeat, ParentLine, Taken
from pairbench.execute.stopping import BlockLatencies, Checks, PairedBlocks, Stopping, remeasured
from pairbench.execute.worker import trusted
from pairbench.execute.worker.graphs import WARM_ENOUGH_S, Reset, Run, nothing
from pairbench.execute.worker.guard import is_fault
from pairbench.execute.worker.judge.plain import readable
from pairbench.execute.worker.timing.timers import DeviceClock, HostTimer, TelemetryRecorder, Throttling, Timer
from pairbench.execute.worker.timing.values import Values, Watch
from pairbench.execute.worker.trees import copy_tree, has_room
from pairbench.model.outcome import EntrySamples, TimedRound
from pairbench.model.plain import Value
from pairbench.model.plan import Entry

_WARM_UP_BLOCKS = 3
_SETTLING_NS = 10e6  # longest time in ns of unrecorded blocks: long calls show nothing of what ran before them
_KEPT = 2
"""Number of first outputs of each entry that are kept for judging; a later one is kept with a chance of this to its number."""
_SAME_BLOCKS = 2
"""First blocks that share new values: a remembered result shows in the second. A round that begins on new values has at least as many."""
_STREAM_FIRST, _STREAM_EVERY = 2, 8
"""The latency of a call's own launches is taken in this block, the next two and every so many: a check needs few samples. Without a lead-in one is enough."""
_TELL_NS, _ASK_NS = 5e6, 50e6
"""Time in ns after which samples are sent to the parent, some 50 us, and after which its answer is waited for."""
_COLUMNS, _HOSTS = ("call_ns", "position", "at_ns", "turn_ns", "host_ns", "device_ns", "stream_ns"), 4
"""Columns of samples, all of which are sent, and the number of those that tell all of what runs on the host."""
_BOTH_CLOCKS = 2  # multiple of its calls' latency that a block may take: on a GPU each call is made again for its clock
Renew = Callable[[], bool]  # puts values in place that no call has seen, and returns whether that was possible


def copy_where_room(outputs: Any, copy: Callable[[Any], Any] = copy_tree) -> Any | None:
    outputs = readable(outputs)
    return copy(outputs) if has_room(outputs) else None


@dataclass(kw_only=True)
class Timed:
    index: int  # index of the entry in the job and in the heartbeat
    entry: Entry
    run: Run
    device_clock: DeviceClock | None = None
    stream_clock: DeviceClock | None = None
    """Times the call's own launches; None where the device's clock does so already, and for graphs, which have one launch."""
    first_call_ns: float | None = None  # latency of the first call in this process, in ns; None where it was not taken
    autotuned: tuple[str, ...] = ()
    reset: Reset = nothing  # restores the call's state and consumed inputs, before the flush and outside of the clock
    observed: Callable[[Any], Any] = lambda outputs: outputs
    """Returns outputs and state of a call that has just ended, given its outputs."""
    copied: Callable[[Any], Any] = copy_where_room  # returns a copy of outputs to be judged later, or None
    lead_in: int = 0
    warm_up_ns: float = 0.0
    first_observed: Any | None = None  # a copy of outputs and state of the first sample, if no call had seen its values
    keepable: int = 0  # timed calls so far whose outputs might be kept: the values had changed since the call before
    kept: list[tuple[int, Any]] = field(default_factory=list)
    """Copies of some timed calls' outputs, with the number of their set of values."""
    position: list[int] = field(default_factory=list)
    at_ns: list[int] = field(default_factory=list)
    turn_ns: list[int] = field(default_factory=list)
    call_ns: list[float] = field(default_factory=list)
    fresh_ns: list[float] = field(default_factory=list)
    """Latencies of the calls whose inputs had other values than the call before, a warm-up call among them perhaps."""
    host_ns: list[float] = field(default_factory=list)
    device_ns: list[float | None] = field(default_factory=list)
    stream_ns: list[float | None] = field(default_factory=list)

    @property
    def is_eager_baseline(self) -> bool:
        return self.entry.role == "baseline" and self.entry.mode == "eager"

    def samples(self) -> EntrySamples:
        """Return the samples; a latency that is missing in any block is missing altogether."""
        device = self.complete_device_ns()
        clock = self.device_clock.name if self.device_clock is not None else "graph_replay"
        return EntrySamples(
            entry=self.entry,
            position=tuple(self.position),
            at_ns=tuple(self.at_ns),
            call_ns=tuple(self.call_ns),
            host_ns=tuple(self.host_ns),
            device_ns=None if device is None else tuple(device),
            device_timer=None if device is None else clock,
            stream_ns=tuple(self.stream_ns) if any(self.stream_ns) else None,
            first_call_ns=self.first_call_ns,
            autotuned=self.autotuned,
        )

    def forget_last(self) -> None:
        """Remove the newest sample; its output, where that was kept, is judged all the same."""
        for name in _COLUMNS:
            getattr(self, name).pop()

    def complete_device_ns(self) -> list[float] | None:
        """Return the device latencies; None where some are missing. The call of a graph is the device's time already."""
        if self.entry.mode == "graph":
            return self.call_ns
        if self.device_clock is None or self.device_clock.name is None:
            return None
        known = [value for value in self.device_ns if value is not None]
        return known if known and len(known) == len(self.device_ns) else None

    def latencies(self) -> BlockLatencies:
        return BlockLatencies(self.call_ns, self.complete_device_ns())


def baseline_last(entries: Iterable[Timed]) -> list[Timed]:
    """Return entries with the eager baseline last, so that no other finds its outputs."""
    return sorted(entries, key=lambda timed: timed.is_eager_baseline)


class Setup(Value):
    """The entries of a case, and what they are timed with."""

    timed: list[Timed]
    heartbeat: Heartbeat
    timer: Timer
    recorder: TelemetryRecorder
    rng: np.random.Generator
    values: Values
    watch: Watch


def time_entries(
    setup: Setup, *, round_index: int, stopping: Stopping, renew: Renew | None = None, parent: ParentLine | None = None
) -> TimedRound:
    """Take blocks until the stopping criterion is met. A block during which the GPU throttles is labelled and measured again, as long as time is left."""
    checks = Checks(stopping)
    reason: str | None = None
    with no_collection():
        blocks = Blocks(setup, renew=renew, parent=parent, longest_s=stopping.longest_s)
        paired = functools.partial(_paired_blocks, setup.timed)
        while reason is None:
            blocks.take()
            if blocks.may_end:
                reason = checks.reason(blocks.throttled, blocks.elapsed_s, paired)
    return blocks.result(round_index, reason)


class Blocks:
    def __init__(
        self, setup: Setup, *, renew: Renew | None = None, parent: ParentLine | None = None, longest_s: float = 0.0
    ) -> None:
        """Warm the entries up; `parent` receives samples soon after they are taken, and after `longest_s` seconds no block begins."""
        self._setup, self._heartbeat = setup, setup.heartbeat
        self._entries, self._values = setup.timed, setup.values
        self._changed_ns = trusted.perf_counter_ns()
        self._renewed = False  # whether the inputs of the first block have values that no call was made on before
        self._began = trusted.perf_counter_ns()
        _warm_up(setup)
        clocks = [timed.device_clock for timed in self._entries if timed.device_clock is not None]
        self._throttling = Throttling(setup.recorder, clocks)
        block_ns = max(sum((timed.lead_in + 1) * timed.warm_up_ns for timed in self._entries), 1.0)
        for _ in range(min(setup.timer.settling, int(_SETTLING_NS / block_ns))):
            self._take_block()
            for timed in self._entries:
                timed.forget_last()
        # The first sample of entries without a lead-in is taken on values that no call has seen, if there is time for a second: no further call on new values is needed.
        two_fit = _BOTH_CLOCKS * block_ns < longest_s * 1e9
        self._renewed = renew is not None and two_fit and any(not timed.lead_in for timed in self._entries) and renew()
        self._began = trusted.perf_counter_ns()
        self._busy_s = 0.0
        self._parent = parent
        self._told, self._told_ns, self._since_ns = 0, 0, 0
        self._tell(asks=True)

    @property
    def throttled(self) -> list[bool]:
        return self._throttling.blocks

    @property
    def rested_s(self) -> float:
        return self._throttling.rested_ns / 1e9

    @property
    def elapsed_s(self) -> float:
        """The seconds since the entries were warm, without rests."""
        return (trusted.perf_counter_ns() - self._began) / 1e9 - self.rested_s

    @property
    def may_end(self) -> bool:
        """Whether there are enough blocks. A first one on new values needs a second to compare with, and beside calls with a lead-in a third, whose outputs can be judged."""
        needs_third = self._values.judged and any(timed.lead_in for timed in self._entries)
        return not self._renewed or len(self.throttled) >= _SAME_BLOCKS + int(needs_third)

    def take(self) -> int:
        """Take a block: one sample of each entry, and return the number of newest blocks in which the GPU is now known to have throttled."""
        began_s = self.elapsed_s
        self._take_block()
        self._busy_s += self.elapsed_s - began_s
        now_ns = trusted.perf_counter_ns() - self._began
        if self._parent is not None and now_ns - self._told_ns >= _TELL_NS:
            self._tell(asks=now_ns - self._since_ns >= _ASK_NS)
        return self._throttling.end_block()

    def _tell(self, *, asks: bool) -> None:
        """Send the samples since the last message, which nobody can change from then on; if `asks`, wait for an answer, so that the parent can time it."""
        if self._parent is None:
            return
        until = len(self._entries[0].call_ns)
        blocks = range(self._told, until)
        columns: dict[str, Any] = {
            name: tuple(getattr(timed, name)[block] for block in blocks for timed in self._entries)
            for name in _COLUMNS[: _HOSTS if isinstance(self._setup.timer, HostTimer) else None]
        }
        taken = Taken(**columns, now_ns=trusted.perf_counter_ns() - self._began, since_ns=self._since_ns, asks=asks)
        self._told = until
        if asks:
            self._parent.ask(taken)
            self._since_ns = trusted.perf_counter_ns() - self._began
        else:
            self._parent.send(taken)
        self._told_ns = trusted.perf_counter_ns() - self._began

    def _take_block(self) -> None:
        entries = [self._entries[place] for place in self._setup.rng.permutation(len(self._entries))]
        unseen = self._renewed and not self.throttled
        for position, timed in enumerate(baseline_last(entries) if unseen else entries):
            if timed.lead_in:
                self._throttling.rest()
            with of_entry(timed, self._heartbeat), self._setup.watch.turn(len(self.throttled)):
                at = trusted.perf_counter_ns() - self._began
                for _ in range(timed.lead_in):
                    timed.reset()
                    self._setup.timer.flush()
                    timed.run()
                # After the lead-in, so that what was remembered of it is of other values.
                # Of each call with a lead-in an output is to be judged, also where values change seldom.
                changed = self._change_values(due=self._values.judged and timed.lead_in > 0 and not timed.keepable)
                timed.reset()
                self._setup.timer.flush()
                on_new = unseen and not timed.lead_in
                keep = functools.partial(self._keep, timed, changed, all_of_it=on_new)
                sample = self._setup.timer.sample(timed.run, keep=keep)
                if on_new:
                    timed.first_observed = sample.kept
                elif sample.kept is not None:
                    timed.kept.append((self._values.current, sample.kept))
                timed.position.append(position)
                timed.at_ns.append(at)
                timed.call_ns.append(sample.call_ns)
                timed.fresh_ns += [sample.call_ns] * changed
                if timed.device_clock is not None:
                    self._change_values()
                timed.device_ns.append(timed.device_clock.sample() if timed.device_clock is not None else None)
                timed.stream_ns.append(self._stream_sample(timed))
                # A call without a lead-in is so long that what is queued before it does not matter, nor can it be made twice more.
                host_ns = self._setup.timer.sample_host(timed.run, timed.reset) if timed.lead_in else None
                timed.host_ns.append(sample.host_ns if host_ns is None else host_ns)
                timed.turn_ns.append(trusted.perf_counter_ns() - self._began - at)
            self._throttling.turn_ns = trusted.perf_counter_ns() - self._began - at
            if self._heartbeat.exhausted(timed.index):
                raise EntryEndedError(timed.index)

    def _stream_sample(self, timed: Timed) -> float | None:
        if timed.stream_clock is None:
            launches_itself = timed.device_clock is not None and timed.device_clock.name == "spin"
            return timed.device_ns[-1] if launches_itself else None
        beyond = len(self.throttled) - _STREAM_FIRST
        due = beyond == 0 or (timed.lead_in > 0 and beyond > 0 and (beyond < 3 or beyond % _STREAM_EVERY == 0))
        return timed.stream_clock.sample() if due else None

    def _change_values(self, *, due: bool = False) -> bool:
        if self._renewed and len(self.throttled) < _SAME_BLOCKS:
            return False
        now = trusted.perf_counter_ns()
        changed = self._values.change((now - self._changed_ns) / 1e9, due=due)
        self._changed_ns = now
        return changed

    def _keep(self, timed: Timed, changed: bool, outputs: Any, *, all_of_it: bool = False) -> Any | None:
        """Return a copy of some outputs, drawn at random so that no call can know, and None of most; on the values of the call before, a remembered result is right."""
        if all_of_it:  # the state as well
            return timed.copied(timed.observed(outputs))
        if not self._values.judged or not (changed or len(self._values.sets) == 1):
            return None
        timed.keepable += 1
        if secrets.randbelow(timed.keepable - 1 + _KEPT) >= _KEPT:
            return None
        return timed.copied(outputs)

    def result(self, round_index: int, stop_reason: str) -> TimedRound:
        self._tell(asks=True)
        self._tell(asks=False)  # how long the answer took
        return TimedRound(
            round=round_index,
            timer=self._setup.timer.name,
            entries=tuple(entry.samples() for entry in self._entries),
            throttled=tuple(self.throttled),
            remeasured=remeasured(self.throttled),
            stop_reason=stop_reason,
            telemetry=self._setup.recorder.summary(),
            measuring_s=self._busy_s,
        )


def _warm_up(setup: Setup) -> None:
    """Run every entry until clocks, caches and the entry's own lazy set-up have settled."""
    timer, share = setup.timer, setup.timer.warm_up_s / len(setup.timed)
    for timed in setup.timed:
        with of_entry(timed, setup.heartbeat), setup.watch.turn(0):
            began, spent, call_ns = trusted.perf_counter(), 0.0, list[float]()
            while spent < share or (len(call_ns) < _WARM_UP_BLOCKS and spent < WARM_ENOUGH_S):
                timed.reset()
                timer.flush()
                call_ns.append(timer.sample(timed.run).call_ns)
                spent = trusted.perf_counter() - began
                if timed.device_clock is not None and spent < WARM_ENOUGH_S:
                    timed.device_clock.sample()
                    spent = trusted.perf_counter() - began
            timed.warm_up_ns = statistics.median(call_ns)
            timed.lead_in = timer.lead_in(timed.warm_up_ns)


@contextlib.contextmanager
def of_entry(timed: Timed, heartbeat: Heartbeat) -> Iterator[None]:
    """Attribute time inside to an entry's heartbeat, and an exception to an `EntryEndedError`."""
    with heartbeat.entry(timed.index):
        try:
            yield
        except BaseException as error:
            if is_fault(error):
                raise
            raise EntryEndedError(timed.index) from error


@dataclass
class EntryEndedError(Exception):
    """An entry raised while it was timed, although it had not before: the cause is the exception. Without a cause, its time is over."""

    index: int


def _paired_blocks(entries: list[Timed], good: NDArray[np.bool_]) -> list[PairedBlocks]:
    """Return each variant beside the baseline of its mode, over the blocks that count."""
    baselines = {timed.entry.mode: timed.latencies() for timed in entries if timed.entry.role == "baseline"}
    variants = [timed for timed in entries if timed.entry.role == "variant" and timed.entry.mode in baselines]
    return [PairedBlocks.of(timed.latencies(), baselines[timed.entry.mode], good) for timed in variants]
