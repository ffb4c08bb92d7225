"""The recipes for CI systems are what their systems accept, and every shell line in them does what it says."""

import json
import os
import sys
from pathlib import Path

import pytest

from pairbench.cli.app import app
from pairbench.errors import UsageError
from pairbench.integrations.recipes import recipe, recipes
from tests.integrations.ci_machine import run
from tests.integrations.ci_systems import content, evaluate, holds, rule_of

CI = ("github-cpu", "github-gpu", "github-pages", "gitlab-cpu", "gitlab-gpu", "gitlab-pages")
NAMES = (*CI, "kubernetes", "slurm")

# The files


def test_the_recipes() -> None:
    assert tuple(one.name for one in recipes()) == NAMES
    assert len({one.place for one in recipes()}) == len({one.purpose for one in recipes()}) == len(NAMES)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a folder with every recipe where it belongs."""
    for one in recipes():
        (tmp_path / one.place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / one.place).write_text(one.text)
    return tmp_path


def check(folder: Path, *command: str) -> None:
    """Run a checker that is installed beside this Python, which may call others that are."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = (str(Path(sys.executable).parent / command[0]), *command[1:])
    run(list(command), folder, {**os.environ, "PATH": path})


@pytest.mark.parametrize("system", [["vendor.github-workflows"], ["vendor.gitlab-ci", "--data-transform", "gitlab-ci"]])
def test_follows_its_systems_schema(system: list[str], repository: Path) -> None:
    places = [recipe(name).place for name in CI if name.partition("-")[0] in system[0]]
    assert len(places) == 3
    check(repository, "check-jsonschema", "--builtin-schema", *system, *places)


def test_actionlint_finds_nothing(repository: Path) -> None:
    """Expressions, contexts, the inputs of actions, and with shellcheck the shell lines."""
    # Several suites are several words; the label is the project's own.
    known = ["-ignore", "SC2086:", "-ignore", 'label "gpu" is unknown']
    check(repository, "actionlint", *known, *(one.place for one in recipes() if "github" in one.name))


def test_zizmor_finds_nothing(repository: Path) -> None:
    """Injection, permissions, credentials that stay behind."""
    # Major versions of GitHub's own actions, so that a copy made today still gets their fixes.
    policy = {"rules": {"unpinned-uses": {"config": {"policies": {"actions/*": "ref-pin"}}}}}
    (repository / "zizmor.json").write_text(json.dumps(policy))
    places = [one.place for one in recipes() if "github" in one.name]
    check(repository, "zizmor", "--offline", "--config", "zizmor.json", *places)


def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    jobs = {f"{name}-{job}": plan for name in CI if "gitlab" in name for job, plan in content(name).items()}
    scripts = {tmp_path / job: plan["script"] for job, plan in jobs.items() if "script" in plan}
    for script, lines in scripts.items():
        script.write_text("\n".join(lines))
    assert len(scripts) >= 5
    check(tmp_path, "shellcheck", "--shell=bash", "--exclude=SC2086", *map(str, scripts))


@pytest.mark.parametrize("name", ["github-cpu", "github-gpu"])
def test_no_github_job_may_do_more_than_it_must(name: str) -> None:
    workflow = content(name)
    rights = {job: plan.get("permissions", workflow["permissions"]) for job, plan in workflow["jobs"].items()}
    wanted = {"gate": {"contents": "read"}, "measure": {"contents": "read"}, "comment": {"pull-requests": "write"}}
    wanted["pages"] = {"pages": "write", "id-token": "write"}
    assert rights == {job: wanted[job] for job in rights}
    assert all("timeout-minutes" in plan for plan in workflow["jobs"].values())
    assert "pull_request_target" not in workflow["on"]


@pytest.mark.parametrize(("repository", "runs"), [("team/ops", True), ("somebody/ops", False), ("", False)])
def test_no_fork_runs_on_a_machine_of_ours(repository: str, runs: bool) -> None:
    facts = {
        "github.event_name": "pull_request",
        "github.repository": "team/ops",
        "github.event.pull_request.head.repo.full_name": repository,
    }
    job = content("github-gpu")["jobs"]["measure"]
    assert "self-hosted" in job["runs-on"] and job["concurrency"] == {"group": "pairbench-gpu", "queue": "max"}
    assert holds(job["if"], lambda name: name == "success()" or facts[name]) is runs
    ids = {"CI_PROJECT_ID": "1", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "1" if runs else "2"}
    gitlab = content("gitlab-gpu")["pairbench-gpu"]
    assert (rule_of(gitlab, {"CI_PIPELINE_SOURCE": "merge_request_event", **ids}) is not None) is runs


@pytest.mark.parametrize(("branch", "runs"), [("main", True), ("other", False)])
@pytest.mark.parametrize(
    ("name", "job"), [("gitlab-cpu", "pairbench-cpu"), ("gitlab-gpu", "pairbench-gpu"), ("gitlab-gpu", "pages")]
)
def test_gitlab_measures_branches_only_where_they_are_the_default(name: str, job: str, branch: str, runs: bool) -> None:
    pipeline = {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": branch, "CI_DEFAULT_BRANCH": "main"}
    assert (rule_of(content(name)[job], pipeline) is not None) is runs


def test_only_the_default_branch_writes_the_history() -> None:
    job = content("gitlab-cpu")["pairbench-cpu"]
    rules = {rule["if"].split()[0]: rule["variables"]["PAIRBENCH_CACHE"] for rule in job["rules"]}
    assert job["cache"]["policy"] == "$PAIRBENCH_CACHE" and not job["cache"].get("unprotect")
    assert rules == {"$CI_PIPELINE_SOURCE": "pull", "$CI_COMMIT_BRANCH": "pull-push"}


def test_conditions_are_understood() -> None:
    known: dict[str, str | bool] = {"a.b": "x", "failure()": False, "success()": True}
    for expression, value in (
        ("(a.b == 'y' || a.b == 'x') && !failure()", True),
        ("a.missing || 'else'", "else"),
        ('$a == "x"', False),
    ):
        assert evaluate(expression, lambda name: known.get(name, "")) == value


# The verb


def test_a_recipe_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    app(["recipe", "gitlab-cpu"], standalone_mode=False)
    assert capsys.readouterr().out == recipe("gitlab-cpu").text


def test_the_list_says_where_each_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    app(["recipe", "--format", "json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)["recipes"]
    assert [(row["recipe"], row["file"]) for row in found] == [(one.name, one.place) for one in recipes()]


def test_a_file_that_is_there_is_only_replaced_by_force(tmp_path: Path) -> None:
    file = tmp_path / "new" / "ci.yml"
    app(["recipe", "github-gpu", "--output", str(file)], standalone_mode=False)
    assert file.read_text() == recipe("github-gpu").text
    file.write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        app(["recipe", "github-gpu", "-o", str(file)], standalone_mode=False)
    assert file.read_text() == "mine"
    app(["recipe", "github-gpu", "-o", str(file), "--force"], standalone_mode=False)
    assert file.read_text() == recipe("github-gpu").text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nope"], "expected one of github-cpu"),
        (["-o", "file"], "needs the name of a recipe"),
        (["github-cpu", "-o", "."], "there already"),
        (["github-cpu", "-o", ".", "--force"], "cannot be written"),
        (["-f", "yaml"], "expected one of table"),
    ],
)
def test_what_cannot_be_is_said(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=sentence):
        app(["recipe", *arguments], standalone_mode=False)
    assert not list(tmp_path.iterdir())
