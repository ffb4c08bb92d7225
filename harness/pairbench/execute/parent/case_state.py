"""The parent's side of one case: what is known of it, and the steps that each ask a worker for one stage and take in what comes back.

Which worker serves which step, and in what order cases come, is for the caller to say.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pairbench.execute import protocol
from pairbench.execute.parent.judged import CulpritUnknownError, judged_results
from pairbench.execute.parent.pool import WorkerEndedError, Workers
from pairbench.execute.protocol import NOBODY, CaseJob, Ended, InputsMade, TimeCase, VerifyCase
from pairbench.execute.wire import NoMessageError
from pairbench.model import outcome
from pairbench.model.outcome import ImpostorResult, Launches, Outcome, Profile, Status, TimedRound, Verification
from pairbench.model.plan import LIBRARY, Entry, PlannedCase
from pairbench.stats import quick

_DOUBTS = 2  # times that a case is timed although somebody disturbs it and no variant alone does
End = tuple[Status, str]  # how an entry ended, and why
Enough = Callable[["CaseState"], object]  # says whether what is known of a case is enough


@dataclass(kw_only=True, eq=False)
class CaseState:
    planned: PlannedCase
    ended: dict[Entry, End] = field(default_factory=dict)
    verified: dict[Entry, Verification] = field(default_factory=dict)
    refuted: dict[Entry, Verification] = field(default_factory=dict)
    profiles: dict[Entry, Profile] = field(default_factory=dict)
    rounds: list[TimedRound] = field(default_factory=list)
    impostors: list[ImpostorResult] = field(default_factory=list)
    reported: set[Entry] = field(default_factory=set)
    inputs_s: float = 0.0  # seconds of making its inputs, where that was long
    spent_s: float = 0.0

    def __post_init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """Forget the results of verifying, none of which was reported."""
        for found in (self.ended, self.verified, self.refuted, self.impostors):
            found.clear()
        for entry, reason in self.planned.skipped.items():
            self.end(entry, Status.SKIPPED, reason)

    def unverified(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.planned.entries if entry not in self.ended and entry not in self.verified)

    def timed(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.planned.entries if entry not in self.ended and entry in self.verified)

    def wrong(self) -> tuple[Entry, ...]:
        """Return the entries that ended because they did not do what their declaration promises."""
        return tuple(entry for entry, (status, _) in self.ended.items() if status.bad)

    def leave_out_untimed(self) -> None:
        for entry, reason in self.planned.untimed.items():
            self.end(entry, Status.SKIPPED, reason)

    def leave_out_baselines(self, *, alternatives: bool = False) -> None:
        """End the baselines whose variants are all wrong, but for cases with a weight, whose sums they are part of; with `alternatives`, library variants do not count as variants, and end with their baseline."""
        kinds = {one.name: one.kind for one in self.planned.operator.implementations}
        for baseline in self.timed():
            variants = [entry for entry in self.planned.entries if entry.mode == baseline.mode and entry != baseline]
            others = [one for one in variants if alternatives and kinds.get(one.implementation) == LIBRARY]
            judged = {*variants}.difference(others)
            wrong = [entry for entry in judged if entry in self.ended and self.ended[entry][0].bad]
            # That a baseline no longer works as a graph is a regression, so there it is measured all the same.
            needed = baseline.mode == "graph" or self.planned.case.weight is not None
            if baseline.role == "baseline" and not needed and wrong and not judged & {*self.timed()}:
                for entry in (baseline, *others):
                    self.end(entry, Status.SKIPPED, outcome.NOTHING_RIGHT)

    def take(self, result: object, job: CaseJob, log_line: Callable[[str], str | None]) -> None:
        match result:
            case Ended(entry=None):
                self.blame(NOBODY, result.status, result.reason, job)
            case Ended(entry=Entry() as entry):
                # The device's own words on a failed assertion are on the worker's stderr only.
                detail = log_line("Assertion") if "assert" in result.reason else None
                self.end(entry, result.status, f"{result.reason} [{detail}]" if detail else result.reason)
            case Verification(status=Status.VERIFIED):
                self.verified[result.entry] = result
            case Verification():
                self.refuted[result.entry] = result
                self.end(result.entry, result.status, result.reason or "")
            case InputsMade():
                self.inputs_s += result.seconds
            case TimedRound():
                self.rounds.append(result)
            case Profile():
                self.profiles[result.entry] = result
            case ImpostorResult():
                self.impostors.append(result)

    def known(self) -> int:
        """Return the number of results so far, which tells whether a job added any."""
        parts = (self.ended, self.verified, self.refuted, self.profiles, self.rounds, self.impostors)
        return sum(len(part) for part in parts)

    def untried_impostors(self) -> tuple[str, ...]:
        tried = {result.impostor for result in self.impostors if result.declared}
        return tuple(impostor.name for impostor in self.planned.operator.impostors if impostor.name not in tried)

    def blame(self, index: int, status: Status, reason: str, job: CaseJob) -> tuple[Entry, ...]:
        """End the entry that ran, or all without a result, because a worker or a case ended; return the entries that this ended."""
        declared = job.declared_impostors if isinstance(job, VerifyCase) else ()
        if not NOBODY <= index < len(job.entries) + len(declared):
            index = NOBODY  # the worker's own memory said so, and a suite has written there
        if index >= len(job.entries):
            name = declared[index - len(job.entries)]
            self.impostors.append(ImpostorResult(impostor=name, declared=True, rejected=True, reason=reason))
            return ()
        blamed = job.entries if index == NOBODY else (job.entries[index],)
        if index == NOBODY and isinstance(job, VerifyCase):
            blamed = tuple(entry for entry in job.entries if entry not in self.verified)
            untried, why = declared if not blamed else (), f"not tried: {reason}"
            made = (ImpostorResult(impostor=name, declared=True, rejected=False, reason=why) for name in untried)
            self.impostors.extend(made)
        for entry in blamed:
            self.end(entry, status, reason)
        return blamed

    def interrupt(self, rounds: int) -> None:
        """Account for the entries that are not final yet when a run of so many rounds is interrupted."""
        done = len(self.rounds)
        for entry in self.planned.entries:
            if entry in self.ended or (not rounds and entry in self.verified):
                continue
            if not done or entry not in self.verified:
                self.end(entry, Status.SKIPPED, outcome.NOT_REACHED)
            elif done < rounds or entry not in self.profiles:
                found = self.verified[entry]
                early = f"the run was interrupted after {done} of {rounds} rounds"
                note = early if done < rounds else outcome.NOT_PROFILED
                self.verified[entry] = replace(found, reason="; ".join(filter(None, (found.reason, note))))

    def end(self, entry: Entry, status: Status, reason: str) -> None:
        """Note the first end of an entry; later ones are consequences."""
        self.ended.setdefault(entry, (status, reason))

    def outcome(self, entry: Entry) -> Outcome:
        operator, case = self.planned.operator, self.planned.case
        verification = self.verified.get(entry) or self.refuted.get(entry)
        made = functools.partial(Outcome, operator=operator, case=case, entry=entry, verification=verification)
        if entry in self.ended:
            status, reason = self.ended[entry]
            return made(status=status, reason=reason)
        status, why = Status.MEASURED if self.rounds else Status.VERIFIED, verification.reason if verification else None
        return made(status=status, reason=why, rounds=tuple(self.rounds), profile=self.profiles.get(entry))


def unprofiled(entry: Entry, reason: str) -> Profile:
    launches = Launches(status="unavailable", reason=reason)
    return Profile(entry=entry, launches=launches, reason=f"not profiled: {reason}")


def verify_case(state: CaseState, workers: Workers, enough: Enough | None = None, *, impostors: bool = False) -> None:
    """Verify every entry; with `impostors`, also try the declared ones. Once `enough` is true the rest stays unverified, and the worker ends."""
    first, doubts = True, True
    # Without a verified entry there is nothing to judge an impostor by.
    while state.unverified() or (impostors and state.verified and state.untried_impostors()):
        if enough and enough(state):
            return
        remaining, untried = state.unverified(), state.untried_impostors() if impostors else ()
        if not doubts and remaining and remaining[0].role == "variant":
            remaining = remaining[::-1]  # who was spoilt comes before who spoilt it
        job = VerifyCase(
            **about(state, remaining),
            automatic_impostors=first,
            declared_impostors=untried,
            outside=workers.judge is not None,
            beside=enough is not None,
        )
        first, alone = False, not workers.get().used
        workers.get().used = True
        for crashed in (ended := _serve(state, workers, job, enough)):
            if crashed.role == "baseline":
                for end in protocol.without_baseline(remaining, *state.ended[crashed]):
                    state.take(end, job, lambda _: None)
        if doubts and not ended and not (enough and enough(state)) and _is_spoilt(state, workers, job, alone=alone):
            doubts, first = False, True
            workers.close()
            state.impostors.clear()
            for entry in state.ended.keys() & {*job.entries}:
                del state.ended[entry]
                state.refuted.pop(entry, None)


def _is_spoilt(state: CaseState, workers: Workers, job: VerifyCase, *, alone: bool) -> bool:
    """Return whether the baseline is wrong in a worker that has called variants, one of which may have spoilt it: then all entries that ended there have to be verified again."""
    wrong = [entry for entry in job.entries if entry in state.ended and state.ended[entry][0].bad]
    if not wrong or job.entries[0].role != "baseline" or job.entries[0] in wrong:
        return bool(wrong) and job.entries[0] in wrong and not alone
    again = replace(job, entries=job.entries[:1], automatic_impostors=False, declared_impostors=())
    with contextlib.suppress(WorkerEndedError, NoMessageError):
        return any(isinstance(one, Verification | Ended) and one.status.bad for one in _results(workers, again))
    return False


def profile_case(state: CaseState, workers: Workers) -> None:
    """Count launches, operators and memory of every entry that is timed, in workers that never time."""
    while remaining := tuple(entry for entry in state.timed() if entry not in state.profiles):
        before = dict(state.ended)
        _serve(state, workers, protocol.ProfileCase(**about(state, remaining)))
        for entry in set(state.ended) - set(before):
            _, reason = state.ended.pop(entry)  # the call itself was verified: what fails here is the profiling of it
            state.profiles[entry] = unprofiled(entry, reason)


def time_case(state: CaseState, workers: Workers, index: int, *, sparing: bool = False) -> None:
    """Time every entry that was verified, as the round with this index; `sparing` as in `TimeCase`."""
    done, doubts = len(state.rounds), 0
    while len(state.rounds) == done and (remaining := state.timed()):
        capturable = tuple(entry for entry in remaining if state.verified[entry].uncapturable is None)
        before = [samples.entry for samples in state.rounds[-1].entries] if state.rounds else remaining
        quick_ns = [{samples.entry: quick(samples.call_ns) for samples in timed.entries} for timed in state.rounds]
        job = TimeCase(
            **about(state, remaining),
            round=index,
            earlier_ns=tuple(min(one.get(entry, math.inf) for one in quick_ns) for entry in remaining if quick_ns),
            capturable=capturable,
            outside=workers.judge is not None,
            sparing=sparing,
            thorough=set(before) != set(remaining),
        )
        try:
            _serve(state, workers, job)
        except CulpritUnknownError as error:
            doubts += 1
            _find_culprit(state, workers, job, error, last=doubts == _DOUBTS)


def _find_culprit(state: CaseState, workers: Workers, job: TimeCase, error: CulpritUnknownError, *, last: bool) -> None:
    """Time the entry that was hurt, then each variant, in a process of its own with the baseline, and end the entries that do it again; if `last` and none does, end the hurt entry, or the whole case where no entry was hurt."""
    hurt, found = error.hurt, False
    victim, alone = (hurt.entry, hurt.unnamed and hurt.status is Status.MISMATCHED) if hurt else (None, False)
    suspects = [entry for entry in job.entries if entry == victim or (entry.role == "variant" and not alone)]
    for suspect in sorted(suspects, key=lambda entry: entry != victim):
        end = _end_of_suspect(workers, job, suspect, hurt)
        if end and hurt and suspect != victim:  # once more, for who is hurt may do so by itself now and then
            end = _end_of_suspect(workers, job, suspect, hurt)
        if end:
            state.end(suspect, *end)
            found = True
        if victim in state.ended:
            break
    workers.close()
    if last and not found:
        index, status = (job.entries.index(victim), hurt.status) if hurt and victim else (NOBODY, Status.FAILED)
        state.blame(index, status, error.of_case, job)


def _end_of_suspect(workers: Workers, job: TimeCase, suspect: Entry, hurt: Ended | None) -> End | None:
    workers.close()
    beside = {entry for entry in job.entries if entry.role == "baseline" and entry.mode == suspect.mode}
    entries = tuple(entry for entry in job.entries if entry in {*beside, hurt and hurt.entry, suspect})
    try:
        for result in _results(workers, replace(job, entries=entries, earlier_ns=())):
            if isinstance(result, Ended) and result.entry == suspect:
                return result.status, result.reason
    except CulpritUnknownError as error:
        return (hurt.status, hurt.reason) if hurt and suspect == hurt.entry else (Status.FAILED, error.of_entry)
    except WorkerEndedError as error:
        # Without anybody who was hurt by that it is found out when it is timed among the others.
        return (error.status, error.reason) if hurt and hurt.status is not Status.MISMATCHED else None
    except NoMessageError:
        pass
    return None


def about(state: CaseState, entries: tuple[Entry, ...]) -> dict[str, Any]:
    """Return the fields that every job about some entries of a case has."""
    operator = state.planned.operator
    fields = {"path": Path(operator.path), "operator": operator.name, "case": state.planned.case}
    return {**fields, "entries": entries, "hashes": operator.hashes}


def _results(workers: Workers, job: CaseJob) -> Iterator[Any]:
    """Yield what a job gives; a CulpritUnknownError says that an unknown implementation disturbed the timing."""
    worker = workers.get()
    for result in worker.request(job) if workers.judge is None else judged_results(worker, workers.judge, job):
        if isinstance(job, TimeCase) and isinstance(result, Ended) and result.status.bad:
            unsure = result.unnamed or (result.entry and result.entry.role == "baseline")
            if unsure and (result.status is Status.MISMATCHED or _others(job, result.entry)):
                raise CulpritUnknownError.of(result)
        yield result


def _others(job: CaseJob, entry: Entry | None) -> bool:
    """Return whether a case is timed with variants beside an entry, one of which may be to blame for its end."""
    return isinstance(job, TimeCase) and any(one.role == "variant" and one != entry for one in job.entries)


def _serve(state: CaseState, workers: Workers, job: CaseJob, enough: Enough | None = None) -> tuple[Entry, ...]:
    """Run a job and take its results, or those until `enough` returns True; return the entries that ended because the worker ended."""
    worker = workers.get()
    before = state.known()
    try:
        for result in _results(workers, job):
            state.take(result, job, worker.log.line)
            last = isinstance(result, Ended) and result.entry is None
            if enough and enough(state) and not last:
                worker.close()  # it is still at work on the next
                return ()
    except WorkerEndedError as error:
        entry = job.entries[error.index] if 0 <= error.index < len(job.entries) else None
        if entry and error.status is not Status.TIMEOUT and _others(job, entry):
            raise CulpritUnknownError.of(Ended(entry=entry, status=error.status, reason=error.reason)) from error
        return state.blame(error.index, error.status, error.reason, job)
    except NoMessageError as error:
        workers.close()
        return state.blame(NOBODY, Status.FAILED, f"its worker wrote what is no message: {error}; ended", job)
    if state.known() == before:  # asking again would not change that
        workers.close()
        return state.blame(NOBODY, Status.FAILED, f"its worker gave no result for {type(job).__name__}", job)
    return ()
