"""The order of a quick look, in real workers: what is wrong is never timed, and what has profiled never times."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.pool import WorkerContext, WorkerProcess
from pairbench.execute.parent.quick_look import QuickLook
from pairbench.model.outcome import NOT_TRIED, Status
from pairbench.model.plan import PlannedCase
from tests.execute.made import CPU, entry

SUITE = """
import os, time
from pairbench import Operator, Variant, grid

def baseline(x):
    return x + x

def ends(x):
    os._exit(3)

def never(x):
    raise AssertionError("behind the first that is wrong")

def declare(name, **variants):
    return Operator(name, baseline=baseline, variants=variants,
        inputs=lambda make, rows: {"x": make.normal(rows)}, cases=grid(rows=[4]))

right = declare("right", other=lambda x: 2 * x, needs_a_gpu=Variant(baseline, needs="cuda"))
wrong = declare("wrong", first=baseline, second=lambda x: 3 * x, third=never)
ended = declare("ended", first=ends, second=never)
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None]]:
    """Return the jobs that workers are asked for from now on, each with the worker's process."""
    jobs: list[tuple[str, int | None]] = []
    request = WorkerProcess.request

    def noted(self: WorkerProcess, job: Any) -> Iterator[Any]:
        yield from request(self, job)
        jobs.append((type(job).__name__, self._process.pid))

    monkeypatch.setattr(WorkerProcess, "request", noted)
    return jobs


@pytest.fixture
def look(forking: WorkerContext) -> Iterator[QuickLook]:
    made = QuickLook(forking, CPU)
    yield made
    made.close()


def state_of(look: QuickLook, folder: Path, name: str) -> CaseState:
    file = folder / "ops.py"
    file.write_text(SUITE)
    operators, broken = look.describe([("ops.py", file)])
    assert not broken
    operator = next(one for one in operators if one.name == name)
    entries = tuple(entry(one.name) for one in operator.implementations)
    skipped = {one: "needs a GPU" for one in entries if one.implementation == "needs_a_gpu"}
    return CaseState(planned=PlannedCase(operator=operator, case=operator.cases[0], entries=entries, skipped=skipped))


def statuses(state: CaseState) -> list[Status]:
    return [state.outcome(entry).status for entry in state.planned.entries]


def test_one_process_does_everything_and_profiles_last(look: QuickLook, asked: list[Any], tmp_path: Path) -> None:
    state = state_of(look, tmp_path, "right")
    look.verify(state)
    look.time(state)
    environment = look.probe(ceilings=False)
    look.profile(state)
    assert [job for job, _ in asked] == ["Describe", "VerifyCase", "TimeCase", "Probe", "ProfileCase"]
    assert len({pid for _, pid in asked}) == 1
    assert statuses(state) == [Status.MEASURED, Status.MEASURED, Status.SKIPPED]
    outcome = state.outcome(state.planned.entries[1])
    assert len(outcome.rounds) == 1 and outcome.profile is not None and outcome.profile.ops == 1
    assert "TRITON_INTERPRET" not in environment.rest["variables"], "as in a run, so that both are of one environment"
    assert environment.rest["observed"]["ceilings"] == {}
    look.renew(CPU)
    assert look.probe(ceilings=False).hash == environment.hash
    assert asked[-1][1] != asked[0][1], "the next look is in a process of its own"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wrong", [Status.VERIFIED, Status.VERIFIED, Status.MISMATCHED, Status.SKIPPED]),
        ("ended", [Status.VERIFIED, Status.FAILED, Status.SKIPPED]),
    ],
)
def test_behind_the_first_that_is_wrong_nothing_happens(
    look: QuickLook, asked: list[Any], tmp_path: Path, name: str, expected: list[Status]
) -> None:
    state = state_of(look, tmp_path, name)
    look.verify(state)
    assert look.time(state) is None
    look.profile(state)
    assert statuses(state) == expected
    assert state.outcome(state.planned.entries[-1]).reason == NOT_TRIED
    assert not {"TimeCase", "ProfileCase"} & {job for job, _ in asked}


def test_a_baseline_alone_is_not_timed(look: QuickLook, asked: list[Any], tmp_path: Path) -> None:
    state = state_of(look, tmp_path, "right")
    state.end(state.planned.entries[1], Status.SKIPPED, "not here")
    look.verify(state)
    assert look.time(state) is None and state.rounds == []
