"""The commit that results belong to is that of their folder, also when a git hook runs pairbench."""

import json
import os
import sys
from pathlib import Path

import pytest

from pairbench.errors import UsageError
from pairbench.workflow.git import (
    OF_ANOTHER_REPOSITORY,
    commits_between,
    pull_request_of,
    read_commit,
    run_git,
    touched_files,
)
from pairbench.workflow.git import git as read_git
from tests.builders import git

ROOT = Path(__file__).parents[2]


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
        git(folder, "init", "-q")
        (folder / "file").write_text(name)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", name)
        return folder


@pytest.mark.parametrize("variables", [("GIT_DIR",), ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")])
def test_the_variables_of_another_repository_do_not_count(
    make: "Make", monkeypatch: pytest.MonkeyPatch, variables: tuple[str, ...]
) -> None:
    ours, other = make("ours"), make("other")
    (other / "file").write_text("changed")
    expected = git(ours, "rev-parse", "HEAD")
    values = {"GIT_DIR": other / ".git", "GIT_WORK_TREE": other, "GIT_INDEX_FILE": other / ".git" / "index"}
    for name in variables:
        monkeypatch.setenv(name, str(values[name]))
    commit = read_commit(ours)
    assert commit is not None
    assert (commit.sha, commit.branch, commit.dirty) == (expected, "main", False)
    assert Path(run_git(ours, "rev-parse", "--show-toplevel")) == ours.resolve()


def test_every_variable_that_git_calls_local_is_taken_away_but_its_settings(tmp_path: Path) -> None:
    """Settings given in the environment stay: `safe.directory` is often given so, and they name no repository."""
    local = set(git(tmp_path, "rev-parse", "--local-env-vars").split())
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
    git(other, "worktree", "add", "-q", str(linked), "-b", "more")
    (linked / "file").write_text("more")
    git(linked, "commit", "-q", "-a", "-m", "more")
    index, sha = said.read_text().rsplit(maxsplit=1)
    assert index, "git set none of its variables for the hook, so that this shows nothing"
    assert sha == git(ours, "rev-parse", "HEAD")


def test_what_git_refuses(make: "Make", monkeypatch: pytest.MonkeyPatch) -> None:
    ours = make("ours")
    assert read_git(ours, "rev-parse", "--verify", "-q", "nothing") is None
    with pytest.raises(UsageError, match="git rev-parse --verify failed: fatal: Needed a single revision"):
        run_git(ours, "rev-parse", "--verify", "nothing")
    monkeypatch.setenv("PATH", os.devnull)
    assert read_commit(ours) is None
    with pytest.raises(UsageError, match="git cannot be run"):
        run_git(ours, "status")


CI = ("GITHUB_REF", "GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH", "CI_MERGE_REQUEST_IID", "CHANGE_ID", "BITBUCKET_PR_ID")
AZURE = "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*OF_ANOTHER_REPOSITORY, *CI, AZURE):  # these tests may be run by a hook, and by a CI job
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    for number, message in enumerate(("first", "second", "Fuse the norm (#123)\n\nIt is one kernel now.")):
        (folder / "file").write_text(str(number))
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", message, "--author=Ada Ä <ada@example.org>")
    return folder


def test_a_commit_says_whose_it_is(checkout: Path) -> None:
    commit = read_commit(checkout)
    assert commit is not None
    told = (commit.subject, commit.author, commit.number, commit.pull_request)
    assert told == ("Fuse the norm (#123)", "Ada Ä", 3, 123)


def test_a_shallow_clone_does_not_know_how_many_commits_there_are(checkout: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{checkout}", "shallow")
    commit = read_commit(tmp_path / "shallow")
    assert commit is not None
    assert (commit.number, commit.subject) == (None, "Fuse the norm (#123)")


def test_a_ci_job_knows_its_pull_request(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_REF", "refs/pull/77/merge")
    commit = read_commit(checkout)
    assert commit is not None and commit.pull_request == 77


@pytest.mark.parametrize(
    ("message", "number"),
    [
        ("Merge pull request #45 from someone/topic\n\nA title", 45),
        ("A title (#46)", 46),
        ("A title (#46)\n\nmore (#1)", 46),
        ("Merge branch 'x' into 'main'\n\nA title\n\nSee merge request team/kernels!47", 47),
        ("See issue (#46) for more", None),
        ("Fixes #46", None),
        ("A title\n\nbody (#46)", None),
        ("", None),
        ("x (#99999999999999999999)", None),
    ],
)
def test_a_message_names_the_pull_request(message: str, number: int | None) -> None:
    assert pull_request_of(message, {}) == number


@pytest.mark.parametrize(
    ("variables", "number"),
    [
        ({"GITHUB_REF": "refs/pull/12/merge"}, 12),
        ({"GITHUB_REF": "refs/heads/main"}, 3),
        ({"CI_MERGE_REQUEST_IID": "13"}, 13),
        ({"CI_MERGE_REQUEST_IID": ""}, 3),
        ({"CI_MERGE_REQUEST_IID": "x"}, 3),
        ({"CHANGE_ID": "14"}, 14),
        ({"BITBUCKET_PR_ID": "15"}, 15),
        ({AZURE: "16"}, 16),
    ],
)
def test_variables_of_a_job_go_before_the_message(variables: dict[str, str], number: int) -> None:
    assert pull_request_of("A title (#3)", variables) == number


@pytest.mark.parametrize(
    ("content", "number"), [(json.dumps({"number": 21}), 21), ("{}", None), ("[]", None), ("{", None)]
)
def test_a_job_of_github_with_the_ref_of_a_branch_reads_its_event(
    tmp_path: Path, content: str, number: int | None
) -> None:
    event = tmp_path / "event.json"
    event.write_text(content)
    variables = {"GITHUB_REF": "refs/heads/main", "GITHUB_EVENT_NAME": "pull_request_target"}
    assert pull_request_of("", {**variables, "GITHUB_EVENT_PATH": str(event)}) == number
    assert pull_request_of("", {**variables, "GITHUB_EVENT_PATH": os.devnull}) is None


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
