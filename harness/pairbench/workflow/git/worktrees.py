"""Commits of the repository that holds the suites, each in a folder of its own for as long as it is measured.

The user's checkout and index are never touched. A folder that a killed run left behind is taken away by the next one:
its lock is free, for the kernel gave it back.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pairbench.errors import UsageError
from pairbench.execute.protocol import StandIn
from pairbench.model.environment import Commit
from pairbench.workflow.git.repository import git, run_git

_PREFIX = "pairbench-ab-"
_LOCK = "lock"


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """The files of one side."""

    name: str
    """base or head."""
    asked: str
    """What the user wrote, or what stands for it."""
    commit: Commit
    root: Path
    stand_in: StandIn | None
    """For the repository's own checkout; None where that is what is measured."""
    submodules: tuple[str, ...] = ()
    """Folders that are empty here, because a worktree has no submodules."""


def repository_of(place: Path) -> Path:
    """Return the top folder of the checkout that a file or folder, which need not exist any more, belongs to.

    Raises:
        UsageError: it belongs to none.
    """
    folder = next(parent for parent in (place, *place.parents) if parent.is_dir())
    try:
        return Path(run_git(folder, "rev-parse", "--show-toplevel")).resolve()
    except UsageError as error:
        raise UsageError(
            f"{folder} is not in a git checkout, expected suites in one: ab compares two of its commits ({error})"
        ) from error


def find_commit(repository: Path, name: str) -> str | None:
    """Return the commit that a branch, tag or hash names, or None."""
    return git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")


def resolve(repository: Path, name: str) -> str:
    """Return the same.

    Raises:
        UsageError: nothing has that name.
    """
    if sha := find_commit(repository, name):
        return sha
    hint = "`git branch --all` and `git tag` list what there is"
    if find_commit(repository, f"origin/{name}"):
        hint = f"did you mean 'origin/{name}'?"
    elif git(repository, "rev-parse", "--is-shallow-repository") == "true":
        hint = f"this is a shallow clone, so fetch it first: git fetch --depth=1 origin {name}"
    raise UsageError(f"{name!r} is no commit, branch or tag of {repository}; {hint}")


@contextlib.contextmanager
def open_checkouts(repository: Path, base: str, head: str | None) -> Iterator[tuple[Checkout, Checkout, Path]]:
    """Give the files of both sides, and a folder for whatever else the comparison needs; all are gone at the end.

    Args:
        repository: Top folder of the user's checkout.
        base: A commit, branch or tag.
        head: The same, or None for the checkout as it is.

    Raises:
        UsageError: a name is unknown, or git fails.
    """
    names = {"base": base} if head is None else {"base": base, "head": head}
    shas = {folder: resolve(repository, name) for folder, name in names.items()}
    _clear_left_behind(repository)
    place = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    lock = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = {}
        for folder, sha in shas.items():
            run_git(
                repository, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--detach", str(place / folder), sha
            )
            found[folder] = Checkout(
                name=folder,
                asked=names[folder],
                commit=_commit(repository, sha),
                root=place / folder,
                stand_in=StandIn(checkout=repository, copy=place / folder),
                submodules=_submodules(repository, sha),
            )
        (place / "outputs").mkdir()
        yield found["base"], found.get("head") or _as_it_is(repository), place / "outputs"
    finally:
        for folder in shas:
            _remove(repository, place / folder)
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def _as_it_is(repository: Path) -> Checkout:
    dirty = bool(run_git(repository, "status", "--porcelain"))
    branch = git(repository, "symbolic-ref", "--short", "-q", "HEAD")
    commit = _commit(repository, run_git(repository, "rev-parse", "HEAD"))
    return Checkout(
        name="head",
        asked="the working tree" + (" with uncommitted changes" if dirty else ""),
        commit=replace(commit, branch=branch, dirty=dirty),
        root=repository,
        stand_in=None,
    )


def _commit(repository: Path, sha: str) -> Commit:
    when = run_git(repository, "show", "-s", "--format=%cI", sha)
    return Commit(sha=sha, committed_at=when, branch=None, dirty=False)


def _submodules(repository: Path, sha: str) -> tuple[str, ...]:
    lines = run_git(repository, "ls-tree", "-r", "--full-tree", sha).splitlines()
    return tuple(line.partition("\t")[2] for line in lines if line.startswith("160000 "))


def _clear_left_behind(repository: Path) -> None:
    listed = run_git(repository, "worktree", "list", "--porcelain").splitlines()
    worktrees = [Path(line.removeprefix("worktree ")) for line in listed if line.startswith("worktree ")]
    for worktree in worktrees:
        place = worktree.parent
        if place.name.startswith(_PREFIX) and not _is_held(place / _LOCK):
            _remove(repository, worktree)
            shutil.rmtree(place, ignore_errors=True)


def _is_held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _remove(repository: Path, worktree: Path) -> None:
    # By name, not by `git worktree prune`: that would forget the user's own worktrees on a disk that is not there now.
    git(repository, "worktree", "remove", "--force", "--force", str(worktree))
