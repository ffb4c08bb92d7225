"""The parent's side of a run on one device: verify, time in rounds, then profile, and account for every entry.

Every planned entry comes back exactly once as an `Outcome`, as soon as nothing can change it any more.
What is done side by side, and what is done again: docs/decisions/alone-or-beside.md.
"""

import contextlib
import functools
import itertools
import os
import random
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pairbench.errors import InterruptedRunError
from pairbench.execute.parent.case_state import CaseState, Enough, profile_case, time_case, verify_case
from pairbench.execute.parent.lock import LoadMeter
from pairbench.execute.parent.pool import WorkerContext, Workers, close_all, judge_of, wait_for
from pairbench.model.environment import Device
from pairbench.model.outcome import Outcome, Status
from pairbench.model.plan import Entry, Plan

_MOST = 4
"""Workers at once, each with its judge: on a GPU more of them take longer (docs/decisions/judge-elsewhere.md); on a CPU each has its own copy
of the inputs, and all use the same cores."""
_CASES = 4  # cases for each worker on a CPU: fewer are done before another worker is there
_FEWER = 4  # cases that ran short are done again by the number of workers divided by this
_SCARCE = re.compile(
    r"out of ?memory|MemoryError|MemoryAllocation|alloc\w*[ _]fail|fail\w* to alloc|(can't|cannot|could not|unable to) alloc|(not enough|insufficient) memory",
    re.IGNORECASE,
)
"""What libraries say when memory is short. The word alone will not do: what cannot be captured as a graph asks for pinned memory."""
_SLOW = "still running after"  # what is said of a worker that ran over its time

Take = Callable[[], CaseState | None]  # gives the next case, or None when there is no more
Done = Callable[[CaseState, float], None]
_AHEAD = 8  # most processes that are started at once: each holds some 200 MB
Party = tuple[Workers, ...]  # the workers of one round: one, or one for each of two commits
_LONG_S = 1.0  # seconds from which on making an operator's inputs is remarked on
_JUDGING = 0.025
"""Part of a run that judging timed calls may take before it is done less often in later rounds: it is to be 3 % of the whole at most."""


def count_workers(device: Device, cases: int, cores: int | None = None) -> int:
    """Return how many workers take some cases side by side, on a host with so many cores."""
    cores = cores or os.cpu_count() or 1
    useful = min(cores, cases // _CASES) if device.kind == "cpu" else min(cases, cores // 2)
    return max(1, min(_MOST, useful))


def _ran_short(state: CaseState) -> bool:
    """Return whether anything of a case ended, or was judged without an oracle, for want of memory or of time."""
    missed = [why for found in state.verified.values() for why in (found.reason, found.uncapturable) if why]
    whys = [*missed, *(reason for _, reason in state.ended.values())]
    short = any(status in (Status.OOM, Status.TIMEOUT) for status, _ in state.ended.values())
    return short or any(map(_SCARCE.search, whys))


def _unprofiled(state: CaseState) -> bool:
    """Return whether profiling failed for lack of memory or time; a driver that forbids profiling does not count."""
    whys = [found.launches.reason or "" for found in state.profiles.values() if found.launches.status == "unavailable"]
    return any(_SCARCE.search(why) or _SLOW in why for why in whys)


class RoundWorkers(AbstractContextManager["RoundWorkers"]):
    """Gives each round workers of its own. No process starts while something is timed, but for one that ended too early."""

    def __init__(self, make: Callable[[], Party], rounds: int, judge: Workers | None = None) -> None:
        """Start as many parties as may be at once; `judge` judges in all rounds, and rounds beyond `rounds` wait for their workers."""
        self._make, self._judge = make, judge
        self._ready: deque[Party] = deque()
        self._left = rounds
        self.waited_s = 0.0  # seconds for which rounds had to wait for their workers so far
        self._fill()
        if judge is not None:
            judge.get()

    def __exit__(self, *_: object) -> None:
        close_all(self._all())

    def _all(self) -> list[Workers]:
        return [*itertools.chain(*self._ready), *([self._judge] if self._judge else [])]

    def _fill(self) -> None:
        while self._left and sum(map(len, self._ready)) < _AHEAD:
            party = self._make()
            self._ready.append(party)
            self._left -= 1
            for workers in party:
                workers.get()

    @contextlib.contextmanager
    def round(self) -> Iterator[Party]:
        """Give the workers of the next round, when all that were started have loaded torch; they end with the round."""
        self._left = max(self._left, 0 if self._ready else 1)
        began = time.monotonic()
        self._fill()
        wait_for(self._all())
        self.waited_s += time.monotonic() - began
        party = self._ready.popleft()
        try:
            yield party
        finally:
            close_all(party)


@dataclass(kw_only=True)
class Observer:
    """The functions that hear of a session as it goes on; nobody does unless told."""

    step: Callable[[Device, str, str], None] = lambda *_: None  # a case begins in a stage like `verify` or `round 2/3`
    stepped: Callable[[Device], None] = lambda _: None
    finished: Callable[[list[Outcome]], None] = lambda _: None
    so_far: Callable[[list[Outcome]], None] = lambda _: None
    """These outcomes of one case hold unless another round, the profile, or the end of the run changes them."""


class DeviceSession:
    def __init__(self, context: WorkerContext, device: Device, plan: Plan, observer: Observer) -> None:
        self._context, self._device, self._observer = context, device, observer
        self.states = [CaseState(planned=case) for case in plan.cases]
        self.foreign_cores: list[float | None] = []  # of each round so far; None where it is not known
        self.round_s: dict[CaseState, float] = {}  # of the latest round
        self._began = time.monotonic()

    def verify(self, take: Take | None = None, verified: Done = lambda *_: None, *, impostors: bool = False) -> None:
        """Verify all cases, or those that `take` gives until None, and report what ended; `verified` is called with each case and its seconds."""
        cpu = self._device.kind == "cpu"  # there Triton's kernels are interpreted
        count = count_workers(self._device, len(self.states))

        def done(state: CaseState, took_s: float) -> None:
            self._report(state, state.ended)
            verified(state, took_s)

        judges = (judge_of(self._context, self._device, interpret=cpu) for _ in range(count))
        verifiers = [Workers(self._context, self._device, interpret=cpu, judge=one, owns_judge=True) for one in judges]
        take = take or functools.partial(next, iter(self.states), None)
        step = functools.partial(verify_case, impostors=impostors)
        self._side_by_side("verify", verifiers, step, _ran_short, CaseState.start_over, take, done)

    def _side_by_side(
        self,
        stage: str,
        several: Sequence[Workers],
        step: Callable[[CaseState, Workers, Enough | None], None],
        ran_short: Callable[[CaseState], bool],
        start_over: Callable[[CaseState], None],
        take: Take,
        done: Done,
    ) -> None:
        """Take a step with each case, one after the other in each of several workers, which end then; cases that ran short beside others start over beside fewer.

        Of `take`, `done` and the observer's calls one runs at a time; `done` gets the seconds of a case.
        """
        turn = threading.Lock()
        spent_s = defaultdict[CaseState, float](float)
        width, again = len(several), list[CaseState]()
        stopped = threading.Event()

        def following() -> CaseState | None:
            with turn:
                if (state := take()) is not None:
                    self._observer.step(self._device, stage, state.planned.case.key)
                return state

        def work(workers: Workers) -> None:
            try:
                while not stopped.is_set() and (state := following()) is not None:
                    began = time.monotonic()
                    step(state, workers, ran_short if width > 1 else None)
                    with turn:
                        spent_s[state] += time.monotonic() - began
                        if width > 1 and ran_short(state):
                            start_over(state)
                            again.append(state)
                            continue
                        done(state, spent_s[state])
                        state.spent_s += spent_s[state]
                        self._observer.stepped(self._device)
            except BaseException:
                stopped.set()  # the others end with the case that they are at
                raise

        try:
            while True:
                with ThreadPoolExecutor(width) as threads:
                    for finished in [threads.submit(work, workers) for workers in several[:width]]:
                        finished.result()
                if not again:
                    return
                close_all(several)
                width = max(1, width // _FEWER)
                take, again = functools.partial(next, iter(again), None), []
        finally:
            close_all(several)

    def round_workers(self, rounds: int) -> RoundWorkers:
        """Return workers for some rounds, which begin to load torch."""
        judge = judge_of(self._context, self._device, timed=True)
        return RoundWorkers(lambda: (Workers(self._context, self._device, timed=True, judge=judge),), rounds, judge)

    def time(self, rounds: int, ahead: RoundWorkers, among: Iterable[CaseState] | None = None) -> None:
        """Time all verified cases, or those given, each round in a fresh worker and in another order of cases."""
        for state in self.timed(among):
            state.leave_out_baselines(alternatives=bool(self._context.settings.against))
            self._report(state, state.ended)
        for index in range(rounds):
            states = self.timed(among)
            if not states:
                return
            with ahead.round() as (workers,):
                self.time_round(states, workers, index, f"round {index + 1}/{rounds}")

    def time_round(self, states: list[CaseState], workers: Workers, number: int, name: str) -> None:
        """Time cases once more with the workers of this round, in an order drawn by its number."""
        states = list(states)
        random.Random(self._context.settings.seed * 1000 + number).shuffle(states)
        meter = LoadMeter()
        for state in states:
            self._observer.step(self._device, name, state.planned.case.key)
            began = time.monotonic()
            sparing = self.judging_s() > _JUDGING * (began - self._began)
            time_case(state, workers, len(state.rounds), sparing=sparing)
            self.round_s[state] = time.monotonic() - began
            state.spent_s += self.round_s[state]
            self._report(state, state.ended)
            self.hold(state)
            self._observer.stepped(self._device)
        self.foreign_cores.append(meter.foreign_cores())

    def hold(self, state: CaseState) -> None:
        """Report the outcomes so far of a case, which may not be final."""
        if entries := state.timed():
            self._observer.so_far([state.outcome(entry) for entry in entries])

    def profile(self, among: Iterable[CaseState] | None = None, *, final: bool = True) -> None:
        """Profile all timed cases, or those given, in workers that never time; `final` says that nothing more is done with them."""
        states = self.timed(among)

        def done(state: CaseState, _: float) -> None:
            if final:
                self._report(state, state.planned.entries)
            else:
                self.hold(state)

        profilers = [Workers(self._context, self._device) for _ in range(count_workers(self._device, len(states)))]

        def step(state: CaseState, workers: Workers, _: Enough | None) -> None:
            profile_case(state, workers)

        take = functools.partial(next, iter(states), None)
        self._side_by_side("profile", profilers, step, _unprofiled, lambda state: state.profiles.clear(), take, done)

    def interrupt(self, rounds: int) -> None:
        """Report every entry that has no final outcome yet: as measured in the rounds that were finished, else as skipped; if no rounds were asked for, a verified entry stays verified."""
        for state in self.states:
            state.interrupt(rounds)
        self.finish()

    def run(self, rounds: int, within: Callable[["DeviceSession"], None] | None = None) -> None:
        """Go through all stages, or have `within` do so as far as it can; an interruption is raised once all entries are accounted for."""
        try:
            if within is None:
                with self.round_workers(rounds) as ahead:
                    self.verify()
                    self.time(rounds, ahead)
                self.profile()  # last, so that a run which does not come to its end has latencies
            else:
                within(self)
            self.finish()
        except InterruptedRunError:
            self.interrupt(rounds)
            raise

    def measuring_s(self) -> float:
        """Return the time inside timed calls and their flushes."""
        return sum(timed.measuring_s for state in self.states for timed in state.rounds)

    def judging_s(self) -> float:
        """Return the time of changing values and judging timed calls."""
        return sum(timed.judging_s for state in self.states for timed in state.rounds)

    def slow_inputs(self) -> list[str]:
        """Return a sentence for each operator whose inputs took long to make."""
        inputs_s, spent_s = defaultdict[str, float](float), defaultdict[str, float](float)
        for state in self.states:
            inputs_s[state.planned.operator.name] += state.inputs_s
            spent_s[state.planned.operator.name] += state.spent_s
        advice = ": make them on make.device" if self._device.kind == "cuda" else ""
        return [
            f"making inputs of {name} took {seconds:.0f} s of its {max(spent_s[name], seconds):.0f}{advice}"
            for name, seconds in inputs_s.items()
            if seconds >= _LONG_S
        ]

    def timed(self, among: Iterable[CaseState] | None = None) -> list[CaseState]:
        """Return the cases that still have entries to time: those of `among`, by default of all."""
        states = self.states if among is None else list(among)
        for state in states:
            state.leave_out_untimed()
        return [state for state in states if state.timed()]

    def finish(self) -> None:
        """Report the entries that are left, which were verified and will not be timed."""
        for state in self.states:
            self._report(state, state.planned.entries)

    def _report(self, state: CaseState, entries: Container[Entry]) -> None:
        wanted = [entry for entry in state.planned.entries if entry in entries and entry not in state.reported]
        state.reported.update(wanted)
        if wanted:
            self._observer.finished([state.outcome(entry) for entry in wanted])
