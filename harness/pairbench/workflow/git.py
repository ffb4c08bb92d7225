"""The git checkout of the suites: its commits, their pull requests, and worktrees in which other commits are measured.

The user's checkout and index are never touched. A worktree that a killed run left behind is removed by the next run, which finds its
lock free, for the kernel gave it back.
"""

import contextlib
import functools
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pairbench.errors import UsageError
from pairbench.execute.protocol import StandIn
from pairbench.model.comparison import HistoryCommit, Skipped
from pairbench.model.environment import Commit
from pairbench.model.plain import Value
from pairbench.own_folders import held_folder, is_held, make_own, state_folder, sweep_folders

# The variables that a git hook sets for its own repository, by `git rev-parse --local-env-vars`. Settings (`GIT_CONFIG_COUNT`
# and its like) are left: they name no repository, and CI gives `safe.directory` so.
OF_ANOTHER_REPOSITORY = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_GRAFT_FILE", "GIT_SHALLOW_FILE"),
    *("GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_INTERNAL_SUPER_PREFIX"),
)
# git@host:owner/name.git, ssh://git@host:22/owner/name.git and https://user:secret@host/owner/name.git
_REMOTE = re.compile(
    r"(?:(?:https?|ssh|git)://)?(?:[^@/]+@)?(?P<host>[A-Za-z0-9.-]+)(?P<port>:\d+(?=/))?[:/]/?(?P<path>[^?#\s]+?)(?:\.git)?/?"
)
_SUBJECT = 200  # most characters of a commit's subject, and of its author
# Variables of GitLab, Jenkins, Bitbucket and Azure that hold the number alone.
_NAMES = ("CI_MERGE_REQUEST_IID", "CHANGE_ID", "BITBUCKET_PR_ID", "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER")
_MESSAGE = (  # how the message of a merge names its pull or merge request
    re.compile(r"\AMerge pull request #(\d{1,9})\b"),
    re.compile(r"\A[^\n]*\(#(\d{1,9})\)[ \t]*(?:\n|\Z)"),  # squashed by GitHub
    re.compile(r"^See merge request \S{0,300}?!(\d{1,9})\s*$", re.MULTILINE),  # merged by GitLab
)
_PREFIX = "pairbench-ab-"  # begins the names of folders of worktrees


def git(folder: Path, *arguments: str) -> str | None:
    """Return git's output without the last line break; None where git fails or is absent."""
    try:
        return run_git(folder, *arguments)
    except UsageError:
        return None


def run_git(folder: Path, *arguments: str) -> str:
    """Return git's output in a folder without the last line break; variables of a hook's repository are ignored."""
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


@dataclass(frozen=True)
class Repository:
    """The checkout that the command runs in, if there is one."""

    folder: Path

    @functools.cached_property
    def is_one(self) -> bool:
        return git(self.folder, "rev-parse", "--verify", "-q", "HEAD") is not None

    @functools.cached_property
    def default_branch(self) -> str | None:
        """The default branch of origin, else main or master, else None."""
        if head := git(self.folder, "symbolic-ref", "--short", "-q", "refs/remotes/origin/HEAD"):
            return head.removeprefix("origin/")
        refs = (f"{prefix}/{name}" for prefix in ("refs/remotes/origin", "refs/heads") for name in ("main", "master"))
        known = (ref for ref in refs if git(self.folder, "rev-parse", "--verify", "-q", ref) is not None)
        return next((ref.rpartition("/")[2] for ref in known), None)

    @functools.cached_property
    def default_commits(self) -> frozenset[str]:
        """The newest commits of the default branch, so that runs of a detached checkout are known as its own."""
        if self.default_branch is None:
            return frozenset()
        refs = (f"refs/remotes/origin/{self.default_branch}", f"refs/heads/{self.default_branch}")
        # Older runs are no reference anyway.
        several = (git(self.folder, "rev-list", "--max-count=5000", ref, "--") or "" for ref in refs)
        return frozenset(sha for commits in several for sha in commits.split())

    def commit(self, name: str) -> str | None:
        """Return the commit of a branch, a tag or an expression like HEAD~1 in this checkout."""
        return find_commit(self.folder, name) or find_commit(self.folder, f"origin/{name}")


def web_address(remote: str) -> str | None:
    """Return the https address of a git remote without its user and password; None for a local one."""
    if remote.startswith(("/", ".", "file:")):
        return None
    if (parts := _REMOTE.fullmatch(remote)) is None or "." not in parts["host"] or "/" not in parts["path"]:
        return None
    port = parts["port"] if remote.startswith("http") else None
    return f"https://{parts['host']}{port or ''}/{parts['path']}"


def repository_address(folder: Path) -> str | None:
    """Return the address of the checkout's origin; None outside a checkout, or where origin is no server."""
    remote = git(folder, "remote", "get-url", "origin")
    return web_address(remote) if remote else None


def read_commit(folder: Path, variables: Mapping[str, str] = os.environ) -> Commit | None:
    """Return the commit that is checked out in a folder; None outside a checkout or without git."""
    # A CI job's variables say which pull request it is of; pass none where another commit is measured than the job's.
    if (sha := git(folder, "rev-parse", "HEAD")) is None:
        return None
    shown = git(folder, "show", "-s", "--format=%cI%x00%an%x00%B", "HEAD") or ""
    committed_at, author, message = (*shown.split("\0", 2), "", "", "")[:3]
    message = message.lstrip()
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


def pull_request_of(message: str, variables: Mapping[str, str]) -> int | None:
    """Return the number of the pull or merge request: by the CI job's variables, else by the commit's message."""
    return _of_job(variables) or next((int(match[1]) for one in _MESSAGE if (match := one.search(message))), None)


def _of_job(variables: Mapping[str, str]) -> int | None:
    if reference := re.fullmatch(r"refs/pull/(\d{1,9})/(?:merge|head)", variables.get("GITHUB_REF", "")):
        return int(reference[1])
    if variables.get("GITHUB_EVENT_NAME", "").startswith("pull_request"):  # pull_request_target has the branch's ref
        event, number = Path(variables.get("GITHUB_EVENT_PATH", "")), None
        with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
            # The largest events have some 100,000 bytes.
            number = json.loads(event.read_bytes()).get("number") if event.stat().st_size <= 2**24 else None
        return number if type(number) is int and 0 < number < 10**9 else None
    texts = (variables.get(name, "") for name in _NAMES)
    return next((int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 10), None)


@dataclass(frozen=True)
class Checkout:
    name: str  # the name of its folder; of a comparison, that of the side
    asked: str  # the user's word for it, or `the working tree`
    commit: Commit
    root: Path
    stand_in: StandIn | None  # has workers load this copy in place of the checkout; None where that itself is measured
    submodules: tuple[str, ...] = ()  # the submodules' folders, which are empty in a worktree


def repository_of(path: Path, why: str = "commits of it are measured") -> Path:
    """Return the top folder of the checkout that a path, which need not exist any more, belongs to; `why` goes into the error."""
    folder = next(parent for parent in (path, *path.parents) if parent.is_dir())
    try:
        return Path(run_git(folder, "rev-parse", "--show-toplevel")).resolve()
    except UsageError as error:
        raise UsageError(f"{folder} is not in a git checkout, expected suites in one: {why} ({error})") from error


def find_commit(repository: Path, name: str) -> str | None:
    return git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")


def resolve(repository: Path, name: str) -> str:
    if sha := find_commit(repository, name):
        return sha
    hint = "`git branch --all` and `git tag` list what there is"
    if find_commit(repository, f"origin/{name}"):
        hint = f"did you mean 'origin/{name}'?"
    elif git(repository, "rev-parse", "--is-shallow-repository") == "true":
        hint = f"this is a shallow clone, so fetch it first: git fetch --depth=1 origin {name}"
    raise UsageError(f"{name!r} is no commit, branch or tag of {repository}; {hint}")


class Worktrees(Value):
    """Worktrees of a repository, which are removed in the end."""

    repository: Path
    folder: Path

    def add(self, name: str, asked: str) -> Checkout:
        sha, root = resolve(self.repository, asked), self.folder / name
        add_worktree(self.repository, root, sha)
        tree = run_git(self.repository, "ls-tree", "-r", "--full-tree", sha).splitlines()
        submodules = tuple(line.partition("\t")[2] for line in tree if line.startswith("160000 "))
        stand_in = StandIn(checkout=self.repository, copy=root)
        return Checkout(name, asked, _commit(self.repository, sha), root, stand_in, submodules)

    def remove(self, name: str) -> None:
        remove_worktree(self.repository, self.folder / name)


def add_worktree(repository: Path, folder: Path, sha: str) -> None:
    """Check a commit out into a folder of its own, without the repository's hooks."""
    # By force, for git may still know the folder from a worktree that was removed by hand.
    run_git(repository, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--force", "--detach", str(folder), sha)


@contextlib.contextmanager
def open_worktrees(repository: Path) -> Iterator[Worktrees]:
    """Give a folder for worktrees of a repository; in the end they are removed, also those of killed commands."""
    temporary = Path(tempfile.gettempdir()).resolve()
    for line in run_git(repository, "worktree", "list", "--porcelain").splitlines():
        worktree = Path(line.removeprefix("worktree "))
        if worktree.parent.name.startswith(_PREFIX) and line.startswith("worktree ") and not is_held(worktree.parent):
            remove_worktree(repository, worktree)
    sweep_folders(temporary, _PREFIX)
    with held_folder(temporary, _PREFIX) as folder:
        try:
            yield Worktrees(repository=repository, folder=folder)
        finally:
            for root in folder.iterdir():
                if (root / ".git").is_file():
                    remove_worktree(repository, root)


@contextlib.contextmanager
def open_checkouts(repository: Path, base: str, head: str | None) -> Iterator[tuple[Checkout, Checkout, Path]]:
    """Give the files of both sides and a scratch folder, which are removed in the end; without `head`, the checkout as it is."""
    for name in (base, head):
        if name is not None:
            resolve(repository, name)
    with open_worktrees(repository) as worktrees:
        earlier = worktrees.add("base", base)
        outputs = worktrees.folder / "outputs"
        outputs.mkdir()
        if head is not None:
            yield earlier, worktrees.add("head", head), outputs
            return
        dirty = bool(run_git(repository, "status", "--porcelain"))
        branch = git(repository, "symbolic-ref", "--short", "-q", "HEAD")
        commit = replace(_commit(repository, run_git(repository, "rev-parse", "HEAD")), branch=branch, dirty=dirty)
        asked = f"the working tree{' with uncommitted changes' * dirty}"
        yield earlier, Checkout("head", asked, commit, repository, stand_in=None), outputs


def _commit(repository: Path, sha: str) -> Commit:
    when = run_git(repository, "show", "-s", "--format=%cI", sha)
    return Commit(sha=sha, committed_at=when, branch=None, dirty=False)


def remove_worktree(repository: Path, worktree: Path) -> None:
    # By name, not by `git worktree prune`: that would forget the user's own worktrees on a disk that is not there now.
    git(repository, "worktree", "remove", "--force", "--force", str(worktree))


def commits_between(repository: Path, good: str, bad: str) -> tuple[HistoryCommit, ...]:
    """Return the good end, the commits after it and the bad end, oldest first."""
    # They are the first parents of the bad end that descend from the good end, so that a merge counts as one commit.
    first, last = resolve(repository, good), resolve(repository, bad)
    if first == last:
        same = f"--good {good!r} and --bad {bad!r} are the same commit {first[:10]}"
        raise UsageError(f"{same}, expected an earlier one as --good")
    if git(repository, "merge-base", "--is-ancestor", first, last) is None:
        base = git(repository, "merge-base", first, last)
        hint = f"their common ancestor is {base[:10]}; name that as --good" if base else "they have no common ancestor"
        wrong = f"--good {good!r} is no ancestor of --bad {bad!r}"
        raise UsageError(f"{wrong}, expected an earlier commit of its history: {hint}")
    behind = set(run_git(repository, "rev-list", "--ancestry-path", f"{first}..{last}").split())
    path = list_commits(repository, "--first-parent", f"{first}..{last}")
    return (*list_commits(repository, "-1", first), *(commit for commit in path if commit.sha in behind))


def list_commits(repository: Path, *what: str) -> tuple[HistoryCommit, ...]:
    names = ("sha", "committed_at", "author", "subject")
    text = run_git(repository, "log", "--topo-order", "--format=%x01%H%x00%cI%x00%an%x00%s", *what, "--")
    rows = (zip(names, entry.rstrip("\n").split("\0"), strict=True) for entry in text.split("\x01") if entry)
    return tuple(HistoryCommit(**dict(row)) for row in rows)[::-1]


def touched_files(repository: Path, commits: tuple[HistoryCommit, ...]) -> dict[str, frozenset[str]]:
    """Return the paths in which each commit differs from its first parent."""
    if not commits:
        return {}
    # The parents of the first one are left out, and a first commit of all has none.
    span = (commits[-1].sha, "--not", f"{commits[0].sha}^@")
    options = ("--first-parent", "-m", "--no-renames", "--name-only", "-z", "--format=%x01%H")
    touched = {}
    for entry in run_git(repository, "log", *options, *span, "--").split("\x01")[1:]:
        sha, *names = entry.split("\0")
        touched[sha.strip()] = frozenset(name.strip("\n") for name in names if name.strip("\n"))
    return touched


def skipped(repository: Path, commit: HistoryCommit, reason: str) -> Skipped:
    """Return a commit that is skipped, with the path of a file that has the whole reason, for a table has no room for it."""
    with contextlib.suppress(OSError):
        if (base := state_folder()) is not None:
            log = make_own(base, "skipped") / f"{repository.name}-{commit.sha[:16]}.log"
            log.write_text(f"{commit.sha} {commit.subject}\n{reason}\n", encoding="utf-8")
            return Skipped(commit=commit, reason=reason, log=str(log))
    return Skipped(commit=commit, reason=reason)
