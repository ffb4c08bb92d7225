"""The parent's side of a run on one device: verify, time in rounds, then profile, and account for every entry.

Nothing here imports torch. Every planned entry comes back exactly once as an `Outcome`, at the earliest moment that
nothing can change it any more.
"""

import random
from collections.abc import Container
from typing import Protocol

from pairbench.errors import InterruptedRunError
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.host_load import LoadMeter
from pairbench.execute.parent.pool import WorkerContext, Workers
from pairbench.execute.parent.rounds import RoundWorkers
from pairbench.execute.parent.steps import profile_case, time_case, verify_case
from pairbench.model.environment import Device
from pairbench.model.outcome import ImpostorResult, Outcome
from pairbench.model.plan import Entry, Plan, PlannedCase


class Observer(Protocol):
    """Is told how a run goes on."""

    def step(self, device: Device, stage: str, case: str) -> None:
        """A case begins in a stage, such as `verify` or `round 2/3`."""

    def stepped(self, device: Device) -> None:
        """Take notice that the case is through this stage."""

    def finished(self, outcomes: list[Outcome]) -> None:
        """These outcomes are final."""

    def so_far(self, outcomes: list[Outcome]) -> None:
        """These outcomes of one case hold unless another round, the profile, or the end of the run changes them."""


class DeviceSession:
    """A run on one device."""

    def __init__(self, context: WorkerContext, device: Device, plan: Plan, observer: Observer) -> None:
        self._context = context
        self._device = device
        self._observer = observer
        self.states = [CaseState(planned=case) for case in plan.cases]
        self.foreign_cores: list[float | None] = []
        """Processors of the host that others kept busy during each round so far; None where that is not known."""

    def verify(self, *, impostors: bool) -> None:
        """Verify every case, and report what ended there."""
        with Workers(self._context, self._device, interpret=self._device.kind == "cpu") as workers:
            for state in self.states:
                self._observer.step(self._device, "verify", state.planned.case.key)
                verify_case(state, workers, impostors=impostors)
                self._report(state, state.ended)
                self._observer.stepped(self._device)

    def audits(self) -> list[tuple[PlannedCase, ImpostorResult]]:
        """Return what became of the impostors that were tried so far."""
        return [(state.planned, found) for state in self.states for found in state.impostors]

    def time(self, rounds: int, ahead: RoundWorkers) -> None:
        """Time everything that was verified, each round in a fresh worker and in another order of cases."""
        for state in self.timed():
            state.leave_out_baselines()
            self._report(state, state.ended)
        for index in range(rounds):
            states = self.timed()
            if not states:
                return
            random.Random(self._context.settings.seed * 1000 + index).shuffle(states)
            with ahead.round() as (workers,):
                meter = LoadMeter()
                for state in states:
                    self._observer.step(self._device, f"round {index + 1}/{rounds}", state.planned.case.key)
                    time_case(state, workers, index)
                    self._report(state, state.ended)
                    if entries := state.timed():
                        self._observer.so_far([state.outcome(entry) for entry in entries])
                    self._observer.stepped(self._device)
                self.foreign_cores.append(meter.foreign_cores())

    def profile(self) -> None:
        """Count launches, operators and memory of everything that was timed, in a worker that never times; then a case is done.

        Last, so that a run which does not come to its end has latencies.
        """
        with Workers(self._context, self._device) as workers:
            for state in self.timed():
                self._observer.step(self._device, "profile", state.planned.case.key)
                profile_case(state, workers)
                self._report(state, state.planned.entries)
                self._observer.stepped(self._device)

    def interrupt(self, rounds: int) -> None:
        """Account for whatever is not final yet: measured in the rounds that were finished, or skipped.

        Args:
            rounds: How many there should have been; none if nothing was to be timed, so that what was verified stays so.
        """
        for state in self.states:
            state.interrupt(rounds)
            self._report(state, state.planned.entries)

    def run(self, rounds: int) -> None:
        """Go through all stages.

        Raises:
            InterruptedRunError: the user interrupted; everything has been accounted for.
        """
        try:
            with RoundWorkers(lambda: (Workers(self._context, self._device, timed=True),), rounds) as ahead:
                self.verify(impostors=False)
                self.time(rounds, ahead)
            self.profile()
            self.finish()
        except InterruptedRunError:
            self.interrupt(rounds)
            raise

    def measuring_s(self) -> float:
        """Return the time that was spent inside timed calls and their flushes."""
        return sum(timed.measuring_s for state in self.states for timed in state.rounds)

    def judging_s(self) -> float:
        """Return the time that was spent on changing values and on judging what timed calls gave."""
        return sum(timed.judging_s for state in self.states for timed in state.rounds)

    def finish(self) -> None:
        """Report everything that is left: what was verified and is not to be timed."""
        for state in self.states:
            self._report(state, state.planned.entries)

    def timed(self) -> list[CaseState]:
        """Return the cases that have something left to time."""
        for state in self.states:
            state.leave_out_untimed()
        return [state for state in self.states if state.timed()]

    def _report(self, state: CaseState, entries: Container[Entry]) -> None:
        wanted = [entry for entry in state.planned.entries if entry in entries and entry not in state.reported]
        state.reported.update(wanted)
        if wanted:
            self._observer.finished([state.outcome(entry) for entry in wanted])
