"""The parent's side of one case: each step asks a worker for one stage and takes in what comes back.

Which worker serves which step, and in what order cases come, is for the caller to say.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairbench.execute.heartbeat import NOBODY
from pairbench.execute.parent.case_state import CaseState, unprofiled
from pairbench.execute.parent.judged import CulpritUnknownError, judged_results
from pairbench.execute.parent.pool import WorkerContext, WorkerEndedError, Workers
from pairbench.execute.protocol import (
    BreakDownCase,
    CaseJob,
    DivergeCase,
    Ended,
    ProfileCase,
    TimeCase,
    VerifyCase,
    without_baseline,
)
from pairbench.execute.wire import NoMessageError
from pairbench.model.environment import Device
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry
from pairbench.stats import quick

_DOUBTS = 2
"""Times that a case is timed although somebody disturbs it and no variant alone does."""
Enough = Callable[[CaseState], object]
"""Says whether what is known of a case is enough."""


def verify_case(state: CaseState, workers: Workers, *, impostors: bool, enough: Enough | None = None) -> None:
    """Verify every entry; with `impostors`, also try the declared ones. Once `enough` is true the rest stays unverified, and the worker ends."""
    first = True
    # Without a verified entry there is nothing to judge an impostor by.
    while state.unverified() or (impostors and state.verified and state.untried_impostors()):
        if enough and enough(state):
            return
        remaining, untried = state.unverified(), state.untried_impostors() if impostors else ()
        job = VerifyCase(
            **about(state, remaining),
            automatic_impostors=first,
            declared_impostors=untried,
            outside=workers.judge is not None,
            beside=enough is not None,
        )
        first = False
        for crashed in _serve(state, workers, job, enough):
            if crashed.role == "baseline":
                for end in without_baseline(remaining, *state.ended[crashed]):
                    state.take(end, job, lambda _: None)


def profile_case(state: CaseState, workers: Workers) -> None:
    """Count launches, operators and memory of every entry that is timed, in workers that never time."""
    while remaining := tuple(entry for entry in state.timed() if entry not in state.profiles):
        before = dict(state.ended)
        _serve(state, workers, ProfileCase(**about(state, remaining)))
        for entry in set(state.ended) - set(before):
            # The call itself was verified: what fails here is the profiling of it.
            _, reason = state.ended.pop(entry)
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


def _find_culprit(
    state: CaseState, workers: Workers, job: TimeCase, unknown: CulpritUnknownError, *, last: bool
) -> None:
    """Time each variant with its baseline in a process of its own, and end those that do it again; if `last` and none does, end the case."""
    found = False
    for suspect in [entry for entry in job.entries if entry.role == "variant"]:
        workers.close()
        beside = [entry for entry in job.entries if entry.role == "baseline" and entry.mode == suspect.mode]
        try:
            for result in _results(workers, replace(job, entries=(*beside, suspect), earlier_ns=())):
                if isinstance(result, Ended) and result.entry == suspect:
                    state.end(suspect, result.status, result.reason)
                    found = True
        except CulpritUnknownError as error:
            state.end(suspect, Status.FAILED, error.of_entry)
            found = True
        except (WorkerEndedError, NoMessageError):  # that is found out when it is timed among the others
            continue
    workers.close()
    if last and not found:
        state.blame(NOBODY, Status.FAILED, unknown.of_case, job)


def about(state: CaseState, entries: tuple[Entry, ...]) -> dict[str, Any]:
    """Return the fields that every job about some entries of a case has."""
    operator = state.planned.operator
    return {
        "path": Path(operator.path),
        "operator": operator.name,
        "case": state.planned.case,
        "entries": entries,
        "hashes": operator.hashes,
    }


def _results(workers: Workers, job: CaseJob) -> Iterator[Any]:
    """Yield what a job gives; a CulpritUnknownError says that an unknown implementation disturbed the timing."""
    worker = workers.get()
    for result in worker.request(job) if workers.judge is None else judged_results(worker, workers.judge, job):
        if isinstance(job, TimeCase) and isinstance(result, Ended) and result.unnamed:
            raise CulpritUnknownError(f"{result.unnamed}, while being timed", result.reason)
        yield result


def _serve(state: CaseState, workers: Workers, job: CaseJob, enough: Enough | None = None) -> tuple[Entry, ...]:
    """Run a job and take its results until `enough`; return the entries that ended because the worker did."""
    worker = workers.get()
    before = state.known()
    try:
        for result in _results(workers, job):
            state.take(result, job, worker.log_line)
            if enough and enough(state):
                worker.close()  # it is still at work on the next
                return ()
    except WorkerEndedError as error:
        return state.blame(error.index, error.status, error.reason, job)
    except NoMessageError as error:
        workers.close()
        return state.blame(NOBODY, Status.FAILED, f"its worker wrote what is no message: {error}; ended", job)
    if state.known() == before:  # asking again would not change that
        workers.close()
        return state.blame(NOBODY, Status.FAILED, f"its worker gave no result for {type(job).__name__}", job)
    return ()


def inspect(
    context: WorkerContext, device: Device, jobs: Iterable[BreakDownCase | DivergeCase], *, interpret: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Yield jobs about one entry each with a worker's answers; where the worker ends, the answer is an `Ended` of that entry."""
    with Workers(context, device, interpret=interpret) as workers:
        for job in jobs:
            try:
                for answer in workers.get().request(job):
                    yield job, answer
            except WorkerEndedError as error:
                yield job, Ended(entry=job.entries[0], status=error.status, reason=error.reason)
