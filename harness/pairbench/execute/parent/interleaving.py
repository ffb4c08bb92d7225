"""Two sessions on one device, of which only one is ever at work: two commits, whose outputs are compared, measured in turns, block by block.

A second process at work on a GPU makes latencies three times as long. So a side gets its turn only when the other has
said that its device has nothing left to do, and sleeps until then; whatever drifts with time is in both sides alike.
"""

import contextlib
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairbench.errors import PairbenchError
from pairbench.execute import protocol
from pairbench.execute.parent.case_state import CaseState, about
from pairbench.execute.parent.lock import LoadMeter
from pairbench.execute.parent.pool import WorkerContext, WorkerEndedError, Workers
from pairbench.execute.parent.session import DeviceSession, Observer, RoundWorkers
from pairbench.execute.stopping import BlockLatencies, Checks, PairedBlocks, Stopping, remeasured
from pairbench.model.environment import Device
from pairbench.model.outcome import Agreement, OutputsCompared, Status
from pairbench.model.plan import Entry, Plan, PlannedCase

_INPUTS = "the inputs of the two sides differ, so what `inputs` makes depends on more than its definition and the seed"
_SETTLE_S = 0.006
"""Seconds to wait between turns on a CPU, for the threads of an OpenMP pool spin for up to 5 ms after their last work (GNU libgomp)."""
NOT_BOTH = "not timed: the other side did not get that far, so there is nothing to compare with"


class LostError(Exception):
    """An entry ended, or with the worker the whole case did."""


def ask(workers: Workers, state: CaseState, opened: protocol.CaseJob, job: protocol.Job | None = None) -> list[Any]:
    """Return what a job gives, or `job` in the case that it opened, or raise LostError; the ends of entries go to the case."""
    worker = workers.get()
    results: list[Any] = []
    try:
        for result in worker.request(job or opened):
            if isinstance(result, protocol.Ended):
                state.take(result, opened, worker.log.line)
            else:
                results.append(result)
    except WorkerEndedError as error:
        state.blame(error.index, error.status, error.reason, opened)
        results = []
    if not results:
        raise LostError
    return results


def compare_outputs(sides: Sequence[Workers], twin: "SharedCase", file: Path) -> dict[Entry, OutputsCompared]:
    """Return how the outputs of two workers compare, which are exchanged through a file. An entry that fails here is not ended: it was verified, and will be timed."""
    cases, entries = [state.planned for state in twin.states], twin.both()
    told = [_fingerprints(*side, entries) for side in zip(sides, cases, strict=True)]
    compared = {}
    for entry in entries:
        before, now = (texts.get(entry) for texts in told)
        if told[0].get(None) != told[1].get(None):
            compared[entry] = OutputsCompared(entry=entry, agreement=Agreement.UNKNOWN, reason=_INPUTS)
        elif before is not None and before == now:
            compared[entry] = OutputsCompared(entry=entry, agreement=Agreement.EQUAL)
        else:
            compared[entry] = _by_element(sides, cases, entry, file)
    return compared


def _fingerprints(workers: Workers, case: PlannedCase, entries: tuple[Entry, ...]) -> dict[Entry | None, str]:
    state = CaseState(planned=case)
    texts: dict[Entry | None, str] = {}
    while remaining := tuple(entry for entry in entries if entry not in texts and entry not in state.ended):
        with contextlib.suppress(LostError):
            answers = ask(workers, state, protocol.FingerprintOutputs(**about(state, remaining)))
            texts.update({answer.entry: answer.text for answer in answers if isinstance(answer, protocol.Fingerprint)})
    return texts


def _by_element(sides: Sequence[Workers], cases: Sequence[PlannedCase], entry: Entry, file: Path) -> OutputsCompared:
    compared = None
    try:
        for workers, case, kind in zip(sides, cases, (protocol.SaveOutputs, protocol.CompareOutputs), strict=True):
            state = CaseState(planned=case)
            with contextlib.suppress(LostError):
                (compared,) = ask(workers, state, kind(**about(state, (entry,)), file=file))
            if entry in state.ended:
                _, reason = state.ended[entry]
                return OutputsCompared(entry=entry, agreement=Agreement.UNKNOWN, reason=f"not compared: {reason}")
        assert isinstance(compared, OutputsCompared)
        return compared
    finally:
        file.unlink(missing_ok=True)


@dataclass(kw_only=True)
class SharedCase:
    """A case that both sides have, with the same definition: the reference's state first, and how the outputs compare."""

    states: tuple[CaseState, CaseState]
    outputs: dict[Entry, OutputsCompared] = field(default_factory=dict)

    @property
    def current(self) -> CaseState:
        return self.states[1]

    @property
    def key(self) -> str:
        return self.current.planned.case.key

    def both(self) -> tuple[Entry, ...]:
        """Return the entries that were verified on both sides and have not ended on either."""
        theirs = set(self.states[0].timed())
        return tuple(entry for entry in self.current.timed() if entry in theirs)

    def comparable(self) -> tuple[Entry, ...]:
        """Return those of them whose outputs do not contradict each other: the others' times mean nothing."""
        differing = {entry for entry, found in self.outputs.items() if found.agreement is Agreement.DIFFERENT}
        return tuple(entry for entry in self.both() if entry not in differing)


@dataclass(eq=False)
class Interleaving:
    """A comparison of two commits on one device, under its lock. Of the reference, whose plan is the first, cases that the other plan lacks are left alone."""

    contexts: tuple[WorkerContext, WorkerContext]
    device: Device
    plans: tuple[Plan, Plan]
    observer: Observer
    scratch: Path  # folder through which outputs pass

    def __post_init__(self) -> None:
        (reference, current), (before, now) = self.plans, self.contexts
        self._settings = now.settings
        present = {_identity(case) for case in current.cases}
        wanted = tuple(case for case in reference.cases if _identity(case) in present)
        earlier = DeviceSession(before, self.device, replace(reference, cases=wanted), self.observer)
        self.sessions = (earlier, DeviceSession(now, self.device, current, self.observer))
        self.foreign_cores: list[float | None] = []  # of each round so far; None where it is not known
        theirs_of = {_identity(state.planned): state for state in self.sessions[0].states}
        pairs = ((theirs_of.get(_identity(state.planned)), state) for state in self.sessions[1].states)
        self.twins = [SharedCase(states=(theirs, state)) for theirs, state in pairs if theirs is not None]

    def prepare(self) -> None:
        """Verify both sides, and compare their outputs with each other."""
        for session in self.sessions:
            session.verify()
        interpret = self.device.kind == "cpu"
        with contextlib.ExitStack() as stack:
            sides = [stack.enter_context(Workers(site, self.device, interpret=interpret)) for site in self.contexts]
            for twin in self.twins:
                self.observer.step(self.device, "outputs", twin.key)
                twin.outputs = compare_outputs(sides, twin, self.scratch / "outputs.pt")
                self.observer.stepped(self.device)
        for session in self.sessions:
            session.timed()
        for twin in self.twins:
            _leave_out(twin.states, twin.both())
        twinned = {state for twin in self.twins for state in twin.states}
        _leave_out({state for session in self.sessions for state in session.states} - twinned)

    def profile(self) -> None:
        for session in self.sessions:
            session.profile()

    def ahead(self, rounds: int) -> RoundWorkers:
        """Return two workers for each round of timing, which now begin to load torch."""
        return RoundWorkers(lambda: tuple(Workers(site, self.device, timed=True) for site in self.contexts), rounds)

    def time(self, rounds: int, twins: list[SharedCase], ahead: RoundWorkers, first: int = 0) -> None:
        """Time cases in rounds, from number `first` on, each in two fresh workers."""
        for index in range(first, first + rounds):
            order = [twin for twin in twins if twin.comparable()]
            random.Random(self._settings.seed * 1000 + index).shuffle(order)
            with ahead.round() as sides:
                meter = LoadMeter()
                for twin in order:
                    self.observer.step(self.device, f"round {index + 1}/{first + rounds}", twin.key)
                    self._time_twin(twin, sides, index)
                    self.observer.stepped(self.device)
                self.foreign_cores.append(meter.foreign_cores())

    def _time_twin(self, twin: SharedCase, sides: tuple[Workers, ...], index: int) -> None:
        """Time a case in a round; when an entry ends on a side, all start over without it, on both."""
        while entries := twin.comparable():
            try:
                self._take_turns(twin, entries, sides, index)
            except LostError:
                _leave_out(twin.states, twin.both())
                if twin.comparable() == entries:
                    why = "a worker gave no result and named no reason; please report this"
                    raise PairbenchError(f"{twin.key}: {why}") from None
            else:
                return

    def _take_turns(self, twin: SharedCase, entries: tuple[Entry, ...], sides: tuple[Workers, ...], index: int) -> None:
        verified = [state.verified for state in twin.states]
        capturable = tuple(one for one in entries if all(side[one].uncapturable is None for side in verified))
        jobs = [protocol.OpenCase(**about(state, entries), round=index, capturable=capturable) for state in twin.states]
        parties = list(zip(sides, twin.states, jobs, strict=True))
        opened = [answer for side, state, job in parties for answer in ask(side, state, job)]
        # Sides whose calls take about as long as where lead-ins change would else have different ones.
        leads = zip(*(answer.lead_in for answer in opened), strict=True)
        turn = protocol.TakeBlock(lead_in=tuple(map(max, leads)))
        both_s = 2 * self._settings.case_seconds
        checks = Checks(replace(Stopping.of(self._settings), seconds=both_s, unsure_seconds=both_s))
        draw = random.Random(f"{twin.key}:{self._settings.seed}:{index}")
        throttled: list[bool] = []
        taken: tuple[list[protocol.TakenBlock], list[protocol.TakenBlock]] = ([], [])
        began = time.monotonic()
        reason = None

        def pairs(good: NDArray[np.bool_]) -> list[PairedBlocks]:
            before, now = ([_latencies(blocks, entry) for entry in range(len(blocks[0].call_ns))] for blocks in taken)
            return [PairedBlocks.of(one, other, good) for one, other in zip(now, before, strict=True)]

        while reason is None:
            throttled.append(False)
            for place in draw.sample((0, 1), 2):
                side, state, job = parties[place]
                for answer in ask(side, state, job, turn):
                    taken[place].append(answer)
                    if answer.throttled:
                        throttled[-answer.throttled :] = [True] * len(throttled[-answer.throttled :])
                if self.device.kind == "cpu":
                    time.sleep(_SETTLE_S)
            rested_s = sum(blocks[-1].rested_s for blocks in taken)
            reason = checks.reason(throttled, time.monotonic() - began - rested_s, pairs)
        found = [ask(side, state, job, protocol.CloseCase(stop_reason=reason)) for side, state, job in parties]
        for state, answers in zip(twin.states, found, strict=True):
            for answer in answers:
                state.rounds.append(replace(answer, throttled=tuple(throttled), remeasured=remeasured(throttled)))
        _leave_out(twin.states, twin.both())  # what recheck found wrong


def _leave_out(states: Iterable[CaseState], kept: tuple[Entry, ...] = ()) -> None:
    for state in states:
        for entry in state.timed():
            if entry not in kept:
                state.end(entry, Status.VERIFIED, NOT_BOTH)


def _latencies(blocks: Sequence[protocol.TakenBlock], entry: int) -> BlockLatencies:
    device_ns = [value for block in blocks if (value := block.device_ns[entry]) is not None]
    call_ns = [block.call_ns[entry] for block in blocks]
    return BlockLatencies(call_ns, device_ns if len(device_ns) == len(blocks) else None)


def _identity(planned: PlannedCase) -> tuple[str, str, str]:
    return planned.operator.suite, planned.operator.definition_hash, planned.case.key
