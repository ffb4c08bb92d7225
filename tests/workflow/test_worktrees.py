import os
import signal
from pathlib import Path

import pytest

from pairbench.errors import UsageError
from pairbench.workflow.git import find_commit, open_checkouts, repository_of, resolve
from tests.builders import fork_into, git


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with two commits, whose temporary files have a place of their own."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    folder = (tmp_path / "repo").resolve()
    (folder / "suites").mkdir(parents=True)
    git(folder, "init", "-q")
    for number in ("one", "two"):
        (folder / "suites" / "ops.py").write_text(number)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", number)
    return folder


def left(repository: Path) -> tuple[int, list[str]]:
    """Return how many worktrees git knows, and what lies in the temporary folder."""
    return len(git(repository, "worktree", "list").splitlines()), [
        path.name for path in (repository.parent / "tmp").iterdir()
    ]


CLEAN: tuple[int, list[str]] = (1, [])


def test_a_commit_and_the_working_tree(repository: Path) -> None:
    (repository / "suites" / "ops.py").write_text("three, not committed")
    index = (repository / ".git" / "index").read_bytes()
    with open_checkouts(repository, "HEAD~1", None) as (base, head, scratch):
        assert (base.root / "suites" / "ops.py").read_text() == "one"
        assert base.stand_in is not None and base.stand_in.checkout == repository
        assert base.commit.sha == git(repository, "rev-parse", "HEAD~1") and base.commit.branch is None
        assert (head.root, head.stand_in, head.commit.dirty, head.commit.branch) == (repository, None, True, "main")
        assert head.asked == "the working tree with uncommitted changes"
        assert scratch.is_dir()
    assert (repository / "suites" / "ops.py").read_text() == "three, not committed"
    assert (repository / ".git" / "index").read_bytes() == index
    assert left(repository) == CLEAN


def test_two_commits_and_a_clean_tree(repository: Path) -> None:
    git(repository, "tag", "v1", "HEAD~1")
    with open_checkouts(repository, "v1", "main") as (base, head, _):
        assert [(side.root / "suites" / "ops.py").read_text() for side in (base, head)] == ["one", "two"]
        assert head.stand_in is not None and head.asked == "main"
    with open_checkouts(repository, "main", None) as (_, head, _):
        assert head.asked == "the working tree" and not head.commit.dirty
    (repository / "suites" / "more.py").write_text("git does not know it yet")
    with open_checkouts(repository, "HEAD", None) as (_, head, _):
        assert head.commit.dirty
    assert left(repository) == CLEAN


def test_a_detached_head_stays_where_it_is(repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach", "HEAD~1")
    with open_checkouts(repository, "main", None) as (base, head, _):
        assert head.commit.branch is None and base.commit.sha != head.commit.sha
    assert (repository / "suites" / "ops.py").read_text() == "one"


def test_an_error_in_between_leaves_nothing(repository: Path) -> None:
    with pytest.raises(RuntimeError), open_checkouts(repository, "HEAD", "HEAD~1"):
        raise RuntimeError
    assert left(repository) == CLEAN


def test_hooks_do_not_run_but_may_run_us(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {repository.parent}/ran\n")
    hook.chmod(0o755)
    monkeypatch.setenv("GIT_DIR", str(repository.parent / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", "nowhere")
    with open_checkouts(repository, "HEAD", None) as (base, _, _):
        assert (base.root / "suites" / "ops.py").read_text() == "two"
    assert not (repository.parent / "ran").exists()


def test_what_a_killed_run_left_is_taken_away_and_what_others_use_is_not(repository: Path) -> None:
    child = fork_into(lambda: open_checkouts(repository, "HEAD", None))
    with open_checkouts(repository, "HEAD", None):
        assert left(repository)[0] == 3  # theirs is in use
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    own = repository.parent / "mine"
    git(repository, "worktree", "add", "-q", "--detach", str(own))
    assert left(repository)[0] == 3
    with open_checkouts(repository, "HEAD", None):
        pass
    assert left(repository) == (2, []) and own.is_dir()


def test_the_repository_is_the_one_around_a_place_even_one_that_is_gone(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert repository_of(repository / "suites" / "gone" / "ops.py") == repository
    with pytest.raises(UsageError, match="is not in a git checkout, expected suites in one"):
        repository_of(repository.parent)
    git(repository.parent / "tmp", "init", "-q")
    with (
        pytest.raises(UsageError, match="'HEAD' is no commit"),
        open_checkouts(repository.parent / "tmp", "HEAD", None),
    ):
        pass
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="git cannot be run"):
        repository_of(repository)


def test_names_that_git_does_not_know(repository: Path) -> None:
    assert find_commit(repository, "main") == resolve(repository, "main")
    for name in ("nope", "--all", "", "suites/ops.py"):
        assert find_commit(repository, name) is None
        with pytest.raises(UsageError, match=r"is no commit, branch or tag of .*; `git branch --all`"):
            resolve(repository, name)


def test_a_branch_of_the_remote_and_a_shallow_clone_are_hinted_at(repository: Path, tmp_path: Path) -> None:
    git(repository, "branch", "feature")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", "clone", "--no-single-branch")
    clone = tmp_path / "clone"
    with pytest.raises(UsageError, match="did you mean 'origin/feature'"):
        resolve(clone, "feature")
    with pytest.raises(UsageError, match="shallow clone, so fetch it first: git fetch --depth=1 origin v9"):
        resolve(clone, "v9")


def test_submodules_are_named(repository: Path) -> None:
    sha = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{sha},third_party/lib")
    git(repository, "commit", "-q", "-m", "three")
    with open_checkouts(repository, "HEAD", "HEAD~1") as (base, head, _):
        assert (base.submodules, head.submodules) == (("third_party/lib",), ())
