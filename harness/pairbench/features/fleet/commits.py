"""The code of a unit's commit on this host: a worktree in the user's cache, made and built once, whoever asks for it.

The user's checkout is never touched. What was not used for two weeks goes when another commit comes.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pairbench.config import load_config
from pairbench.errors import PairbenchError, UsageError
from pairbench.execute.parent.log import last_lines
from pairbench.store.user_cache import user_folder
from pairbench.workflow.git.repository import git
from pairbench.workflow.git.worktrees import add_worktree, find_commit, repository_of

_OLD_S = 14 * 24 * 3600
_TAIL = 20
"""Lines of a log that come back with a unit."""
BUILT = "PAIRBENCH_BUILD"
"""The variable that tells a build where to install to: that folder comes first on the path of what is measured."""


class BuildError(PairbenchError):
    """A commit is not there, or cannot be built; its units are skipped."""

    def __init__(self, message: str, log: str | None = None) -> None:
        super().__init__(message)
        self.log = log


@dataclass(frozen=True, kw_only=True)
class Code:
    """Where the files of a commit are."""

    folder: Path
    installed: Path | None = None
    """What the build has installed; None where nothing is built."""


class Commits:
    """The commits that were made on this host."""

    def __init__(self, folder: Path) -> None:
        """Make nothing yet."""
        self._folder = folder
        self._failed: dict[str, BuildError] = {}

    @contextlib.contextmanager
    def code(self, commit: str | None) -> Iterator[Code]:
        """Give the files of a commit for as long as they are measured; without a commit the worker's own folder."""
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
                raise BuildError(
                    f"commit {commit[:10]} has no folder {inside.as_posix()!r}, where this worker was started"
                )
            code = replace(made, folder=made.folder / inside)
            os.utime(place / f"{commit}.lock")
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield code
        finally:
            os.close(lock)


def _make(repository: Path, place: Path, commit: str) -> Code:
    """Return the code of a commit, which is made where it is not there as a whole."""
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
    """Run the command that the commit's own settings name."""
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
        raise BuildError(
            f"commit {commit[:10]} cannot be built: {command!r} ended with status {done.returncode}", tail_of(log)
        )


def tail_of(log: Path) -> str:
    """Return where a log is, and its last lines."""
    try:
        with log.open("rb") as file:
            lines = last_lines(file.fileno())[-_TAIL:]
    except OSError:
        lines = []
    return "\n".join([f"{log}:", *lines])


def _sweep(repository: Path, place: Path, kept: str) -> None:
    """Remove commits that nobody uses and nobody has used for two weeks."""
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
