import functools
import json
import os
import shutil
import signal
import socket
import struct
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.errors import InterruptedRunError
from pairbench.execute.parent import pool
from pairbench.execute.parent.launch import ForkServers, Launchers
from pairbench.execute.parent.pool import (
    ANY,
    Line,
    WorkerContext,
    WorkerEndedError,
    WorkerLog,
    WorkerProcess,
    Workers,
    _has_bytecode,
    available_memory,
)
from pairbench.execute.protocol import Describe
from pairbench.model.environment import Device, Settings
from pairbench.model.outcome import Status, Verification
from pairbench.model.plan import BrokenSuite
from tests.execute.made import CPU, gone, verify_job

job = functools.partial(verify_job, automatic_impostors=True)
GPU = Device(selector="cuda:1", kind="cuda", name="a GPU", uuid="GPU-1")

SUITE = """
import ctypes, json, os, pickle, signal, struct, subprocess, sys, time
from pathlib import Path
from pairbench import Operator, grid

def baseline(x):
    return x + x

def killed(x):
    os.kill(os.getpid(), signal.SIGKILL)

def aborts(x):
    os.abort()

def gives_up(x):
    print("fatal: process 1 of 2 failed: CUDA out of memory", file=sys.stderr, flush=True)
    os._exit(7)

def hangs(x):
    Path(__file__).with_name("child").write_text(str(subprocess.Popen(["sleep", "60"]).pid))
    time.sleep(60)

def shouts(x):
    line = "x" * 1023 + chr(10)
    for _ in range(100):
        sys.stderr.write(line * 1024)
        time.sleep(0.01)
    sys.stderr.write("fatal: that is all" + chr(10))
    sys.stderr.flush()
    os._exit(7)

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
        return os.system, (f"touch {Path(__file__).with_name('executed')}",)

def crafted(x):
    content = pickle.dumps(Bomb())
    tell(struct.pack("!i", len(content)) + content)
    time.sleep(60)

def endless(x):
    Path(__file__).with_name("written").touch()
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

def says(name):
    content = b'["%s", {}]' % name
    tell(struct.pack("!4sIQ", b"pair", len(content), 0) + content)
    time.sleep(60)

def answers_something_else(x):
    says(b"Environment")

def is_done(x):
    says(b"Done")

# What it sees of the process that it is loaded in.
Path(__file__).with_name(f"{os.getpid()}.json").write_text(json.dumps(
    {"parent": os.getppid(), "leads": os.getsid(0) == os.getpid(), "folder": os.getcwd(), "environment": dict(os.environ)}
))
op = Operator("op", baseline=baseline, variants={"good": baseline, **{one.__name__: one for one in (
    gives_up, hangs, killed, aborts, shouts, crafted, endless, forks_and_crashes, goes_on_twice, answers_something_else,
    is_done, interrupts_later, slow)}},
    inputs=lambda make, rows: {"x": make.normal(rows)}, cases=grid(rows=[4]))
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("suite") / "ops.py"
    file.write_text(SUITE)
    return file


@pytest.fixture(params=["fresh", "fork"])
def either(request: pytest.FixtureRequest, context: WorkerContext, forking: WorkerContext) -> WorkerContext:
    """Return a context whose workers are new interpreters, and one whose workers are forked."""
    return replace(context if request.param == "fresh" else forking, settings=context.settings)


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairbench.execute.parent.pool._GRACE_S", 1.0)


def end_of(context: WorkerContext, suite: Path, name: str, device: Device = CPU) -> WorkerEndedError:
    with WorkerProcess(context, device) as worker:
        with pytest.raises(WorkerEndedError) as caught:
            list(worker.request(job(suite, "baseline", name, "good")))
        assert not worker.alive
        return caught.value


def test_a_worker_serves_one_job_after_the_other_until_it_ends(
    either: WorkerContext, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbench.execute.parent.pool._GRACE_S", 20.0)  # an abort may write what it held
    with WorkerProcess(replace(either, settings=Settings(timeout_s=60)), CPU) as worker:
        (described,) = worker.request(Describe(suite="ops.py", path=suite))
        assert [operator.name for operator in described.operators] == ["op"]
        (broken,) = worker.request(Describe(suite="none.py", path=suite.with_name("none.py")))
        assert isinstance(broken, BrokenSuite) and "none.py" in broken.reason
        for _ in range(2):
            results = [
                result for result in worker.request(job(suite, "baseline", "good")) if isinstance(result, Verification)
            ]
            assert [result.status for result in results] == [Status.VERIFIED] * 2
        with pytest.raises(WorkerEndedError) as caught:
            list(worker.request(job(suite, "baseline", "aborts", "good")))
        assert (caught.value.index, caught.value.status) == (1, Status.FAILED)
        assert "crashed its process with signal SIGABRT (aborted) in ops.py, line 13" in caught.value.reason
        assert not worker.alive


@pytest.mark.parametrize("compiled", [True, False])
def test_bytecode_is_shared_by_a_run_s_workers_where_torch_has_none(
    context: WorkerContext, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _has_bytecode("json") and _has_bytecode("no_such_package")
    monkeypatch.setattr(pool, "_has_bytecode", lambda package: package == "torch" and compiled)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    found = pool._environment(context, CPU, interpret=False)
    said = (found.get("PYTHONPYCACHEPREFIX"), found.get("PYTHONDONTWRITEBYTECODE"))
    assert said == ((None, "1") if compiled else (str(context.cache / "bytecode"), None))


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("hangs", Status.TIMEOUT, "still running after the 3 s that one implementation has in a stage; ended"),
        ("killed", Status.OOM, "its process was killed (SIGKILL), most likely by the kernel because memory ran out"),
        ("gives_up", Status.OOM, "ended its process with exit status 7: process 1 of 2 failed: CUDA out of memory"),
    ],
)
def test_an_end_has_a_culprit_and_a_reason(
    forking: WorkerContext, context: WorkerContext, suite: Path, name: str, status: Status, words: str
) -> None:
    end = end_of(replace(forking, settings=context.settings), suite, name)
    assert (end.index, end.status) == (1, status) and words in end.reason, end.reason
    if name == "hangs":
        assert gone(int(suite.with_name("child").read_text())), "what a worker started ends with it"


def test_an_interruption_ends_the_worker(either: WorkerContext, suite: Path) -> None:
    either.interrupted.set()
    with WorkerProcess(either, CPU) as worker:
        with pytest.raises(InterruptedRunError):
            list(worker.request(job(suite, "hangs")))
        assert not worker.alive


def test_too_much_resident_memory_ends_the_worker(either: WorkerContext, suite: Path) -> None:
    """Whatever it does: a process that imports torch holds more than 16 MiB. A forked one needs a while to be looked at."""
    small = replace(either, memory_bytes=16 * 2**20, settings=Settings(timeout_s=60))
    end = end_of(small, suite, "hangs", ANY)  # which has no limit of its own address space
    assert end.status is Status.OOM
    assert "out of memory: held 0." in end.reason and "allowed are 0.0; ended" in end.reason


def test_a_worker_that_cannot_start_says_so(
    either: WorkerContext, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setattr("sys.executable", shutil.which("false") or "false")
    end = end_of(either, suite, "good")
    assert (end.status, end.index, end.reason) == (Status.FAILED, -1, "ended its process with exit status 1")


def test_memory_is_a_part_of_what_is_free() -> None:
    half, whole = available_memory(0.5), available_memory(1.0)
    assert 0 < half < whole <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert half / whole == pytest.approx(0.5, rel=0.2)


def told_by(worker: WorkerProcess, suite: Path) -> Any:
    """Return what a suite sees of the process that it is loaded in."""
    list(worker.request(Describe(suite="ops.py", path=suite)))
    return json.loads(suite.with_name(f"{worker._process.pid}.json").read_text())


def test_a_server_for_each_environment_that_is_read_at_import(
    forking: WorkerContext, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads are settled when torch is imported, the GPU when it is used first, Triton's interpreter when a suite imports Triton."""
    told = []
    for device, interpret, threads in ((CPU, True, "1"), (GPU, False, "1"), (CPU, False, "2")):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        with WorkerProcess(forking, device, interpret=interpret) as worker:
            told.append(told_by(worker, suite))
    plain, gpu, other = told
    assert gpu["parent"] == plain["parent"] != other["parent"]
    assert [one["environment"].get("TRITON_INTERPRET") for one in told] == ["1", None, None]
    assert [one["environment"]["OMP_NUM_THREADS"] for one in told] == ["1", "1", "2"]
    assert [one["environment"]["CUDA_VISIBLE_DEVICES"] for one in told] == ["", "GPU-1", ""]
    assert all(one["leads"] and one["folder"] == str(Path.cwd()) for one in told)


def kill_once_there(file: Path, pid: int) -> None:
    until = time.monotonic() + 60
    while not (file.exists() and file.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)


def test_a_server_that_is_killed_takes_its_workers_along_and_another_takes_its_place(
    forking: WorkerContext, suite: Path
) -> None:
    with Workers(forking, CPU) as workers:
        worker = workers.get()
        server = told_by(worker, suite)["parent"]
        child = suite.with_name("child")
        child.unlink(missing_ok=True)
        threading.Thread(target=kill_once_there, args=(child, server)).start()
        with pytest.raises(WorkerEndedError) as caught:
            list(worker.request(job(suite, "baseline", "hangs")))
        assert caught.value.status is Status.OOM and "was killed (SIGKILL)" in caught.value.reason
        assert worker._process.pid and gone(worker._process.pid)
        assert gone(int(child.read_text())), "what a worker started ends with it"
        assert told_by(workers.get(), suite)["parent"] != server
        assert any(isinstance(result, Verification) for result in workers.get().request(job(suite, "baseline")))


def test_what_is_closed_before_it_was_forked_never_works(context: WorkerContext, tmp_path: Path) -> None:
    """The server is still loading torch then, and nobody waits for that."""
    with ForkServers() as servers:
        with WorkerProcess(replace(context, launchers=Launchers(servers, servers)), CPU) as worker:
            pass
        assert worker._process.pid is None


def test_what_a_worker_prints_costs_its_parent_little(forking: WorkerContext, suite: Path) -> None:
    """100 MiB: its end is read, and no more is kept than a part of it."""
    with WorkerProcess(forking, CPU) as worker:
        log = os.dup(worker.log.fileno())
        tracemalloc.start()
        with pytest.raises(WorkerEndedError) as caught:
            list(worker.request(job(suite, "baseline", "shouts")))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert caught.value.reason == "ended its process with exit status 7: that is all"
    assert peak < 20 << 20
    assert os.fstat(log).st_size < 100 << 20
    os.close(log)


def test_an_exception_that_ends_a_worker_keeps_its_words() -> None:
    log = WorkerLog()
    os.write(
        log.fileno(), b'Traceback (most recent call last):\n  File "/x/ops.py", line 3, in f\nBufferError: no room\n'
    )
    assert log.explain(1) == (Status.FAILED, "ended its process with exit status 1: BufferError: no room")
    log.close()


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
