"""The parent's side of a run on one device: verify, profile, then time in rounds, and account for every entry.

Nothing here imports torch. Every planned entry comes back exactly once as an `Outcome`, at the earliest moment that
nothing can change it any more.
"""

import random
from collections.abc import Container
from pathlib import Path
from typing import Any, Protocol

from pairbench.errors import PairbenchError
from pairbench.execute.case_state import CaseState, unprofiled
from pairbench.execute.pool import InterruptedRunError, Site, WorkerEndedError, Workers
from pairbench.execute.protocol import AnyCaseJob, ProfileCase, TimeCase, VerifyCase, without_baseline
from pairbench.model.environment import Device
from pairbench.model.outcome import ImpostorResult, Outcome
from pairbench.model.plan import Entry, Plan, PlannedCase


class Observer(Protocol):
    """Is told how a run goes on."""

    def step(self, device: Device, stage: str, case: str) -> None:
        """A case begins in a stage, such as `verify` or `round 2/3`."""

    def stepped(self, device: Device) -> None:
        """That case is through this stage."""

    def finished(self, outcomes: list[Outcome]) -> None:
        """These outcomes are final."""

    def so_far(self, outcomes: list[Outcome]) -> None:
        """These outcomes of one case hold unless another round, or the end of the run, changes them."""


class Session:
    """A run on one device."""

    def __init__(self, site: Site, device: Device, plan: Plan, observer: Observer) -> None:
        self._site = site
        self._device = device
        self._observer = observer
        self.states = [CaseState(planned=case) for case in plan.cases]

    def verify(self, *, impostors: bool) -> list[tuple[PlannedCase, list[ImpostorResult]]]:
        """Verify every case; report what ended there, and return what became of the impostors."""
        with Workers(self._site, self._device, interpret=self._device.kind == "cpu") as workers:
            for state in self.states:
                self._observer.step(self._device, "verify", state.planned.case.key)
                self._verify_case(state, workers, impostors)
                self._report(state, state.ended)
                self._observer.stepped(self._device)
        return [(state.planned, state.impostors) for state in self.states]

    def _verify_case(self, state: CaseState, workers: Workers, impostors: bool) -> None:
        first = True
        # Without a verified entry there is nothing to judge an impostor by.
        while state.unverified() or (impostors and state.verified and state.untried_impostors()):
            remaining, untried = state.unverified(), state.untried_impostors() if impostors else ()
            job = VerifyCase(**about(state, remaining), automatic_impostors=first, declared_impostors=untried)
            first = False
            for crashed in self._serve(state, workers, job):
                if crashed.role == "baseline":
                    for end in without_baseline(remaining, *state.ended[crashed]):
                        state.take(end, job, lambda _: None)

    def profile(self) -> None:
        """Count launches, operators and memory of everything that is to be timed, in a worker that never times."""
        with Workers(self._site, self._device) as workers:
            for state in self.timed():
                self._observer.step(self._device, "profile", state.planned.case.key)
                while remaining := tuple(entry for entry in state.timed() if entry not in state.profiles):
                    before = dict(state.ended)
                    self._serve(state, workers, ProfileCase(**about(state, remaining)))
                    for entry in set(state.ended) - set(before):
                        # The call itself was verified: what fails here is the profiling of it.
                        _, reason = state.ended.pop(entry)
                        state.profiles[entry] = unprofiled(entry, reason)
                self._observer.stepped(self._device)

    def time(self, rounds: int) -> None:
        """Time everything that was verified, each round in a fresh worker and in another order of cases."""
        for index in range(rounds):
            states = self.timed()
            random.Random(self._site.settings.seed * 1000 + index).shuffle(states)
            with Workers(self._site, self._device) as workers:
                for state in states:
                    self._observer.step(self._device, f"round {index + 1}/{rounds}", state.planned.case.key)
                    self._time_case(state, workers, index)
                    self._report(state, state.ended)
                    if index == rounds - 1:
                        self._report(state, state.planned.entries)
                    elif entries := state.timed():
                        self._observer.so_far([state.outcome(entry) for entry in entries])
                    self._observer.stepped(self._device)

    def _time_case(self, state: CaseState, workers: Workers, index: int) -> None:
        done = len(state.rounds)
        while len(state.rounds) == done and (remaining := state.timed()):
            capturable = tuple(entry for entry in remaining if state.verified[entry].uncapturable is None)
            self._serve(state, workers, TimeCase(**about(state, remaining), round=index, capturable=capturable))

    def interrupt(self, rounds: int) -> None:
        """Account for whatever is not final yet: measured in the rounds that were finished, or skipped."""
        for state in self.states:
            state.interrupt(rounds)
            self._report(state, state.planned.entries)

    def run(self, rounds: int) -> None:
        """Go through all stages.

        Raises:
            InterruptedRunError: the user interrupted; everything has been accounted for.
        """
        try:
            self.verify(impostors=False)
            self.profile()
            self.time(rounds)
            self.finish()
        except InterruptedRunError:
            self.interrupt(rounds)
            raise

    def measuring_s(self) -> float:
        """Return the time that was spent inside timed calls and their flushes."""
        return sum(timed.measuring_s for state in self.states for timed in state.rounds)

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

    def _serve(self, state: CaseState, workers: Workers, job: AnyCaseJob) -> tuple[Entry, ...]:
        """Run one job and take in what comes back; what ends the worker ends what ran.

        Returns:
            The entries that ended the worker.

        Raises:
            PairbenchError: the worker finished without saying anything, which asking again would not change.
        """
        worker = workers.get()
        heard = False
        try:
            for result in worker.request(job):
                state.take(result, job, worker.log_line)
                heard = True
        except WorkerEndedError as error:
            return state.blame(error.index, error.status, error.reason, job)
        if not heard:
            raise PairbenchError(
                f"{state.planned.case.key}: the worker gave no result for {type(job).__name__}; please report this"
            )
        return ()


def about(state: CaseState, entries: tuple[Entry, ...]) -> dict[str, Any]:
    """Return what every job about some entries of a case says."""
    operator = state.planned.operator
    return {
        "path": Path(operator.path),
        "operator": operator.name,
        "case": state.planned.case,
        "entries": entries,
    }
