import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pairbench.execute.worker import trusted
from pairbench.execute.worker.trusted import left_running, native_threads, processes
from pairbench.suite.modules import load_module

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

SUITE = """
import _thread, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

ended = threading.Event()
pool = ThreadPoolExecutor(1)

def waits(process):
    process.wait()

def polls(process):
    while process.poll() is None and not ended.is_set():
        time.sleep(0.001)

def works(process):
    while process.poll() is None:
        sum(range(100_000))

def start(target, *args):
    thread = threading.Thread(target=target, args=args, daemon=True, name="one of ours")
    thread.start()
    return thread

def start_by_itself(target, *args):
    _thread.start_new_thread(target, args)

def start_in_a_pool(target, *args):
    pool.submit(target, *args)

def start_later(target, *args):
    threading.Timer(0.0, target, args).start()

def start_by_another(target, *args):
    thread = threading.Thread(target=threading.Thread(target=target, args=args, daemon=True).start)
    thread.start()
    thread.join()

def call(function, *args):
    return function(*args)
"""


@pytest.fixture
def suite(tmp_path: Path) -> ModuleType:
    (tmp_path / "threads.py").write_text(SUITE)
    return load_module(tmp_path / "threads.py")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process, for which threads wait and with which they end."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture(autouse=True)
def _all_have_ended() -> Iterator[None]:
    yield
    _until_there_is_none()


@pytest.fixture
def ends() -> Iterator[threading.Event]:
    """Return what threads wait for, which comes with the test's end."""
    made = threading.Event()
    yield made
    made.set()


def _until_there_is_none() -> None:
    until = time.monotonic() + 10
    while left_running() and time.monotonic() < until:
        time.sleep(0.01)


@contextlib.contextmanager
def _start(code: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()  # a stopped one would be waited for


BELOW_ANOTHER = "import os\nif os.fork():\n input()\nelse:\n while os.getppid() != 1: pass"


@pytest.mark.parametrize(
    ("code", "stops", "words", "killed"),
    [
        ("while True: pass", False, "leaves a process running (pid ", True),
        (BELOW_ANOTHER, False, "leaves a process running (pid ", False),
        ("input()", True, "leaves a process stopped (pid ", False),
        ("input()", False, "None", False),
    ],
)
def test_a_process_that_runs_or_was_stopped_is_named_and_killed_where_it_runs(
    code: str, stops: bool, words: str, killed: bool
) -> None:
    with _start(code) as process:
        time.sleep(0.3)
        if stops:
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
        assert words in str(left_running())
        if killed:
            assert process.wait(10) == -signal.SIGKILL
        elif words == "None":
            assert process.poll() is None


def test_whose_process_runs_is_known_by_the_last_look_or_by_a_new_one() -> None:
    """A look at a turn's end serves the turn after it; a step that raises has none, and what it leaves is not the next one's."""
    with _start("input()") as sleeper:
        processes.begin()
        assert left_running() is None
        processes.begin()
        assert sleeper.pid in processes._known
        for before in (True, False):
            with _start("while True: pass") as left:
                time.sleep(0.3)
                if before:
                    processes.begin()
                    assert left.pid in processes._known
                assert "leaves a process running" in str(left_running()) and processes.of_another == before


@pytest.mark.parametrize("spins", [pytest.param(True, marks=pytest.mark.timing), False])
def test_a_native_thread_is_found_where_it_spins(spins: bool) -> None:
    native_threads.begin()
    libc, ends = ctypes.CDLL(None), threading.Event()
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    seconds = 1.0

    def body(_: object) -> None:
        until = time.monotonic() + seconds
        while spins and time.monotonic() < until:
            pass
        ends.wait(0 if spins else seconds)

    kept, identity = kind(body), ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(identity), None, kept, None)
    try:
        time.sleep(0.05)
        found = left_running() or ""
        assert ("leaves a thread running" in found) == spins
    finally:
        ends.set()
        libc.pthread_join(identity, None)


@pytest.mark.parametrize(("name", "found"), [("polls", True), ("works", True), ("waits", False)])
def test_one_that_is_at_work_is_found_and_one_that_waits_for_a_process_left_alone(
    suite: ModuleType, process: subprocess.Popen[bytes], name: str, found: bool
) -> None:
    """As what watches the processes of a model that is spread over several GPUs."""
    suite.start(getattr(suite, name), process)
    said = "leaves a thread running (threads.py, line 21: 'one of ours')" if found else "None"
    assert said in str(left_running())


@pytest.mark.parametrize("how", ["start", "start_by_itself", "start_in_a_pool", "start_later", "start_by_another"])
def test_one_that_waits_in_a_library_is_found_however_it_was_started(
    suite: ModuleType, ends: threading.Event, how: str
) -> None:
    """None of its frames is the suite's."""
    getattr(suite, how)(ends.wait, 60)
    assert "leaves a thread running (threads.py, line " in (left_running() or "")
    ends.set()
    suite.pool.shutdown()
    _until_there_is_none()
    assert left_running() is None, "it has ended"


def test_one_that_ends_a_moment_later_is_left_alone(suite: ModuleType) -> None:
    suite.start(time.sleep, trusted._GRACE_S / 5)
    suite.pool.submit(int).result()
    suite.pool.shutdown(wait=False)
    assert left_running() is None


def test_code_of_no_file_and_of_any_name_is_the_suite_s(suite: ModuleType, ends: threading.Event) -> None:
    elsewhere = {"__name__": "torch.elsewhere", "threading": threading}
    code = "def start(target):\n threading.Thread(target=target, daemon=True).start()"
    exec(code, elsewhere)  # noqa: S102 (what a suite may do)
    suite.call(elsewhere["start"], ends.wait)
    assert "leaves a thread running (<string>, line 2: " in (left_running() or "")


def test_those_of_a_library_are_its_own(
    suite: ModuleType, ends: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What compiles, or shows progress, keeps threads for later; a suite that calls it stands above it."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "a_library_with_threads.py").write_text(
        "import threading\ndef keep(target):\n threading.Thread(target=target, daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(folder)
    import a_library_with_threads  # type: ignore[import-not-found]

    suite.call(a_library_with_threads.keep, ends.wait)
    assert left_running() is None
    at_work = threading.Event()

    def works() -> None:
        at_work.set()
        suite.call(ends.wait)

    suite.call(a_library_with_threads.keep, works)
    at_work.wait(10)
    assert "leaves a thread running (threads.py, line " in (left_running() or ""), "it is at work for the suite"


def test_what_starts_threads_is_nobody_s_to_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    module, name = trusted._STARTERS[0]  # which depends on Python's version
    monkeypatch.setattr(module, name, lambda *_: None)
    assert f"replaces threading.{name}" in (trusted.replaced() or "")


def test_a_thread_that_cannot_be_started_is_not_there(suite: ModuleType) -> None:
    with pytest.raises(TypeError):
        suite.call(suite._thread.start_new_thread, print, "no tuple")
    assert left_running() is None


COMPILE_POOL = """
import time
from torch._inductor.async_compile import AsyncCompile
from torch._inductor import config
from pairbench.execute.worker.trusted import processes
from pairbench.execute.worker.trusted import left_running
processes.begin()
config.compile_threads = 2
pool = AsyncCompile.process_pool()
began, longest_s = time.perf_counter(), 0.0
while longest_s < 0.5 and time.perf_counter() - began < 60:  # a look may fall into a moment in which it waits for its disk
    asked = time.perf_counter()
    assert left_running() is None
    longest_s = max(longest_s, time.perf_counter() - asked)
assert longest_s > 0.5, "it was not waited for"
assert pool.process.poll() is None, "it was killed"
"""


@pytest.mark.slow
def test_a_compile_pool_that_starts_is_waited_for() -> None:
    """It starts beside the first compilation on a GPU, imports torch and then sleeps; no implementation is charged for it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE_POOL], env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
