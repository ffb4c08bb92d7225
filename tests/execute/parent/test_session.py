"""A session whose workers are stand-ins that crash where they are told: every planned entry has exactly one outcome."""

import functools
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbench.errors import InterruptedRunError
from pairbench.execute.parent import session as module
from pairbench.execute.parent.pool import WorkerEndedError
from pairbench.execute.parent.session import DeviceSession, RoundWorkers
from pairbench.execute.protocol import Ended, ProfileCase, TimeCase, VerifyCase
from pairbench.model.environment import Device, Settings
from pairbench.model.outcome import NOT_PROFILED, Launches, Outcome, Profile, Status, Verification
from pairbench.model.plan import Plan, PlannedCase
from tests.execute.made import CPU, FakeWorkers, planned, timed_round

# What happens to an entry in a stage: nothing bad, an end of its own, an end of its worker, a mismatch.
Fates = dict[tuple[str, str], str]
FATES = ("fine", "raises", "crashes", "mismatches")
ENDS: dict[str, Callable[[int], Exception]] = {
    "crashes": lambda index: WorkerEndedError(index, Status.FAILED, "crashed"),
    "crashes the case": lambda _: WorkerEndedError(-1, Status.TIMEOUT, "the case's own code hung"),
    "interrupts": lambda _: InterruptedRunError(),
}


class FakeWorker:
    """Does jobs by a script of fates."""

    def __init__(self, fates: Fates, jobs: list[Any]) -> None:
        self._fates = fates
        self._jobs = jobs
        self.alive, self.used = True, False
        self.log = SimpleNamespace(line=lambda _: None)

    def request(self, job: Any) -> Iterator[Any]:
        assert self.alive, "a job for a dead worker"
        self._jobs.append(job)
        stage = {VerifyCase: "verify", ProfileCase: "profile", TimeCase: "time"}[type(job)]
        timed = []
        for index, entry in enumerate(job.entries):
            fate = self._fates.get((stage, entry.implementation), "fine")
            wrong = {"status": Status.MISMATCHED, "reason": "wrong"} if fate == "mismatches" else {}
            self.alive = fate not in ENDS
            if not self.alive:
                raise ENDS[fate](index)
            if fate == "raises":
                yield Ended(entry=entry, status=Status.FAILED, reason="raised")
                continue
            timed.append(entry)  # what is wrong was timed all the same
            if stage == "verify":
                yield Verification(**{"entry": entry, "status": Status.VERIFIED, **wrong})
            elif wrong:
                yield Ended(**{"entry": entry, **wrong})
            elif stage == "profile":
                yield Profile(entry=entry, launches=Launches(status="exact"), ops=1)
        if stage == "time" and timed:
            yield timed_round(*timed, index=job.round)


class Observer:
    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.steps: list[str] = []
        self.stepped_count = 0

    def step(self, device: Device, stage: str, case: str) -> None:
        self.steps.append(stage)

    def stepped(self, device: Device) -> None:
        self.stepped_count += 1

    def so_far(self, outcomes: list[Outcome]) -> None:
        assert outcomes and not set(map(id, outcomes)) & set(map(id, self.outcomes))

    def finished(self, outcomes: list[Outcome]) -> None:
        assert outcomes
        self.outcomes += outcomes


def run(cases: list[PlannedCase], fates: Fates) -> tuple[Observer, list[Any]]:
    observer, jobs = Observer(), list[Any]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Workers", lambda site, device, **more: FakeWorkers(lambda: FakeWorker(fates, jobs)))
        patch.setattr(module, "judge_of", lambda *_, **__: None)
        site: Any = SimpleNamespace(settings=Settings(rounds=2))
        names = ("step", "stepped", "finished", "so_far")
        heard = module.Observer(**{name: getattr(observer, name) for name in names})
        session = DeviceSession(site, CPU, Plan(cases=tuple(cases)), heard)
        try:
            session.run(2)
        except InterruptedRunError:
            observer.steps.append("interrupted")
    return observer, jobs


def statuses(observer: Observer) -> dict[str, str]:
    return {outcome.entry.implementation: outcome.status.value for outcome in observer.outcomes}


NAMES = ("baseline", "a", "b")


@settings(max_examples=20)
@given(
    fates=st.dictionaries(
        st.tuples(st.sampled_from(["verify", "profile", "time"]), st.sampled_from(NAMES)),
        st.sampled_from([*FATES, "interrupts", "crashes the case"]),
    )
)
def test_every_entry_has_exactly_one_outcome_whatever_happens(fates: Fates) -> None:
    cases = [planned(rows=rows, modes=("eager", "compile")) for rows in (4, 8)]
    observer, _ = run(cases, fates)
    counted = Counter((outcome.case.key, outcome.entry) for outcome in observer.outcomes)
    assert counted == {(case.case.key, entry): 1 for case in cases for entry in case.entries}
    for outcome in observer.outcomes:
        assert outcome.status is not Status.VERIFIED
        assert bool(outcome.rounds) == (outcome.status is Status.MEASURED)
        assert outcome.status is Status.MEASURED or outcome.reason


@settings(max_examples=20)
@given(
    fates=st.dictionaries(
        st.tuples(st.sampled_from(["verify", "profile", "time"]), st.just("a")),
        st.sampled_from(FATES),
    )
)
def test_what_one_variant_does_harms_no_other(fates: Fates) -> None:
    observer, _ = run([planned()], fates)
    found = statuses(observer)
    assert (found["baseline"], found["b"]) == ("measured", "measured")
    harmless = all(fate == "fine" or stage == "profile" for (stage, _), fate in fates.items())
    assert (found["a"] == "measured") == harmless


def test_a_fine_run_goes_through_all_stages() -> None:
    observer, jobs = run([planned(rows=4), planned(rows=8)], {})
    assert observer.steps == [*["verify"] * 2, *["round 1/2"] * 2, *["round 2/2"] * 2, *["profile"] * 2]
    assert observer.stepped_count == 8
    assert [type(job).__name__ for job in jobs] == [*["VerifyCase"] * 2, *["TimeCase"] * 4, *["ProfileCase"] * 2]
    assert [job.round for job in jobs if isinstance(job, TimeCase)] == [0, 0, 1, 1]
    assert {len(outcome.rounds) for outcome in observer.outcomes} == {2}
    assert all(outcome.profile and outcome.profile.ops == 1 for outcome in observer.outcomes)
    # A round is told how quick calls were in those before.
    told = [job.earlier_ns for job in jobs if isinstance(job, TimeCase)]
    assert told == [(), (), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)]


def test_without_a_baseline_nothing_is_verified() -> None:
    observer, jobs = run([planned()], {("verify", "baseline"): "crashes"})
    assert statuses(observer) == {"baseline": "failed", "a": "skipped", "b": "skipped"}
    assert observer.outcomes[1].reason == "nothing to verify against: the baseline failed (crashed)"
    assert len(jobs) == 1


def test_a_crash_is_asked_again_without_the_culprit() -> None:
    _, jobs = run([planned()], {("verify", "a"): "crashes"})
    verifications = [[entry.implementation for entry in job.entries] for job in jobs if isinstance(job, VerifyCase)]
    assert verifications == [["baseline", "a", "b"], ["b"]]


def test_what_is_wrong_is_reported_at_once_and_never_timed_nor_profiled() -> None:
    observer, jobs = run([planned(rows=4), planned(rows=8)], {("verify", "a"): "mismatches"})
    assert [outcome.entry.implementation for outcome in observer.outcomes[:2]] == ["a", "a"]
    assert all(entry.implementation != "a" for job in jobs if not isinstance(job, VerifyCase) for entry in job.entries)


def test_a_failed_profile_does_not_cost_the_timing() -> None:
    observer, _ = run([planned()], {("profile", "a"): "crashes"})
    found = {outcome.entry.implementation: outcome for outcome in observer.outcomes}
    assert found["a"].status is Status.MEASURED and len(found["a"].rounds) == 2
    assert found["a"].profile is not None and found["a"].profile.launches.status == "unavailable"
    assert found["a"].profile.reason == "not profiled: crashed"
    assert found["b"].profile is not None and found["b"].profile.launches.status == "exact"


def test_an_interruption_keeps_the_rounds_that_were_finished() -> None:
    observer, _ = run([planned(rows=4), planned(rows=8)], {("profile", "baseline"): "interrupts"})
    assert observer.steps[-1] == "interrupted"
    found = [(outcome.status, len(outcome.rounds), outcome.reason) for outcome in observer.outcomes]
    assert found == [(Status.MEASURED, 2, NOT_PROFILED)] * 6


def test_rounds_go_through_the_cases_in_different_orders() -> None:
    _, jobs = run([planned(rows=rows) for rows in range(12)], {})
    orders = [
        tuple(dict(job.case.axes)["rows"] for job in group)
        for _, group in itertools.groupby([job for job in jobs if isinstance(job, TimeCase)], lambda job: job.round)
    ]
    assert len(orders) == 2 and orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])


@pytest.mark.parametrize(
    ("run_s", "sparing"), [(110.0, [False, False, True, True]), (130.0, [False, False, False, True])]
)
def test_calls_are_seldom_judged_on_new_values_once_that_has_had_its_part_of_the_run(
    run_s: float, sparing: list[bool]
) -> None:
    """Two cases took 3 s of it together in the first round: more than 2.5 % of 110 s, and less than of 130."""
    clock = itertools.chain([0.0], itertools.repeat(run_s))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: next(clock))
        patch.setitem(globals(), "timed_round", functools.partial(timed_round, judging_s=1.5))
        _, jobs = run([planned(rows=4), planned(rows=8)], {})
    assert [job.sparing for job in jobs if isinstance(job, TimeCase)] == sparing


@pytest.mark.parametrize(("fate", "thorough"), [("mismatches", [False, True]), ("fine", [False, False])])
def test_where_one_has_ended_the_others_are_judged_as_in_the_first_round(fate: str, thorough: list[bool]) -> None:
    """There is time for more calls of each then, and what they remember may show only now."""
    _, jobs = run([planned()], {("time", "a"): fate})
    assert [job.thorough for job in jobs if isinstance(job, TimeCase)] == thorough


def test_a_worker_that_says_nothing_ends_its_case_and_no_other() -> None:
    answers = FakeWorker.request

    def request(self: FakeWorker, job: Any) -> Iterator[Any]:
        return iter(()) if dict(job.case.axes)["rows"] == 4 else answers(self, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeWorker, "request", request)
        outcomes, _ = run([planned(rows=4), planned(rows=8)], {})
    ends = {(dict(one.case.axes)["rows"], one.status, one.reason) for one in outcomes.outcomes}
    assert ends == {
        (4, Status.FAILED, "its worker gave no result for VerifyCase"),
        (8, Status.MEASURED, None),
    }


class Fake:
    """Says what is done to it."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name, self.started = log, name, False

    def get(self) -> None:
        if not self.started:
            self.started = True
            self.log.append(f"{self.name} starts")

    def wait(self) -> None:
        self.log.append(f"{self.name} is there")

    def close(self) -> None:
        self.log.append(f"{self.name} ends")


def makes(log: list[str], each: str = "a") -> Any:
    """Return what makes the workers of one round after the other, named by number and letter."""
    numbers = itertools.count(1)

    def make() -> tuple[Fake, ...]:
        number = next(numbers)
        return tuple(Fake(log, f"{number}{letter}") for letter in each)

    return make


def test_all_are_there_before_the_first_round_and_end_with_theirs() -> None:
    log: list[str] = []
    with RoundWorkers(makes(log, "ab"), 2) as ahead:
        assert log == ["1a starts", "1b starts", "2a starts", "2b starts"]
        log.clear()
        with ahead.round() as (one, other):
            assert (one.name, other.name) == ("1a", "1b")  # type: ignore[attr-defined]
            assert log == ["1a is there", "1b is there", "2a is there", "2b is there"]
        assert log[4:] == ["1a ends", "1b ends"]
    assert log[6:] == ["2a ends", "2b ends"], "a round that was not reached"


@pytest.mark.parametrize("rounds_wanted", [12, 3])
def test_no_more_are_there_at_once_than_memory_is_for(monkeypatch: pytest.MonkeyPatch, rounds_wanted: int) -> None:
    monkeypatch.setattr(module, "_AHEAD", 4)
    log, names = list[str](), list[str]()
    with RoundWorkers(makes(log), rounds_wanted) as ahead:
        assert len(log) == min(4, rounds_wanted)
        for _ in range(rounds_wanted + 1):  # one more than was said
            with ahead.round() as (workers,):
                names.append(workers.name)  # type: ignore[attr-defined]
                events = Counter(line.rpartition(" ")[2] for line in log)
                assert events["starts"] - events["ends"] <= 4
    assert names == [f"{number}a" for number in range(1, rounds_wanted + 2)]
