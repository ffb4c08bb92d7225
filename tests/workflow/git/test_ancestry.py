"""The commits between two others, along the first parents of a real repository."""

from pathlib import Path

import pytest

from pairbench.errors import UsageError
from pairbench.workflow.git import commits_between, touched_files
from tests.bisect.planted import git


def commit(folder: Path, name: str) -> str:
    (folder / f"{name}.txt").write_text(name)
    git(folder, "add", "-A", ".")
    git(folder, "commit", "-q", "-m", name)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a, b and c on main, and d merged between b and c from a branch that began at a."""
    git(tmp_path, "init", "-q")
    commit(tmp_path, "a")
    git(tmp_path, "checkout", "-q", "-b", "side")
    commit(tmp_path, "d")
    git(tmp_path, "checkout", "-q", "main")
    commit(tmp_path, "b")
    git(tmp_path, "merge", "-q", "--no-ff", "-m", "merged", "side")
    commit(tmp_path, "c")
    return tmp_path


def test_a_merge_is_one_commit(repository: Path) -> None:
    found = commits_between(repository, "main~3", "main")
    assert [one.subject for one in found] == ["a", "b", "merged", "c"]
    assert found[0].author == "n"
    touched = touched_files(repository, found[1:])
    assert [touched[one.sha] for one in found[1:]] == [{"b.txt"}, {"d.txt"}, {"c.txt"}]


def test_from_a_merged_branch_on_only_commits_that_have_it_behind_them_count(repository: Path) -> None:
    assert [one.subject for one in commits_between(repository, "side", "main")] == ["d", "merged", "c"]


def test_ends_that_are_no_history_are_refused(repository: Path) -> None:
    with pytest.raises(
        UsageError, match="is no ancestor of --bad 'side', expected an earlier commit of its history: their common"
    ):
        commits_between(repository, "main", "side")
    with pytest.raises(UsageError, match="the same commit"):
        commits_between(repository, "main", "HEAD")
    with pytest.raises(UsageError, match="'nope' is no commit"):
        commits_between(repository, "nope", "main")
