"""Turns: where PAIRBENCH_SLOW is `part`, as in CI, each commit tests a part of what takes minutes, and what changed lately."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LATELY = 10
"""The number of commits, back from the newest, whose changes count."""


def turn(turns: int) -> int | None:
    """Return the turn of the newest commit, below the number of turns; None where everything is tested."""
    commit = git("rev-parse", "HEAD").strip() if os.environ.get("PAIRBENCH_SLOW") == "part" else ""
    return int(commit[:8], 16) % turns if commit else None


def changed_lately(*places: str) -> set[str]:
    """Return the files below some folders that the last commits changed."""
    return {*git("diff", "--name-only", f"HEAD~{_LATELY}", "HEAD", "--", *places).split()}


def git(*arguments: str) -> str:
    """Return what a command of git prints in this checkout; nothing where it fails, as without a checkout."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""
