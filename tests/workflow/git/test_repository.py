"""The commit that results belong to is that of their folder, also when a git hook runs pairbench."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pairbench.errors import UsageError
from pairbench.workflow.git import OF_ANOTHER_REPOSITORY, git, read_commit, run_git

ROOT = Path(__file__).parents[3]
IDENTITY = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "init.defaultBranch=main")


def call(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *IDENTITY, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Make":
    for name in OF_ANOTHER_REPOSITORY:  # these tests may be run by a hook, too
        monkeypatch.delenv(name, raising=False)
    return Make(tmp_path)


class Make:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str) -> Path:
        """Make a repository with one commit of its own."""
        folder = self.folder / name
        folder.mkdir()
        call(folder, "init", "-q")
        (folder / "file").write_text(name)
        call(folder, "add", ".")
        call(folder, "commit", "-q", "-m", name)
        return folder


@pytest.mark.parametrize("variables", [("GIT_DIR",), ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")])
def test_the_variables_of_another_repository_do_not_count(
    make: "Make", monkeypatch: pytest.MonkeyPatch, variables: tuple[str, ...]
) -> None:
    ours, other = make("ours"), make("other")
    (other / "file").write_text("changed")
    expected = call(ours, "rev-parse", "HEAD")
    values = {"GIT_DIR": other / ".git", "GIT_WORK_TREE": other, "GIT_INDEX_FILE": other / ".git" / "index"}
    for name in variables:
        monkeypatch.setenv(name, str(values[name]))
    commit = read_commit(ours)
    assert commit is not None
    assert (commit.sha, commit.branch, commit.dirty) == (expected, "main", False)
    assert Path(run_git(ours, "rev-parse", "--show-toplevel")) == ours.resolve()


def test_every_variable_that_git_calls_local_is_taken_away_but_its_settings(tmp_path: Path) -> None:
    """Settings given in the environment stay: `safe.directory` is often given so, and they name no repository."""
    local = set(call(tmp_path, "rev-parse", "--local-env-vars").split())
    settings = {name for name in local if name.startswith("GIT_CONFIG")}
    assert settings and local - settings <= set(OF_ANOTHER_REPOSITORY)
    assert not settings & set(OF_ANOTHER_REPOSITORY)


@pytest.mark.parametrize("hook", ["pre-commit", "post-commit"])
def test_a_hook_of_one_repository_reads_the_commit_of_another(make: "Make", hook: str) -> None:
    ours, other = make("ours"), make("other")
    script = other / ".git" / "hooks" / hook
    script.parent.mkdir(exist_ok=True)
    code = (
        "import os, sys; from pathlib import Path; from pairbench.workflow.git import read_commit; "
        "commit = read_commit(Path(sys.argv[1])); "
        "print(os.environ.get('GIT_INDEX_FILE', ''), commit.sha, file=open(sys.argv[2], 'w'))"
    )
    said = make.folder / "said"
    script.write_text(
        f"""#!/bin/sh\nPYTHONPATH='{ROOT / "harness"}' '{sys.executable}' -c "{code}" '{ours}' '{said}'\n"""
    )
    script.chmod(0o755)
    # As `git commit` itself does in a linked worktree, where a hook finds GIT_DIR set.
    linked = make.folder / "linked"
    call(other, "worktree", "add", "-q", str(linked), "-b", "more")
    (linked / "file").write_text("more")
    call(linked, "commit", "-q", "-a", "-m", "more")
    index, sha = said.read_text().rsplit(maxsplit=1)
    assert index, "git set none of its variables for the hook, so that this shows nothing"
    assert sha == call(ours, "rev-parse", "HEAD")


def test_what_git_refuses(make: "Make", monkeypatch: pytest.MonkeyPatch) -> None:
    ours = make("ours")
    assert git(ours, "rev-parse", "--verify", "-q", "nothing") is None
    with pytest.raises(UsageError, match="git rev-parse --verify failed: fatal: Needed a single revision"):
        run_git(ours, "rev-parse", "--verify", "nothing")
    monkeypatch.setenv("PATH", os.devnull)
    assert read_commit(ours) is None
    with pytest.raises(UsageError, match="git cannot be run"):
        run_git(ours, "status")
