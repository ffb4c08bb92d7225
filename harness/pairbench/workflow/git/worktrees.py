"""Commits of the repository that holds the suites, each in a folder of its own for as long as it is measured.

The user's checkout and index are never touched. A folder that a killed run left behind is taken away by the next one:
its lock is free, for the kernel gave it back.

The commits between two others, along the first parents.

Commits that cannot be measured: the reason is kept in a file, for a table has no room for all of it.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pairbench.analyze.history.commits import HistoryCommit
from pairbench.errors import UsageError
from pairbench.execute.protocol import StandIn
from pairbench.model.environment import Commit
from pairbench.own_folders import held_folder, is_held, make_own, state_folder, sweep_folders
from pairbench.workflow.git.repository import git, run_git

_PREFIX = "pairbench-ab-"


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """The files of one side of a comparison."""

    name: str
    """What its folder is called; of a comparison the side, base or head."""
    asked: str
    """What the user wrote for this side, or `the working tree`."""
    commit: Commit
    root: Path
    stand_in: StandIn | None
    """What makes workers load this copy in place of the repository's checkout; None where the checkout itself is measured."""
    submodules: tuple[str, ...] = ()
    """The submodules' folders, which are empty here because a worktree has none."""


def repository_of(path: Path, why: str = "commits of it are measured") -> Path:
    """Return the top folder of the checkout that a file or folder, which need not exist any more, belongs to."""
    folder = next(parent for parent in (path, *path.parents) if parent.is_dir())
    try:
        return Path(run_git(folder, "rev-parse", "--show-toplevel")).resolve()
    except UsageError as error:
        raise UsageError(f"{folder} is not in a git checkout, expected suites in one: {why} ({error})") from error


def find_commit(repository: Path, name: str) -> str | None:
    """Return the commit that a branch, tag or hash names, or None."""
    return git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")


def resolve(repository: Path, name: str) -> str:
    """Return the commit that a branch, tag or hash names."""
    if sha := find_commit(repository, name):
        return sha
    hint = "`git branch --all` and `git tag` list what there is"
    if find_commit(repository, f"origin/{name}"):
        hint = f"did you mean 'origin/{name}'?"
    elif git(repository, "rev-parse", "--is-shallow-repository") == "true":
        hint = f"this is a shallow clone, so fetch it first: git fetch --depth=1 origin {name}"
    raise UsageError(f"{name!r} is no commit, branch or tag of {repository}; {hint}")


@dataclass(frozen=True, kw_only=True)
class Worktrees:
    """Folders for commits of a repository; all are gone when it is closed."""

    repository: Path
    """Top folder of the user's checkout."""
    folder: Path
    """Where they are, and whatever else is needed beside them."""

    def add(self, name: str, asked: str) -> Checkout:
        """Return the files of a commit in a folder of their own."""
        sha, root = resolve(self.repository, asked), self.folder / name
        add_worktree(self.repository, root, sha)
        return Checkout(
            name=name,
            asked=asked,
            commit=_commit(self.repository, sha),
            root=root,
            stand_in=StandIn(checkout=self.repository, copy=root),
            submodules=_submodules(self.repository, sha),
        )

    def remove(self, name: str) -> None:
        """Take a folder away again."""
        _remove(self.repository, self.folder / name)


def add_worktree(repository: Path, folder: Path, sha: str) -> None:
    """Check a commit out into a folder of its own; no hook of the repository runs."""
    # By force, for git may still know the folder from a worktree that was removed by hand.
    run_git(repository, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--force", "--detach", str(folder), sha)


@contextlib.contextmanager
def open_worktrees(repository: Path) -> Iterator[Worktrees]:
    """Give a place for commits of a repository; at the end all folders are gone, those of killed commands included."""
    _clear_left_behind(repository)
    with held_folder(Path(tempfile.gettempdir()).resolve(), _PREFIX) as folder:
        try:
            yield Worktrees(repository=repository, folder=folder)
        finally:
            for root in folder.iterdir():
                if (root / ".git").is_file():
                    _remove(repository, root)


@contextlib.contextmanager
def open_checkouts(repository: Path, base: str, head: str | None) -> Iterator[tuple[Checkout, Checkout, Path]]:
    """Give the files of both sides, and a folder for whatever else the comparison needs; all are gone at the end."""
    for name in (base, head):
        if name is not None:
            resolve(repository, name)
    with open_worktrees(repository) as worktrees:
        earlier = worktrees.add("base", base)
        later = _as_it_is(repository) if head is None else worktrees.add("head", head)
        outputs = worktrees.folder / "outputs"
        outputs.mkdir()
        yield earlier, later, outputs


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
        folder = worktree.parent
        if folder.name.startswith(_PREFIX) and not is_held(folder):
            _remove(repository, worktree)
    sweep_folders(Path(tempfile.gettempdir()).resolve(), _PREFIX)


def _remove(repository: Path, worktree: Path) -> None:
    # By name, not by `git worktree prune`: that would forget the user's own worktrees on a disk that is not there now.
    git(repository, "worktree", "remove", "--force", "--force", str(worktree))


_FORMAT = "--format=%x01%H%x00%cI%x00%an%x00%s"


def commits_between(repository: Path, good: str, bad: str) -> tuple[HistoryCommit, ...]:
    """Return the good end, the commits after it and the bad end, oldest first.

    They are those of the bad end's first parents that have the good end behind them, so that a merge counts as one commit.
    """
    first, last = resolve(repository, good), resolve(repository, bad)
    if first == last:
        raise UsageError(
            f"--good {good!r} and --bad {bad!r} are the same commit {first[:10]}, expected an earlier one as --good"
        )
    if git(repository, "merge-base", "--is-ancestor", first, last) is None:
        base = git(repository, "merge-base", first, last)
        hint = f"their common ancestor is {base[:10]}; name that as --good" if base else "they have no common ancestor"
        raise UsageError(
            f"--good {good!r} is no ancestor of --bad {bad!r}, expected an earlier commit of its history: {hint}"
        )
    behind = set(run_git(repository, "rev-list", "--ancestry-path", f"{first}..{last}").split())
    path = list_commits(repository, "--first-parent", f"{first}..{last}")
    return (*list_commits(repository, "-1", first), *(commit for commit in path if commit.sha in behind))


def list_commits(repository: Path, *what: str) -> tuple[HistoryCommit, ...]:
    """Return the commits that `git log` lists for some arguments, oldest first."""
    text = run_git(repository, "log", "--topo-order", _FORMAT, *what, "--")
    fields = (entry.rstrip("\n").split("\0") for entry in text.split("\x01") if entry)
    commits = [
        HistoryCommit(sha=sha, committed_at=at, author=author, subject=subject) for sha, at, author, subject in fields
    ]
    return tuple(reversed(commits))


def touched_files(repository: Path, commits: tuple[HistoryCommit, ...]) -> dict[str, frozenset[str]]:
    """Return for each commit the paths that differ from its first parent."""
    if not commits:
        return {}
    # The parents of the first one are left out, and a first commit of all has none.
    span = (commits[-1].sha, "--not", f"{commits[0].sha}^@")
    text = run_git(
        repository, "log", "--first-parent", "-m", "--no-renames", "--name-only", "-z", "--format=%x01%H", *span, "--"
    )
    found = {}
    for entry in text.split("\x01")[1:]:
        sha, *names = entry.split("\0")
        found[sha.strip()] = frozenset(name.strip("\n") for name in names if name.strip("\n"))
    return found


def keep_reason(repository: Path, commit: HistoryCommit, reason: str) -> str | None:
    """Keep why a commit was skipped, and return the file; None where it cannot be written."""
    base = state_folder()
    if base is None:
        return None
    try:
        log = make_own(base, "skipped") / f"{repository.name}-{commit.sha[:16]}.log"
        log.write_text(f"{commit.sha} {commit.subject}\n{reason}\n", encoding="utf-8")
    except OSError:
        return None
    return str(log)
