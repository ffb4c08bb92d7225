"""GitHub Actions and GitLab CI in small: jobs in order, their conditions, and shell lines that are run for real.

An action of GitHub's is noted and not run, but for the artifacts that go from one job to the next.
"""

import importlib
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pairbench.integrations.recipes import recipe
from tests.integrations.ci_machine import Machine

# Conditions: names, texts, comparisons, `&&`, `||`, `!` and calls without arguments.
_TOKEN = re.compile(
    r"\s*(?:(?P<same>'[^']*'|\"[^\"]*\"|[=!]=|[()])|(?P<sign>&&|\|\||!)|(?P<name>\$?[A-Za-z_][\w.-]*(?:\(\))?))\s*"
)
_SIGNS = {"&&": "and", "||": "or", "!": "not"}
_STATES = ("success", "failure", "always", "cancelled")

Value = str | bool


def evaluate(expression: str, look: Callable[[str], Value]) -> Value:
    """Return what an expression gives; names, and calls like `success()`, are looked up. A `!` stands before one of these or a bracket."""
    words, place = [], 0
    while place < len(expression):
        found = _TOKEN.match(expression, place)
        assert found is not None, f"{expression!r} is not understood at {expression[place:]!r}"
        words.append(found["same"] or _SIGNS.get(found["sign"]) or f"look({found['name']!r})")
        place = found.end()
    value: Value = eval(" ".join(words), {"__builtins__": {}, "look": look})  # noqa: S307 (of the words above alone)
    return value


def interpolate(text: str, look: Callable[[str], Value]) -> str:
    def put(found: re.Match[str]) -> str:
        value = evaluate(found[1], look)
        return str(value).lower() if isinstance(value, bool) else value

    return re.sub(r"\$\{\{(.+?)\}\}", put, text)


def holds(condition: str | None, look: Callable[[str], Value]) -> bool:
    """Return whether GitHub runs what has this `if`: without a word on states, only after success."""
    inside = re.sub(r"^\$\{\{(.*)\}\}$", r"\1", (condition or "success()").strip())
    if not any(f"{state}()" in inside for state in _STATES):
        inside = f"success() && ({inside})"
    return bool(evaluate(inside, look))


def content(name: str) -> dict[str, Any]:
    """Return a recipe as what its YAML means, as YAML 1.2 has it: `on` is a word."""
    yaml: Any = importlib.import_module("ruamel.yaml")
    found: dict[str, Any] = yaml.YAML(typ="safe").load(recipe(name).text)
    return found


@dataclass(kw_only=True)
class Job:
    result: str = "success"
    outputs: dict[str, str] = field(default_factory=dict)
    conclusions: dict[str, str] = field(default_factory=dict)  # by a step's name or action
    logs: dict[str, str] = field(default_factory=dict)  # of the steps with shell lines, by name
    folder: Path
    summary: str = ""


@dataclass(kw_only=True)
class Actions:
    machine: Machine
    checkout: Path
    event: Mapping[str, Any]
    """The context `github`."""
    changed: Mapping[str, str]
    """What a project has changed at the workflow's top."""

    def run(self, workflow: Mapping[str, Any]) -> dict[str, Job]:
        assert workflow["defaults"] == {"run": {"shell": "bash"}}
        assert self.changed.keys() <= workflow["env"].keys()
        jobs: dict[str, Job] = {}
        for name in workflow["jobs"]:
            jobs[name] = self.run_job(name, workflow, jobs)
        return jobs

    def run_job(self, name: str, workflow: Mapping[str, Any], jobs: Mapping[str, Job]) -> Job:
        plan = workflow["jobs"][name]
        needed = {plan["needs"]: jobs[plan["needs"]]} if "needs" in plan else {}
        context: dict[str, Any] = {
            "github": self.event,
            "needs": {one: {"result": job.result, "outputs": job.outputs} for one, job in needed.items()},
        }
        good = all(job.result == "success" for job in needed.values())
        job = Job(folder=self.checkout)
        if not holds(plan.get("if"), partial(_look, context, good)):
            job.result = "skipped"
            return job
        if not any(step.get("uses", "").startswith("actions/checkout@") for step in plan["steps"]):
            job.folder = self.machine.folder / f"job-{name}"
            job.folder.mkdir()
        context |= {"env": {**workflow["env"], **self.changed}, "steps": {}}
        self._steps(plan["steps"], context, job)
        look = partial(_look, context, job.result == "success")
        job.outputs = {key: interpolate(text, look) for key, text in plan.get("outputs", {}).items()}
        return job

    def _steps(self, steps: list[Mapping[str, Any]], context: dict[str, Any], job: Job) -> None:
        names = ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")
        files = {name: self.machine.folder / "tmp" / name for name in names}
        for file in files.values():
            file.write_text("")
        for step in steps:
            name = step.get("name") or step["uses"].partition("@")[0]
            look = partial(_look, context, job.result == "success")
            mine: dict[str, Any] = {"outputs": {}, "outcome": "skipped"}
            if holds(step.get("if"), look):
                good, mine["outputs"] = (
                    self._action(step, look, job)
                    if "uses" in step
                    else self._shell(step, name, look, context, files, job)
                )
                mine["outcome"] = "success" if good else "failure"
            forgiven = mine["outcome"] == "failure" and step.get("continue-on-error")
            mine["conclusion"] = "success" if forgiven else mine["outcome"]
            context["steps"][step.get("id", name)] = mine
            # Two uploads have one name; it is enough that one of them ran.
            if job.conclusions.get(name, "skipped") == "skipped":
                job.conclusions[name] = mine["outcome"]
            if mine["conclusion"] == "failure":
                job.result = "failure"
        job.summary += files["GITHUB_STEP_SUMMARY"].read_text()

    def _shell(
        self,
        step: Mapping[str, Any],
        name: str,
        look: Any,
        context: Mapping[str, Any],
        files: Mapping[str, Path],
        job: Job,
    ) -> tuple[bool, dict[str, str]]:
        added = files["GITHUB_PATH"].read_text().split()
        files["GITHUB_OUTPUT"].write_text("")
        environment = {
            **context["env"],
            **{key: interpolate(text, look) for key, text in step.get("env", {}).items()},
            "PATH": ":".join([*reversed(added), self.machine.environment["PATH"]]),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(job.folder),
            "GITHUB_EVENT_NAME": self.event["event_name"],
            "GITHUB_REF": self.event.get("ref", ""),
            "GITHUB_REPOSITORY": self.event["repository"],
            "GITHUB_REPOSITORY_OWNER": self.event["repository"].partition("/")[0],
            "RUNNER_TEMP": str(self.machine.folder / "tmp"),
            **{key: str(file) for key, file in files.items()},
        }
        done = self.machine.shell(step["run"], job.folder, environment, "--noprofile", "--norc", "-eo", "pipefail")
        job.logs[name] = done.stdout
        lines = [line.partition("=") for line in files["GITHUB_OUTPUT"].read_text().splitlines()]
        return done.returncode == 0, {key: value for key, _, value in lines}

    def _action(self, step: Mapping[str, Any], look: Any, job: Job) -> tuple[bool, dict[str, str]]:
        given = {key: interpolate(str(text), look) for key, text in step.get("with", {}).items()}
        match step["uses"].partition("@")[0]:
            case "actions/upload-artifact":
                return self._keep(job.folder, given["path"], given["name"]), {}
            case "actions/upload-pages-artifact":
                return self._keep(job.folder, given["path"], "github-pages"), {"artifact_id": "1"}
            case "actions/download-artifact":
                shutil.copytree(self._artifact(given["name"]), job.folder, dirs_exist_ok=True)
        return True, {}

    def _keep(self, folder: Path, paths: str, name: str) -> bool:
        """Copy files and folders into an artifact; the folder's content where it is only one."""
        found = [folder / path for path in paths.split() if (folder / path).exists()]
        for path in found:
            target = self._artifact(name) / ("" if len(paths.split()) == 1 else path.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, target, dirs_exist_ok=True)
            else:
                shutil.copy(path, target)
        return True

    def _artifact(self, name: str) -> Path:
        return self.machine.folder / "artifacts" / name


def _look(context: Mapping[str, Any], good: bool, name: str) -> Value:
    """Return what a name stands for in an expression; "" where it stands for nothing."""
    states = {"success()": good, "failure()": not good, "always()": True, "cancelled()": False}
    if name in states:
        return states[name]
    found: Any = context
    for part in name.split("."):
        found = found.get(part, "") if isinstance(found, Mapping) else ""
    assert isinstance(found, str), name
    return found


def rule_of(job: Mapping[str, Any], variables: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return the rule by which a job runs in a pipeline; None where it does not run."""

    def look(name: str) -> str:
        return variables.get(name.removeprefix("$"), "")

    for rule in job["rules"]:
        if evaluate(rule["if"], look):
            return None if rule.get("when") == "never" else dict(rule)
    return None


def run_job(
    recipe: Mapping[str, Any],
    name: str,
    machine: Machine,
    folder: Path,
    *,
    predefined: Mapping[str, str],
    changed: Mapping[str, str],
) -> tuple[int, str]:
    """Run the script of a job with GitLab's variables and those that a project has changed, and return exit code and log."""
    job = recipe[name]
    rule = rule_of(job, predefined)
    assert rule is not None, f"{name} does not run in this pipeline"
    assert changed.keys() <= recipe["variables"].keys()
    environment = {
        **recipe["variables"],
        **changed,
        **job.get("variables", {}),
        **rule.get("variables", {}),
        **predefined,
        "CI": "true",
        "GITLAB_CI": "true",
        "CI_PROJECT_DIR": str(folder),
    }
    done = machine.shell("\n".join(job["script"]), folder, environment, "-eo", "pipefail")
    return done.returncode, done.stdout
