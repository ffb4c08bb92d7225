"""Whole pipelines of the recipes: a change that makes a variant worse as a pull or merge request, none as a push."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.builders import git
from tests.integrations.ci_machine import Machine, build_wheel, make_origin
from tests.integrations.ci_systems import Actions, Job, content, run_job

PULL_REQUEST = {"number": "7", "head": {"repo": {"full_name": "team/ops"}}}


@dataclass(frozen=True, kw_only=True)
class World:
    """What all scenarios share, and none changes."""

    folder: Path
    wheel: Path
    history: Path  # a store with a run of the default branch's first commit

    @classmethod
    def make(cls, folder: Path) -> "World":
        make_origin(folder / "origin")
        (folder / "wheel").mkdir()
        world = cls(folder=folder, wheel=build_wheel(folder / "wheel"), history=folder / "history")
        machine = Machine.make(folder / "first")
        checkout = world.clone(machine, "origin/first")
        script = f"""
            python -m pip install --quiet '{world.package}' .
            pairbench run suites --device cpu --store '{world.history}'
        """
        done = machine.shell(script, checkout, {}, "-e")
        assert done.returncode == 0, done.stdout
        return world

    @property
    def package(self) -> str:
        return f"pairbench[pytest] @ {self.wheel.as_uri()}"

    def clone(self, machine: Machine, *commits: str) -> Path:
        """Return a checkout of a commit, with others merged into it."""
        folder = machine.folder / "checkout"
        git(machine.folder, "clone", "-q", "--no-checkout", str(self.folder / "origin"), str(folder))
        git(folder, "checkout", "-q", "--detach", commits[0])
        for commit in commits[1:]:
            git(folder, "merge", "-q", "--no-ff", "-m", "as the CI system does", commit)
        return folder


@dataclass(frozen=True, kw_only=True)
class Done:
    """The result of a pipeline: its machine and checkout, its jobs (GitHub), or its exit code and log (GitLab)."""

    machine: Machine
    checkout: Path
    jobs: dict[str, Job]
    code: int = 0
    log: str = ""

    @property
    def asked(self) -> list[dict[str, Any]]:
        lines = (self.machine.folder / "tools" / "gh.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def github(world: World, name: str, *, changed: bool, comments: str = "") -> Done:
    """Run a workflow, for a pull request if it changes something, else for a push to the default branch."""
    machine = Machine.make(world.folder / f"github-{name}-{changed}", comments=comments)
    checkout = world.clone(machine, *(["origin/main", "origin/planted"] if changed else ["origin/main"]))
    if not changed:
        git(checkout, "checkout", "-q", "-B", "main", "origin/main")
    event: dict[str, Any] = {
        "event_name": "pull_request" if changed else "push",
        "ref": "refs/pull/7/merge" if changed else "refs/heads/main",
        "ref_name": "7/merge" if changed else "main",
        "repository": "team/ops",
        "run_id": "100",
        "run_attempt": "1",
        "token": "no token",
        "event": {"pull_request": PULL_REQUEST} if changed else {},
    }
    top = {"PAIRBENCH_PACKAGE": world.package}
    if name == "gpu":
        top |= {"PAIRBENCH_DEVICE": "cpu", "PAIRBENCH_STORE": str(machine.folder / "store")}
    shutil.copytree(world.history, machine.folder / "store" if name == "gpu" else checkout / "pairbench-results")
    actions = Actions(machine=machine, checkout=checkout, event=event, changed=top)
    return Done(machine=machine, checkout=checkout, jobs=actions.run(content(f"github-{name}")))


def gitlab(world: World, name: str, *, changed: bool) -> Done:
    """Run a pipeline, for a merge request if it changes something, else for a push to the default branch."""
    machine = Machine.make(world.folder / f"gitlab-{name}-{changed}")
    checkout = world.clone(machine, "origin/planted" if changed else "origin/main")
    predefined = {"CI_DEFAULT_BRANCH": "main", "CI_COMMIT_SHA": git(checkout, "rev-parse", "HEAD")}
    if changed:
        predefined |= {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}
        predefined |= {"CI_PROJECT_ID": "1", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "1"}
    else:
        predefined |= {"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main"}
        predefined["CI_PAGES_URL"] = "https://team.example.org/ops"
    top = {"PAIRBENCH_PACKAGE": world.package}
    if name == "gpu":
        top |= {"PAIRBENCH_DEVICE": "cpu", "PAIRBENCH_GPU_STORE": str(machine.folder / "store")}
    # On a CPU, merge requests do not see the cache.
    if name == "gpu" or not changed:
        shutil.copytree(world.history, machine.folder / "store" if name == "gpu" else checkout / "pairbench-results")
    recipe = content(f"gitlab-{name}")
    code, log = run_job(recipe, f"pairbench-{name}", machine, checkout, predefined=predefined, changed=top)
    if "pages" in recipe and not changed:
        after, more = run_job(recipe, "pages", machine, checkout, predefined=predefined, changed=top)
        code, log = code or after, log + more
    return Done(machine=machine, checkout=checkout, jobs={}, code=code, log=log)
