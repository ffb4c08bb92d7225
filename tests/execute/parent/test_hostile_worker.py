"""Workers whose suites write to their parent: nothing of it is executed, waited for without end, or believed for long."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.errors import InterruptedRunError
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.fork_server import ForkServers
from pairbench.execute.parent.launch import Launchers
from pairbench.execute.parent.pool import WorkerContext, WorkerEndedError, WorkerProcess, Workers, available_memory
from pairbench.execute.parent.steps import verify_case
from pairbench.execute.protocol import Describe, VerifyCase
from pairbench.execute.worker.describe.operators import describe
from pairbench.model.case import make_case
from pairbench.model.environment import Device
from pairbench.model.outcome import Status
from pairbench.model.plan import Entry, PlannedCase
from pairbench.model.settings import Settings
from pairbench.suite.load import load_suite

CPU = Device(selector="cpu", kind="cpu", name="a CPU")

SUITE = """
import ctypes, os, pickle, struct, sys, time
from pathlib import Path
from pairbench import Operator, grid

HERE = Path(__file__).parent

def line():
    (found,) = [int(one) for one in os.listdir("/proc/self/fd") if Path(f"/proc/self/fd/{one}").is_symlink()
                and os.readlink(f"/proc/self/fd/{one}").startswith("socket:")]
    return found

def tell(content):
    os.set_blocking(line(), True)
    while content:
        content = content[os.write(line(), content):]

class Bomb:
    def __reduce__(self):
        return os.system, (f"touch {HERE / 'executed'}",)

def baseline(x):
    return x + x

def crafted(x):
    content = pickle.dumps(Bomb())
    tell(struct.pack("!i", len(content)) + content)
    time.sleep(60)

def crafted_otherwise(x):
    content = pickle.dumps(Bomb())
    tell(struct.pack("!Q", len(content)) + content)
    time.sleep(60)

def half(x):
    tell(struct.pack("!4sIQ", b"pair", 1000, 0) + b"half")
    (HERE / "written").touch()
    time.sleep(60)

def half_a_head(x):
    tell(b"pa")
    (HERE / "written").touch()
    time.sleep(60)

def junk(x):
    tell(bytes(range(256)) * 40)
    time.sleep(60)

def huge(x):
    tell(struct.pack("!4sIQ", b"pair", 40, 1 << 60))
    time.sleep(60)

def endless(x):
    (HERE / "written").touch()
    tell(struct.pack("!4sIQ", b"pair", 1 << 25, 1 << 28))
    while True:
        tell(b"\\0" * 65536)

def forks_and_crashes(x):
    if ctypes.CDLL(None).fork() == 0:
        time.sleep(60)
        os._exit(0)
    os.abort()

def goes_on_twice(x):
    if os.fork() == 0:
        return x * 3
    os.abort()

def interrupts_later(x):
    os.system(f"(sleep 0.3; kill -INT {os.getpid()}) &")
    return x + x

def slow(x):
    time.sleep(0.3)
    return x + x

def answers_something_else(x):
    content = b'["Environment", {}]'
    tell(struct.pack("!4sIQ", b"pair", len(content), 0) + content)
    time.sleep(60)

def is_done(x):
    content = b'["Done", {}]'
    tell(struct.pack("!4sIQ", b"pair", len(content), 0) + content)
    time.sleep(60)

op = Operator("op", baseline=baseline,
    variants={"good": baseline, **{one.__name__: one for one in (
        crafted, crafted_otherwise, half, half_a_head, junk, huge, endless, forks_and_crashes, goes_on_twice,
        answers_something_else, is_done,
        interrupts_later, slow)}},
    inputs=lambda make, rows: {"x": make.normal(rows)}, cases=grid(rows=[4]))
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("suite") / "ops.py"
    file.write_text(SUITE)
    return file


@pytest.fixture(scope="module")
def servers() -> Iterator[ForkServers]:
    with ForkServers() as made:
        yield made


@pytest.fixture
def context(servers: ForkServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerContext:
    monkeypatch.setattr("pairbench.execute.parent.pool._GRACE_S", 0.1)
    return WorkerContext(
        settings=Settings(timeout_s=4),
        cache=Path("/tmp"),
        interrupted=threading.Event(),
        memory_bytes=available_memory(0.8),
        launchers=Launchers(servers, servers),
    )


def job(suite: Path, *names: str) -> VerifyCase:
    return VerifyCase(
        path=suite,
        operator="op",
        case=make_case("op", {"rows": 4}, "smoke"),
        entries=tuple(Entry(implementation=name, mode="eager") for name in names),
        automatic_impostors=False,
        declared_impostors=(),
    )


def end_of(context: WorkerContext, suite: Path, name: str) -> tuple[WorkerEndedError, float]:
    """Return how a worker ends in which a variant is verified, and the seconds until it did."""
    with WorkerProcess(context, CPU) as worker:
        list(worker.request(Describe(suite="ops.py", path=suite)))
        began = time.monotonic()
        with pytest.raises(WorkerEndedError) as caught:
            list(worker.request(job(suite, "baseline", name, "good")))
        assert not worker.alive
        return caught.value, time.monotonic() - began


@pytest.mark.parametrize("name", ["crafted", "crafted_otherwise", "junk", "huge", "answers_something_else"])
def test_what_is_no_message_ends_the_one_who_wrote_it(context: WorkerContext, suite: Path, name: str) -> None:
    end, _ = end_of(context, suite, name)
    assert (end.index, end.status) == (1, Status.FAILED)
    assert end.reason.startswith("wrote what is no message: ") and end.reason.endswith("; ended")
    assert not (suite.parent / "executed").exists(), "the parent executes nothing that a worker sends"


@pytest.mark.parametrize("name", ["half", "half_a_head"])
def test_half_a_message_is_waited_for_until_the_timeout(context: WorkerContext, suite: Path, name: str) -> None:
    end, _ = end_of(context, suite, name)
    assert (end.index, end.status) == (1, Status.TIMEOUT) and "still running after the 4 s" in end.reason


@pytest.mark.parametrize("name", ["half", "endless"])
def test_an_interruption_is_heard_in_the_middle_of_a_message(context: WorkerContext, suite: Path, name: str) -> None:
    written = suite.parent / "written"
    written.unlink(missing_ok=True)
    patient = replace(context, settings=Settings(timeout_s=60))

    def interrupt() -> None:
        until = time.monotonic() + 30
        while not written.exists() and time.monotonic() < until:
            time.sleep(0.02)
        context.interrupted.set()

    with WorkerProcess(patient, CPU) as worker:
        list(worker.request(Describe(suite="ops.py", path=suite)))
        threading.Thread(target=interrupt).start()
        began = time.monotonic()
        # What never ends may be found out to be no message before it is interrupted.
        with pytest.raises((InterruptedRunError, WorkerEndedError)) as caught:
            list(worker.request(job(suite, "baseline", name)))
        assert time.monotonic() - began < 10
        assert name == "endless" or caught.type is InterruptedRunError
        assert not worker.alive


@pytest.mark.parametrize("name", ["forks_and_crashes", "goes_on_twice"])
def test_a_crash_is_seen_though_a_child_holds_the_line(context: WorkerContext, suite: Path, name: str) -> None:
    end, took_s = end_of(replace(context, settings=Settings(timeout_s=60)), suite, name)
    assert (end.index, end.status) == (1, Status.FAILED)
    assert "crashed its process with signal SIGABRT (aborted) in ops.py, line " in end.reason
    assert took_s < 10


def test_who_says_that_it_is_done_and_is_not_ends_alone(
    context: WorkerContext, suite: Path, planned: Callable[..., PlannedCase]
) -> None:
    case = planned(names=("baseline", "is_done", "good"))
    described = describe("ops.py", suite, load_suite(suite)[case.operator.name])
    state = CaseState(planned=replace(case, operator=described))
    with Workers(replace(context, settings=Settings(timeout_s=60)), CPU) as workers:
        verify_case(state, workers, impostors=False)
    baseline, is_done, good = case.entries
    assert {*state.verified} == {baseline, good}
    assert state.ended == {
        is_done: (Status.FAILED, "wrote what is no message: it says that it is done, and is at work; ended")
    }


def test_what_a_suite_sends_to_itself_interrupts_nobody_else(context: WorkerContext, suite: Path) -> None:
    with WorkerProcess(replace(context, settings=Settings(timeout_s=60)), CPU) as worker:
        results = list(worker.request(job(suite, "baseline", "interrupts_later", "slow", "good")))
    assert [result.status for result in results] == [Status.VERIFIED] * 4, results


def test_a_worker_that_stands_still_does_not_hold_what_it_is_sent(context: WorkerContext, suite: Path) -> None:
    """Its socket takes some 200 KB, and it reads none of it."""
    with WorkerProcess(replace(context, settings=Settings(timeout_s=60)), CPU) as worker:
        list(worker.request(Describe(suite="ops.py", path=suite)))
        assert worker._process.pid
        os.kill(worker._process.pid, signal.SIGSTOP)
        threading.Timer(0.5, context.interrupted.set).start()
        with pytest.raises(InterruptedRunError):
            list(worker.request(job(suite, *["good"] * 100_000)))
