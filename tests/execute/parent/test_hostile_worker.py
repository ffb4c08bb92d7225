import os
import signal
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from pairbench.errors import InterruptedRunError
from pairbench.execute.parent.pool import Line, WorkerContext, WorkerEndedError, WorkerProcess
from pairbench.execute.protocol import Describe
from pairbench.model.outcome import Status
from tests.execute.made import CPU, verify_job

SUITE = """
import ctypes, os, pickle, struct, sys, time
from pathlib import Path
from pairbench import Operator, grid

HERE = Path(__file__).parent

def line():
    found, *_ = [int(one) for one in os.listdir("/proc/self/fd") if Path(f"/proc/self/fd/{one}").is_symlink()
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
        crafted, endless, forks_and_crashes, goes_on_twice, answers_something_else, is_done, interrupts_later, slow)}},
    inputs=lambda make, rows: {"x": make.normal(rows)}, cases=grid(rows=[4]))
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("suite") / "ops.py"
    file.write_text(SUITE)
    return file


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairbench.execute.parent.pool._GRACE_S", 1.0)


def end_of(context: WorkerContext, suite: Path, name: str) -> WorkerEndedError:
    with WorkerProcess(context, CPU) as worker:
        with pytest.raises(WorkerEndedError) as caught:
            list(worker.request(verify_job(suite, "baseline", name, "good")))
        assert not worker.alive
        return caught.value


# Others that are no messages are in tests/faults/messages.py.
@pytest.mark.parametrize(
    ("name", "why"),
    [("crafted", ""), ("answers_something_else", ""), ("is_done", "it says that it is done, and is at work")],
)
def test_what_is_no_message_ends_the_one_who_wrote_it(forking: WorkerContext, suite: Path, name: str, why: str) -> None:
    end = end_of(forking, suite, name)
    assert (end.index, end.status) == (1, Status.FAILED)
    assert end.reason.startswith(f"wrote what is no message: {why}") and end.reason.endswith("; ended")
    assert not (suite.parent / "executed").exists(), "the parent executes nothing that a worker sends"


@pytest.mark.parametrize("half", [b"pa", struct.pack("!4sIQ", b"pair", 1000, 0) + b"half"])
def test_half_a_message_is_waited_for_until_the_worker_is_given_up(half: bytes) -> None:
    looks = iter([False, True])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(half)
        with pytest.raises(EOFError):
            Line(ours).receive({}, lambda: next(looks))


def test_an_interruption_is_heard_in_the_middle_of_a_message(forking: WorkerContext, suite: Path) -> None:
    written = suite.parent / "written"

    def interrupt() -> None:
        until = time.monotonic() + 30
        while not written.exists() and time.monotonic() < until:
            time.sleep(0.02)
        forking.interrupted.set()

    with WorkerProcess(forking, CPU) as worker:
        threading.Thread(target=interrupt).start()
        # What never ends may be found out to be no message before it is interrupted.
        with pytest.raises((InterruptedRunError, WorkerEndedError)):
            list(worker.request(verify_job(suite, "baseline", "endless")))
        assert not worker.alive


@pytest.mark.parametrize("name", ["forks_and_crashes", "goes_on_twice"])
def test_a_crash_is_seen_though_a_child_holds_the_line(forking: WorkerContext, suite: Path, name: str) -> None:
    end = end_of(forking, suite, name)
    assert (end.index, end.status) == (1, Status.FAILED)
    assert "crashed its process with signal SIGABRT (aborted) in ops.py, line " in end.reason, (
        "and nobody waits for the child"
    )


def test_what_a_suite_sends_to_itself_interrupts_nobody_else(forking: WorkerContext, suite: Path) -> None:
    with WorkerProcess(forking, CPU) as worker:
        results = list(worker.request(verify_job(suite, "baseline", "interrupts_later", "slow", "good")))
    assert [result.status for result in results] == [Status.VERIFIED] * 4, results


def test_a_worker_that_stands_still_does_not_hold_what_it_is_sent(forking: WorkerContext, suite: Path) -> None:
    """Its socket takes some 200 KB, and it reads none of it."""
    with WorkerProcess(forking, CPU) as worker:
        list(worker.request(Describe(suite="ops.py", path=suite)))
        assert worker._process.pid
        os.kill(worker._process.pid, signal.SIGSTOP)
        threading.Timer(0.5, forking.interrupted.set).start()
        with pytest.raises(InterruptedRunError):
            list(worker.request(verify_job(suite, *["good"] * 100_000)))
