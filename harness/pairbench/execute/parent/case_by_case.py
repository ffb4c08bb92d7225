"""The stages of a run on one device, taken case by case in the order in which somebody asks, as pytest does."""

from contextlib import AbstractContextManager

from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.pool import WorkerContext, Workers, close_all, judge_of, wait_for
from pairbench.execute.parent.steps import profile_case, time_case, verify_case
from pairbench.model.environment import Device


class CaseByCase(AbstractContextManager["CaseByCase"]):
    """Workers that stay for the whole run: one verifies, one profiles and never times, and each round has its own.

    A round is a process of its own, as in `Session`, only that the rounds of a case follow one another at once. Of all
    the workers one is at work at any time; the others sleep, and have given back what they held of the device.
    """

    def __init__(self, context: WorkerContext, device: Device, *, times: bool) -> None:
        """Start no worker yet, or, where cases are going to be timed, all of them: they get ready while the first case is verified."""
        cpu = device.kind == "cpu"
        judge = judge_of(context, device, interpret=cpu)
        self._verifier = Workers(context, device, interpret=cpu, judge=judge, owns_judge=True)
        self._profiler = Workers(context, device)
        self._judge = judge_of(context, device)
        self._rounds = tuple(
            Workers(context, device, timed=True, judge=self._judge) for _ in range(context.settings.rounds)
        )
        self._awaited = False
        if times:
            for workers in self._timing():
                workers.get()

    def __exit__(self, *_: object) -> None:
        close_all((self._verifier, *self._timing()))

    def verify(self, state: CaseState) -> None:
        verify_case(state, self._verifier, impostors=False)

    def measure(self, state: CaseState) -> None:
        """Time and profile the verified entries of a case."""
        state.leave_out_untimed()
        if not state.timed():
            return
        if not self._awaited:  # before anything is timed: starting a worker takes seconds and several cores
            self._awaited = True
            wait_for(self._timing())
        for index, workers in enumerate(self._rounds):
            time_case(state, workers, index)
        profile_case(state, self._profiler)

    def _timing(self) -> tuple[Workers, ...]:
        return (self._profiler, *self._rounds, *([self._judge] if self._judge else []))
