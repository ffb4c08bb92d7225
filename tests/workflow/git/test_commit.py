"""A run knows whose its commit is: subject, author, place in the history, and the pull request."""

import json
import os
from pathlib import Path

import pytest

from pairbench.workflow.git import OF_ANOTHER_REPOSITORY, pull_request_of, read_commit
from tests.workflow.git.test_repository import call

CI = ("GITHUB_REF", "GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH", "CI_MERGE_REQUEST_IID", "CHANGE_ID", "BITBUCKET_PR_ID")
AZURE = "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*OF_ANOTHER_REPOSITORY, *CI, AZURE):  # these tests may be run by a hook, and by a CI job
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "checkout"
    folder.mkdir()
    call(folder, "init", "-q")
    for number, message in enumerate(("first", "second", "Fuse the norm (#123)\n\nIt is one kernel now.")):
        (folder / "file").write_text(str(number))
        call(folder, "add", ".")
        call(folder, "commit", "-q", "-m", message, "--author=Ada Ä <ada@example.org>")
    return folder


def test_a_commit_says_whose_it_is(checkout: Path) -> None:
    commit = read_commit(checkout)
    assert commit is not None
    told = (commit.subject, commit.author, commit.number, commit.pull_request)
    assert told == ("Fuse the norm (#123)", "Ada Ä", 3, 123)


def test_a_shallow_clone_does_not_know_how_many_commits_there_are(checkout: Path, tmp_path: Path) -> None:
    call(tmp_path, "clone", "-q", "--depth=1", f"file://{checkout}", "shallow")
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
