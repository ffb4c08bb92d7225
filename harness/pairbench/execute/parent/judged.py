"""What a worker reports of a case whose outputs another process judges: the parent carries questions between the two, and takes each verdict from the judge.

The worker's words on time count for nothing either: it sends samples some milliseconds after they were taken, the parent notes
when, and the reported calls must explain the time that has passed.
"""

import contextlib
import dataclasses
import itertools
import secrets
import statistics
import time
from collections.abc import Iterator
from typing import Any

from pairbench.execute import protocol
from pairbench.execute.parent.lock import SHORTEST_S, LoadMeter, count_cores
from pairbench.execute.parent.pool import WorkerProcess, Workers
from pairbench.execute.wire import NoMessageError
from pairbench.model.environment import HostLoad
from pairbench.model.outcome import EntrySamples, ImpostorResult, Status, TimedRound, Verification, is_slowed
from pairbench.model.plan import Entry

_PART, _BEYOND_NS = 0.01, 1e6
"""Part of the time, and ns, by which two clocks may differ. Late messages need none: see `check_clock`."""
_EXPLAINED, _BEYOND_TURN_NS = 0.5, 1e6
"""Part of the latency that an entry reports, and ns, by which its turns may be longer than its calls and the other entries' overhead."""
_FEWEST_TURNS = 5
_SEED_BITS = 60
_CONTROLLED = 0.1  # chance that the baseline is timed alone in a round after the first one too
_UNSENT = "its worker did not send its outputs to be judged"
_SEEDS = {0, 1}  # indices of the seeds of inputs; an entry is verified if its outputs for all of them were judged right


class CulpritUnknownError(Exception):
    """An implementation disturbed the others, or the measurement, and it is not known which."""

    def __init__(self, of_entry: str, of_case: str, hurt: protocol.Ended | None = None) -> None:
        """Take the reason for the entry that is found to have done it, the reason for all entries where none is, and the end of the entry that suffered, if that is known."""
        super().__init__(of_entry)
        self.of_entry, self.of_case, self.hurt = of_entry, of_case, hurt

    @classmethod
    def of(cls, ended: protocol.Ended) -> "CulpritUnknownError":
        if ended.entry is None:
            return cls(f"{ended.unnamed}, while being timed", ended.reason)
        return cls(f"spoils {ended.entry}, which ends beside it and not without: {ended.reason}", ended.reason, ended)


class ClocksDisagreeError(CulpritUnknownError):
    """The time that a worker reports is not the time that has passed."""

    def __init__(self, why: str) -> None:
        of_case = f"the clock in the process that timed it and ours disagree: {why}; no implementation alone does that"
        super().__init__(f"its clock and ours disagree: {why}", of_case)


@dataclasses.dataclass
class _Asked:
    """A question of the worker: when it came and when the answer went by our clock, and when the worker asked by its own."""

    received_ns: float
    answered_ns: float
    now_ns: float
    since_ns: float | None = None  # when it had the answer, by its clock; None until it says so


class OutsideClock:
    """Samples of one case in one round. Each left the worker milliseconds after it was taken, and is out of its reach since."""

    def __init__(self) -> None:
        self._taken, self._asked = list[protocol.Taken](), list[_Asked]()

    def take(self, taken: protocol.Taken, received_s: float) -> None:
        """Take notice of samples, and of when they came by the parent's clock; those that ask for an answer are to be answered at once."""
        if taken.asks and not taken.since_ns and not taken.call_ns:  # the worker begins to time, or does so anew
            self._taken.clear()
            self._asked.clear()
        if self._asked and self._asked[-1].since_ns is None:
            self._asked[-1].since_ns = taken.since_ns
        self._taken.append(taken)
        if taken.asks:
            self._asked.append(_Asked(received_s * 1e9, time.monotonic() * 1e9, taken.now_ns))

    def with_samples(self, told: protocol.TimedCase) -> protocol.TimedCase:
        """Return a worker's report of its calls with the samples that it sent before; other samples, or none, are a NoMessageError."""
        columns = [self._of("call_ns", place, len(told.entries)) for place in range(len(told.entries))]
        entries = zip(told.entries, columns, strict=True)
        return dataclasses.replace(told, entries=tuple(dataclasses.replace(one, call_ns=ns) for one, ns in entries))

    def as_taken(self, told: TimedRound, alone_ns: tuple[float, ...]) -> TimedRound:
        """Return a round with the samples that the worker sent while it took them; a round of other samples is a NoMessageError."""
        count = len(told.entries)

        def taken(place: int, samples: EntrySamples) -> EntrySamples:
            names = ("call_ns", "position", "at_ns", "host_ns", "device_ns", "stream_ns")
            call_ns, position, at_ns, host_ns, device_ns, stream_ns = (self._of(name, place, count) for name in names)
            if samples.entry.mode == "graph":  # whose call is the device's time
                device_ns = call_ns
            timed = samples.device_ns is not None
            if len(call_ns) != len(samples.call_ns) or (timed and (None in device_ns or len(device_ns) < len(call_ns))):
                raise NoMessageError("it tells of other samples at the end than while it took them")
            columns = dict[str, Any](call_ns=call_ns, position=position, at_ns=at_ns, host_ns=host_ns or call_ns)
            columns |= {"device_ns": device_ns if timed else None, "stream_ns": stream_ns if any(stream_ns) else None}
            return dataclasses.replace(samples, **columns)

        entries = tuple(taken(place, samples) for place, samples in enumerate(told.entries))
        return dataclasses.replace(told, entries=entries, alone_ns=alone_ns)

    def check_calls(self, told: protocol.TimedCase, *, plain: bool) -> None:
        """Raise a ClocksDisagreeError where the reported latencies do not add up to the time of their turns; `plain` is False where work outside the clock, such as restoring inputs, comes before a call."""
        count = len(told.entries)
        beyond: dict[int, float] = {}
        for place, entry in enumerate(told.entries):
            calls_ns, turns_ns = (self._of(name, place, count) for name in ("call_ns", "turn_ns"))
            overhead_ns = [turn - (1 + entry.lead_in) * call for call, turn in zip(calls_ns, turns_ns, strict=True)]
            if len(overhead_ns) >= _FEWEST_TURNS:
                beyond[place] = statistics.median(overhead_ns)
        for place, value in beyond.items():
            entry = told.entries[place]
            said_ns = (1 + entry.lead_in) * statistics.median(entry.call_ns)
            allowed_ns = _EXPLAINED * said_ns + _BEYOND_TURN_NS
            usual = max([0.0, *(beyond[other] for other in beyond if other != place)])
            if value < -allowed_ns:
                raise ClocksDisagreeError(f"calls take {-value / 1e3:.0f} us more than the turns that they are made in")
            if plain and value > usual + allowed_ns:
                more = f"the turn {(value - usual) / 1e3:.1f} us more than that and than what others need around theirs"
                said = f"calls take {said_ns / 1e3:.1f} us of a turn by what was recorded"
                raise ClocksDisagreeError(f"{said}, and {more}")

    def check_clock(self) -> None:
        """Raise a ClocksDisagreeError where the worker's clock is not ours, a NoMessageError where it did not say when it had an answer."""
        # The worker says when it asked and when it had the answer; the parent knows when the question came and when the answer went.
        # From an answer to the next question no more time can pass there than here; nor less from a question to the next answer.
        if not self._asked or any(one.since_ns is None for one in self._asked):
            raise NoMessageError("it did not say when it had an answer")
        for one, other in (*itertools.pairwise(self._asked), (self._asked[0], self._asked[-1])):
            most_ns, least_ns = other.received_ns - one.answered_ns, other.answered_ns - one.received_ns
            without_ns, with_ns = other.now_ns - (one.since_ns or 0), (other.since_ns or 0) - one.now_ns
            for passed_ns, said_ns, wrong in (
                (least_ns, with_ns, with_ns < (1 - _PART) * least_ns - _BEYOND_NS),
                (most_ns, without_ns, without_ns > (1 + _PART) * most_ns + _BEYOND_NS),
            ):
                if wrong:
                    said = f"it says that {said_ns / 1e6:.1f} have"
                    raise ClocksDisagreeError(f"{passed_ns / 1e6:.1f} ms have passed while {said}")

    def _of(self, name: str, place: int, count: int) -> tuple[Any, ...]:
        """Return a column of an entry, by its place among so many, block after block."""
        if any(len(taken.call_ns) % count for taken in self._taken):
            raise NoMessageError("it tells of samples that are not of whole blocks")
        return tuple(value for taken in self._taken for value in getattr(taken, name)[place::count])


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
        job, said = self._job, set[type]()
        about = {field.name: getattr(job, field.name) for field in dataclasses.fields(protocol.HoldCase)}
        with _to_the_end(self._judge):
            for result in self._judge.request(protocol.HoldCase(**about), self._worker.outputs):
                said.add(type(result))
                if not isinstance(result, protocol.TooLarge | protocol.HoldsMuch):
                    yield result
        if protocol.TooLarge in said and job.beside:  # the worker has done nothing yet
            yield protocol.Ended(entry=None, status=Status.OOM, reason="out of memory beside other workers")
        elif protocol.TooLarge in said:
            yield from self._worker.request(dataclasses.replace(job, outside=False))
        elif protocol.Ended not in said:
            lacking = set[Entry]()
            with _to_the_end(self._worker):
                for result in self._verify():
                    # Where the judge holds little, memory that a variant says to lack is no reason to have its worker judge.
                    if protocol.HoldsMuch in said and not job.beside and _lacks_memory(result):
                        lacking.add(result.entry)
                    else:
                        yield result
            if lacking:
                self._judge.close()  # for what it holds
                again = dataclasses.replace(job, outside=False, automatic_impostors=False, declared_impostors=())
                results, wanted = self._worker.request(again), {None, *lacking}
                yield from (one for one in results if getattr(one, "entry", None) in wanted)

    def _verify(self) -> Iterator[Any]:
        for answer in self._worker.request(self._job, self._worker.outputs):
            match answer:
                case protocol.Inputs():
                    differ = _why_wrong(_one(self._judge, answer))
                    self._worker.reply(differ is None)
                    if differ is not None:
                        yield protocol.Ended(entry=None, status=Status.FAILED, reason=differ)
                case protocol.Outputs(index=index):
                    before = self._verdicts.get(index)
                    if before is None or _why_wrong(before) is None:  # what was wrong once stays so
                        self._verdicts[index] = _one(self._judge, answer)
                        self._seeds.setdefault(index, set()).add(answer.seed)
                    self._worker.reply(_why_wrong(self._verdicts[index]) is None)
                case Verification():
                    yield self._verified(answer)
                case ImpostorResult():
                    yield self._tried(answer)
                case protocol.Ended():  # of a variant that was skipped, whose worker does not know the verdict on the baseline
                    wrong = (why for one in self._verdicts.values() if (why := _why_wrong(one)) is not None)
                    reason = answer.reason.replace(protocol.JUDGED_OUTSIDE, next(wrong, _UNSENT))
                    yield dataclasses.replace(answer, reason=reason)
                case _:
                    yield answer

    def _verified(self, told: Verification) -> Verification | protocol.Ended:
        index = self._job.entries.index(told.entry)
        verdict, reason = self._verdicts.get(index), told.reason or ""
        unsaid = protocol.JUDGED_OUTSIDE in reason
        if isinstance(verdict, protocol.Ended):
            status, reason = verdict.status, verdict.reason
            if status is Status.OOM:
                status, reason = Status.SKIPPED, f"{protocol.HARNESS_LACKED}: {reason}"
            return protocol.Ended(entry=told.entry, status=status, reason=reason)
        if verdict is not None and verdict.mismatch:
            reason = reason.replace(protocol.JUDGED_OUTSIDE, verdict.mismatch) if unsaid else verdict.mismatch
            if told.entry.role == "baseline" and told.entry.mode == "eager":  # what is expected is of its own call
                unseen = "inputs() keeps tensors in a closure, a partial or packed weights, which get no new values"
                reason = f"its calls on the same inputs differ, or {unseen}: {reason}"
            return dataclasses.replace(told, status=Status.MISMATCHED, reason=reason, correctness=verdict.correctness)
        if told.status is Status.VERIFIED and verdict is not None and self._seeds[index] >= _SEEDS:
            note = "; ".join(filter(None, [verdict.note, told.reason]))
            return dataclasses.replace(told, reason=note or None, correctness=verdict.correctness)
        if told.status is Status.VERIFIED or unsaid:
            return protocol.Ended(entry=told.entry, status=Status.FAILED, reason=_UNSENT)
        return told

    def _tried(self, told: ImpostorResult) -> ImpostorResult:
        names = self._job.declared_impostors
        if told.declared and told.impostor in names and told.tried:
            verdict = self._verdicts.get(len(self._job.entries) + names.index(told.impostor))
            if isinstance(verdict, protocol.Judged) and verdict.mismatch:
                return dataclasses.replace(told, rejected=True, reason=verdict.mismatch)
        return told


class _Timing:
    def __init__(self, worker: WorkerProcess, judge: WorkerProcess, job: protocol.TimeCase) -> None:
        self._worker, self._judge, self._job = worker, judge, job
        self._seed: int | None = None
        self._clock, self._meter, self._disturbed = OutsideClock(), LoadMeter(), False

    def results(self) -> Iterator[Any]:
        takes = not self._job.round or secrets.SystemRandom().random() < _CONTROLLED
        found = [*self._judge.request(protocol.TimeAlone(**vars(self._job), takes=takes), self._worker.outputs)]
        if any(isinstance(one, protocol.TooLarge) for one in found):
            yield from self._worker.request(dataclasses.replace(self._job, outside=False))
            return
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
                    self._clock.take(answer, self._worker.line.received_at)
                    if answer.asks:
                        self._worker.reply(True)
                case protocol.DrawSeed():
                    self._seed = secrets.randbits(_SEED_BITS)
                    self._worker.reply(self._seed)
                case protocol.TimedCase():
                    told = self._clock.with_samples(answer)
                    self._clock.check_clock()
                    with _to_the_end(self._judge):
                        said = [*self._judge_timed(told, answers)]
                    ends = [one for one in said if isinstance(one, protocol.Ended)]
                    if len(ends) < len(said) and all(map(_lacks_memory, ends)):  # too large to be judged outside
                        yield from (one for one in answers if not isinstance(one, TimedRound))
                        yield from self._worker.request(dataclasses.replace(self._job, outside=False))
                        return
                    if self._is_disturbed():  # what is quicker in its timed calls alone may be so by chance
                        ends = [one for one in ends if not (one.entry and one.unnamed)]
                    # The baseline's first: where it is wrong, the others may be no more to blame than it is.
                    ends.sort(key=lambda one: (bool(one.unnamed), one.entry is None or one.entry.role == "variant"))
                    yield from ends
                    if not ends:  # else there is a better name for it
                        # On a busy host other processes run between the parts of a turn; speedups are withheld there.
                        self._clock.check_calls(told, plain=alone.plain and not self._is_disturbed())
                case TimedRound():
                    yield self._controlled(self._clock.as_taken(answer, alone.latency_ns))
                case _:
                    yield answer

    def _controlled(self, timed: TimedRound) -> TimedRound:
        """Return a round; if its baseline looks slowed, with latencies of the baseline alone once more, as the machine may have become slower, or with none on a busy host."""
        baselines = [one for one in timed.entries if one.entry.role == "baseline" and one.entry.mode == "eager"]
        if not baselines or not timed.alone_ns or not is_slowed(timed.alone_ns, timed.beside_ns(baselines[0])):
            return timed
        if self._is_disturbed(waits=True):
            return dataclasses.replace(timed, alone_ns=())
        answers = self._judge.request(protocol.TimeAlone(**vars(self._job), takes=True), self._worker.outputs)
        again = [value for answer in answers if isinstance(answer, protocol.Alone) for value in answer.latency_ns]
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
        for said in self._judge.request(protocol.JudgeTimed(timed=told, first_seed=self._seed)):
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


def _one(judge: WorkerProcess, job: protocol.Inputs | protocol.Outputs) -> protocol.Judged | protocol.Ended:
    answer = next(iter([*judge.request(job)]), None)
    return answer or protocol.Ended(entry=None, status=Status.FAILED, reason="the judge gave no verdict on its outputs")


def _lacks_memory(result: Any) -> bool:
    """Return whether memory was short for an entry, of which the judge may hold the most."""
    if not isinstance(result, Verification | protocol.Ended) or result.entry is None:
        return False
    of_harness = any(words in (result.reason or "") for words in (protocol.HARNESS_LACKED, protocol.JUDGE_LACKED))
    return result.status is Status.OOM or of_harness


def _why_wrong(verdict: protocol.Judged | protocol.Ended) -> str | None:
    return verdict.mismatch if isinstance(verdict, protocol.Judged) else verdict.reason
