"""How a worker process comes to be: as a fresh interpreter, or forked by a server that has torch loaded.

A fresh interpreter is independent of all others down to its addresses, which matters to times on a CPU; importing torch
takes it seconds. So what is timed on a CPU is in fresh ones, and the rest is forked: on a GPU rounds of forks differ as rounds
of fresh ones do (tests/lab/workers/README.md). `PAIRBENCH_WORKERS` has all workers be of one kind.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pairbench.errors import UsageError
from pairbench.execute.forking import Preload
from pairbench.execute.orphans import kill_orphans, mark, sweep
from pairbench.execute.parent.fork_server import ForkServers, start_python

VARIABLE = "PAIRBENCH_WORKERS"


class FreshInterpreter:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        """Return the exit code, or the negative number of the signal that ended the process."""
        return self._process.wait()

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
        command = ["-m", "pairbench.execute.worker", *numbers]
        return FreshInterpreter(start_python(command, environment, (connection, heartbeat), log))


Launcher = FreshInterpreters | ForkServers


class Launchers(NamedTuple):
    shared: Launcher = FreshInterpreters()
    """Starts workers that may share what they have loaded, and where it lies in memory."""
    alone: Launcher = FreshInterpreters()
    """Starts workers in which something is timed on a CPU."""


@contextlib.contextmanager
def open_launchers(environment: Mapping[str, str] = os.environ, *, yielding: bool = True) -> Iterator[Launchers]:
    """Give the launchers that `PAIRBENCH_WORKERS` asks for, and end what they keep running; `yielding` as in `ForkServers`."""
    sweep()
    match environment.get(VARIABLE, ""):
        case "":
            with ForkServers(yielding=yielding) as servers:
                yield Launchers(shared=servers)
        case "fresh":
            yield Launchers()
        case "fork":
            with ForkServers(yielding=yielding) as servers:
                yield Launchers(servers, servers)
        case other:
            raise UsageError(
                f"{VARIABLE} is {other!r}, expected 'fresh' for a new interpreter per worker, 'fork' for workers forked "
                "from one that has torch loaded, or nothing for fresh ones where something is timed on a CPU"
            )
