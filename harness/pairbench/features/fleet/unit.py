"""A unit on its host: the code of its commit, and `pairbench run` in a process that ends when the worker does.

A commit has a worktree in the user's cache, made and built once, whichever unit needs it; the user's checkout is never touched. Dask
calls `run_unit` and nothing else: JSON goes in and comes out, and the results are in the store before anything comes back.
"""

import contextlib
import fcntl
import hashlib
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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pairbench.config import load_config
from pairbench.errors import PairbenchError, UsageError
from pairbench.execute.orphans import die_with
from pairbench.execute.parent.pool import last_lines
from pairbench.model.unit import VARIABLE, Unit, UnitEnd
from pairbench.store.user_cache import user_folder
from pairbench.workflow.git import add_worktree, find_commit, git, repository_of

_OLD_S = 14 * 24 * 3600
BUILT = "PAIRBENCH_BUILD"
"""The variable that names the folder for a build to install to; it comes first on the path of measured code."""


class BuildError(PairbenchError):
    """A commit is absent or cannot be built; its units are skipped."""

    def __init__(self, message: str, log: str | None = None) -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True, kw_only=True)
class Code:
    folder: Path
    installed: Path | None = None  # what the build has installed; None where nothing is built


class Commits:
    """The commits that this host has made; those of the checkout in which the worker was started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._failed: dict[str, BuildError] = {}

    @contextlib.contextmanager
    def code(self, commit: str | None) -> Iterator[Code]:
        """Give the files of a commit while they are measured; without a commit, the worker's own folder. A build is tried once."""
        if commit is None:
            yield Code(folder=self._folder)
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
            made = _make(repository, place / commit, commit)
            inside = self._folder.resolve().relative_to(repository)
            if not (made.folder / inside).is_dir():
                what = f"commit {commit[:10]} has no folder {inside.as_posix()!r}"
                raise BuildError(f"{what}, where this worker was started")
            code = replace(made, folder=made.folder / inside)
            os.utime(place / f"{commit}.lock")
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield code
        finally:
            os.close(lock)


def _make(repository: Path, place: Path, commit: str) -> Code:
    """Return the code of a commit; make it unless it is complete."""
    folder, done = place / "code", place / "done"
    if not done.exists():
        git(repository, "worktree", "remove", "--force", "--force", str(folder))
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        try:
            add_worktree(repository, folder, commit)
        except UsageError as error:
            raise BuildError(f"commit {commit[:10]} cannot be checked out: {error}") from error
        _build(folder, place / "installed", place / "build.log", commit)
        done.touch()
    installed = place / "installed"
    return Code(folder=folder, installed=installed if installed.is_dir() else None)


def _build(folder: Path, installed: Path, log: Path, commit: str) -> None:
    try:
        command = load_config(folder).build
    except PairbenchError as error:
        raise BuildError(f"commit {commit[:10]}: {error}") from error
    if command is None:
        return
    installed.mkdir()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    with log.open("wb") as output:
        done = subprocess.run(  # noqa: S602 (a command of the project's own settings)
            command,
            shell=True,
            cwd=folder,
            env={**os.environ, "PATH": path, BUILT: str(installed)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        why = f"{command!r} ended with status {done.returncode}"
        raise BuildError(f"commit {commit[:10]} cannot be built: {why}", tail_of(log))


def tail_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            lines = last_lines(file.fileno())[-20:]
    except OSError:
        lines = []
    return "\n".join([f"{log}:", *lines])


def _sweep(repository: Path, place: Path, kept: str) -> None:
    """Remove commits that nothing has used for two weeks."""
    for lock in place.glob("*.lock"):
        with contextlib.suppress(OSError):
            if lock.stem == kept or time.time() - lock.stat().st_mtime < _OLD_S:
                continue
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                git(repository, "worktree", "remove", "--force", "--force", str(place / lock.stem / "code"))
                shutil.rmtree(place / lock.stem, ignore_errors=True)
                lock.unlink()
            finally:
                os.close(descriptor)


PLUGIN = "pairbench"
BUSY = "busy"  # the `end` of a unit that was not begun because other work kept the host busy
_POLL_S, _GRACE_S = 0.2, 30.0
"""Seconds between two looks at the process, and those that it has to end in order."""


@dataclass(frozen=True, kw_only=True)
class UnitContext:
    python: str  # the interpreter whose pairbench measures
    commits: Commits
    logs: Path
    held_up: Callable[[], str | None]  # says who else is at work on the host; None where nobody is


def run_unit(text: str) -> str:
    """Measure a unit on this worker's host.

    The argument is a JSON object with the unit, the device's selector and the store. The result is one with `end`, `reason`, `run_id`,
    `statuses`, `log`, `host` and `seconds`.
    """
    from distributed import get_worker

    worker = get_worker()
    context: UnitContext = worker.plugins[PLUGIN].context
    key = worker.get_current_task()

    def given_up() -> bool:
        """Return whether nothing waits for this unit any more: the scheduler or the client is gone."""
        task = worker.state.tasks.get(key)
        return worker.status.name not in ("running", "paused") or task is None or task.state == "cancelled"

    return json.dumps(measure(json.loads(text), context, given_up))


def measure(asked: Mapping[str, Any], context: UnitContext, given_up: Callable[[], bool]) -> dict[str, Any]:
    began = time.monotonic()
    unit = Unit.of(asked["unit"], "unit")
    if why := context.held_up():
        return {"end": BUSY, "reason": why, "host": platform.node()}
    try:
        with context.commits.code(unit.commit) as code:
            found = _run(unit, asked, code, context, given_up)
    except BuildError as error:
        found = {"end": UnitEnd.SKIPPED, "reason": str(error), "log": error.log}
    return {**found, "host": platform.node(), "seconds": time.monotonic() - began}


def _run(
    unit: Unit, asked: Mapping[str, Any], code: Code, context: UnitContext, given_up: Callable[[], bool]
) -> dict[str, Any]:
    command = [context.python, "-P", "-m", "pairbench", "run", "--format", "json", "--device", asked["device"]]
    command += ["--store", asked["store"], "--skip-existing", *unit.options()]
    log = context.logs / f"unit-{unit.key}.log"
    with tempfile.TemporaryFile() as output, log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=code.folder,
            env=_environment(unit, code),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()),  # noqa: PLW1509 (one call into libc)
        )
        ended = _ended(process, given_up)
        output.seek(0)
        document = _document(output.read())
    if ended == 130:
        return {"end": UnitEnd.NOT_DONE, "reason": "interrupted; what was finished is in the store"}
    if ended not in (0, 1) or document is None:
        end = UnitEnd.SKIPPED if ended == 2 else UnitEnd.FAILED
        tail = tail_of(log)
        last = next((line for line in reversed(tail.splitlines()) if line.startswith("pairbench: ")), "")
        why = last.removeprefix("pairbench: ") or f"`pairbench run` ended with status {ended}"
        return {"end": end, "reason": why, "log": tail}
    log.unlink(missing_ok=True)
    statuses = document["summary"]["statuses"]
    if not statuses:
        return {"end": UnitEnd.STORED, "statuses": {}}
    return {"end": UnitEnd.DONE, "run_id": document["run_id"], "statuses": statuses}


def _environment(unit: Unit, code: Code) -> dict[str, str]:
    """Return the worker's environment without Dask's variables, and with what the unit's commit has built."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    if code.installed is not None:
        paths = [str(code.installed), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return {**environment, VARIABLE: unit.key}


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


def _document(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "summary" in found else None
