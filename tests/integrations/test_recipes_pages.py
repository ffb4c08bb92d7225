"""The recipes for Pages keep the site of the default branch and have those of pull requests beside it."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pairbench.workflow.git import OF_ANOTHER_REPOSITORY
from tests.builders import git
from tests.integrations.ci_systems import content, holds, rule_of

WORKFLOW = content("github-pages")
JOB = WORKFLOW["jobs"]["pages"]
_GH = """#!/bin/sh
# Stands for GitHub's own: number 8 is closed, all others are open.
case "$*" in
  "auth setup-git") ;;
  "pr view 8 "*) echo CLOSED ;;
  "pr view "*) echo OPEN ;;
  *) echo "unknown: $*" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def forge(tmp_path: Path) -> Path:
    """Return a folder with a repository `team/ops.git` to push to, and a stand-in for gh."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").write_text(_GH)
    (tmp_path / "bin" / "gh").chmod(0o755)
    git(tmp_path, "init", "-q", "--bare", "team/ops.git")
    return tmp_path


def deploy(forge: Path, name: str, text: str, *, event: str = "push", number: str = "", inside: str = "") -> str:
    """Run the job's shell lines as for a run that has made a site, and return what they said."""
    folder = forge / f"job-{name}"
    site = folder / "artifact" / inside
    site.mkdir(parents=True)
    for file in ("index.html", "index.json"):
        (site / file).write_text(text)
    environment = {key: value for key, value in os.environ.items() if key not in OF_ANOTHER_REPOSITORY}
    environment |= {
        **WORKFLOW["env"],
        "PATH": f"{forge / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_SERVER_URL": f"file://{forge}",
        "GITHUB_REPOSITORY": "team/ops",
        "EVENT": event,
        "PULL_REQUEST": number,
    }
    command = ["bash", "-eo", "pipefail", "-c", JOB["steps"][-1]["run"]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def there(forge: Path) -> dict[str, str]:
    repository = forge / "team" / "ops.git"
    names = git(repository, "ls-tree", "-r", "--name-only", "gh-pages").split()
    return {name: git(repository, "show", f"gh-pages:{name}") for name in names if name.endswith(".html")}


def test_pull_requests_stand_beside_the_default_branch(forge: Path) -> None:
    deploy(forge, "main", "main 1")
    deploy(forge, "pull", "pull 7", event="pull_request", number="7", inside="pairbench-site")
    deploy(forge, "closed", "pull 8", event="pull_request", number="8")
    deploy(forge, "again", "main 2")
    assert there(forge) == {"index.html": "main 2", "pull/7/index.html": "pull 7"}
    said = deploy(forge, "gone", "x", event="pull_request")
    assert "belongs to no open pull request" in said and there(forge)["index.html"] == "main 2"
    assert git(forge / "team" / "ops.git", "rev-list", "--count", "gh-pages") == "1"


@pytest.mark.parametrize(
    ("event", "branch", "repository", "runs"),
    [
        ("push", "main", "team/ops", True),
        ("push", "other", "team/ops", False),
        ("pull_request", "other", "team/ops", True),
        ("pull_request", "main", "somebody/ops", False),
    ],
)
def test_only_what_is_ours_is_shown(event: str, branch: str, repository: str, runs: bool) -> None:
    facts: dict[str, Any] = {
        "github.repository": "team/ops",
        "github.event.repository.default_branch": "main",
        "github.event.workflow_run.event": event,
        "github.event.workflow_run.head_branch": branch,
        "github.event.workflow_run.head_repository.full_name": repository,
    }
    assert holds(JOB["if"], lambda name: name == "success()" or facts[name]) is runs


def test_the_workflow_that_it_waits_for_and_its_artifact_are_those_of_a_recipe() -> None:
    (waited,) = WORKFLOW["on"]["workflow_run"]["workflows"]
    other = content("github-gpu")
    artifacts = [
        step["with"]["name"] for step in other["jobs"]["measure"]["steps"] if "upload-artifact" in str(step.get("uses"))
    ]
    assert waited == other["name"] and WORKFLOW["env"]["PAIRBENCH_ARTIFACT"] in artifacts
    assert JOB["permissions"] == {"actions": "read", "contents": "write", "pull-requests": "read"}
    assert not any("checkout" in str(step.get("uses")) for step in JOB["steps"]), "no code of a pull request is here"


@pytest.mark.parametrize(("fork", "runs"), [(False, True), (True, False)])
def test_gitlab_shows_merge_requests_beside_the_default_branch(fork: bool, runs: bool) -> None:
    recipe = content("gitlab-pages")
    ids = {"CI_PROJECT_ID": "1", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "2" if fork else "1"}
    asked = {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_DEFAULT_BRANCH": "main", **ids}
    branch = {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main"}
    whole, beside = recipe["pairbench-pages"], recipe["pairbench-pages-beside"]
    assert (rule_of(beside, asked) is not None) is runs and rule_of(whole, asked) is None
    assert rule_of(whole, branch) is not None and rule_of(beside, branch) is None
    assert beside["pages"]["path_prefix"] == "mr-$CI_MERGE_REQUEST_IID" and whole["pages"] is True
    assert all(need in content("gitlab-gpu") for job in (whole, beside) for need in job["needs"])
