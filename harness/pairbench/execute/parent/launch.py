"""How a worker process comes to be: as a fresh interpreter, or forked by a server that has torch loaded.

Why there are both, and which is used where: docs/decisions/workers.md.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from pairbench.errors import UsageError
from pairbench.execute.forking import ForkRequest, Preload, receive_number, send_farewell, send_request
from pairbench.execute.orphans import kill_orphans, mark, sweep

_LATE = (
    *("CUDA_VISIBLE_DEVICES", "PYTEST_CURRENT_TEST", "TRITON_CACHE_DIR", "TRITON_INTERPRET"),
    *("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS"),
    *("HOME", "PAIRBENCH_ISOLATED", "PYTHONPYCACHEPREFIX", "TMPDIR", "TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"),
)
"""Variables that nothing reads before a worker is at work, or that a forked worker reads again; the driver reads the first when
a GPU is used first, and a server never does, and a worker that interprets kernels imports Triton anew. All others decide
which server serves, so that none can be forgotten."""
_IDLE = {"OMP_WAIT_POLICY": "PASSIVE"}
"""A server's own defaults: interpreters that load torch beside its workers take the cores that their threads wait for, and spinning threads take ten times as long."""
_END_S = 1.0
_WORKER = (
    "import runpy; from pairbench.execute import isolation; isolation.enter(); "
    "runpy.run_module('pairbench.execute.worker', run_name='__main__', alter_sys=True)"
)
"""Begins a worker in a fresh interpreter: once torch has started threads, its process cannot leave the network."""
VARIABLE = "PAIRBENCH_WORKERS"


def start_python(
    arguments: list[str], environment: Mapping[str, str], files: tuple[int, ...], output: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start an interpreter with some open files, in a session of its own: Ctrl-C is the parent's to handle."""
    return subprocess.Popen(
        [sys.executable, "-P", *arguments],
        pass_fds=files,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment,
        start_new_session=True,
    )


def start_server(environment: Mapping[str, str], preload: Preload) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    with theirs:
        command = ["-m", "pairbench.execute.worker.fork_server", str(theirs.fileno()), preload]
        return ours, start_python(command, environment, (theirs.fileno(),))


class Forked:
    """A process that a server forked. Only the server sends it signals: it knows whether the id is still that process."""

    def __init__(self, line: socket.socket, server: subprocess.Popen[bytes]) -> None:
        self._line, self._server = line, server
        self._pid: int | None = None
        self._code: int | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None until the server has forked."""
        if self._pid is None and self._told():
            self._pid = receive_number(self._line)
        return self._pid

    def ended(self) -> bool:
        """Return whether the server has told the exit code, or has ended itself."""
        self._pid = self.pid  # it is told before the exit code
        return self._code is not None or self._told()

    def _told(self) -> bool:
        return self._line.fileno() >= 0 and bool(select.select([self._line], [], [], 0)[0])

    def wait(self) -> int:
        """Return the exit code, or the negative number of the signal; the server's own if it ended before."""
        if self._code is None:
            if self._pid is None:
                self._pid = receive_number(self._line)
            code = receive_number(self._line)
            self._line.close()
            self._code = self._server.wait() if code is None else code
            if code is None:
                # The server would kill what the worker has started; it was killed itself, and so was the worker.
                kill_orphans(mark())
        return self._code

    def kill(self) -> None:
        if self._line.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)
        if self.pid is not None:
            self.wait()
        else:  # the server is still loading torch, and will kill what it forks at once: nothing to wait for
            self._line.close()


class ForkServer:
    """One server. It is started at once, and takes requests while it is still loading torch."""

    def __init__(self, environment: Mapping[str, str], preload: Preload) -> None:
        self._control, self._process = start_server(environment, preload)
        self._used = False

    def fork(self, request: ForkRequest) -> Forked | None:
        """Return a forked process; None if the server has ended."""
        with contextlib.suppress(OSError):
            self._used = True
            return Forked(send_request(self._control, request), self._process)
        return None

    def fail(self) -> Forked:
        """Return a process that has ended as the server has: a server that cannot start cannot start a worker."""
        line, other = socket.socketpair()
        other.close()
        return Forked(line, self._process)

    def close(self) -> None:
        send_farewell(self._control)
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._used:
                self._process.wait(_END_S)
                return
        self._process.kill()  # still loading torch
        self._process.wait()


class ForkServers(AbstractContextManager["ForkServers"]):
    """Starts each worker by a fork. A context manager: its servers end with it, or with this process, however that ends."""

    def __init__(self, *, yielding: bool = True) -> None:
        """Start nothing yet; with `yielding`, threads of workers leave their core while they wait, for others have work to do beside them."""
        self._policy = _IDLE if yielding else {}
        self._servers: dict[tuple[str, frozenset[tuple[str, str]]], ForkServer] = {}
        self._turn = threading.Lock()

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.close()

    def prepare(self, environment: Mapping[str, str], preload: Preload) -> None:
        with self._turn:
            self._server(environment, preload)

    def launch(self, environment: Mapping[str, str], *, connection: int, heartbeat: int, log: int) -> Forked:
        files = (log, log, connection, heartbeat)
        request = ForkRequest(environment=dict(environment), folder=str(Path.cwd()), files=files)
        with self._turn:
            if process := self._server(environment).fork(request):
                return process
            self._servers.pop(_early(environment)).close()  # it was killed since
            server = self._server(environment)
            return server.fork(request) or server.fail()

    def _server(self, environment: Mapping[str, str], preload: Preload = Preload.MEASUREMENT) -> ForkServer:
        key = _early(environment)
        if key not in self._servers:
            started_with = {name: value for name, value in environment.items() if name != "TRITON_INTERPRET"}
            self._servers[key] = ForkServer(self._policy | started_with, preload)
        return self._servers[key]


def _early(environment: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return what two workers of one server have in common: the folder, and the variables that are read as torch is imported."""
    return str(Path.cwd()), frozenset(item for item in environment.items() if item[0] not in _LATE)


class FreshInterpreter:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self.pid = process, process.pid
        self.wait = process.wait  # returns the exit code, or the negative number of the signal that ended the process

    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        kill_orphans(mark())


class FreshInterpreters:
    def prepare(self, environment: Mapping[str, str], preload: Preload) -> None:
        """Do nothing: nobody knows yet how many are needed."""

    def launch(self, environment: Mapping[str, str], *, connection: int, heartbeat: int, log: int) -> FreshInterpreter:
        """Start a worker with open files: its end of the connection, the shared memory of its heartbeat, and the log for its output."""
        numbers = (str(number) for number in (connection, heartbeat, os.getpid()))
        return FreshInterpreter(start_python(["-c", _WORKER, *numbers], environment, (connection, heartbeat), log))


Launcher = FreshInterpreters | ForkServers


class Launchers(NamedTuple):
    shared: Launcher = FreshInterpreters()  # starts workers that may share what they loaded, and its place in memory
    alone: Launcher = FreshInterpreters()  # starts workers in which something is timed on a CPU


@contextlib.contextmanager
def open_launchers(environment: Mapping[str, str] = os.environ, *, yielding: bool = True) -> Iterator[Launchers]:
    """Give the launchers that `PAIRBENCH_WORKERS` asks for, and end what they keep running; `yielding` as in `ForkServers`."""
    sweep()
    match environment.get(VARIABLE, ""):
        case "fresh":
            yield Launchers()
        case "" | "fork" as kind:
            with ForkServers(yielding=yielding) as servers:
                yield Launchers(servers, servers) if kind else Launchers(shared=servers)
        case other:
            kinds = "'fresh' for a new interpreter per worker, 'fork' for workers forked from one that has torch loaded"
            mixed = "nothing for fresh ones where something is timed on a CPU"
            raise UsageError(f"{VARIABLE} is {other!r}, expected {kinds}, or {mixed}")
