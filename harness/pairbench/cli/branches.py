"""What git knows about the runs of a store: which branch is the default one, what is on it, what a name means."""

import functools
from dataclasses import dataclass
from pathlib import Path

from pairbench.cli.checkout import git

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
