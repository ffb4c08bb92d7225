import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from pairbench.errors import PairbenchError
from pairbench.execute import protocol
from pairbench.execute.parent import interleaving as module
from pairbench.execute.parent import session as session_module
from pairbench.execute.parent.interleaving import Interleaving
from pairbench.execute.parent.pool import WorkerEndedError
from pairbench.model.environment import Device, Settings
from pairbench.model.outcome import (
    PRECISE,
    TIME_CAP,
    Agreement,
    Launches,
    OutputsCompared,
    Profile,
    Status,
    Verification,
)
from pairbench.model.plan import Entry, Plan
from tests.execute.made import GPU, FakeWorkers, planned, timed_round

Fates = dict[tuple[str, str, str], str]


class Log:
    """The requests to the workers of both sides, in order, and the side that was at work."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.at_work: str | None = None

    def of(self, kind: type) -> list[tuple[str, Any]]:
        return [(side, job) for side, job in self.asked if isinstance(job, kind)]


class FakeWorker:
    """Does a side's jobs by a script of fates: (side, stage, implementation) -> what happens."""

    def __init__(self, side: str, fates: Fates, log: Log) -> None:
        self._side = side
        self._fates = fates
        self._log = log
        self._open: protocol.OpenCase | None = None
        self._blocks = 0
        self.alive, self.used = True, False
        self.log = SimpleNamespace(line=lambda _: None)

    def _fate(self, stage: str, entry: Entry | None = None) -> str:
        return self._fates.get((self._side, stage, entry.implementation if entry else ""), "")

    def request(self, job: Any) -> Iterator[Any]:
        assert self.alive, "a job for a dead worker"
        assert self._log.at_work is None, f"{self._side} is asked while {self._log.at_work} is at work"
        self._log.asked.append((self._side, job))
        self._log.at_work = self._side
        try:
            yield from self._answer(job)
        finally:
            self._log.at_work = None

    def _answer(self, job: Any) -> Iterator[Any]:
        match job:
            case protocol.OpenCase():
                self._open, self._blocks = job, 0
                ended = yield from self._ends("open", job.entries)
                if not ended and not self._fate("opens"):
                    yield protocol.Opened(lead_in=(7 if self._side == "old" else 3,) * len(job.entries))
            case protocol.TakeBlock():
                assert self._open is not None and len(job.lead_in) == len(self._open.entries)
                self._blocks += 1
                if self._blocks <= 5 or not (yield from self._ends("turn", self._open.entries)):
                    yield protocol.TakenBlock(
                        call_ns=(100.0 + self._blocks % 2,) * len(job.lead_in),
                        device_ns=(None,) * len(job.lead_in),
                        throttled=2 if self._fate("throttles") == str(self._blocks) else 0,
                        rested_s=self._blocks * float(self._fate("rests") or 0),
                    )
            case protocol.CloseCase():
                assert self._open is not None
                yield from self._ends("close", self._open.entries)
                yield timed_round(
                    *self._open.entries, index=self._open.round, blocks=self._blocks, stop_reason=job.stop_reason
                )
                self._open = None
            case protocol.VerifyCase():
                ended = yield from self._ends("verify", job.entries)
                yield from (Verification(entry=e, status=Status.VERIFIED) for e in job.entries if e not in ended)
            case protocol.ProfileCase():
                yield from (Profile(entry=e, launches=Launches(status="exact")) for e in job.entries)
            case protocol.FingerprintOutputs():
                yield protocol.Fingerprint(entry=None, text=self._fate("inputs"))
                yield from (protocol.Fingerprint(entry=e, text=self._fate("outputs", e)) for e in job.entries)
            case protocol.SaveOutputs():
                if self._fate("save", *job.entries):
                    yield protocol.Ended(entry=job.entries[0], status=Status.FAILED, reason="No space left on device")
                else:
                    job.file.write_text("outputs")
                    yield job.entries[0]
            case protocol.CompareOutputs():
                assert job.file.read_text() == "outputs"
                agreement = Agreement(self._fate("compare", *job.entries) or "within")
                yield OutputsCompared(entry=job.entries[0], agreement=agreement, reason="by so much")

    def _ends(self, stage: str, entries: tuple[Entry, ...]) -> Any:
        ended = []
        for index, entry in enumerate(entries):
            match self._fate(stage, entry):
                case "raises":
                    ended.append(entry)
                    yield protocol.Ended(entry=entry, status=Status.FAILED, reason="raised")
                case "crashes":
                    self.alive = False
                    raise WorkerEndedError(index, Status.FAILED, "crashed")
        return ended


def run(fates: Fates | None = None, old: Any = None, new: Any = None, again: bool = False) -> tuple[Interleaving, Log]:
    """Go through all stages with some cases on either side, and some fates."""
    log = Log()

    def workers(site: Any, device: Device, **_: Any) -> FakeWorkers:
        return FakeWorkers(lambda: FakeWorker(site.name, fates or {}, log))

    plans = (Plan(cases=tuple(old or [planned()])), Plan(cases=tuple(new or [planned()])))
    settings = Settings(rounds=2, min_samples=20, max_samples=100)
    sites: Any = tuple(SimpleNamespace(name=name, settings=settings) for name in ("old", "new"))
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as scratch:
        patch.setattr(module, "Workers", workers)
        patch.setattr(session_module, "Workers", workers)
        made = Interleaving(sites, GPU, plans, MagicMock(), Path(scratch))
        with made.ahead(2) as ahead:
            made.prepare()
            made.time(2, made.twins, ahead)
        made.profile()
        if again:
            with made.ahead(2) as ahead:
                made.time(2, made.twins, ahead, first=2)
        assert not list(Path(scratch).iterdir()), "outputs are gone once they were compared"
    return made, log


def statuses(made: Interleaving, side: int) -> dict[str, str]:
    return {
        entry.implementation: state.outcome(entry).status.value
        for state in made.sessions[side].states
        for entry in state.planned.entries
    }


def test_sides_take_turns_block_by_block_in_random_order_with_the_same_blocks_and_lead_ins() -> None:
    made, log = run(again=True)
    assert statuses(made, 0) == statuses(made, 1) == dict.fromkeys(("baseline", "a", "b"), "measured")
    turns = [side for side, _ in log.of(protocol.TakeBlock)]
    pairs = list(zip(turns[::2], turns[1::2], strict=True))
    assert all(set(pair) == {"old", "new"} for pair in pairs)
    first = [pair[0] for pair in pairs]
    assert 0.2 < first.count("old") / len(first) < 0.8
    assert {job.lead_in for _, job in log.of(protocol.TakeBlock)} == {(7, 7, 7)}
    for twin in made.twins:
        old, new = twin.states
        assert [timed.round for timed in new.rounds] == [0, 1, 2, 3], "more rounds have their own numbers"
        for before, now in zip(old.rounds, new.rounds, strict=True):
            assert len(before.throttled) == len(now.throttled) == len(before.entries[0].call_ns) >= 10


def test_a_block_in_which_either_side_throttled_counts_for_neither() -> None:
    made, _ = run({("new", "throttles", ""): "4"})
    for state in made.twins[0].states:
        for timed in state.rounds:
            assert [place for place, bad in enumerate(timed.throttled) if bad] == [2, 3]
            assert timed.remeasured == 2


@pytest.mark.parametrize(("rested_s", "reason"), [("0", TIME_CAP), ("1", PRECISE)])
def test_rests_of_either_side_are_not_of_the_case_s_time(
    monkeypatch: pytest.MonkeyPatch, rested_s: str, reason: str
) -> None:
    """Each look at the clock finds it a second later, as long as the side that rests has rested."""
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), sleep=lambda _: None)
    monkeypatch.setattr(module, "time", clock)
    made, _ = run({("new", "rests", ""): rested_s})
    assert {timed.stop_reason for state in made.twins[0].states for timed in state.rounds} == {reason}


@pytest.mark.parametrize("fate", ["raises", "crashes"])
@pytest.mark.parametrize("stage", ["verify", "open", "turn"])
@pytest.mark.parametrize("side", ["old", "new"])
def test_what_ends_on_one_side_costs_only_itself(stage: str, side: str, fate: str) -> None:
    made, log = run({(side, stage, "a"): fate})
    place = ("old", "new").index(side)
    assert statuses(made, place) == {"baseline": "measured", "a": "failed", "b": "measured"}
    # Verified, and not timed for want of the other side: no fault of its own.
    assert statuses(made, 1 - place) == {"baseline": "measured", "a": "verified", "b": "measured"}
    for state in made.twins[0].states:
        timed = [[found.entry.implementation for found in one.entries] for one in state.rounds]
        assert timed == [["baseline", "b"]] * 2
    assert {len(job.entries) for _, job in log.of(protocol.OpenCase)} <= {2, 3}


def test_what_is_wrong_on_fresh_inputs_ends_and_the_others_round_stays() -> None:
    made, _ = run({("new", "close", "a"): "raises"})
    assert statuses(made, 1) == {"baseline": "measured", "a": "failed", "b": "measured"}
    assert [len(state.rounds) for state in made.twins[0].states] == [2, 2]


def test_a_worker_that_says_nothing_is_our_fault() -> None:
    with pytest.raises(PairbenchError, match="named no reason"):
        run({("new", "opens", ""): "not"})


def test_outputs_are_compared_and_what_contradicts_is_not_timed() -> None:
    made, log = run(
        {("new", "outputs", "a"): "other", ("new", "outputs", "b"): "other", ("new", "compare", "a"): "different"}
    )
    found = {entry.implementation: compared.agreement for entry, compared in made.twins[0].outputs.items()}
    assert found == {"baseline": Agreement.EQUAL, "a": Agreement.DIFFERENT, "b": Agreement.WITHIN}
    assert {tuple(e.implementation for e in job.entries) for _, job in log.of(protocol.OpenCase)} == {("baseline", "b")}
    assert [side for side, _ in log.of(protocol.SaveOutputs)] == ["old", "old"]


def test_outputs_of_other_inputs_say_nothing() -> None:
    made, log = run({("new", "inputs", ""): "others"})
    assert {compared.agreement for compared in made.twins[0].outputs.values()} == {Agreement.UNKNOWN}
    assert not log.of(protocol.SaveOutputs)


def test_a_full_disk_is_no_fault_of_the_implementation() -> None:
    made, _ = run({("new", "outputs", "a"): "other", ("old", "save", "a"): "full"})
    compared = next(item for entry, item in made.twins[0].outputs.items() if entry.implementation == "a")
    assert compared.agreement is Agreement.UNKNOWN and "No space left" in (compared.reason or "")
    assert statuses(made, 0)["a"] == statuses(made, 1)["a"] == "measured"


def test_only_cases_of_both_sides_with_one_definition_are_paired() -> None:
    other = planned(rows=9)
    changed = replace(other, operator=replace(other.operator, definition_hash="e"))
    made, log = run(None, [planned(), planned(rows=5), other], [planned(), planned(rows=6), changed])
    assert [twin.key for twin in made.twins] == ["op[rows=4]"]
    assert {job.case.key for side, job in log.of(protocol.VerifyCase) if side == "old"} == {"op[rows=4]"}
    assert {job.case.key for side, job in log.of(protocol.VerifyCase) if side == "new"} == {
        *("op[rows=4]", "op[rows=6]", "op[rows=9]")
    }
    assert {job.case.key for _, job in log.of(protocol.ProfileCase)} == {"op[rows=4]"}


def test_a_variant_of_one_side_is_not_timed() -> None:
    made, log = run(None, [planned(names=("baseline", "a"))], [planned(names=("baseline", "a", "b"))])
    assert {tuple(e.implementation for e in job.entries) for _, job in log.of(protocol.OpenCase)} == {("baseline", "a")}
    assert statuses(made, 1)["b"] == "verified"
