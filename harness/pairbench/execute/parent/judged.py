"""What a worker reports of a case whose outputs another process judges: the parent carries questions between the two, and takes each verdict from the judge.

A worker's own words on what is right count for nothing: it sends its outputs, and where it says that an entry is wrong, the entry is.
"""

import contextlib
import dataclasses
import secrets
import time
from collections.abc import Iterator
from typing import Any

from pairbench.execute import protocol
from pairbench.execute.parent.clock import OutsideClock
from pairbench.execute.parent.host_load import SHORTEST_S, LoadMeter, count_cores
from pairbench.execute.parent.pool import WorkerProcess, Workers
from pairbench.model.environment import HostLoad
from pairbench.model.outcome import ImpostorResult, Status, TimedRound, Verification, is_slowed

_SEED_BITS = 60
_CONTROLLED = 0.1
"""Chance that the baseline is timed alone in a round after the first one too."""
_SEEDS = {0, 1}
"""Places of the seeds on which an entry must have been judged to be right."""


def judged_results(worker: WorkerProcess, judge: Workers, job: protocol.CaseJob) -> Iterator[Any]:
    """Yield what a job gives, judged outside where the job says so; after a WorkerEndedError neither worker nor judge can go on with the job."""
    match job:
        case protocol.VerifyCase(outside=True):
            yield from _Verifying(worker, judge.get(), job).results()
        case protocol.TimeCase(outside=True):
            yield from _Timing(worker, judge.get(), job).results()
        case _:
            yield from worker.request(job)


class _Verifying:
    def __init__(self, worker: WorkerProcess, judge: WorkerProcess, job: protocol.VerifyCase) -> None:
        self._worker, self._judge, self._job = worker, judge, job
        self._verdicts: dict[int, protocol.Judged | protocol.Ended] = {}
        self._seeds: dict[int, set[int]] = {}

    def results(self) -> Iterator[Any]:
        job, ended = self._job, False
        about = {field.name: getattr(job, field.name) for field in dataclasses.fields(protocol.CaseJob)}
        hold = protocol.HoldCase(**about, automatic_impostors=job.automatic_impostors)
        with _to_the_end(self._judge):
            for result in self._judge.request(hold, self._worker.outputs):
                ended |= isinstance(result, protocol.Ended)
                yield result
        if not ended:
            with _to_the_end(self._worker):
                yield from self._verify()

    def _verify(self) -> Iterator[Any]:
        for answer in self._worker.request(self._job, self._worker.outputs):
            match answer:
                case protocol.Inputs():
                    found = _one(self._judge, protocol.CompareInputs(sums=answer.sums))
                    self._worker.reply(_is_right(found))
                    if not _is_right(found):
                        reason = found.reason if isinstance(found, protocol.Ended) else str(found.mismatch)
                        yield protocol.Ended(entry=None, status=Status.FAILED, reason=reason)
                case protocol.Outputs():
                    self._worker.reply(self._judge_outputs(answer))
                case Verification():
                    yield self._verified(answer)
                case ImpostorResult():
                    yield self._tried(answer)
                case _:
                    yield answer

    def _judge_outputs(self, told: protocol.Outputs) -> bool:
        before = self._verdicts.get(told.index)
        if before is None or _is_right(before):  # what was wrong once stays so
            job = protocol.JudgeOutputs(index=told.index, seed=told.seed, described=told.described)
            self._verdicts[told.index] = _one(self._judge, job)
            self._seeds.setdefault(told.index, set()).add(told.seed)
        return _is_right(self._verdicts[told.index])

    def _verified(self, told: Verification) -> Verification | protocol.Ended:
        index = self._job.entries.index(told.entry)
        verdict, reason = self._verdicts.get(index), told.reason or ""
        unsaid = protocol.JUDGED_OUTSIDE in reason
        if isinstance(verdict, protocol.Ended):
            return protocol.Ended(entry=told.entry, status=verdict.status, reason=verdict.reason)
        if verdict is not None and verdict.mismatch:
            reason = reason.replace(protocol.JUDGED_OUTSIDE, verdict.mismatch) if unsaid else verdict.mismatch
            return dataclasses.replace(told, status=Status.MISMATCHED, reason=reason, correctness=verdict.correctness)
        if told.status is Status.VERIFIED and verdict is not None and self._seeds[index] >= _SEEDS:
            note = "; ".join(filter(None, [verdict.note, told.reason]))
            return dataclasses.replace(told, reason=note or None, correctness=verdict.correctness)
        if told.status is Status.VERIFIED or unsaid:
            return protocol.Ended(
                entry=told.entry, status=Status.FAILED, reason="its worker did not send its outputs to be judged"
            )
        return told

    def _tried(self, told: ImpostorResult) -> ImpostorResult:
        names = self._job.declared_impostors
        if not told.declared or told.impostor not in names or not told.tried:
            return told
        verdict = self._verdicts.get(len(self._job.entries) + names.index(told.impostor))
        if isinstance(verdict, protocol.Judged) and verdict.mismatch:
            return dataclasses.replace(told, rejected=True, reason=verdict.mismatch)
        return told


class _Timing:
    def __init__(self, worker: WorkerProcess, judge: WorkerProcess, job: protocol.TimeCase) -> None:
        self._worker, self._judge, self._job = worker, judge, job
        self._fields = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
        self._seed: int | None = None
        self._clock = OutsideClock()
        self._meter, self._disturbed = LoadMeter(), False

    def results(self) -> Iterator[Any]:
        job = protocol.TimeAlone(
            **self._fields, takes=not self._job.round or secrets.SystemRandom().random() < _CONTROLLED
        )
        found = [*self._judge.request(job, self._worker.outputs)]
        alone = next((one for one in found if isinstance(one, protocol.Alone)), None)
        if alone is None:
            yield from found
            return
        with _to_the_end(self._worker):
            yield from self._time(alone)

    def _time(self, alone: protocol.Alone) -> Iterator[Any]:
        answers = self._worker.request(self._job, self._worker.outputs)
        for answer in answers:
            match answer:
                case protocol.Taken():
                    self._clock.take(answer, self._worker.received_at)
                    if answer.asks:
                        self._worker.reply(True)
                case protocol.DrawSeed():
                    self._seed = secrets.randbits(_SEED_BITS)
                    self._worker.reply(self._seed)
                case protocol.TimedCase():
                    told, wrong = self._clock.with_samples(answer), False
                    self._clock.check_clock()
                    with _to_the_end(self._judge):
                        for ended in self._judge_timed(told, answers):
                            wrong = True
                            yield ended
                    if not wrong:  # else there is a better name for it
                        # On a busy host other processes run between the parts of a turn; speedups are withheld there.
                        self._clock.check_calls(told, plain=alone.plain and not self._is_disturbed())
                case TimedRound():
                    yield self._controlled(self._clock.as_taken(answer, alone.call_ns))
                case _:
                    yield answer

    def _controlled(self, timed: TimedRound) -> TimedRound:
        """Return a round; if its baseline looks slowed, with latencies of the baseline alone once more, as the machine may have become slower, or with none on a busy host."""
        beside = [
            samples for samples in timed.entries if samples.entry.role == "baseline" and samples.entry.mode == "eager"
        ]
        if not beside or not timed.alone_ns or not is_slowed(timed.alone_ns, beside[0].call_ns):
            return timed
        if self._is_disturbed(waits=True):
            return dataclasses.replace(timed, alone_ns=())
        answers = self._judge.request(protocol.TimeAlone(**self._fields, takes=True), self._worker.outputs)
        again = [value for answer in answers if isinstance(answer, protocol.Alone) for value in answer.call_ns]
        return dataclasses.replace(timed, alone_ns=(*timed.alone_ns, *again))

    def _is_disturbed(self, *, waits: bool = False) -> bool:
        """Return whether other work has kept the host busy since the case began; if that time is too short to tell, False, or the answer after a short wait."""
        cores = self._meter.foreign_cores()
        if cores is None and waits:
            time.sleep(SHORTEST_S)
            cores = self._meter.foreign_cores()
        self._disturbed |= bool(HostLoad(cores=count_cores(), before=cores).disturbs("cpu"))
        return self._disturbed

    def _judge_timed(self, told: protocol.TimedCase, answers: Iterator[Any]) -> Iterator[Any]:
        """Yield the ends of entries whose timed calls are wrong; the judge asks the worker for outputs and further calls."""
        job = protocol.JudgeTimed(timed=told, first_seed=self._seed)
        for said in self._judge.request(job):
            if not isinstance(said, protocol.Request):
                yield said
                continue
            self._worker.reply(said)
            answer = next(answers, None)
            if not isinstance(answer, protocol.Answer):  # the case ended there
                self._judge.close()
                yield from [] if answer is None else [answer]
                return
            self._judge.reply(answer)
        self._worker.reply(protocol.Request(kind="end"))


@contextlib.contextmanager
def _to_the_end(process: WorkerProcess) -> Iterator[None]:
    """End a process that would be left in the middle of a job: what it says next would be taken for the answer to another."""
    try:
        yield
    except BaseException:
        process.close()
        raise


def _one(judge: WorkerProcess, job: protocol.CompareInputs | protocol.JudgeOutputs) -> protocol.Judged | protocol.Ended:
    """Return the judge's only answer."""
    answer = next(iter([*judge.request(job)]), None)
    return answer or protocol.Ended(entry=None, status=Status.FAILED, reason="the judge gave no verdict on its outputs")


def _is_right(verdict: protocol.Judged | protocol.Ended) -> bool:
    return isinstance(verdict, protocol.Judged) and verdict.mismatch is None
