"""A repository of real commits of a small suite, one of which makes its variant slower, or has it call one operator more."""

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

SUITE = """
import time
import torch
from helpers import step
from pairbench import Operator, grid

def inputs(make, n):
    return {{"x": make.normal(n, dtype="float32")}}

def plain(x):
    time.sleep(2e-3)
    return x + 1

def variant(x):
    # {note}
    time.sleep({wait_ms} / 1e3)
    return {work}

def other(x):
    return x * {factor}

planted = Operator("planted", baseline=plain, variants={{"v": variant}}, inputs=inputs, cases=grid(n=[64]))
aside = Operator("aside", baseline=other, variants={{"v": other}}, inputs=inputs, cases=grid(n=[64]))
"""


def git(folder: Path, *arguments: str) -> str:
    """Return what git prints in a folder."""
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def plant(
    folder: Path, commits: int, *, slower: int, more: int, broken: Collection[int], slow_ms: float = 4.0
) -> list[str]:
    """Make a history, and return the hash of each commit, that of the good end first.

    Args:
        folder: An empty folder.
        commits: How many come after the good end.
        slower: The number of the one that makes the variant slower, counted from 1.
        more: The number of the one that has it call an operator more.
        broken: The numbers of those that cannot be loaded.
        slow_ms: What a call waits from then on; before it waits 2 ms.
    """
    (folder / "suites").mkdir(parents=True)
    git(folder, "init", "-q")
    shas = []
    for number in range(commits + 1):
        text = SUITE.format(
            note="rewritten" if number >= slower - 3 else "as it was",
            wait_ms=slow_ms if number >= slower else 2.0,
            work="(x + 2) - 1" if number >= more else "x + 1",
            factor=2 + number // 7,
        )
        if number in broken:
            text += "\nimport a_module_that_is_not_there\n"
        (folder / "suites" / "ops.py").write_text(text)
        (folder / "suites" / "helpers.py").write_text("def step(x):\n    return x\n")
        (folder / "notes.txt").write_text(f"{number}\n")
        git(folder, "add", "-A", ".")
        git(folder, "commit", "-q", "-m", f"change {number}")
        shas.append(git(folder, "rev-parse", "HEAD"))
    return shas


def main() -> int:
    """Make the history of 64 commits of the page beside this file in a folder, and print the commands that search it."""
    folder = Path(sys.argv[1])
    plant(folder, 64, slower=37, more=50, broken={5, 20, 33, 41, 42}, slow_ms=2.2)
    settings = {"case_seconds": 0.2, "min_samples": 40, "suites": ["suites"]}
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    (folder / "pyproject.toml").write_text("\n".join(["[tool.pairbench]", *lines, ""]))
    for metric in ("", " --metric ops"):
        sys.stdout.write(
            f"cd {folder} && pairbench bisect suites/ops.py::planted --good HEAD~64 --bad main --device cpu{metric}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
