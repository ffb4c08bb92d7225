"""The git checkout that suites come from."""

import functools
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pairbench.model.environment import Commit


def read_commit(folder: Path) -> Commit | None:
    """Return the commit that is checked out in a folder, or None outside a checkout or without git."""
    sha = git(folder, "rev-parse", "HEAD")
    if sha is None:
        return None
    return Commit(
        sha=sha,
        committed_at=git(folder, "show", "-s", "--format=%cI", "HEAD") or "",
        branch=git(folder, "symbolic-ref", "--short", "-q", "HEAD"),
        dirty=bool(git(folder, "status", "--porcelain", "--untracked-files=no")),
    )


def git(folder: Path, *arguments: str) -> str | None:
    """Return what git says, without the last line break; None where it fails or there is no git."""
    try:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


_COMMITS = 5000
"""That are looked at on the default branch; older runs are no reference anyway."""


@dataclass(frozen=True)
class Repository:
    """The checkout that the command runs in, if it is one."""

    folder: Path

    @functools.cached_property
    def is_one(self) -> bool:
        """Whether there is a commit to tell."""
        return git(self.folder, "rev-parse", "--verify", "-q", "HEAD") is not None

    @functools.cached_property
    def default_branch(self) -> str | None:
        """The branch that origin calls its default, else main or master; None where there is none of them."""
        head = git(self.folder, "symbolic-ref", "--short", "-q", "refs/remotes/origin/HEAD")
        if head:
            return head.removeprefix("origin/")
        names = ("main", "master")
        places = ("refs/remotes/origin/", "refs/heads/")
        return next(
            (name for place in places for name in names if self._is_there(f"{place}{name}")),
            None,
        )

    @functools.cached_property
    def default_commits(self) -> frozenset[str]:
        """The newest commits of the default branch, so that runs of a detached checkout are known as its own."""
        if self.default_branch is None:
            return frozenset()
        found: set[str] = set()
        for ref in (f"refs/remotes/origin/{self.default_branch}", f"refs/heads/{self.default_branch}"):
            found.update((git(self.folder, "rev-list", f"--max-count={_COMMITS}", ref, "--") or "").split())
        return frozenset(found)

    def commit(self, name: str) -> str | None:
        """Return the commit that a branch, a tag or an expression like HEAD~1 names here."""
        if name.startswith("-"):
            return None
        return next(
            (
                sha
                for prefix in ("", "origin/")
                if (sha := git(self.folder, "rev-parse", "--verify", "-q", f"{prefix}{name}^{{commit}}"))
            ),
            None,
        )

    def _is_there(self, ref: str) -> bool:
        return git(self.folder, "rev-parse", "--verify", "-q", ref) is not None


# git@host:owner/name.git, ssh://git@host:22/owner/name.git and https://user:secret@host/owner/name.git
_REMOTE = re.compile(
    r"(?:(?:https?|ssh|git)://)?(?:[^@/]+@)?(?P<host>[A-Za-z0-9.-]+)(?P<port>:\d+(?=/))?[:/]/?(?P<path>[^?#\s]+?)(?:\.git)?/?"
)


def web_address(remote: str) -> str | None:
    """Return the https address of a git remote, without whatever user and password it has; None for a local one."""
    if remote.startswith(("/", ".", "file:")):
        return None
    found = _REMOTE.fullmatch(remote)
    if found is None or "." not in found["host"] or "/" not in found["path"]:
        return None
    port = found["port"] if remote.startswith("http") else None
    return f"https://{found['host']}{port or ''}/{found['path']}"


def repository_address(folder: Path) -> str | None:
    """Return the address of the checkout's origin; None outside one, or where origin is no server."""
    remote = git(folder, "remote", "get-url", "origin")
    return web_address(remote) if remote else None
