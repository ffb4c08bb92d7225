"""The commits between two others, along the first parents."""

from pathlib import Path

from pairbench.analyze.history.commits import HistoryCommit
from pairbench.errors import UsageError
from pairbench.workflow.git.repository import git, run_git
from pairbench.workflow.git.worktrees import resolve

_FORMAT = "--format=%x01%H%x00%cI%x00%an%x00%s"


def commits_between(repository: Path, good: str, bad: str) -> tuple[HistoryCommit, ...]:
    """Return the good end, the commits after it and the bad end, oldest first.

    They are those of the bad end's first parents that have the good end behind them, so that a merge counts as one commit.

    Raises:
        UsageError: a name is unknown, or the good end is no ancestor of the bad one.
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
    """Return the commits that `git log` lists for some arguments, oldest first.

    Raises:
        UsageError: git fails.
    """
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
