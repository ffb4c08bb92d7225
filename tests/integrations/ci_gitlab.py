"""GitLab CI in small: which rule lets a job run, and its script run for real in one shell."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.integrations.ci_expressions import evaluate
from tests.integrations.ci_machine import Machine


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
    """Run a job's script.

    Args:
        recipe: The file's content.
        name: Of the job.
        machine: Where it runs.
        folder: Its checkout.
        predefined: What GitLab says of the pipeline.
        changed: What a project has changed at the file's top.

    Returns:
        The exit code and the log.
    """
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
