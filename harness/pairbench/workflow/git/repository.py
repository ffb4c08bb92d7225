"""The git checkout that suites come from."""

import functools
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pairbench.errors import UsageError

OF_ANOTHER_REPOSITORY = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE"),
    *("GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_INTERNAL_SUPER_PREFIX"),
)
"""Variables that a git hook has set for its own repository, as `git rev-parse --local-env-vars` lists them.

Settings (`GIT_CONFIG_COUNT` and its like) are not among them: they name no repository, and CI gives `safe.directory` so.
"""


def git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints, without the last line break; None where it fails or there is no git."""
    try:
        return run_git(folder, *arguments)
    except UsageError:
        return None


def run_git(folder: Path, *arguments: str) -> str:
    """Return what git prints in a folder, without the last line break; the caller's own repository does not matter.

    Raises:
        UsageError: there is no git, or it fails.
    """
    environment = {name: value for name, value in os.environ.items() if name not in OF_ANOTHER_REPOSITORY}
    try:
        done = subprocess.run(
            ["git", *arguments],  # noqa: S607 (the user's own git, wherever it is)
            cwd=folder,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            start_new_session=True,  # Ctrl-C is ours to handle: half a worktree would be left
        )
    except OSError as error:
        raise UsageError(f"git cannot be run ({error}); install it, or check that {folder} exists") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise UsageError(f"git {' '.join(arguments[:2])} failed: {lines[-1] if lines else f'status {done.returncode}'}")
    return done.stdout.strip()


_COMMITS = 5000
"""How many commits of the default branch are looked at; older runs are no reference anyway."""


@dataclass(frozen=True)
class Repository:
    """The checkout that the command runs in, if it is one."""

    folder: Path

    @functools.cached_property
    def is_one(self) -> bool:
        """Whether the folder is in a checkout that has a commit."""
        return git(self.folder, "rev-parse", "--verify", "-q", "HEAD") is not None

    @functools.cached_property
    def default_branch(self) -> str | None:
        """The branch that origin calls its default, else main or master; None where there is none of them."""
        head = git(self.folder, "symbolic-ref", "--short", "-q", "refs/remotes/origin/HEAD")
        if head:
            return head.removeprefix("origin/")
        names = ("main", "master")
        prefixes = ("refs/remotes/origin/", "refs/heads/")
        return next((name for prefix in prefixes for name in names if self._exists(f"{prefix}{name}")), None)

    @functools.cached_property
    def default_commits(self) -> frozenset[str]:
        """The newest commits of the default branch, so that runs of a detached checkout are known as its own."""
        if self.default_branch is None:
            return frozenset()
        commits: set[str] = set()
        for ref in (f"refs/remotes/origin/{self.default_branch}", f"refs/heads/{self.default_branch}"):
            commits.update((git(self.folder, "rev-list", f"--max-count={_COMMITS}", ref, "--") or "").split())
        return frozenset(commits)

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

    def _exists(self, ref: str) -> bool:
        return git(self.folder, "rev-parse", "--verify", "-q", ref) is not None


# git@host:owner/name.git, ssh://git@host:22/owner/name.git and https://user:secret@host/owner/name.git
_REMOTE = re.compile(
    r"(?:(?:https?|ssh|git)://)?(?:[^@/]+@)?(?P<host>[A-Za-z0-9.-]+)(?P<port>:\d+(?=/))?[:/]/?(?P<path>[^?#\s]+?)(?:\.git)?/?"
)


def web_address(remote: str) -> str | None:
    """Return the https address of a git remote, without whatever user and password it has; None for a local one."""
    if remote.startswith(("/", ".", "file:")):
        return None
    parts = _REMOTE.fullmatch(remote)
    if parts is None or "." not in parts["host"] or "/" not in parts["path"]:
        return None
    port = parts["port"] if remote.startswith("http") else None
    return f"https://{parts['host']}{port or ''}/{parts['path']}"


def repository_address(folder: Path) -> str | None:
    """Return the address of the checkout's origin; None outside one, or where origin is no server."""
    remote = git(folder, "remote", "get-url", "origin")
    return web_address(remote) if remote else None
