"""Cases taken one by one, in the order in which somebody asks: by pytest, with all stages of a run, or for a quick look in one process.

In a quick look one worker does everything for a case, so a latency is of one process, which has verified before. What is
wrong is never timed in either, and profiling comes last, so that no process that has profiled ever times.
"""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from pairbench.execute.parent.case_state import CaseState, profile_case, time_case, verify_case
from pairbench.execute.parent.lock import LoadMeter
from pairbench.execute.parent.pool import INTERPRET, WorkerContext, Workers, close_all, judge_of, wait_for
from pairbench.execute.parent.scout import Described, describe_suites, probe_in
from pairbench.model.environment import Device, Environment
from pairbench.model.outcome import NOT_TRIED, Status

_SECONDS, _SAMPLES = 0.25, 30
"""Time for a case, and the samples that are enough where the ratio is known well: no P95 is shown."""


class QuickLook:
    """Looks at cases on one device, each in a process of its own that a server forks."""

    def __init__(self, context: WorkerContext, device: Device) -> None:
        case_seconds = min(context.settings.case_seconds, _SECONDS)
        min_samples = min(context.settings.min_samples, _SAMPLES)
        quick = replace(context.settings, rounds=1, case_seconds=case_seconds, min_samples=min_samples)
        self._context = replace(context, settings=quick)
        self._device, self._workers = device, self._on(device)

    def close(self) -> None:
        self._workers.close()

    def _on(self, device: Device) -> Workers:
        # Nothing but Triton's kernels is interpreted; those are verified on a CPU, and not timed.
        return Workers(self._context, device, interpret=device.kind == "cpu")

    def renew(self, device: Device) -> None:
        """Have the next look in a new process, which is started now, so that nobody has to wait for it."""
        self._workers.close()
        self._device, self._workers = device, self._on(device)
        self._workers.get()

    def describe(self, suites: Iterable[tuple[str, Path]]) -> Described:
        return describe_suites(self._workers, suites)

    def verify(self, state: CaseState) -> None:
        """Verify a case up to the first entry that is wrong; those behind it are skipped."""
        verify_case(state, self._workers, CaseState.wrong)
        for entry in state.unverified():
            state.end(entry, Status.SKIPPED, NOT_TRIED)
        state.leave_out_untimed()

    def time(self, state: CaseState) -> float | None:
        """Time a case once if nothing of it is wrong and a variant is left, and return the cores that others kept busy; None where unknown."""
        if state.wrong() or not any(entry.role == "variant" for entry in state.timed()):
            return None
        meter = LoadMeter()
        time_case(state, self._workers, 0)
        return meter.foreign_cores()

    def probe(self, *, ceilings: bool) -> Environment:
        """Return the environment of a run here, with measured ceilings if asked for. Not after `profile`."""
        found = probe_in(self._workers, self._device, ceilings=ceilings)
        own = {INTERPRET} - os.environ.keys()  # which a process that times in a run has not
        variables = {name: value for name, value in found.rest["variables"].items() if name not in own}
        return replace(found, rest={**found.rest, "variables": variables})

    def profile(self, state: CaseState) -> None:
        if state.rounds:
            profile_case(state, self._workers)


class CaseByCase(AbstractContextManager["CaseByCase"]):
    """Workers that stay for the whole run: one verifies, one profiles and never times, and each round has its own.

    Of all the workers one is at work at any time; the others sleep, and have given back what they held of the device.
    """

    def __init__(self, context: WorkerContext, device: Device, *, times: bool) -> None:
        """Start no worker yet, or, where cases are going to be timed, all of them: they get ready while the first case is verified."""
        cpu = device.kind == "cpu"
        judge = judge_of(context, device, interpret=cpu)
        self._verifier = Workers(context, device, interpret=cpu, judge=judge, owns_judge=True)
        self._profiler = Workers(context, device)
        self._judge = judge_of(context, device, timed=True)
        rounds = range(context.settings.rounds)
        self._rounds = tuple(Workers(context, device, timed=True, judge=self._judge) for _ in rounds)
        self._awaited = False
        if times:
            for workers in self._timing():
                workers.get()

    def __exit__(self, *_: object) -> None:
        close_all((self._verifier, *self._timing()))

    def verify(self, state: CaseState) -> None:
        verify_case(state, self._verifier)

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
