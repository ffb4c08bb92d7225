"""The git checkout that suites come from.

The commit that results belong to: whose it is, and of which pull request, by the CI job or by its own message.
"""

import functools
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pairbench.errors import UsageError
from pairbench.model.environment import Commit

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
    """Return what git prints in a folder, without the last line break; the caller's own repository does not matter."""
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


_SUBJECT = 200
"""Letters of a commit's subject, and of its author's name, that are kept."""
_NAMES = ("CI_MERGE_REQUEST_IID", "CHANGE_ID", "BITBUCKET_PR_ID", "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER")
"""Variables that hold the number alone: of GitLab, Jenkins, Bitbucket and Azure."""
_LARGEST_EVENT = 2**24
"""Bytes of GitHub's event file that are read; a forge's largest have some 100,000."""

_REF = re.compile(r"refs/pull/(\d{1,9})/(?:merge|head)")
_MESSAGE = (
    re.compile(r"\AMerge pull request #(\d{1,9})\b"),
    re.compile(r"\A[^\n]*\(#(\d{1,9})\)[ \t]*(?:\n|\Z)"),  # squashed by GitHub
    re.compile(r"^See merge request \S{0,300}?!(\d{1,9})\s*$", re.MULTILINE),  # merged by GitLab
)


def read_commit(folder: Path, variables: Mapping[str, str] = os.environ) -> Commit | None:
    """Return the commit that is checked out in a folder, or None outside a checkout or without git."""
    sha = git(folder, "rev-parse", "HEAD")
    if sha is None:
        return None
    committed_at, author, message = _told(folder)
    number = git(folder, "rev-list", "--count", "HEAD") or ""
    whole = git(folder, "rev-parse", "--is-shallow-repository") == "false"
    return Commit(
        sha=sha,
        committed_at=committed_at,
        branch=git(folder, "symbolic-ref", "--short", "-q", "HEAD"),
        dirty=bool(git(folder, "status", "--porcelain", "--untracked-files=no")),
        subject=message.partition("\n")[0].strip()[:_SUBJECT] or None,
        author=author.strip()[:_SUBJECT] or None,
        number=int(number) if whole and number.isdigit() else None,
        pull_request=pull_request_of(message, variables),
    )


def _told(folder: Path) -> tuple[str, str, str]:
    """Return when the commit was made, by whom, and its message."""
    text = git(folder, "show", "-s", "--format=%cI%x00%an%x00%B", "HEAD") or ""
    when, author, message = (*text.split("\0", 2), "", "", "")[:3]
    return when, author, message.lstrip()


def pull_request_of(message: str, variables: Mapping[str, str]) -> int | None:
    """Return the number of the pull request, or merge request, that is being measured; None where nothing says so."""
    return _of_job(variables) or _of_message(message)


def _of_job(variables: Mapping[str, str]) -> int | None:
    if reference := _REF.fullmatch(variables.get("GITHUB_REF", "")):
        return int(reference[1])
    if variables.get("GITHUB_EVENT_NAME", "").startswith("pull_request"):  # pull_request_target has the branch's ref
        return _of_event(variables.get("GITHUB_EVENT_PATH", ""))
    texts = (variables.get(name, "") for name in _NAMES)
    return next((int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 10), None)


def _of_event(path: str) -> int | None:
    try:
        if not path or Path(path).stat().st_size > _LARGEST_EVENT:
            return None
        event = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    number = event.get("number") if isinstance(event, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 < number < 10**9 else None


def _of_message(message: str) -> int | None:
    found = (pattern.search(message) for pattern in _MESSAGE)
    return next((int(one[1]) for one in found if one), None)
