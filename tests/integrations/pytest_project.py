"""A project of somebody's with a suite in it, and pytest as they would run it, in a process of its own."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.commands import call, environment_of

SUITE = '''"""Twice a tensor."""

import torch
from pairbench import EXACT, Operator, Variant


def added(x):
    return x + x


def scaled(x):
    return 2 * x


def kernel(x):
    return 2 * x


double = Operator(
    "double",
    baseline=added,
    variants={"scaled": scaled, "kernel": Variant(kernel, needs="cuda")},
    inputs=lambda make, n: {"x": make.normal(n)},
    cases={"edge": [dict(n=0)], "smoke": [dict(n=256)], "real": [dict(n=65536)]},
    tolerance=EXACT,
)
'''

# Bodies of `scaled`: one takes many times as long, in as many operators more; one dispatches two more; one is wrong.
SLOW = "for _ in range(100):\n        x = x.neg()\n    return 2 * x"
EXTRA = "return (2 * x).neg().neg()"
WRONG = "return 2 * x + 0.25"

SETTINGS = {"rounds": 1, "case_seconds": 0.05, "min_samples": 20}


def own_environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return the environment for a pytest that is no part of this session."""
    made = environment_of(folder, COLUMNS="250", **variables)
    return {name: value for name, value in made.items() if not name.startswith("PYTEST_")}


@dataclass
class Finished:
    code: int
    out: str


class Project:
    """A folder with `suites/double.py` and settings for short runs."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder = folder
        self.suite = folder / "suites" / "double.py"
        self.suite.parent.mkdir()
        self.suite.write_text(SUITE)
        lines = [f"{name} = {json.dumps(value)}" for name, value in ({**SETTINGS, **settings}).items()]
        (folder / "pyproject.toml").write_text("\n".join(["[tool.pairbench]", 'suites = ["suites"]', *lines]) + "\n")
        (folder / "tmp").mkdir()
        # Its own folder for temporary files, and so device locks of its own.
        self.environment = own_environment(folder / "tmp", PAIRBENCH_WORKERS="fork")

    def start_interpreters(self) -> None:
        """Have every command and worker be an interpreter of its own from now on, as a user's are."""
        self.environment["PAIRBENCH_WORKERS"] = "fresh"

    def change(self, body: str) -> None:
        assert "def scaled(x):\n    return 2 * x" in SUITE
        self.suite.write_text(SUITE.replace("def scaled(x):\n    return 2 * x", f"def scaled(x):\n    {body}"))

    def pytest(self, *arguments: str) -> Finished:
        return self._call("pytest", *loading(), *arguments)

    def pairbench(self, *arguments: str) -> Finished:
        return self._call("pairbench", *arguments)

    def _call(self, module: str, *arguments: str) -> Finished:
        done = call(self.folder, self.environment, *arguments, module=module)
        return Finished(done.returncode, done.stdout + done.stderr)

    def saved(self) -> list[Path]:
        return sorted((self.folder / ".benchmarks").rglob("*.json"), key=lambda file: file.name)

    def document(self, file: Path | str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / file).read_text())
        return found


def loading() -> list[str]:
    """Return what makes pytest load the plugin where pairbench runs from a checkout that is not installed."""
    from importlib.metadata import entry_points

    installed = any(point.name == "pairbench" for point in entry_points(group="pytest11"))
    return [] if installed else ["-p", "pairbench.integrations.pytest_plugin"]


def names(done: Finished) -> list[str]:
    """Return the items that `--collect-only -q` lists."""
    return [line.strip() for line in done.out.splitlines() if "::" in line and not line.startswith(("ERROR", "FAILED"))]
