"""A process that has torch loaded and forks a worker at each request of its parent: `-m pairbench.execute.worker.fork_server`.

It has never touched a GPU and has run no parallel region, so its forks are as good as new: neither a CUDA context nor the threads of an OpenMP pool survive a fork.
"""

import contextlib
import importlib
import os
import selectors
import signal
import socket
import sys
import tempfile
import warnings
from pathlib import Path
from unittest import mock

from pairbench.execute.forking import ForkRequest, Preload, receive_request, send_number
from pairbench.execute.garbage import keep_what_is_there
from pairbench.execute.orphans import VARIABLE, adopt, be_server, kill_children, kill_orphans, wait_for_end

_FIRST = ("torch", f"{__package__}.describe.operators", f"{__package__}.calls")
"""Modules of a worker that describes devices and operators."""
_THEN = (f"{__package__}.describe.probe", f"{__package__}.judge.process", f"{__package__}.stages", "triton")
"""Modules that the other workers need most."""
_COMPILER = ("torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codegen.cuda_combined_scheduling")
"""Modules of torch's compiler; all three take 8 s on an H200's host, without a GPU the first is enough."""
_ASKED = "_cuda_getDeviceCount"  # asks the driver where NVML does not know


def load(*modules: str) -> None:
    """Import modules, and keep the garbage collector from touching, and so copying, their memory."""
    # The compiler asks for GPUs as it is imported, and a driver that was asked does not survive a fork.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    names = vars(sys.modules["torch"]._C) if "torch" in sys.modules else {}
    with mock.patch.dict(names if _ASKED in names else {}, {_ASKED: lambda: 0}):
        for module in modules:
            with contextlib.suppress(Exception):  # the worker tries once more, and has somebody to tell
                importlib.import_module(module)
    keep_what_is_there()


class Server:
    def __init__(self, control: socket.socket, *then: str, at_once: bool = False) -> None:
        """Load the modules `then` before anything but the first request: at once beside the first worker, or when a second one is asked for."""
        self._control = control
        self._then = then
        self._at_once = at_once
        self._requests = 0
        self._lines: dict[int, socket.socket] = {}
        self._wakes, self._waker = os.pipe()
        for end in (self._wakes, self._waker):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler has to be there for the wake-up to be written
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._selector.register(self._wakes, selectors.EVENT_READ)

    def serve(self) -> ForkRequest | None:
        """Fork at each request until the parent hangs up, and return None; in a forked process return its request, set up in a session of its own."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    try:
                        asked = receive_request(self._control)
                    except EOFError:
                        self._end()
                        if owner := os.environ.get(VARIABLE):  # the parent was killed, and kills no orphans itself
                            wait_for_end(owner)
                            kill_orphans(owner)
                        return None
                    if asked is None:
                        self._end()
                        return None
                    self._requests += 1
                    if self._requests == 2 and not self._at_once:
                        load(*self._then)
                    if self._fork(*asked):
                        return _settled(asked[1])
                    if self._requests == 1 and self._at_once:
                        load(*self._then)
                elif key.fileobj == self._wakes:
                    self._reap()
                elif key.data in self._lines:
                    self._selector.unregister(key.fileobj)
                    _kill(key.data)

    def _end(self) -> None:
        for pid in self._lines:
            _kill(pid)
        kill_children(but=())

    def _fork(self, line: socket.socket, request: ForkRequest) -> bool:
        """Fork once, and return whether this is the new process, which keeps nothing of the server's."""
        with warnings.catch_warnings():  # Python 3.12 warns of threads, which here are those of an idle BLAS
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._selector.close()
            for one in (self._control, line, *self._lines.values()):
                one.close()
            os.close(self._wakes)
            os.close(self._waker)
            return True
        for file in request.files:
            os.close(file)
        self._lines[pid] = line
        self._selector.register(line, selectors.EVENT_READ, pid)
        send_number(line, pid)
        return False

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakes, 4096)
        for pid, code in _ended():
            line = self._lines.pop(pid, None)
            if line is None:  # what a worker has left behind
                continue
            kill_children(but=self._lines)  # in whatever session they are
            with contextlib.suppress(KeyError):  # somebody wanted it killed
                self._selector.unregister(line)
            send_number(line, code)
            line.close()


def _ended() -> list[tuple[int, int]]:
    found = []
    with contextlib.suppress(ChildProcessError):
        while (waited := os.waitpid(-1, os.WNOHANG))[0]:
            found.append((waited[0], os.waitstatus_to_exitcode(waited[1])))
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it may have no session of its own yet
        os.killpg(pid, signal.SIGKILL)


def _settled(request: ForkRequest) -> ForkRequest:
    os.setsid()  # Ctrl-C is the parent's to handle
    be_server(yes=False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, number in zip((nothing, *request.files[:2]), (0, 1, 2), strict=True):
        os.dup2(file, number)
    os.close(nothing)
    for file in set(request.files[:2]):
        os.close(file)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    tempfile.tempdir = None  # read again from this environment
    sys.pycache_prefix = request.environment.get("PYTHONPYCACHEPREFIX")
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # as in a new interpreter; Python's own generator does so by itself
    return request


def work(request: ForkRequest) -> None:
    from pairbench.execute.worker import __main__ as worker

    if "TRITON_INTERPRET" in request.environment:
        # A suite imports Triton anew: its import settles whether kernels are interpreted.
        for name in [name for name in sys.modules if name.partition(".")[0] == "triton" and "._C" not in name]:
            del sys.modules[name]
    sys.modules["__main__"] = worker  # as in an interpreter of its own, for what a suite pickles or spawns
    _, _, connection, heartbeat = request.files
    worker.main(connection, heartbeat, os.getppid())


if __name__ == "__main__":
    preload = Preload(sys.argv[2])
    be_server()
    adopt()
    load(*_FIRST)
    compiler = _COMPILER if Path("/dev/nvidiactl").exists() else _COMPILER[:1]
    then = (*_THEN, *compiler) if preload is Preload.COMPILER else _THEN
    # The first worker finds devices and suites, and measures nothing that would be slower for it.
    server = Server(socket.socket(fileno=int(sys.argv[1])), *then, at_once=preload is not Preload.DESCRIPTION)
    if (forked := server.serve()) is not None:
        work(forked)
    else:
        os._exit(0)  # the parent waits for it, and nothing is left that Python's own end would do
