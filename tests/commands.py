"""Commands of pairbench in processes of their own, without a new interpreter and a new torch for each.

`python -m pairbench` takes half a second to two until it is there, and each of its workers two more. Here one process
imports everything, and forks a child for each command; before the child becomes the command, it forks a second one from
which all workers of the command are forked. For commands that a test calls in its own process there is `forked_workers`. Folder, environment, arguments, output, exit code and signals are those of
a process of its own. What a command measures so is right, but tests that judge times start interpreters: see `call`.
"""

import atexit
import contextlib
import functools
import gc
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from _pytest.config import default_plugins

from pairbench.execute.forking import ForkRequest, Preload, send_request
from pairbench.execute.parent import launch
from pairbench.execute.parent.launch import VARIABLE, Forked

ROOT = Path(__file__).parents[1]
# What libraries read as they are imported: a command that has another value needs an interpreter of its own.
_EARLY = ("LD_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "TORCH_", "TRITON_")
_OF_WORKERS = (
    *("pairbench.execute.worker.describe.operators", "pairbench.execute.worker.calls"),
    *("pairbench.execute.worker.describe.probe", "pairbench.execute.worker.judge.process"),
    *("pairbench.execute.worker.stages", "torch._dynamo"),
    *("torch.fx.experimental.symbolic_shapes", "torch.profiler", "torch.testing"),
)
_OF_COMMANDS = (
    *("pairbench.cli.app", "pairbench.analyze.compare.runs", "pairbench.analyze.history.trend"),
    *("pairbench.store.reader", "pairbench.workflow.record", "pairbench.workflow.comparer"),
    *("pairbench.report.comparison", "pairbench.report.render", "pairbench.report.rows"),
    *("numpy", "pandas", "pyarrow.dataset", "pyarrow.pandas_compat", "pyarrow.parquet"),
    *("rich.console", "rich.table", "scipy.special", "scipy.stats", "typer._adapters"),
    *(f"_pytest.{name}" for name in default_plugins),
    *("pytest", "pytest_benchmark.plugin", "pairbench.integrations.plugin.session"),
)

_WORKERS = "workers"
"""What is asked for where no command is, but what forks workers of one that runs elsewhere."""

Done = subprocess.CompletedProcess[str]


@functools.cache
def server() -> "CommandServer":
    """Return the one that the tests of this process share."""
    made = CommandServer()
    atexit.register(made.close)
    return made


def call(folder: Path, environment: Mapping[str, str], *arguments: str, module: str = "pairbench") -> Done:
    """Run a command, `python -m` of a module: forked where its environment says that its workers may be, else as a user does."""
    if environment.get(VARIABLE) == "fork" and server().serves(environment):
        return server().call(folder, environment, module, *arguments)
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240
    )


def environment_of(folder: Path, **variables: str) -> dict[str, str]:
    """Return the environment for a command: this tree's pairbench, and temporary files under a folder."""
    paths = [str(ROOT / "harness"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(os.pathsep.join(paths).split(os.pathsep))),
        "TMPDIR": str(folder),
        "XDG_STATE_HOME": str(folder),
        "XDG_RUNTIME_DIR": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "NO_COLOR": "1",
        **variables,
    }


class CommandServer:
    """Forks commands. It loads in the background, so it costs nothing to have one early."""

    def __init__(self) -> None:
        self._environment = {
            **environment_of(Path(tempfile.gettempdir())),
            "PYTHONFAULTHANDLER": "1",  # as pairbench has it for its workers
            "PYTHONUNBUFFERED": "1",
            VARIABLE: "fork",
        }
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )

    def serves(self, environment: Mapping[str, str]) -> bool:
        """Return whether a command with this environment can be forked."""
        ours, theirs = (
            {name: value for name, value in variables.items() if name.startswith(_EARLY)}
            for variables in (self._environment, {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1", **environment})
        )
        return ours == theirs

    def call(self, folder: Path, environment: Mapping[str, str], *arguments: str, timeout: float = 240) -> Done:
        """Run a command to its end; the first argument is the module that it is."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            request = ForkRequest(
                environment=dict(environment),
                folder=str(folder),
                arguments=arguments,
                files=(output.fileno(), errors.fileno()),
            )
            line = send_request(self._control, request)
            line.settimeout(timeout)
            process = Forked(line, self._process)
            try:
                code = process.wait()
            finally:
                process.kill()
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode().replace("\r\n", "\n"))
        return Done(list(arguments), code, *texts)

    def fork_workers(self, environment: Mapping[str, str]) -> tuple[socket.socket, Any]:
        """Start what forks workers, in the folder of this process, and return the line on which it takes requests."""
        ours, theirs = socket.socketpair()
        with theirs, Path(os.devnull).open("wb") as nothing:
            request = ForkRequest(
                environment=dict(environment),
                folder=str(Path.cwd()),
                arguments=(_WORKERS,),
                files=(nothing.fileno(), nothing.fileno(), theirs.fileno()),
            )
            line = send_request(self._control, request)
        return ours, _Workers(Forked(line, self._process))

    def close(self) -> None:
        """End the server, and with it what it has forked."""
        self._control.close()
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def forked_workers() -> Iterator[None]:
    """Have the fork servers of what this process calls be forked too, from one that has loaded everything; they do the same."""
    start = launch.start_server

    def start_server(environment: Mapping[str, str], preload: Preload) -> tuple[socket.socket, Any]:
        # What no worker's server reads, and how threads wait for one another, of which there is one.
        late = {*launch._LATE, "OMP_WAIT_POLICY"}
        if not server().serves({name: value for name, value in environment.items() if name not in late}):
            return start(environment, preload)
        return server().fork_workers(environment)

    launch.start_server = start_server
    try:
        yield
    finally:
        launch.start_server = start


class _Workers:
    """A fork server that was forked."""

    def __init__(self, process: Forked) -> None:
        self._process = process
        self._killed = False

    def wait(self, timeout: float | None = None) -> int:
        if self._killed:  # perhaps before it was forked, and then nobody tells how it ended
            return -signal.SIGKILL
        until = time.monotonic() + timeout if timeout is not None else float("inf")
        while not self._process.ended():
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(_WORKERS, timeout or 0)
            time.sleep(0.002)
        return self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self._killed = True


class _Mother:
    """The process that forks a command's workers; it ends when the command does."""

    def wait(self, timeout: float | None = None) -> int:
        return -9

    def kill(self) -> None:
        pass


def _be_worker_server(control: socket.socket, modules: frozenset[str]) -> NoReturn:
    from pairbench.execute.worker.fork_server import Server, work

    del sys.path[0]  # the folder of this file, or of a command
    # A worker watches every module of ours that is loaded, and those of commands are twice as many.
    for name in [name for name in sys.modules if name.startswith("pairbench.") and name not in modules]:
        del sys.modules[name]
    worker = Server(control).serve()
    if worker is not None:
        work(worker)
    os._exit(0)


def _main(control: socket.socket) -> None:
    from pairbench.execute.parent import lock
    from pairbench.execute.worker.describe import probe
    from pairbench.execute.worker.fork_server import Server, load

    gc.disable()  # a tenth of the time that it takes to load
    load(*_OF_WORKERS)
    of_workers = frozenset(sys.modules)
    load(*_OF_COMMANDS)
    gc.enable()
    # Measuring them takes 1.4 s a run, and nothing that is judged here depends on them; fresh interpreters measure them.
    probe.measure_ceilings = lambda device: {"copy_gbps": 10.0, "float32_tflops": 0.1, "float64_tflops": 0.05}
    command = Server(control).serve()
    if command is None:
        return
    tempfile.tempdir = None
    if command.arguments == (_WORKERS,):
        _be_worker_server(socket.socket(fileno=command.files[2]), of_workers)
    sys.path[0] = command.folder
    if "compile" in command.arguments:
        # Four seconds, and each worker of the command would take them again.
        load("torch._inductor.compile_fx")
    ours, theirs = socket.socketpair()
    if not os.fork():
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2):
            os.dup2(nothing, number)
        _be_worker_server(theirs, of_workers)
    theirs.close()

    def start_server(environment: Mapping[str, str], preload: Preload) -> tuple[socket.socket, Any]:
        return ours.dup(), _Mother()

    # Tests run beside one another: how busy that keeps the host is no matter of what they judge. Not in workers, which watch it.
    part = float(os.environ.get("TESTS_HOST_LOAD", "0"))
    lock.LoadMeter.foreign_cores = lambda meter: part * lock.count_cores()  # type: ignore[assignment, method-assign]
    launch.start_server = start_server
    # Several of a command's servers are this one.
    launch.send_farewell = lambda control: None  # type: ignore[attr-defined]
    module, *sys.argv[1:] = command.arguments
    if module == "pairbench":
        del sys.path[0]  # as the package does it where it is imported by `-m`
    # pytest asserts by rewriting modules that are not yet loaded, and warns of its plugins that are; ours asserts nothing.
    sys.modules["pairbench"].__doc__ = "PYTEST_DONT_REWRITE"
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    # The end of an interpreter, but for taking apart what it has loaded: that takes half a second.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
