"""Only what has changed since a commit is run, with a control; what is left out is named, and no verdict misses it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import git
from tests.cli.conftest import Pairbench, settle
from tests.cli.test_ab import commit
from tests.commands import Done, call
from tests.in_process import call_main

HEAD = """
import torch
import kernels
from pairbench import Operator, grid

def pair(name, *sizes, **variants):
    return Operator(
        name, baseline=lambda x: x + x, variants=variants, inputs=lambda make, n: {"x": make.normal(n)},
        cases=grid(n=[8, *sizes])
    )

class Twice:
    def __call__(self, x):
        return kernels.by_class(x)

"""
SUITE = f"{HEAD}first = pair('first', 9, v=lambda x: kernels.twice(x))\nsecond = pair('second', 9, v=lambda x: 2 * x)\n"
OTHER = f"{HEAD}third = pair('third', v=Twice())\npast = pair('past', v=lambda x: 2 * x)\n"
KERNELS = "def twice(x):\n    return 2 * x\n\ndef by_class(x):\n    return 2 * x\n"


@pytest.fixture
def run(tmp_path: Path) -> Pairbench:
    """Return what runs a command in a repository, of which everything was measured in its only commit."""
    environment = settle(tmp_path)
    folder = tmp_path / "repo"
    (folder / "suites").mkdir(parents=True)
    (folder / "pyproject.toml").write_text((tmp_path / "pyproject.toml").read_text() + 'suites = ["suites"]\n')
    (folder / ".gitignore").write_text("__pycache__/\nresults/\n")
    for name, text in {"ops": SUITE, "other": OTHER, "kernels": KERNELS}.items():
        (folder / "suites" / f"{name}.py").write_text(text)
    git(folder, "init", "-q")
    commit(folder, "one")

    def call_it(*arguments: str) -> Done:
        return call(folder, environment, *arguments)

    return call_it


def test_what_has_changed_is_run_and_nothing_is_missed(run: Pairbench, tmp_path: Path) -> None:
    folder = tmp_path / "repo"
    assert run("run", "--device", "cpu").returncode == 0
    (folder / "suites" / "kernels.py").write_text(KERNELS.replace("2 * x", "x + x", 1))
    (folder / "suites" / "other.py").write_text(OTHER.replace("past = ", "# past = "))
    done = run("run", "--device", "cpu", "--changed-since", "main", "--confirm", "--format", "json")
    assert done.returncode in (0, 1), done.stderr  # on a busy machine a time may look worse
    document: dict[str, Any] = json.loads(done.stdout)
    since = document["since"]
    assert [(one["operator"], one["reason"]) for one in since["changed"]] == [("first", "v differs")]
    assert since["gone"] == [{"suite": "suites/other.py", "operator": "past"}]
    names = {"second", "third"}
    assert {one["operator"] for one in since["control"]} | {one["operator"] for one in since["left_out"]} == names
    (control,) = since["control"]
    cases = {record["case"] for record in document["records"]}
    assert cases == {"first[n=8]", "first[n=9]", control["case"]}
    changes = call_main(folder, "compare", "--format", "json").document["changes"]
    missing = {change["series"]["case"] for change in changes if change["outcome"] == "missing"}
    assert missing == {"past[n=8]"}
    assert {change["series"]["case"] for change in changes} == cases | missing

    # What only a method reaches, no hash covers; and the selection narrows further.
    (folder / "suites" / "kernels.py").write_text(KERNELS.replace("2 * x", "x + x"))
    both = run("run", "--device", "cpu", "--changed-since", "HEAD", "--format", "json", "*[n=8]", "--no-store")
    since = json.loads(both.stdout)["since"]
    reasons = {one["operator"]: one["reason"] for one in since["changed"]}
    assert reasons == {"first": "v differs", "third": "code that it reaches differs"}
    assert {record["case"] for record in json.loads(both.stdout)["records"]} == {
        f"{name}[n=8]" for name in ("first", "second", "third")
    }
    assert len(git(folder, "worktree", "list").splitlines()) == 1
