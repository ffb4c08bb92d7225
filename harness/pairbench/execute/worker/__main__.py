"""A worker process (`-m pairbench.execute.worker`): it takes jobs and sends results. It trusts no suite: an exception ends an entry, a broken GPU ends the worker."""

import contextlib
import functools
import gc
import mmap
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairbench.errors import SuiteError
from pairbench.execute import isolation, protocol
from pairbench.execute.forking import read_bytes
from pairbench.execute.garbage import collector_at_rest
from pairbench.execute.orphans import adopt, die_with
from pairbench.execute.wire import LENGTH, encode
from pairbench.model.operator import Operator
from pairbench.model.outcome import ImpostorResult, Status, Verification
from pairbench.model.plan import BrokenSuite
from pairbench.suite.modules import load_suite, search


def main(connection_fd: int, heartbeat_fd: int, parent_pid: int) -> None:
    die_with(parent_pid)
    adopt()
    isolation.enter()
    heartbeat = protocol.Heartbeat(mmap.mmap(heartbeat_fd, protocol.SIZE))
    line = _Line(connection_fd, heartbeat)
    os.set_inheritable(connection_fd, False)  # a process that the suite starts must not keep the line open
    for let_go in (line.close, heartbeat.let_go):  # nor one that it forks, or answer in this one's place
        os.register_at_fork(after_in_child=let_go)
    # Only the parent interrupts a worker, by a kill: what a suite sends to itself would end whatever runs next.
    signal.signal(signal.SIGINT, lambda *_: None)
    heartbeat.rest()
    hello: protocol.WorkerConfig = line.receive()
    # An allocation without end raises, and the kernel kills this process first.
    with contextlib.suppress(OSError):  # not Linux, or not allowed: the parent's own watch on the memory remains
        Path("/proc/self/oom_score_adj").write_text("1000")
    if hello.device.kind == "cpu":  # CUDA reserves far more addresses than memory
        limit = hello.memory_bytes
        with contextlib.suppress(OSError):  # as above
            mapped, resident, *_ = map(int, Path("/proc/self/statm").read_text().split())
            limit += (mapped - resident) * resource.getpagesize()  # 2.5 GiB of a torch that has CUDA's libraries
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    current = [os.getcwd()]  # noqa: PTH109 (an entry of a search path)
    if hello.stand_in:
        redirect(hello.stand_in, sys.path)
        redirect(hello.stand_in, current)
    search(*current)
    server = _Server(hello, heartbeat, line)
    while True:
        try:
            job: protocol.Job = line.receive()
        except EOFError:
            return
        if isinstance(job, protocol.TakeBlock | protocol.CloseCase):
            heartbeat.go_on()
        else:
            heartbeat.begin_job(hello.settings.timeout_s)
        for result in server.serve(job):
            line.send(result)
            bad = isinstance(result, Verification) and result.status is not Status.VERIFIED
            if (bad or isinstance(result, protocol.Ended | ImpostorResult | BrokenSuite)) and server.is_spoilt():
                line.send(protocol.Broken())
                os._exit(1)
        heartbeat.rest()
        line.send(protocol.Done())


class _Line:
    """This end of the line to the parent. The parent is trusted: its messages are pickles."""

    def __init__(self, descriptor: int, heartbeat: protocol.Heartbeat) -> None:
        self.descriptor = descriptor
        self._socket = socket.socket(fileno=descriptor)
        self._heartbeat = heartbeat
        self.outputs: int | None = None
        """Descriptor of the shared memory that carries outputs to the judge; None where no job needs it."""

    def receive(self) -> Any:
        """Return the parent's next message, or raise EOFError once the parent has hung up."""
        head, files, _, _ = socket.recv_fds(self._socket, LENGTH.size, 1)
        if not head:
            raise EOFError
        for file in files:  # the newest is where outputs go
            if self.outputs is not None:
                os.close(self.outputs)
            os.set_inheritable(file, False)
            self.outputs = file
        (length,) = LENGTH.unpack(head + read_bytes(self._socket, LENGTH.size - len(head)))
        return pickle.loads(read_bytes(self._socket, length))  # noqa: S301 (the parent's own)

    def ask(self, message: Any) -> Any:
        """Send a dataclass and return the parent's answer; the entries' time stands still meanwhile."""
        from pairbench.execute.worker.process_state import files

        files.require(self.descriptor)
        with self._heartbeat.waiting():
            self.send(message)
            return self.receive()

    def answered(self) -> Any:
        with self._heartbeat.waiting():
            return self.receive()

    def send(self, message: Any) -> None:
        self._socket.sendall(encode(message))

    def close(self) -> None:
        self._socket.close()


class _Server:
    def __init__(self, hello: protocol.WorkerConfig, heartbeat: protocol.Heartbeat, line: _Line) -> None:
        from pairbench.execute.worker.flags import pin_flags  # imports torch, with the memory limit in force
        from pairbench.execute.worker.process_state import files

        self._hello = hello
        self._heartbeat = heartbeat
        self._line = line
        self._suites: dict[Path, dict[str, Operator]] = {}
        self._hashes: dict[Path, dict[str, tuple[str, ...]]] = {}
        pin_flags(tf32=hello.settings.tf32)
        files.hold(0, 1, 2, line.descriptor)
        if hello.device.kind == "cuda":
            import torch

            # It starts the driver and creates the context, which takes a second; the workers of several rounds do so side by side.
            with contextlib.suppress(Exception):  # the first job says what is wrong
                torch.cuda.synchronize()
        gc.freeze()  # the million objects of torch stay: not to be gone through whenever garbage is looked for

    def serve(self, job: protocol.Job) -> Iterator[Any]:
        # Each imports what it needs itself: who only asks for a suite's operators does not wait for what measuring takes.
        match job:
            case protocol.TakeBlock():
                yield from self._turns.take(job)
            case protocol.CloseCase():
                yield from self._turns.close(job)
            case protocol.Inputs() | protocol.Outputs() | protocol.JudgeTimed():
                yield from self._judge.serve(job)
            case protocol.CaseJob():
                yield from self._of_case(job)
            case protocol.Wait():
                pass
            case protocol.FindDevices():
                from pairbench.execute.worker.calls import find_devices

                yield protocol.FoundDevices(devices=tuple(find_devices()))
            case protocol.Probe():
                from pairbench.execute.worker.describe.probe import probe
                from pairbench.execute.worker.flags import pin_flags

                pin_flags(tf32=self._hello.settings.tf32)  # suites and cases that came before have set their own
                yield probe(self._hello.device, ceilings=job.ceilings)
            case protocol.Diagnose():
                from pairbench.execute.worker.describe.probe import diagnose

                yield from diagnose(self._hello.device)
            case protocol.Describe():
                yield from self._describe(job)

    def _of_case(self, job: protocol.CaseJob) -> Iterator[Any]:
        try:
            operator = self._operator(job)
        except SuiteError as error:  # it was loaded before, when it was described
            yield protocol.Ended(entry=None, status=Status.FAILED, reason=str(error))
            return
        if isinstance(job, protocol.HoldCase | protocol.TimeAlone):
            yield from self._judge.hold(job, operator)
            return
        from pairbench.execute.worker.stages import run_stage
        from pairbench.execute.worker.trusted import begin_case

        turns = self._turns  # imported before the case begins, which freezes all that is loaded
        begin_case(job, operator)
        if isinstance(job, protocol.OpenCase):
            yield from turns.open(job, operator)
        else:
            yield from run_stage(job, operator, self._hello, self._heartbeat, self._line)

    @functools.cached_property
    def _judge(self) -> Any:
        from pairbench.execute.worker.judge.process import Judge

        return Judge(self._hello, self._heartbeat, self._line)

    @functools.cached_property
    def _turns(self) -> Any:
        from pairbench.execute.worker.stages import InterleavedCases

        return InterleavedCases(self._hello, self._heartbeat)

    def is_spoilt(self) -> bool:
        """Return whether a fresh process has to take over the device: the GPU is broken, or a suite has changed shared state or left a thread."""
        from pairbench.execute.worker.flags import stuck
        from pairbench.execute.worker.guard import gpu_is_broken
        from pairbench.execute.worker.trusted import left_running, tampered

        return gpu_is_broken() or stuck() or tampered() or left_running() is not None

    def _load(self, path: Path) -> dict[str, Operator]:
        if path not in self._suites:
            from pairbench.execute.worker import input_lists
            from pairbench.execute.worker.calls import seed_generators
            from pairbench.execute.worker.trusted import freeze_suite, left_running, replaced, see_own_modules

            see_own_modules()
            before = _own_modules()
            against = self._hello.settings.against
            seed_generators(0, cuda=True)  # a module that the suite makes has the same weights in every process
            loaded = load_suite(path, functools.partial(input_lists.operators_of, against=against))
            if why := replaced():
                raise SuiteError(f"suite {path.name}: {why}")
            if why := left_running():
                raise SuiteError(f"suite {path.name}: as it is imported it {why}")
            if more := _own_modules() - before:
                why = "which is the worker's own; a suite needs the names of `pairbench` alone"
                raise SuiteError(f"suite {path.name}: imports {min(more)}, {why}")
            if self._hello.stand_in:
                refuse_strays(self._hello.stand_in, path)
            freeze_suite(path, loaded.values())
            self._suites[path] = loaded
        return self._suites[path]

    def _operator(self, job: protocol.CaseJob) -> Operator:
        """Return a job's operator; a suite that changed since it was described is refused: its records would pair old hashes with new times."""
        if job.path not in self._hashes:
            from pairbench.execute.worker.describe.operators import hashes_of

            loaded = self._load(job.path)
            self._hashes[job.path] = {name: hashes_of(job.path, one) for name, one in loaded.items()}
        # Triton's interpreter puts other objects in the place of kernels, which have other hashes; who times or profiles runs without it.
        comparable = job.hashes and os.environ.get("TRITON_INTERPRET") != "1"
        found = self._suites[job.path].get(job.operator)
        if found is None or (comparable and self._hashes[job.path][job.operator] != job.hashes):
            why = "was changed since the command began; run it again"
            raise SuiteError(f"suite {job.path.name}: {job.operator!r} {why}")
        # On a CPU products of float32 are IEEE float32, whatever the switches say.
        return found.at(job.case, tf32=self._hello.device.kind == "cuda" and job.case.tf32(self._hello.settings.tf32))

    def _describe(self, job: protocol.Describe) -> Iterator[Any]:
        from pairbench.execute.worker.describe.operators import describe

        try:
            with collector_at_rest():
                operators = self._load(job.path).values()
                found = tuple(describe(job.suite, job.path, operator, deep=job.deep) for operator in operators)
                described = protocol.DescribedSuite(operators=found)
                encode(described)
        except SuiteError as error:
            yield BrokenSuite(suite=job.suite, reason=str(error))
        except (TypeError, ValueError) as error:  # a value that no message can hold
            reason = f"suite {job.path.name}: what it declares is no plain data: {error}"
            yield BrokenSuite(suite=job.suite, reason=reason)
        else:
            yield described


def _own_modules() -> set[str]:
    return {name for name in sys.modules if name.startswith("pairbench.execute.")}


_LIBRARIES = ("site-packages", "dist-packages")
_PAIRBENCH = Path(__file__).resolve().parents[2]  # the running package, which both commits share on purpose


def redirect(stand_in: protocol.StandIn, search_path: list[str]) -> None:
    """Point the entries of a module search path that lie in the checkout to the same places of the copy."""
    for index, text in enumerate(search_path):
        folder = Path(text).resolve()
        if _belongs(folder, stand_in):
            search_path[index] = str(stand_in.copy / folder.relative_to(stand_in.checkout))


def refuse_strays(stand_in: protocol.StandIn, suite: Path) -> None:
    found = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    # torch.ops says that it is `_ops.py`.
    files = {name: Path(file) for name, file in found.items() if isinstance(file, str) and Path(file).is_absolute()}
    strays = {name: file.resolve() for name, file in files.items() if _belongs(file.resolve(), stand_in)}
    for name in strays:
        del sys.modules[name]  # so that the next suite which imports it is found out too
    for name, file in strays.items():
        why = "which is the checkout's and not the other commit's, so both sides would run the same code"
        advice = "have it found by its folder (in PYTHONPATH, or a `.pth` editable install)"
        raise SuiteError(f"suite {suite.name}: imports {name!r} from {file}, {why}; {advice}")


def _belongs(path: Path, stand_in: protocol.StandIn) -> bool:
    """Return whether a path is the checkout's own code: in no environment, and not the running pairbench."""
    if not path.is_relative_to(stand_in.checkout) or path.is_relative_to(_PAIRBENCH):
        return False
    return not path.is_relative_to(sys.prefix) and not any(part in _LIBRARIES for part in path.parts)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
