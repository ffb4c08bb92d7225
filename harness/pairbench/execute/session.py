"""The parent's side of a run on one device: verify, profile, then time in rounds, and account for every entry.

Nothing here imports torch. Every planned entry comes back exactly once as an `Outcome`, at the earliest moment that
nothing can change it any more.
"""

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pairbench.errors import PairbenchError
from pairbench.execute.pool import InterruptedRunError, Site, WorkerEndedError, WorkerProcess
from pairbench.execute.protocol import CaseJob, Describe, Diagnose, Ended, FindDevices, Probe, ProfileCase, TimeCase, VerifyCase, without_baseline
from pairbench.model.environment import Device, Environment
from pairbench.model.finding import Finding
from pairbench.model.outcome import ImpostorResult, Launches, Outcome, Profile, Status, TimedRound, Verification
from pairbench.model.plan import BrokenSuite, Entry, OperatorDescription, Plan, PlannedCase


class Observer(Protocol):
    """Is told how a run goes on."""

    def step(self, device: Device, stage: str, case: str) -> None:
        """A case begins in a stage, such as `verify` or `round 2/3`."""

    def stepped(self, device: Device) -> None:
        """That case is through this stage."""

    def finished(self, outcomes: list[Outcome]) -> None:
        """These outcomes are final."""


@dataclass(kw_only=True)
class _CaseState:
    """What is known of one planned case so far."""

    planned: PlannedCase
    ended: dict[Entry, tuple[Status, str]] = field(default_factory=dict)
    verified: dict[Entry, Verification] = field(default_factory=dict)
    profiles: dict[Entry, Profile] = field(default_factory=dict)
    rounds: list[TimedRound] = field(default_factory=list)
    impostors: list[ImpostorResult] = field(default_factory=list)
    reported: set[Entry] = field(default_factory=set)

    def open_entries(self) -> tuple[Entry, ...]:
        """Return the entries that nothing has ended yet."""
        return tuple(entry for entry in self.planned.entries if entry not in self.ended)

    def end(self, entry: Entry, status: Status, reason: str) -> None:
        """Note the first end of an entry; later ones are consequences."""
        self.ended.setdefault(entry, (status, reason))

    def outcome(self, entry: Entry) -> Outcome:
        """Return what became of an entry."""
        operator, case = self.planned.operator, self.planned.case
        verification = self.verified.get(entry)
        if entry in self.planned.skipped:
            return Outcome(operator=operator, case=case, entry=entry, status=Status.SKIPPED, reason=self.planned.skipped[entry])
        if entry in self.ended:
            status, reason = self.ended[entry]
            return Outcome(operator=operator, case=case, entry=entry, status=status, reason=reason, verification=verification)
        return Outcome(
            operator=operator,
            case=case,
            entry=entry,
            status=Status.MEASURED if self.rounds else Status.VERIFIED,
            reason=verification.reason if verification else None,
            verification=verification,
            rounds=tuple(self.rounds),
            profile=self.profiles.get(entry),
        )


class Session:
    """A run on one device."""

    def __init__(self, site: Site, device: Device, plan: Plan, observer: Observer) -> None:
        self._site = site
        self._device = device
        self._observer = observer
        self._states = [_CaseState(planned=case) for case in plan.cases]

    def verify(self, *, impostors: bool) -> list[tuple[PlannedCase, list[ImpostorResult]]]:
        """Verify every case; report what ended there, and return what became of the impostors."""
        with _Workers(self._site, self._device, interpret=self._device.kind == "cpu") as workers:
            for state in self._states:
                self._observer.step(self._device, "verify", state.planned.case.key)
                self._verify_case(state, workers, impostors)
                self._report(state, state.ended)
                self._report(state, state.planned.skipped)
                self._observer.stepped(self._device)
        return [(state.planned, state.impostors) for state in self._states]

    def _verify_case(self, state: _CaseState, workers: "_Workers", impostors: bool) -> None:
        declared = tuple(impostor.name for impostor in state.planned.operator.impostors) if impostors else ()
        for entry in state.planned.entries:
            if entry in state.planned.skipped:
                state.ended[entry] = (Status.SKIPPED, state.planned.skipped[entry])
        while remaining := tuple(entry for entry in state.open_entries() if entry not in state.verified):
            job = VerifyCase(**_about(state, remaining), declared_impostors=declared)
            declared = ()  # a crash must not run them again
            for crashed in self._serve(state, workers, job):
                if crashed.role == "baseline":
                    for end in without_baseline(remaining, *state.ended[crashed]):
                        state.end(end.entry, end.status, end.reason)

    def profile(self) -> None:
        """Count launches, operators and memory of everything that is to be timed, in a worker that never times."""
        with _Workers(self._site, self._device) as workers:
            for state in self._timed():
                self._observer.step(self._device, "profile", state.planned.case.key)
                while remaining := tuple(entry for entry in self._timed_entries(state) if entry not in state.profiles):
                    before = dict(state.ended)
                    self._serve(state, workers, ProfileCase(**_about(state, remaining)))
                    for entry in set(state.ended) - set(before):
                        # The call itself was verified: what fails here is the profiling of it.
                        _, reason = state.ended.pop(entry)
                        state.profiles[entry] = unprofiled(entry, reason)
                self._observer.stepped(self._device)

    def time(self, rounds: int) -> None:
        """Time everything that was verified, each round in a fresh worker and in another order of cases."""
        for index in range(rounds):
            states = self._timed()
            random.Random(self._site.settings.seed * 1000 + index).shuffle(states)
            with _Workers(self._site, self._device) as workers:
                for state in states:
                    self._observer.step(self._device, f"round {index + 1}/{rounds}", state.planned.case.key)
                    self._time_case(state, workers, index)
                    self._report(state, state.ended)
                    if index == rounds - 1:
                        self._report(state, state.planned.entries)
                    self._observer.stepped(self._device)

    def _time_case(self, state: _CaseState, workers: "_Workers", index: int) -> None:
        done = len(state.rounds)
        while len(state.rounds) == done and (remaining := self._timed_entries(state)):
            capturable = tuple(entry for entry in remaining if state.verified[entry].uncapturable is None)
            self._serve(state, workers, TimeCase(**_about(state, remaining), round=index, capturable=capturable))

    def interrupt(self, rounds: int) -> None:
        """Account for whatever is not final yet: measured in the rounds that were finished, or skipped."""
        for state in self._states:
            done = len(state.rounds)
            for entry in state.planned.entries:
                if entry in state.planned.skipped or entry in state.ended:
                    continue
                if not done or entry not in state.verified:
                    state.end(entry, Status.SKIPPED, "the run was interrupted before this was measured")
                elif done < rounds:
                    note = f"the run was interrupted after {done} of {rounds} rounds"
                    state.verified[entry] = _with_reason(state.verified[entry], note)
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
        return sum(timed.measuring_s for state in self._states for timed in state.rounds)

    def finish(self) -> None:
        """Report everything that is left: what was verified and is not to be timed."""
        for state in self._states:
            self._report(state, state.planned.entries)

    def _timed(self) -> list[_CaseState]:
        for state in self._states:
            for entry, reason in state.planned.untimed.items():
                state.end(entry, Status.SKIPPED, reason)
        return [state for state in self._states if self._timed_entries(state)]

    def _timed_entries(self, state: _CaseState) -> tuple[Entry, ...]:
        return tuple(entry for entry in state.open_entries() if entry in state.verified)

    def _report(self, state: _CaseState, entries: object) -> None:
        wanted = [entry for entry in state.planned.entries if entry in entries and entry not in state.reported]  # type: ignore[operator]
        state.reported.update(wanted)
        if wanted:
            self._observer.finished([state.outcome(entry) for entry in wanted])

    def _serve(self, state: _CaseState, workers: "_Workers", job: CaseJob) -> tuple[Entry, ...]:
        """Run one job and take in what comes back; what ends the worker ends the entry that ran, or all of them.

        Returns:
            The entries that ended the worker.
        """
        worker = workers.get()
        try:
            for result in worker.request(job):
                match result:
                    case Ended(entry=None):
                        for entry in job.entries:
                            state.end(entry, result.status, result.reason)
                    case Ended():
                        detail = worker.log_line("Assertion") if "assert" in result.reason else None
                        state.end(result.entry, result.status, f"{result.reason} [{detail}]" if detail else result.reason)
                    case Verification():
                        if result.status is Status.VERIFIED:
                            state.verified[result.entry] = result
                        else:
                            state.verified.pop(result.entry, None)
                            state.end(result.entry, result.status, result.reason or "")
                    case TimedRound():
                        state.rounds.append(result)
                    case Profile():
                        state.profiles[result.entry] = result
                    case ImpostorResult():
                        state.impostors.append(result)
        except WorkerEndedError as error:
            blamed = job.entries if error.index < 0 else (job.entries[error.index],)
            for entry in blamed:
                state.end(entry, error.status, error.reason)
            return blamed
        return ()


def _with_reason(verification: Verification, note: str) -> Verification:
    return replace(verification, reason="; ".join(filter(None, (verification.reason, note))))


def unprofiled(entry: Entry, reason: str) -> Profile:
    """Return the profile of an entry whose profiling failed."""
    return Profile(entry=entry, launches=Launches(status="unavailable", reason=reason), reason=f"not profiled: {reason}")


def _about(state: _CaseState, entries: tuple[Entry, ...]) -> dict[str, object]:
    operator = state.planned.operator
    return {"path": Path(operator.suite).absolute(), "operator": operator.name, "case": state.planned.case, "entries": entries}


class _Workers:
    """A worker that is replaced by a fresh one whenever it has ended."""

    def __init__(self, site: Site, device: Device, *, interpret: bool = False) -> None:
        self._start: Callable[[], WorkerProcess] = lambda: WorkerProcess(site, device, interpret=interpret)
        self._worker: WorkerProcess | None = None

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.close()

    def get(self) -> WorkerProcess:
        """Return a worker that is alive."""
        if self._worker is None or not self._worker.alive:
            self._worker = self._start()
        return self._worker


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What there is to measure, and on what."""

    devices: tuple[Device, ...]
    """GPUs first, the CPU last."""
    operators: tuple[OperatorDescription, ...]
    broken: tuple[BrokenSuite, ...]


def survey(site: Site, suites: tuple[tuple[str, Path], ...]) -> Survey:
    """Find the devices and load the suites, in a worker, where nothing that a suite does at import can harm this process.

    Raises:
        PairbenchError: torch cannot be imported.
    """
    operators: list[OperatorDescription] = []
    broken: list[BrokenSuite] = []
    with _Workers(site, Device(selector="any", kind="any", name="any")) as workers:
        try:
            (devices,) = workers.get().request(FindDevices())
        except WorkerEndedError as error:
            raise PairbenchError(f"no device can be found: a worker that imports torch {error.reason}") from error
        for suite, path in suites:
            try:
                for result in workers.get().request(Describe(suite=suite, path=path)):
                    if isinstance(result, BrokenSuite):
                        broken.append(result)
                    else:
                        operators.extend(result)
            except WorkerEndedError as error:
                broken.append(BrokenSuite(suite=suite, reason=f"suite {path.name}: loading it {error.reason}"))
    return Survey(devices=devices, operators=tuple(operators), broken=tuple(broken))


def diagnose_device(site: Site, device: Device) -> tuple[Finding, ...]:
    """Try everything that measuring on a device depends on."""
    found: list[Finding] = []
    try:
        with WorkerProcess(site, device) as worker:
            found.extend(worker.request(Diagnose()))
    except WorkerEndedError as error:
        found.append(Finding(name="Device", state="missing", detail=f"a worker on {device.selector} {error.reason}"))
    return tuple(found)


def probe_environment(site: Site, device: Device) -> Environment:
    """Read a device's environment in a worker.

    Raises:
        PairbenchError: the device cannot be used at all.
    """
    try:
        with WorkerProcess(site, device) as worker:
            (environment,) = worker.request(Probe())
    except WorkerEndedError as error:
        raise PairbenchError(f"{device.selector} ({device.name}) cannot be used: a worker on it {error.reason}") from error
    assert isinstance(environment, Environment)
    return environment
