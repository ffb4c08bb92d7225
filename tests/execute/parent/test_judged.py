import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from pairbench.execute import protocol
from pairbench.execute.parent import judged as module
from pairbench.execute.parent.judged import ClocksDisagreeError, OutsideClock, judged_results
from pairbench.execute.parent.lock import LoadMeter
from pairbench.execute.parent.pool import WorkerEndedError
from pairbench.execute.wire import NoMessageError
from pairbench.model.outcome import ImpostorResult, Status, Verification
from pairbench.model.plan import Entry
from tests.execute.made import BASELINE, VARIANT, about, samples_of, timed_round

ABOUT = about(BASELINE, VARIANT)
VERIFY = protocol.VerifyCase(**ABOUT, automatic_impostors=False, declared_impostors=("wrong",), outside=True)
TIME = protocol.TimeCase(**ABOUT, round=0, capturable=(), outside=True)


@dataclass
class Process:
    """A process that answers by a script: for each job what it says; what it is replied is written down."""

    script: Callable[[Any], Iterator[Any]]
    replies: list[Any] = field(default_factory=list)
    outputs: int = 0
    closed: bool = False

    @property
    def line(self) -> SimpleNamespace:
        return SimpleNamespace(received_at=time.monotonic())

    def request(self, job: Any, outputs: int | None = None) -> Iterator[Any]:
        yield from self.script(job)

    def reply(self, answer: Any) -> None:
        self.replies.append(answer)

    def close(self) -> None:
        self.closed = True

    def get(self) -> "Process":
        return self


def results(worker: Process, judge: Process, job: Any) -> list[Any]:
    return list(judged_results(worker, judge, job))  # type: ignore[arg-type]


def says(*messages: Any) -> Process:
    return Process(lambda _: iter(messages))


def verdicts(*found: protocol.Judged | protocol.Ended, held: tuple[Any, ...] = ()) -> Process:
    """Return a judge that gives these verdicts on outputs, one after the other, and finds the inputs right."""
    left = iter(found)

    def script(job: Any) -> Iterator[Any]:
        match job:
            case protocol.HoldCase():
                yield from held
            case protocol.Inputs():
                yield protocol.Judged(mismatch=None)
            case protocol.Outputs():
                yield next(left)

    return Process(script)


def verified(entry: Entry, status: Status = Status.VERIFIED, reason: str | None = None) -> Verification:
    return Verification(entry=entry, status=status, reason=reason)


def outputs(index: int, *seeds: int) -> list[protocol.Outputs]:
    return [protocol.Outputs(index=index, seed=seed, described="[]") for seed in seeds]


RIGHT, WRONG = protocol.Judged(mismatch=None, note="no oracle"), protocol.Judged(mismatch="output differs")


NOT_SENT = "its worker did not send its outputs to be judged"
OUT_OF_MEMORY = protocol.Ended(entry=None, status=Status.OOM, reason="out of memory")
ACCUMULATES = verified(VARIANT, Status.MISMATCHED, f"its second backward: {protocol.JUDGED_OUTSIDE}; it accumulates")
CHANGES = verified(VARIANT, Status.MISMATCHED, "changes its input 'x'")


@pytest.mark.parametrize(
    ("seeds", "said", "judged", "status", "words", "replies"),
    [
        # What is right for both seeds, and no other.
        ((0, 1), verified(VARIANT, reason="n"), [RIGHT, RIGHT], Status.VERIFIED, "no oracle; n", [True, True]),
        ((), verified(VARIANT), [], Status.FAILED, NOT_SENT, []),
        ((0,), verified(VARIANT), [RIGHT], Status.FAILED, NOT_SENT, [True]),
        ((0, 0), verified(VARIANT), [RIGHT, RIGHT], Status.FAILED, NOT_SENT, [True, True]),
        # What was wrong once stays so, and the judge is not asked again.
        ((0, 1), verified(VARIANT), [WRONG], Status.MISMATCHED, "output differs", [False, False]),
        # The verdict stands where the worker has left room for it; one that it invents is not believed.
        ((0,), ACCUMULATES, [WRONG], Status.MISMATCHED, "its second backward: output differs; it accumulates", [False]),
        ((), verified(VARIANT, Status.MISMATCHED, protocol.JUDGED_OUTSIDE), [], Status.FAILED, NOT_SENT, []),
        # What the worker itself finds wrong.
        ((), CHANGES, [], Status.MISMATCHED, "changes its input 'x'", []),
    ],
)
def test_an_entry_is_what_the_judge_says_of_its_outputs(
    seeds: tuple[int, ...], said: Verification, judged: list[Any], status: Status, words: str, replies: list[bool]
) -> None:
    worker = says(*outputs(1, *seeds), said)
    (found,) = results(worker, verdicts(*judged), VERIFY)
    assert (found.entry, found.status, found.reason) == (VARIANT, status, words)
    assert worker.replies == replies


def test_a_baseline_whose_calls_differ_is_called_so_and_variants_say_why_they_were_skipped() -> None:
    wrong = protocol.Judged(mismatch="output differs from the baseline's in 3 of 8 elements")
    skipped = protocol.without_baseline((VARIANT,), Status.MISMATCHED, protocol.JUDGED_OUTSIDE)
    told = [*outputs(0, 0), verified(BASELINE, Status.MISMATCHED, protocol.JUDGED_OUTSIDE), *skipped]
    baseline, variant = results(says(*told), verdicts(wrong), VERIFY)
    assert baseline.reason.startswith("its calls on the same inputs differ, or inputs() keeps tensors in a closure")
    assert baseline.reason.endswith(f": {wrong.mismatch}")
    assert variant.status is Status.SKIPPED and variant.reason == (
        "nothing to verify against: the baseline mismatched (output differs from the baseline's in 3 of 8 elements)"
    )
    (alone,) = results(says(*skipped), verdicts(), VERIFY)
    assert NOT_SENT in alone.reason


def test_an_impostor_is_rejected_by_the_judge() -> None:
    told = ImpostorResult(impostor="wrong", declared=True, rejected=True, reason=protocol.JUDGED_OUTSIDE)
    (found,) = results(says(*outputs(2, 0), told), verdicts(WRONG), VERIFY)
    assert found.rejected and found.reason == "output differs"


def test_other_inputs_in_another_process_are_the_suite_s_fault() -> None:
    others = protocol.Judged(mismatch="inputs() makes others")
    judge = Process(lambda job: iter([others] if isinstance(job, protocol.Inputs) else []))
    worker = says(protocol.Inputs(sums=(("0:x", "1"),)))
    (ended,) = results(worker, judge, VERIFY)
    assert ended == protocol.Ended(entry=None, status=Status.FAILED, reason="inputs() makes others")
    assert worker.replies == [False]


def test_a_judge_that_ends_takes_the_worker_with_it_that_waits_for_it() -> None:
    def script(job: Any) -> Iterator[Any]:
        if isinstance(job, protocol.Outputs):
            raise WorkerEndedError(1, Status.FAILED, "crashed")
        yield from ()

    worker = says(*outputs(1, 0))
    with pytest.raises(WorkerEndedError):
        results(worker, Process(script), VERIFY)
    assert worker.closed


def taken(asks: bool, call_ns: tuple[float, ...] = (), **changes: Any) -> protocol.Taken:
    none = (0,) * len(call_ns)
    turn_ns = tuple(int(2 * value) for value in call_ns)
    plain: dict[str, Any] = {"position": none, "at_ns": none, "turn_ns": turn_ns, "now_ns": 0, "since_ns": 0}
    return protocol.Taken(call_ns=call_ns, asks=asks, **{**plain, **changes})


def timed_case(kept: tuple[int, ...] = ()) -> protocol.TimedCase:
    entry: dict[str, Any] = {"call_ns": (9.0,), "fresh_ns": (), "lead_in": 1, "warm_up_ns": 1.0, "kept": kept}
    entries = tuple(protocol.TimedEntry(index=index, **entry, began_on_new=False) for index in (0, 1))
    return protocol.TimedCase(entries=entries, measuring_s=1.0, sets=3)


ROUND = timed_round(BASELINE, VARIANT)


@pytest.mark.parametrize(("job", "said"), [(VERIFY, verified(VARIANT)), (TIME, ROUND)], ids=["verify", "time"])
def test_a_case_for_which_the_judge_has_no_room_is_judged_by_its_worker(job: Any, said: Any) -> None:
    worker = Process(lambda given: iter([given, said]))
    assert results(worker, says(protocol.TooLarge()), job) == [replace(job, outside=False), said]


BASELINE_IS_WRONG = protocol.Ended(entry=BASELINE, status=Status.MISMATCHED, reason="the baseline is wrong")
NO_ROOM = protocol.Ended(entry=None, status=Status.OOM, reason="out of memory beside other workers")


@pytest.mark.parametrize(("said", "ended"), [(BASELINE_IS_WRONG, BASELINE_IS_WRONG), (protocol.TooLarge(), NO_ROOM)])
def test_where_the_baseline_is_wrong_or_the_judge_has_no_room_beside_other_workers_nobody_else_is_asked(
    said: Any, ended: protocol.Ended
) -> None:
    worker = Process(lambda _: pytest.fail("it is not asked"))
    assert results(worker, says(said), replace(VERIFY, beside=True)) == [ended]


@pytest.mark.parametrize(
    "said",
    [
        [replace(verified(VARIANT), status=Status.SKIPPED, reason=f"{protocol.HARNESS_LACKED}: tried to allocate")],
        [protocol.Ended(entry=VARIANT, status=Status.OOM, reason="out of memory")],
        [*outputs(1, 0), verified(VARIANT)],
    ],
    ids=["in the harness", "in the call", "in the judge"],
)
def test_what_lacks_memory_beside_the_judge_is_verified_once_more_without_it(said: list[Any]) -> None:
    """Other entries keep their verdict, and an out-of-memory counts only where the judge holds nothing."""
    asked, inside = list[protocol.VerifyCase](), verified(VARIANT)

    def script(job: Any) -> Iterator[Any]:
        asked.append(job)
        right = protocol.Ended(entry=BASELINE, status=Status.FAILED, reason="it says so")
        yield from [right, *said] if job.outside else [verified(BASELINE), inside]

    judge = verdicts(OUT_OF_MEMORY, held=(protocol.HoldsMuch(),))
    first, second = results(Process(script), judge, VERIFY)
    assert (first.reason, second) == ("it says so", inside)
    assert [job.outside for job in asked] == [True, False] and judge.closed
    for held, beside in (((), False), ((protocol.HoldsMuch(),), True)):
        # A variant may say that it lacks memory, to be judged where it can reach the judge.
        judge = verdicts(OUT_OF_MEMORY, held=held)
        _, short = results(Process(script), judge, replace(VERIFY, beside=beside))
        lacked = protocol.HARNESS_LACKED in short.reason
        assert (short.entry, short.status) == (VARIANT, Status.SKIPPED if lacked else Status.OOM)
        assert asked[-1].outside and not judge.closed


@pytest.mark.parametrize(
    ("sent", "told", "recorded"),
    [
        ((3.0, 4.0), (0.1, 0.1), (3.0, 4.0)),
        ((3.0, None), None, None),  # where the host cannot be hidden in one of them
        ((3.0, None), (0.1, 0.1), "other samples"),
        ((), (0.1, 0.1), "other samples"),
    ],
)
def test_latencies_of_a_gpu_are_those_that_came_while_they_were_taken(sent: Any, told: Any, recorded: Any) -> None:
    clock = OutsideClock()
    clock.take(taken(False, (9.0, 9.0), host_ns=(5.0, 6.0), device_ns=sent, stream_ns=(None, 7.0)), 0.0)
    samples = samples_of(VARIANT, 1.0, 1.0, device_ns=told, device_timer=told and "spin")
    told_round = timed_round(VARIANT, blocks=2, entries=(samples,))
    if isinstance(recorded, str):
        with pytest.raises(NoMessageError, match=recorded):
            clock.as_taken(told_round, ())
        return
    (found,) = clock.as_taken(told_round, ()).entries
    assert (found.call_ns, found.host_ns, found.device_ns) == ((9.0, 9.0), (5.0, 6.0), recorded)
    assert found.stream_ns == (None, 7.0)


def timing_judge(*said: Any, asked: list[Any] | None = None) -> Process:
    def script(job: Any) -> Iterator[Any]:
        if asked is not None:
            asked.append(job)
        yield from [protocol.Alone(latency_ns=(5.0,) * 9, plain=True)] if isinstance(job, protocol.TimeAlone) else said

    return Process(script)


def test_samples_are_those_that_came_while_they_were_taken_and_seeds_are_the_parent_s() -> None:
    ended = protocol.Ended(entry=VARIANT, status=Status.MISMATCHED, reason="remembers results")
    asked = list[Any]()
    judge = timing_judge(protocol.Request(kind="kept", index=1), ended, asked=asked)
    answer = protocol.Answer(described="[]")
    worker = says(protocol.DrawSeed(), taken(True, (2.0, 1.0)), taken(False), timed_case((0,)), answer, ROUND)
    found = results(worker, judge, TIME)
    assert found[0] == ended
    assert [samples.call_ns for samples in found[1].entries] == [(2.0,), (1.0,)]
    assert found[1].alone_ns == (5.0,) * 9
    seed, _, request, end = worker.replies
    assert (request.kind, end.kind) == ("kept", "end") and isinstance(judge.replies[0], protocol.Answer)
    (told,) = [job for job in asked if isinstance(job, protocol.JudgeTimed)]
    assert told.first_seed == seed and [one.call_ns for one in told.timed.entries] == [(2.0,), (1.0,)]


def test_a_case_that_ends_while_it_is_judged_leaves_no_judge_in_the_middle() -> None:
    ended = protocol.Ended(entry=None, status=Status.FAILED, reason="replaces time.time")
    judge = timing_judge(protocol.Request(kind="again", index=1, seeds=(3,)))
    worker = says(taken(True, (2.0, 1.0)), taken(False), timed_case((0,)), ended)
    assert results(worker, judge, TIME) == [ended]
    assert judge.closed


LACKED = protocol.Ended(entry=VARIANT, status=Status.SKIPPED, reason=f"{protocol.JUDGE_LACKED}: out of memory")
WRONG_CALL = protocol.Ended(entry=BASELINE, status=Status.MISMATCHED, reason="its timed call is wrong")


@pytest.mark.parametrize(
    ("said", "judges"),
    [((LACKED, protocol.TooLarge()), True), ((LACKED, WRONG_CALL, protocol.TooLarge()), False), ((LACKED,), False)],
)
def test_where_the_judge_lacks_memory_its_worker_times_once_more_and_judges(said: Any, judges: bool) -> None:
    asked = list[protocol.TimeCase]()

    def script(job: protocol.TimeCase) -> Iterator[Any]:
        asked.append(job)
        yield from [taken(True, (2.0, 1.0)), taken(False), timed_case((0,)), ROUND] if job.outside else [ROUND]

    found = results(Process(script), timing_judge(*said), TIME)
    assert [job.outside for job in asked] == [True, False][: 1 + judges]
    ends = [one for one in found if isinstance(one, protocol.Ended)]
    assert set(ends) == (set() if judges else {one for one in said if isinstance(one, protocol.Ended)})
    assert len(found) == len(ends) + 1


@pytest.mark.parametrize("foreign_cores", [0.0, 4096.0])
def test_a_baseline_that_looks_slowed_is_timed_alone_once_more_but_not_on_a_busy_host(
    foreign_cores: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = iter([None])  # the time is too short at first
    monkeypatch.setattr(LoadMeter, "foreign_cores", lambda self: next(read, foreign_cores))
    asked = list[Any]()
    judge = timing_judge(asked=asked)
    slow = taken(True, (1e6, 1.0) * 9)
    worker = says(slow, taken(False), timed_case((0,)), timed_round(BASELINE, VARIANT, blocks=9, timer="perf_counter"))
    (found,) = results(worker, judge, TIME)
    again = [] if foreign_cores else [protocol.TimeAlone]
    assert len(found.alone_ns) == 18 * len(again)
    assert [type(job) for job in asked] == [protocol.TimeAlone, protocol.JudgeTimed, *again]


BASELINE_US, OVERHEAD_US = 400, 20


class Worker:
    """Times two entries in blocks, with a clock and samples that may be false, and tells a parent that may be late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.us = 1.0
        """Time that has passed, by which the parent's clock goes too."""
        self.clock = OutsideClock()
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.us / 1e6))

    def time(
        self,
        *,
        variant_us: float = 200,
        hidden: float = 0.0,
        said: float = 1.0,
        late: Callable[[], float] = lambda: 0.0,
        blocks: int = 120,
        asks: bool = True,
    ) -> None:
        # The clock goes slower by the part `hidden` of the variant's calls, and `said` times what it shows is recorded.
        behind, since = 0.0, 0

        def now() -> int:
            return int(1e3 * (self.us - behind))

        def tell(ask: bool, call_ns: tuple[float, ...] = (), turn_ns: tuple[int, ...] = ()) -> None:
            nonlocal since
            told = taken(ask, call_ns, turn_ns=turn_ns, now_ns=now(), since_ns=since)
            delay = late()
            if ask:  # it waits
                self.us += delay
                self.clock.take(told, self.us / 1e6)
                self.us += delay
                since = now()
            else:
                self.clock.take(told, (self.us + delay) / 1e6)

        tell(True)
        call_ns, turn_ns = list[float](), list[int]()
        for block in range(blocks):
            calls, turns = [0.0, 0.0], [0, 0]
            for place, us in ((0, float(BASELINE_US)), (1, variant_us)):
                at = now()
                for _ in range(2):
                    began = now()
                    self.us += us
                    behind += hidden * us * place
                    calls[place] = (now() - began) * (said if place else 1.0)
                self.us += OVERHEAD_US
                turns[place] = now() - at
            call_ns += calls
            turn_ns += turns
            if block % 3 == 2:
                tell(block % 40 == 38, (*call_ns,), (*turn_ns,))
                call_ns.clear()
                turn_ns.clear()
        tell(True)
        if asks:
            tell(False)

    def check(self, *, plain: bool = True) -> list[tuple[float, ...]]:
        """Check what was told, and return the latencies of each entry."""
        told = self.clock.with_samples(timed_case())
        self.clock.check_clock()
        self.clock.check_calls(told, plain=plain)
        return [entry.call_ns for entry in told.entries]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def test_an_honest_worker_is_believed_however_late_its_messages_are(worker: Worker) -> None:
    draw = random.Random(0)
    worker.time(late=lambda: draw.choice([50, 100, 300_000]))
    worker.check()


PASSED = "have passed while it says that"


@pytest.mark.parametrize(
    ("lies", "late_us", "words"),
    [
        ({"hidden": 0.5}, 0, PASSED),
        ({"hidden": 0.5}, 400_000, PASSED),
        ({"hidden": -0.5}, 0, PASSED),
        ({"variant_us": 2000, "said": 0.25}, 0, r"calls take 1000\.0 us of a turn by what was recorded"),
        ({"variant_us": 2000, "said": 3}, 0, "more than the turns that they are made in"),
    ],
)
def test_clocks_and_samples_that_lie_are_found(
    worker: Worker, lies: dict[str, float], late_us: float, words: str
) -> None:
    delays = itertools.cycle([0.0, 0.0, 0.0, late_us])
    worker.time(**lies, late=lambda: next(delays))  # type: ignore[arg-type]
    with pytest.raises(ClocksDisagreeError, match=words):
        worker.check()


def test_where_a_state_is_put_back_nobody_knows_how_long_a_turn_may_be(worker: Worker) -> None:
    worker.time(variant_us=2000, said=0.25)
    worker.check(plain=False)


def test_who_does_not_say_when_it_had_an_answer_is_not_believed(worker: Worker) -> None:
    worker.time(asks=False)
    with pytest.raises(NoMessageError):
        worker.check()


def test_a_worker_that_begins_anew_is_judged_by_its_newest_samples(worker: Worker) -> None:
    worker.time(hidden=0.5, blocks=30)
    worker.time()
    assert worker.check() == [(BASELINE_US * 1e3,) * 120, (200e3,) * 120]
