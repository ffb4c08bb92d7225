"""GitHub Actions in small: jobs in order, steps with their conditions, shell lines run for real.

An action is noted and not run, but for the artifacts that go from one job to the next.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.integrations.ci_expressions import Value, holds, interpolate
from tests.integrations.ci_machine import Machine


@dataclass(kw_only=True)
class Job:
    """What became of a job."""

    result: str = "success"
    outputs: dict[str, str] = field(default_factory=dict)
    conclusions: dict[str, str] = field(default_factory=dict)
    """By a step's name or action."""
    logs: dict[str, str] = field(default_factory=dict)
    """Of the steps with shell lines, by name."""
    folder: Path
    summary: str = ""


@dataclass(kw_only=True)
class Actions:
    """Runs workflows."""

    machine: Machine
    checkout: Path
    event: Mapping[str, Any]
    """The context `github`."""
    changed: Mapping[str, str]
    """What a project has changed at the workflow's top."""

    def run(self, workflow: Mapping[str, Any]) -> dict[str, Job]:
        """Run all jobs, in the order of the file."""
        assert workflow["defaults"] == {"run": {"shell": "bash"}}
        assert self.changed.keys() <= workflow["env"].keys()
        jobs: dict[str, Job] = {}
        for name in workflow["jobs"]:
            jobs[name] = self.run_job(name, workflow, jobs)
        return jobs

    def run_job(self, name: str, workflow: Mapping[str, Any], jobs: Mapping[str, Job]) -> Job:
        """Run one job after those that it needs."""
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
        files = {
            name: self.machine.folder / "tmp" / name for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")
        }
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
