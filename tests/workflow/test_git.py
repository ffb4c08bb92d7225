import json
import os
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

CI = ("GITHUB_REF", "GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH", "CI_MERGE_REQUEST_IID", "CHANGE_ID", "BITBUCKET_PR_ID")
AZURE = "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER"


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*OF_ANOTHER_REPOSITORY, *CI, AZURE):  # these tests may be run by a hook, and by a CI job
        monkeypatch.delenv(name, raising=False)


def commit(folder: Path, message: str, *options: str) -> str:
    """Commit a new file, in a repository that is made where there is none, and return the commit."""
    if not (folder / ".git").exists():
        folder.mkdir(exist_ok=True)
        git(folder, "init", "-q")
    (folder / f"{message[:5]}.txt").write_text(message)
    git(folder, "add", "-A", ".")
    git(folder, "commit", "-q", "-m", message, *options)
    return git(folder, "rev-parse", "HEAD")


@pytest.mark.parametrize("variables", [("GIT_DIR",), ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")])
def test_the_variables_of_another_repository_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: tuple[str, ...]
) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    expected = commit(ours, "ours")
    commit(other, "other")
    (other / "other.txt").write_text("changed")
    values = {"GIT_DIR": other / ".git", "GIT_WORK_TREE": other, "GIT_INDEX_FILE": other / ".git" / "index"}
    for name in variables:
        monkeypatch.setenv(name, str(values[name]))
    found = read_commit(ours)
    assert found is not None
    assert (found.sha, found.branch, found.dirty) == (expected, "main", False)
    assert Path(run_git(ours, "rev-parse", "--show-toplevel")) == ours.resolve()


def test_every_variable_that_git_calls_local_is_taken_away_but_its_settings(tmp_path: Path) -> None:
    """Settings given in the environment stay: `safe.directory` is often given so, and they name no repository."""
    local = set(git(tmp_path, "rev-parse", "--local-env-vars").split())
    settings = {name for name in local if name.startswith("GIT_CONFIG")}
    assert settings and local - settings <= set(OF_ANOTHER_REPOSITORY)
    assert not settings & set(OF_ANOTHER_REPOSITORY)


def test_what_git_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(tmp_path, "ours")
    assert read_git(tmp_path, "rev-parse", "--verify", "-q", "nothing") is None
    with pytest.raises(UsageError, match="git rev-parse --verify failed: fatal: Needed a single revision"):
        run_git(tmp_path, "rev-parse", "--verify", "nothing")
    monkeypatch.setenv("PATH", os.devnull)
    assert read_commit(tmp_path) is None
    with pytest.raises(UsageError, match="git cannot be run"):
        run_git(tmp_path, "status")


def test_a_commit_says_whose_it_is_and_a_shallow_clone_knows_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    for message in ("first", "second", "Fuse the norm (#123)\n\nIt is one kernel now."):
        commit(checkout, message, "--author=Ada Ä <ada@example.org>")
    found = read_commit(checkout)
    assert found is not None
    told = (found.subject, found.author, found.number, found.pull_request)
    assert told == ("Fuse the norm (#123)", "Ada Ä", 3, 123)
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{checkout}", "shallow")
    shallow = read_commit(tmp_path / "shallow")
    assert shallow is not None and (shallow.number, shallow.subject) == (None, "Fuse the norm (#123)")
    monkeypatch.setenv("GITHUB_REF", "refs/pull/77/merge")
    in_a_job = read_commit(checkout)
    assert in_a_job is not None and in_a_job.pull_request == 77


@pytest.mark.parametrize(
    ("message", "variables", "number"),
    [
        ("Merge pull request #45 from someone/topic\n\nA title", {}, 45),
        ("A title (#46)", {}, 46),
        ("A title (#46)\n\nmore (#1)", {}, 46),
        ("Merge branch 'x' into 'main'\n\nA title\n\nSee merge request team/kernels!47", {}, 47),
        ("See issue (#46) for more", {}, None),
        ("Fixes #46", {}, None),
        ("A title\n\nbody (#46)", {}, None),
        ("", {}, None),
        ("x (#99999999999999999999)", {}, None),
        ("A title (#3)", {"GITHUB_REF": "refs/pull/12/merge"}, 12),
        ("A title (#3)", {"GITHUB_REF": "refs/heads/main"}, 3),
        ("A title (#3)", {"CI_MERGE_REQUEST_IID": "13"}, 13),
        ("A title (#3)", {"CI_MERGE_REQUEST_IID": ""}, 3),
        ("A title (#3)", {"CI_MERGE_REQUEST_IID": "x"}, 3),
        ("A title (#3)", {"CHANGE_ID": "14"}, 14),
        ("A title (#3)", {"BITBUCKET_PR_ID": "15"}, 15),
        ("A title (#3)", {AZURE: "16"}, 16),
    ],
)
def test_a_message_names_the_pull_request_and_variables_of_a_job_go_before_it(
    message: str, variables: dict[str, str], number: int | None
) -> None:
    assert pull_request_of(message, variables) == number


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


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a, b and c on main, and d merged between b and c from a branch that began at a."""
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
