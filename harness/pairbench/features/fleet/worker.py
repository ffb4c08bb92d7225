"""A host's worker: examined when it starts, watched for other work between units, and back whenever the scheduler is.

A unit is `pairbench run` in a process that ends when the worker does, with the code of the unit's commit. A commit has a worktree in the
user's cache, made and built once, whichever unit needs it; the user's checkout is never touched. Dask calls `run_unit` and nothing else:
JSON goes in and comes out, and the results are in the store before anything comes back.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pairbench import __version__
from pairbench.config import Config, load_config
from pairbench.errors import PairbenchError, UsageError
from pairbench.execute.orphans import die_with
from pairbench.execute.parent.lock import LoadMeter, count_cores
from pairbench.execute.parent.pool import last_lines
from pairbench.execute.parent.scout import diagnose_device, probe_environment, survey
from pairbench.features.fleet.dask import NO_HTTP, Notify, configured, is_loopback, security_of
from pairbench.model.environment import Finding, HostLoad
from pairbench.model.unit import VARIABLE, Host, Offer, Unit, UnitEnd
from pairbench.own_folders import held_folder, locked
from pairbench.store.user_cache import user_folder
from pairbench.workflow.git import add_worktree, find_commit, git, remove_worktree, repository_of
from pairbench.workflow.setup import open_context, pick_devices

_OLD_S = 14 * 24 * 3600  # after which a commit that nothing has used is removed
BUILT = "PAIRBENCH_BUILD"  # names the folder for a build to install to, which comes first on the path of measured code
Code = tuple[Path, Path | None]  # a folder of files, and what their build has installed, if anything
PLUGIN = "pairbench"
BUSY = "busy"  # the `end` of a unit that was not begun because other work kept the host busy
_POLL_S, _GRACE_S = 0.2, 30.0  # Seconds between two looks at the process, and those that it has to end in order
HOST = "HOST"  # the resource of which every worker has one, and every unit takes one
_KNOWN, _HELD_UP = "pairbench", "pairbench_held_up"  # names of what a worker tells the scheduler of itself
_WATCH_S = 5.0  # between two looks for other work on the host


class BuildError(PairbenchError):
    """A commit is absent or cannot be built; its units are skipped."""

    def __init__(self, message: str, log: str | None = None) -> None:
        super().__init__(message)
        self.log = log


class Commits:
    """The commits that this host has made; those of the checkout in which the worker was started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._failed: dict[str, BuildError] = {}

    @contextlib.contextmanager
    def code(self, commit: str | None) -> Iterator[Code]:
        """Give the files of a commit while they are measured; without a commit, the worker's own folder. A build is tried once."""
        if commit is None:
            yield self._folder, None
            return
        if commit in self._failed:
            raise self._failed[commit]
        try:
            with self._made(commit) as code:
                yield code
        except BuildError as error:
            self._failed[commit] = error
            raise

    @contextlib.contextmanager
    def _made(self, commit: str) -> Iterator[Code]:
        try:
            repository = repository_of(self._folder, "a unit names a commit of it")
            if find_commit(repository, commit) is None:
                git(repository, "fetch", "--quiet", "origin")
            if find_commit(repository, commit) is None:
                raise BuildError(f"commit {commit[:10]} is not in {repository} on this host; fetch it there")
        except UsageError as error:
            raise BuildError(str(error)) from error
        place = user_folder() / "fleet" / hashlib.sha256(str(repository).encode()).hexdigest()[:12]
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(place / f"{commit}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BuildError(f"there is no room for commit {commit[:10]} in {place}: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _sweep(repository, place, commit)
            folder, installed = _make(repository, place / commit, commit)
            inside = self._folder.resolve().relative_to(repository)
            if not (folder / inside).is_dir():
                what = f"commit {commit[:10]} has no folder {inside.as_posix()!r}"
                raise BuildError(f"{what}, where this worker was started")
            os.utime(place / f"{commit}.lock")
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield folder / inside, installed
        finally:
            os.close(lock)


def _make(repository: Path, place: Path, commit: str) -> Code:
    folder, installed, done = place / "code", place / "installed", place / "done"
    if not done.exists():
        remove_worktree(repository, folder)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        try:
            add_worktree(repository, folder, commit)
        except UsageError as error:
            raise BuildError(f"commit {commit[:10]} cannot be checked out: {error}") from error
        _build(folder, installed, place / "build.log", commit)
        done.touch()
    return folder, installed if installed.is_dir() else None


def _build(folder: Path, installed: Path, log: Path, commit: str) -> None:
    try:
        command = load_config(folder).build
    except PairbenchError as error:
        raise BuildError(f"commit {commit[:10]}: {error}") from error
    if command is None:
        return
    installed.mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, BUILT: str(installed)}
    with log.open("wb") as output:
        null, joined = subprocess.DEVNULL, subprocess.STDOUT
        done = subprocess.run(  # noqa: S602 (a command of the project's own settings)
            command, shell=True, cwd=folder, env=environment, stdin=null, stdout=output, stderr=joined, check=False
        )
    if done.returncode:
        why = f"{command!r} ended with status {done.returncode}"
        raise BuildError(f"commit {commit[:10]} cannot be built: {why}", tail_of(log))


def tail_of(log: Path) -> str:
    lines = [f"{log}:"]
    with contextlib.suppress(OSError), log.open("rb") as file:
        lines += last_lines(file.fileno())[-20:]
    return "\n".join(lines)


def _sweep(repository: Path, place: Path, kept: str) -> None:
    """Remove commits that nothing has used for two weeks."""
    for lock in place.glob("*.lock"):
        with contextlib.suppress(OSError):
            if lock.stem == kept or time.time() - lock.stat().st_mtime < _OLD_S:
                continue
            with locked(lock, os.O_RDWR):
                remove_worktree(repository, place / lock.stem / "code")
                shutil.rmtree(place / lock.stem, ignore_errors=True)
                lock.unlink()


def run_unit(text: str) -> str:
    """Measure a unit on this worker's host: JSON with unit, device and store goes in, and its end, reason and statuses come back."""
    from distributed import get_worker

    worker = get_worker()
    context: _Worker = worker.plugins[PLUGIN].context
    key = worker.get_current_task()

    def given_up() -> bool:
        """Return whether nothing waits for this unit any more: the scheduler or the client is gone."""
        task = worker.state.tasks.get(key)
        return worker.status.name not in ("running", "paused") or task is None or task.state == "cancelled"

    began, asked = time.monotonic(), json.loads(text)
    unit = Unit.of(asked["unit"], "unit")
    if why := context.held_up:
        return json.dumps({"end": BUSY, "reason": why, "host": platform.node()})
    try:
        with context.commits.code(unit.commit) as code:
            done = _run(unit, asked, code, context, given_up)
    except BuildError as error:
        done = {"end": UnitEnd.SKIPPED, "reason": str(error), "log": error.log}
    return json.dumps({**done, "host": platform.node(), "seconds": time.monotonic() - began})


def _run(
    unit: Unit, asked: Mapping[str, Any], code: Code, context: "_Worker", given_up: Callable[[], bool]
) -> dict[str, Any]:
    command = [context.python, "-P", "-m", "pairbench", "run", "--format", "json", "--device", asked["device"]]
    command += ["--store", asked["store"], "--skip-existing", *unit.options()]
    log, (folder, installed) = context.logs / f"unit-{unit.key}.log", code
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    if installed is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(installed), environment.get("PYTHONPATH", "")]))
    with tempfile.TemporaryFile() as output, log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, VARIABLE: unit.key},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()),  # noqa: PLW1509 (one call into libc)
        )
        ended = _ended(process, given_up)
        output.seek(0)
        try:
            document = json.loads(output.read())
        except ValueError:
            document = None
    if ended == 130:
        return {"end": UnitEnd.NOT_DONE, "reason": "interrupted; what was finished is in the store"}
    if ended not in (0, 1) or not isinstance(document, dict) or "summary" not in document:
        tail = tail_of(log)
        last = next((line for line in reversed(tail.splitlines()) if line.startswith("pairbench: ")), "")
        why = last.removeprefix("pairbench: ") or f"`pairbench run` ended with status {ended}"
        return {"end": UnitEnd.SKIPPED if ended == 2 else UnitEnd.FAILED, "reason": why, "log": tail}
    log.unlink(missing_ok=True)
    statuses = document["summary"]["statuses"]
    if not statuses:
        return {"end": UnitEnd.STORED, "statuses": {}}
    return {"end": UnitEnd.DONE, "run_id": document["run_id"], "statuses": statuses}


def _ended(process: "subprocess.Popen[bytes]", given_up: Callable[[], bool]) -> int:
    """Return the exit status of a process; one whose result nothing waits for is interrupted, then killed."""
    deadline = None
    while True:
        try:
            return process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            if deadline is None and given_up():
                process.send_signal(signal.SIGINT)
                deadline = now + _GRACE_S
            elif deadline is not None and now > deadline:
                process.kill()


def examine_host(config: Config, devices: str) -> tuple[str, tuple[Offer, ...], list[tuple[str, Finding]]]:
    """Return the name of this host, its devices, and the findings of `pairbench doctor` by the device's selector."""
    host = platform.node()
    with open_context(config) as context:
        known = survey(context, ()).devices
        words = devices.split(",")
        chosen = list(dict.fromkeys(device for word in words for device in pick_devices(word.strip(), known)))
        offers = []
        for device in chosen:
            named = {"kind": device.kind, "model": device.slug, "selector": device.selector}
            environment_hash = probe_environment(context, device).hash
            offers.append(Offer(identity=device.uuid or f"cpu-{host}", environment_hash=environment_hash, **named))
        findings = [(device.selector, finding) for device in chosen for finding in diagnose_device(context, device)]
    part = {"auto", "all"}.isdisjoint(words) and len(chosen) < len(known) - (known[0].kind == "cuda")
    return f"{host} {devices}" if part else host, tuple(offers), findings


def other_work(offers: tuple[Offer, ...], meter: LoadMeter) -> str | None:
    """Return which other work the host's processors, since the last call, or its GPUs are at; None where there is none."""
    load = HostLoad(cores=count_cores(), before=meter.foreign_cores())
    reasons = [load.disturbs(kind) for kind in sorted({offer.kind for offer in offers})]
    if why := next(filter(None, reasons), None):
        return why.partition(":")[0]
    gpus = {offer.identity for offer in offers if offer.kind == "cuda"}
    found = sorted(pid for gpu, pid in compute_processes() if gpu in gpus) if gpus else []
    return f"processes {', '.join(found[:5])} compute on its GPU" if found else None


def compute_processes() -> list[tuple[str, str]]:
    """Return the pairs of GPU and process that `nvidia-smi` tells, for NVML would stay loaded in the worker; empty without it."""
    query = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return processes_of(done.stdout) if done.returncode == 0 else []


def processes_of(text: str) -> list[tuple[str, str]]:
    pairs = (tuple(part.strip() for part in line.split(",")) for line in text.splitlines())
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()]


def run_worker(
    config: Config, address: str, devices: str, certificates: Path | None, notify: Notify, *, python: str, watches: bool
) -> None:
    """Take units from a scheduler, whose address was checked, until SIGINT or SIGTERM. A running unit then ends in order, and what it finished is in the store."""
    security = security_of(certificates)
    name, offers, findings = examine_host(config, devices)  # several `devices` have commas between them
    for selector, one in findings:
        if one.state != "ok":
            notify(f"{selector}: {one.name}: {one.detail}{f'; {one.advice}' if one.advice else ''}")
    with configured(), held_folder() as logs:
        worker = _Worker(name, offers, address, logs, notify, security=security, python=python, watches=watches)
        asyncio.run(worker.serve())


@dataclass
class _Worker:
    name: str
    offers: tuple[Offer, ...]
    address: str
    logs: Path
    notify: Notify
    _: KW_ONLY
    python: str  # the interpreter whose pairbench measures
    watches: bool
    security: Any = None

    def __post_init__(self) -> None:
        self._meter = LoadMeter()
        self.held_up: str | None = None  # who else is at work on the host
        self.commits = Commits(Path.cwd())
        self._ended = asyncio.Event()

    async def serve(self) -> None:
        """Join the scheduler, and join again whenever it comes back: Dask's workers do not survive its end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._ended.set)
        ended = asyncio.ensure_future(self._ended.wait())
        for again in itertools.count():
            if self._ended.is_set():
                return
            worker = self._make(again)
            starting = asyncio.ensure_future(self._start(worker))
            await asyncio.wait({starting, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done() or self._ended.is_set() or not starting.result():
                starting.cancel()
                await worker.close(executor_wait=False)
                await asyncio.sleep(0.2)
                continue
            self.notify(f"{self.name} takes units from {self.address}")
            watching = asyncio.ensure_future(self._look(worker))
            gone = asyncio.ensure_future(worker.finished())
            await asyncio.wait({gone, ended}, return_when=asyncio.FIRST_COMPLETED)
            watching.cancel()
            await worker.close()  # waits for the unit that is under way, which sees it and ends
            if not self._ended.is_set():
                self.notify(f"the scheduler at {self.address} is gone; waiting for it")

    async def _start(self, worker: Any) -> bool:
        try:
            await worker
        except (OSError, ValueError, RuntimeError, TimeoutError):
            return False
        return bool(worker.status.name == "running")

    def _make(self, again: int) -> Any:
        from distributed import Worker, WorkerPlugin

        class Plugin(WorkerPlugin):  # type: ignore[misc]
            name = PLUGIN
            context = self

        known = {"version": __version__, "host": self.name, "offers": [asdict(offer) for offer in self.offers]}
        protocol = self.address.partition("://")[0]
        devices = {name: 1.0 for offer in self.offers for name in (offer.identity, offer.model, offer.kind)}
        return Worker(
            self.address,
            nthreads=1,
            memory_limit=0,
            resources={HOST: 1.0, **devices},
            # A worker that comes back before it was missed may not have the name of the one before.
            name=f"{self.name} {os.getpid()}.{again}",
            host=f"{protocol}://127.0.0.1" if is_loopback(self.address) else None,
            security=self.security,
            dashboard=False,
            dashboard_address=NO_HTTP,
            local_directory=str(self.logs),
            plugins=(Plugin(),),
            startup_information={_KNOWN: lambda _: known},
            metrics={_HELD_UP: lambda _: self.held_up},
        )

    async def _look(self, worker: Any) -> None:
        """Watch between units for other work on this host; while there is some, Dask gives it no unit."""
        from distributed.core import Status

        while self.watches:
            await asyncio.sleep(_WATCH_S)
            if worker.state.executing_count:
                self._meter = LoadMeter()
                continue
            found = await asyncio.to_thread(other_work, self.offers, self._meter)
            if found != self.held_up:
                words = f": {found}; it takes no unit" if found else " takes units again"
                self.notify(f"{self.name}{words}")
            self.held_up = found
            if worker.status in (Status.running, Status.paused):
                worker.status = Status.paused if found else Status.running


def hosts_of(workers: dict[str, dict[str, Any]]) -> tuple[Host, ...]:
    """Return the hosts of a fleet from the scheduler's description of its workers; workers of others are left out."""
    hosts = []
    for address, worker in sorted(workers.items(), key=lambda item: str(item[1]["name"])):
        known = worker.get(_KNOWN)
        if not isinstance(known, dict):
            continue
        held_up = worker["metrics"].get(_HELD_UP)
        if known["version"] != __version__:
            held_up = f"it has pairbench {known['version']}, and this command is of {__version__}"
        elif held_up is None and worker["status"] != "running":
            held_up = f"its worker is {worker['status']}"
        offers = tuple(Offer(**offer) for offer in known["offers"])
        hosts.append(Host(name=known["host"], address=address, offers=offers, held_up=held_up))
    return tuple(hosts)
