"""The parent's side of a run on one device: verify, time in rounds, then profile, and account for every entry.

Every planned entry comes back exactly once as an `Outcome`, as soon as nothing can change it any more.
"""

import functools
import random
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from typing import Protocol

from pairbench.errors import InterruptedRunError
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.host_load import LoadMeter
from pairbench.execute.parent.pool import WorkerContext, Workers, judge_of
from pairbench.execute.parent.rounds import RoundWorkers
from pairbench.execute.parent.side_by_side import SideBySide, count_workers
from pairbench.execute.parent.steps import time_case
from pairbench.model.environment import Device
from pairbench.model.outcome import ImpostorResult, Outcome
from pairbench.model.plan import Entry, Plan, PlannedCase

_LONG_S = 1.0
"""Seconds from which on making an operator's inputs is remarked on."""
_JUDGING = 0.025
"""Part of a run that judging timed calls may take before it is done less often in later rounds: it is to be 3 % of the whole at most."""


class Observer(Protocol):
    def step(self, device: Device, stage: str, case: str) -> None:
        """A case begins in a stage, such as `verify` or `round 2/3`."""

    def stepped(self, device: Device) -> None: ...
    def finished(self, outcomes: list[Outcome]) -> None: ...
    def so_far(self, outcomes: list[Outcome]) -> None:
        """These outcomes of one case hold unless another round, the profile, or the end of the run changes them."""


class DeviceSession:
    def __init__(self, context: WorkerContext, device: Device, plan: Plan, observer: Observer) -> None:
        self._context = context
        self._device = device
        self._observer = observer
        self.states = [CaseState(planned=case) for case in plan.cases]
        self.foreign_cores: list[float | None] = []  # of each round so far; None where it is not known
        self.round_s: dict[CaseState, float] = {}  # of the latest round
        self._began = time.monotonic()

    def verify(self, *, impostors: bool) -> None:
        waiting = iter(self.states)
        with self.verifiers() as verifiers:
            self.verify_with(verifiers, lambda: next(waiting, None), impostors=impostors)

    def verifiers(self) -> SideBySide:
        """Return workers that verify side by side; on a CPU they interpret Triton's kernels."""
        cpu = self._device.kind == "cpu"
        count = count_workers(self._device, len(self.states))
        judges = [judge_of(self._context, self._device, interpret=cpu) for _ in range(count)]
        return SideBySide(
            [Workers(self._context, self._device, interpret=cpu, judge=judge, owns_judge=True) for judge in judges]
        )

    def verify_with(
        self,
        verifiers: SideBySide,
        take: Callable[[], CaseState | None],
        verified: Callable[[CaseState, float], None] = lambda *_: None,
        *,
        impostors: bool = False,
    ) -> None:
        """Verify the cases that `take` gives until None, and report what ended; `verified` is called with each case and its seconds."""

        def done(state: CaseState, took_s: float) -> None:
            self._report(state, state.ended)
            self._observer.stepped(self._device)
            state.spent_s += took_s
            verified(state, took_s)

        verifiers.verify(take, functools.partial(self._begin, "verify"), done, impostors=impostors)

    def _begin(self, stage: str, state: CaseState) -> None:
        self._observer.step(self._device, stage, state.planned.case.key)

    def round_workers(self, rounds: int) -> RoundWorkers:
        """Return workers for some rounds, which begin to load torch."""
        judge = judge_of(self._context, self._device)
        return RoundWorkers(lambda: (Workers(self._context, self._device, timed=True, judge=judge),), rounds, judge)

    def audits(self) -> list[tuple[PlannedCase, ImpostorResult]]:
        return [(state.planned, found) for state in self.states for found in state.impostors]

    def time(self, rounds: int, ahead: RoundWorkers, among: Iterable[CaseState] | None = None) -> None:
        """Time all verified cases, or those given, each round in a fresh worker and in another order of cases."""
        for state in self.timed(among):
            state.leave_out_baselines()
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
            self._begin(name, state)
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
        waiting = iter(states)
        count = count_workers(self._device, len(states))

        def done(state: CaseState, took_s: float) -> None:
            self._observer.stepped(self._device)
            state.spent_s += took_s
            if final:
                self._report(state, state.planned.entries)
            else:
                self.hold(state)

        with SideBySide([Workers(self._context, self._device) for _ in range(count)]) as profilers:
            profilers.profile(lambda: next(waiting, None), functools.partial(self._begin, "profile"), done)

    def interrupt(self, rounds: int) -> None:
        """Account for all that is not final: measured in the finished rounds, or skipped; without rounds, what was verified stays so."""
        for state in self.states:
            state.interrupt(rounds)
            self._report(state, state.planned.entries)

    def run(self, rounds: int, within: Callable[["DeviceSession"], None] | None = None) -> None:
        """Go through all stages, or have `within` do so as far as it can; an interruption is raised once all entries are accounted for."""
        try:
            if within is None:
                with self.round_workers(rounds) as ahead:
                    self.verify(impostors=False)
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

    def finish(self) -> None:
        """Report everything that is left: what was verified and is not to be timed."""
        for state in self.states:
            self._report(state, state.planned.entries)

    def timed(self, among: Iterable[CaseState] | None = None) -> list[CaseState]:
        """Return the cases, of some or of all, that have entries left to time."""
        states = self.states if among is None else list(among)
        for state in states:
            state.leave_out_untimed()
        return [state for state in states if state.timed()]

    def _report(self, state: CaseState, entries: Container[Entry]) -> None:
        wanted = [entry for entry in state.planned.entries if entry in entries and entry not in state.reported]
        state.reported.update(wanted)
        if wanted:
            self._observer.finished([state.outcome(entry) for entry in wanted])
