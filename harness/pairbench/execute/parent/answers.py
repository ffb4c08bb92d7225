"""What a worker may answer to a job. All else is refused: its suite may have written anything to the line."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pairbench.execute import protocol
from pairbench.execute.wire import NoMessageError
from pairbench.model import outcome
from pairbench.model.breakdown import Breakdown, Divergence, NotInspected
from pairbench.model.environment import Environment, Finding
from pairbench.model.outcome import Status, Verification
from pairbench.model.plan import BrokenSuite, Entry

_OF_VERIFYING = (protocol.Inputs, protocol.Outputs)
_OF_TIMING = (protocol.DrawSeed, protocol.Taken, protocol.TimedCase, protocol.Answer)
_OUTSIDE_ONLY = (*_OF_VERIFYING, *_OF_TIMING)  # answers that come only where outputs are judged in another process
_ANSWERS: dict[type, tuple[type, ...]] = {
    protocol.FindDevices: (protocol.FoundDevices,),
    protocol.Wait: (),
    protocol.Describe: (protocol.DescribedSuite, BrokenSuite),
    protocol.Probe: (Environment,),
    protocol.Diagnose: (Finding,),
    # Answers to jobs about a case, which may end.
    protocol.VerifyCase: (Verification, outcome.ImpostorResult, *_OF_VERIFYING, protocol.InputsMade, protocol.Ended),
    protocol.TimeCase: (outcome.TimedRound, *_OF_TIMING, protocol.InputsMade, protocol.Ended),
    protocol.HoldCase: (outcome.ImpostorResult, protocol.TooLarge, protocol.HoldsMuch, protocol.Ended),
    protocol.Inputs: (protocol.Judged, protocol.Ended),
    protocol.Outputs: (protocol.Judged, protocol.Ended),
    protocol.TimeAlone: (protocol.Alone, protocol.TooLarge, protocol.Ended),
    protocol.JudgeTimed: (protocol.Request, protocol.TooLarge, protocol.Ended),
    protocol.ProfileCase: (outcome.Profile, protocol.InputsMade, protocol.Ended),
    protocol.OpenCase: (protocol.Opened, protocol.Ended),
    protocol.TakeBlock: (protocol.TakenBlock, protocol.Ended),
    protocol.CloseCase: (outcome.TimedRound, protocol.Ended),
    protocol.FingerprintOutputs: (protocol.Fingerprint, protocol.Ended),
    protocol.SaveOutputs: (Entry, protocol.Ended),
    protocol.CompareOutputs: (outcome.OutputsCompared, protocol.Ended),
    protocol.BreakDownCase: (Breakdown, NotInspected, protocol.Ended),
    protocol.DivergeCase: (Divergence, NotInspected, protocol.Ended),
}
_EXPECTED: dict[type, Mapping[str, type]] = {
    job: {answer.__name__: answer for answer in (*answers, protocol.Done, protocol.Broken)}
    for job, answers in _ANSWERS.items()
}
_EXACTLY_ONE = (protocol.FindDevices, protocol.Describe, protocol.Probe)
_ONCE = (
    *(protocol.FoundDevices, protocol.DescribedSuite, BrokenSuite, Environment, outcome.OutputsCompared, Entry),
    *(outcome.TimedRound, protocol.TimedCase, protocol.InputsMade, protocol.Opened, protocol.TakenBlock),
)
_MOST = 10_000
_MOST_SETS, _MOST_CAPTURES = 16, 100


class Answers:
    """The answers to one job, checked as they come."""

    def __init__(self, job: protocol.Job) -> None:
        self._job, self._count, self._once = job, 0, set[type]()
        self.expected = _EXPECTED[type(job)]

    def check(self, answer: Any) -> None:
        """Take notice of an answer; one that the job does not ask for, or that contradicts itself, is a NoMessageError."""
        # Samples do not count: there are as many as time allows.
        self._count += not isinstance(answer, protocol.Done | protocol.Broken | protocol.Taken)
        if isinstance(answer, protocol.Done) and isinstance(self._job, _EXACTLY_ONE) and not self._count:
            raise NoMessageError("it says that it is done, and has not answered")
        if isinstance(answer, _ONCE) and type(answer) in self._once:
            raise NoMessageError(f"a second {type(answer).__name__}")
        if self._count > _MOST:
            raise NoMessageError(f"the answer number {_MOST + 1} to one question")
        self._once.add(type(answer))
        if why := self._why_unfit(answer):
            raise NoMessageError(f"a {type(answer).__name__} {why}")

    def _why_unfit(self, answer: Any) -> str | None:
        job = self._job
        match answer:
            case Verification(status=Status.MEASURED) | protocol.Ended(status=Status.MEASURED | Status.VERIFIED):
                return f"with the status {answer.status}"
            case outcome.ImpostorResult(declared=True) if isinstance(job, protocol.VerifyCase):
                return None if answer.impostor in job.declared_impostors else "of an impostor that is not asked for"
            case outcome.TimedRound() if why := _why_no_round(answer):
                return why
            case _ if isinstance(answer, _OUTSIDE_ONLY) and not getattr(job, "outside", False):
                return "although it judges itself"
            case protocol.Taken():
                more = [column for column in (answer.host_ns, answer.device_ns, answer.stream_ns) if column]
                columns = (answer.call_ns, answer.position, answer.at_ns, answer.turn_ns, *more)
                fits = len({*map(len, columns)}) == 1 and answer.now_ns >= 0
                times = [value for column in columns for value in column if value is not None]
                return None if fits and _are_times(times) else "that is none"
            case protocol.TimedCase() if isinstance(job, protocol.TimeCase):
                return None if _is_told(answer, len(job.entries)) else "that cannot be"
            case protocol.InputsMade():
                return None if _are_times((answer.seconds,)) else "that is no time"
            case protocol.Answer():
                return None if _are_times((*answer.known_ns, *answer.new_ns)) else "with times that are none"
            case protocol.TakenBlock() if isinstance(job, protocol.TakeBlock):
                fits = len(answer.call_ns) == len(answer.device_ns) == len(job.lead_in) and answer.throttled >= 0
                return None if fits and _are_times((*answer.call_ns, answer.rested_s)) else "that is none"
            case protocol.Opened() if isinstance(job, protocol.OpenCase):
                fits = len(answer.lead_in) == len(job.entries) and all(0 <= calls <= _MOST for calls in answer.lead_in)
                return None if fits else "with other lead-ins than there are entries"
        if isinstance(job, protocol.CaseJob) and not _entries(answer) <= {*job.entries}:
            return "about an entry that is not asked for"
        return None


def _entries(answer: Any) -> set[Entry]:
    if isinstance(answer, outcome.TimedRound):
        return {samples.entry for samples in answer.entries}
    entry = answer if isinstance(answer, Entry) else getattr(answer, "entry", None)
    return set() if entry is None else {entry}


def _why_no_round(answer: outcome.TimedRound) -> str | None:
    if answer.stop_reason not in outcome.STOP_REASONS:
        return "without a reason to stop"
    if not answer.entries or len(_entries(answer)) < len(answer.entries):
        return "that does not have each entry once"
    complete = all(_is_complete(samples, len(answer.throttled)) for samples in answer.entries)
    return None if complete else "with samples that do not belong together"


def _is_told(answer: protocol.TimedCase, entries: int) -> bool:
    """Return whether timed calls are reported for existing entries, each once."""
    indices = [one.index for one in answer.entries]
    return (
        len({*indices}) == len(indices) > 0
        and all(0 <= index < entries for index in indices)
        and 1 <= answer.sets <= _MOST_SETS
        and all(one.call_ns and _are_times((*one.call_ns, *one.fresh_ns, one.warm_up_ns)) for one in answer.entries)
        and all(0 <= one.captures <= _MOST_CAPTURES for one in answer.entries)
        and all(0 <= one.lead_in <= _MOST and {*one.kept} <= {*range(answer.sets)} for one in answer.entries)
        and _are_times((answer.measuring_s,))
    )


def _is_complete(samples: outcome.EntrySamples, blocks: int) -> bool:
    columns = [samples.position, samples.at_ns, samples.call_ns, samples.host_ns, samples.device_ns, samples.stream_ns]
    lengths = {len(column) for column in columns if column is not None}
    times = [[value for value in column if value is not None] for column in columns[2:] if column is not None]
    return len(lengths) == 1 and 0 < max(lengths) <= blocks and all(map(_are_times, times))


def _are_times(values: Sequence[float]) -> bool:
    return min(values, default=0) >= 0 and max(values, default=0) < math.inf and not any(map(math.isnan, values))
