"""The parent's side of one worker process: start it, ask it, and explain its end.

A worker prints into a file without a name, of which only the end is read. While the parent waits for an answer it looks after other things.
"""

import contextlib
import functools
import importlib.machinery
import importlib.util
import math
import mmap
import os
import pickle
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from pairbench.errors import InterruptedRunError
from pairbench.execute import protocol
from pairbench.execute.forking import Preload
from pairbench.execute.isolation import isolated_environment
from pairbench.execute.orphans import VARIABLE, mark
from pairbench.execute.parent.answers import Answers
from pairbench.execute.parent.launch import Launchers
from pairbench.execute.wire import LENGTH, NoMessageError, decode, read_head
from pairbench.model.environment import Device, Settings
from pairbench.model.outcome import Status
from pairbench.model.plain import Value

_LOOK_S = 0.05
_PIECE = 1 << 20

Watch = Callable[[], bool]
"""Looks after the process at the other end, some twenty times a second, and returns whether it has ended; it may raise."""
KILLED = "its process was killed (SIGKILL)"  # begins the reason of a worker's end by the signal that none can handle
_FATAL = "fatal: "  # begins the line in which code that has to end a worker says why
_TAIL, _MOST = 1 << 20, 64 << 20
"""Bytes that are looked at when a worker ends, and that may be on disk before the log begins anew."""
_FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+) in .+')
INTERPRET = "TRITON_INTERPRET"
_ROOT = Path(__file__).resolve().parents[3]
_GRACE_S = 5.0  # a worker that notices the end of its time gets this long to say so; one that has hung up, to end
_POLL_S = 0.02
ANY = Device(selector="any", kind="any", name="any")  # stands in for the device of a worker that finds the devices


class Line:
    """Sends pickled values to a worker, and takes messages, which are data, from it."""

    def __init__(self, ours: socket.socket) -> None:
        ours.settimeout(_LOOK_S)
        self._socket, self.close = ours, ours.close
        self._begun = bytearray()  # of messages that were not taken yet
        self._looked = 0.0
        self.received_at = self._piece_at = time.monotonic()
        """When the newest message was all there, unless others came with it, by `time.monotonic`."""

    def send(self, value: Any, watch: Watch, file: int | None = None) -> None:
        """Send a value, with an open file if given; a ConnectionError says that the worker has hung up or has ended."""
        content = pickle.dumps(value)
        rest = memoryview(LENGTH.pack(len(content)) + content)
        while rest:
            if self._look(watch):
                raise ConnectionError
            with contextlib.suppress(TimeoutError):  # it has not read what was sent before
                if file is None:
                    rest = rest[self._socket.send(rest) :]
                else:
                    rest, file = rest[socket.send_fds(self._socket, [rest], [file]) :], None

    def receive(self, expected: Mapping[str, type], watch: Watch) -> Any:
        """Return the next message, one of the expected dataclasses by name, or raise NoMessageError; EOFError once the worker has hung up or ended."""
        while True:
            frame = read_head(self._begun)
            ended = self._look(watch)
            if frame is not None and len(self._begun) >= frame.size:
                message = self._begun[: frame.size]
                del self._begun[: frame.size]
                if not self._begun:
                    self.received_at = self._piece_at
                return decode(message, expected)
            try:
                piece = self._socket.recv(_PIECE)
            except TimeoutError:
                if ended:
                    raise EOFError from None
                continue
            if not piece:
                raise EOFError
            self._piece_at = time.monotonic()
            self._begun += piece

    def _look(self, watch: Watch) -> bool:
        """Call the watch if it is time to, and return whether the process is known to have ended."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return False
        self._looked = now
        return watch()


class WorkerLog:
    """The standard output and standard error of one worker."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self.fileno, self.close = self._file.fileno, self._file.close

    def keep_short(self) -> None:
        if os.fstat(self.fileno()).st_size > _MOST:
            os.lseek(self.fileno(), 0, os.SEEK_SET)
            os.ftruncate(self.fileno(), 0)

    def line(self, marker: str) -> str | None:
        """Return the first of the last lines that contains the marker."""
        return next((line for line in self._lines() if marker in line), None)

    def _lines(self) -> list[str]:
        return [] if self._file.closed else last_lines(self.fileno())

    def explain(self, code: int) -> tuple[Status, str]:
        """Return how a worker ended and why, given its exit code or the negative number of the signal that ended it."""
        if code >= 0:
            ended = f"ended its process with exit status {code}"
            if words := self.line(_FATAL):
                words = words.partition(_FATAL)[2].strip()
                return Status.OOM if "out of memory" in words.lower() else Status.FAILED, f"{ended}: {words}"
            lines = self._lines()
            raised = code == 1 and "Traceback (most recent call last):" in lines and lines[-1][:500]
            return Status.FAILED, f"{ended}{self._last_words()}{f': {raised}' if raised else ''}"
        name = signal.Signals(-code).name
        meaning = signal.strsignal(-code) or name
        if -code == signal.SIGKILL:
            return Status.OOM, f"{KILLED}, most likely by the kernel because memory ran out"
        return Status.FAILED, f"crashed its process with signal {name} ({meaning.lower()}){self._last_words()}"

    def _last_words(self) -> str:
        """Return where in the suite a crash happened, as Python's fault handler tells it; empty where it does not."""
        frames = [match for line in self._lines() if (match := _FRAME.fullmatch(line))]
        ours = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
        theirs = [frame for frame in frames if not frame["file"].startswith((*ours, "<"))]
        return f" in {Path(theirs[0]['file']).name}, line {theirs[0]['line']}" if theirs else ""


def last_lines(descriptor: int) -> list[str]:
    """Return the lines at the end of an open file, of which no more is read."""
    # Not by a seek: a worker would write where its parent has sought, for both have one open file.
    end = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _TAIL, max(0, end - _TAIL))
    return [line.strip() for line in tail.decode(errors="replace").splitlines()]


@dataclass
class WorkerEndedError(Exception):
    index: int  # index of the entry that ran, or NOBODY for the case's own code
    status: Status
    reason: str


class WorkerContext(Value):
    settings: Settings
    cache: Path  # folder of torch.compile's and Triton's caches for this run alone, so that each first call compiles
    interrupted: threading.Event
    memory_bytes: int
    stand_in: protocol.StandIn | None = None
    launchers: Launchers = field(default_factory=Launchers)
    bytecode: Path | None = None  # folder for the bytecode of a torch that came without; None for one in the cache


def available_memory(fraction: float) -> int:
    """Return a part of the memory that the host has free now, in bytes."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(free * fraction)


class WorkerProcess(AbstractContextManager["WorkerProcess"]):
    """One worker. Use it as a context manager; it is killed at the end, with whatever it has started."""

    def __init__(self, context: WorkerContext, device: Device, *, interpret: bool = False, timed: bool = False) -> None:
        """Start it; with `interpret` Triton's kernels are interpreted in it, and `timed` says that something is going to be timed in it."""
        self._context = context
        self.log = WorkerLog()
        self._memory_file = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._memory_file.truncate(protocol.SIZE)
        self._memory = mmap.mmap(self._memory_file.fileno(), protocol.SIZE)
        protocol.Heartbeat(self._memory).rest()
        ours, theirs = socket.socketpair()
        with theirs:
            launchers = context.launchers
            launcher = launchers.alone if timed and device.kind == "cpu" else launchers.shared
            environment = _environment(context, device, interpret=interpret)
            heartbeat, log = self._memory_file.fileno(), self.log.fileno()
            self._process = launcher.launch(environment, connection=theirs.fileno(), heartbeat=heartbeat, log=log)
        self.line = Line(ours)
        self.alive, self.used = True, False
        settings, memory, stand_in = context.settings, context.memory_bytes, context.stand_in
        config = protocol.WorkerConfig(device=device, settings=settings, memory_bytes=memory, stand_in=stand_in)
        with contextlib.suppress(ConnectionError):  # a worker that has ended already is explained at its first job
            self.line.send(config, lambda: False)

    def __exit__(self, *_: object) -> None:
        self.close()

    @functools.cached_property
    def outputs(self) -> int:
        """Open file of the memory that its outputs go through to the judge; the parent never reads it."""
        return os.memfd_create("outputs", os.MFD_CLOEXEC)

    def reply(self, answer: Any) -> None:
        """Answer the question that is the newest result of the job."""
        self.line.send(answer, self._watch)

    def request(self, job: protocol.Job, outputs: int | None = None) -> Iterator[Any]:
        """Send a job, and a file for outputs if given, and yield the results; a WorkerEndedError says that the worker crashed or ran over a limit."""
        answers = Answers(job)
        try:
            self.line.send(job, self._watch, outputs)
            while True:
                result = self.line.receive(answers.expected, self._watch)
                answers.check(result)
                if isinstance(result, protocol.Done):
                    self._check_rest()
                    return
                if isinstance(result, protocol.Broken):
                    self.close()
                    return
                yield result
        except InterruptedRunError:
            self.close()
            raise
        except NoMessageError as error:
            ended = WorkerEndedError(protocol.NOBODY, Status.FAILED, f"wrote what is no message: {error}; ended")
        except (EOFError, ConnectionError):
            ended = WorkerEndedError(protocol.NOBODY, *self._end())
        except WorkerEndedError as error:
            ended = error
        self.close()
        ended.index, _ = protocol.read_heartbeat(self._memory)
        raise ended

    def _end(self) -> tuple[Status, str]:
        """Return the status and the reason for a worker that has hung up; one that goes on running cannot be waited for."""
        until = time.monotonic() + _GRACE_S
        while not self._process.ended():
            if time.monotonic() > until:
                return Status.FAILED, "closed its line to the command and went on running; ended"
            time.sleep(_POLL_S)
        return self.log.explain(self._process.wait())

    def _check_rest(self) -> None:
        if protocol.read_heartbeat(self._memory)[1] != math.inf:  # it rests before the worker says that it is done
            raise NoMessageError("it says that it is done, and is at work")

    def close(self) -> None:
        self.alive = False
        self.line.close()
        self._process.kill()
        self.log.close()
        self._memory_file.close()
        if (outputs := vars(self).pop("outputs", None)) is not None:  # if anybody has asked for it
            os.close(outputs)

    def _watch(self) -> bool:
        """Return whether the process has ended; end a worker that is over its time or its memory."""
        if self._context.interrupted.is_set():
            raise InterruptedRunError
        self.log.keep_short()
        _, deadline = protocol.read_heartbeat(self._memory)
        if not time.monotonic() <= deadline + _GRACE_S:
            allowed = self._context.settings.timeout_s
            reason = f"still running after the {allowed:g} s that one implementation has in a stage; ended"
            raise WorkerEndedError(protocol.NOBODY, Status.TIMEOUT, reason)
        pid = self._process.pid
        if pid is not None and (held := _resident_bytes(pid)) > self._context.memory_bytes:
            reason = f"out of memory: held {held / 2**30:.1f} GiB of the host's, allowed are {self._context.memory_bytes / 2**30:.1f}; ended"
            raise WorkerEndedError(protocol.NOBODY, Status.OOM, reason)
        return self._process.ended()


def prepare(context: WorkerContext, preload: Preload) -> None:
    """Have the launchers of a run begin to load what its first worker needs."""
    context.launchers.shared.prepare(_environment(context, ANY, interpret=False), preload)


def _environment(context: WorkerContext, device: Device, *, interpret: bool) -> dict[str, str]:
    cache = context.cache
    environment = {
        **os.environ,
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        VARIABLE: mark(),
        **(isolated_environment(cache) if context.settings.isolated else {}),
    }
    if Path.cwd() == _ROOT:  # workers do not look for modules there by themselves
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    if "PYTHONPYCACHEPREFIX" not in environment and not _has_bytecode("torch"):
        # As in many containers: each worker would compile it anew, which takes as long again as loading it.
        environment["PYTHONPYCACHEPREFIX"] = str(context.bytecode or cache / "bytecode")
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if device.kind == "cuda":
        if uuids := [item.uuid for item in (device, *device.beside) if item.uuid is not None]:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)
    elif device.kind == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    if device.kind != "cpu":
        # The compiler's pool imports torch while its first kernels are compiled without it; until it rests, nothing can be timed.
        environment.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if interpret:
        environment[INTERPRET] = "1"
    return environment


@functools.cache
def _has_bytecode(package: str) -> bool:
    found = importlib.machinery.PathFinder.find_spec(package)
    return not (found and found.origin) or Path(importlib.util.cache_from_source(found.origin)).exists()


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@dataclass(eq=False)
class Workers(AbstractContextManager["Workers"]):
    """Holds one worker process, none at first, and starts a new process whenever the last one has ended; see `WorkerProcess`."""

    context: WorkerContext
    device: Device
    _: KW_ONLY
    interpret: bool = False
    timed: bool = False
    judge: "Workers | None" = None  # judges the outputs of its cases; None where the worker does so itself
    owns_judge: bool = False  # whether the judge ends together with the worker
    _worker: WorkerProcess | None = field(default=None, init=False)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for ending in (self._worker, self.judge if self.owns_judge else None):
            if ending is not None:
                ending.close()

    def get(self) -> WorkerProcess:
        """Return a worker that is alive."""
        if self._worker is None or not self._worker.alive:
            self._worker = WorkerProcess(self.context, self.device, interpret=self.interpret, timed=self.timed)
        return self._worker

    def wait(self) -> None:
        """Return when the worker has loaded torch, or has ended; it is started if it was not yet."""
        with contextlib.suppress(WorkerEndedError):  # its first case will tell why
            list(self.get().request(protocol.Wait()))


def judge_of(context: WorkerContext, device: Device, *, interpret: bool = False, timed: bool = False) -> Workers | None:
    """Return the workers of a judge, which interpret Triton's kernels if the judged workers do; None for calls that `do_bench` times, whose samples come at the end alone."""
    return None if timed and context.settings.timer == "do_bench" else Workers(context, device, interpret=interpret)


def wait_for(several: Sequence[Workers]) -> None:
    """Return when several workers have loaded torch, which they do side by side."""
    for workers in several:
        workers.get()
    for workers in several:
        workers.wait()


def close_all(several: Sequence[Workers]) -> None:
    """End several workers side by side: each takes a tenth of a second on a GPU."""
    with ThreadPoolExecutor(max(1, len(several))) as threads:
        list(threads.map(lambda workers: workers.close(), several))
