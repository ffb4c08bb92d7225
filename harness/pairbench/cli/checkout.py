"""The git checkout that suites come from."""

import subprocess
from pathlib import Path

from pairbench.model.environment import Commit


def read_commit(folder: Path) -> Commit | None:
    """Return the commit that is checked out in a folder, or None outside a checkout or without git."""
    sha = git(folder, "rev-parse", "HEAD")
    if sha is None:
        return None
    return Commit(
        sha=sha,
        committed_at=git(folder, "show", "-s", "--format=%cI", "HEAD") or "",
        branch=git(folder, "symbolic-ref", "--short", "-q", "HEAD"),
        dirty=bool(git(folder, "status", "--porcelain", "--untracked-files=no")),
    )


def git(folder: Path, *arguments: str) -> str | None:
    """Return what git says, without the last line break; None where it fails or there is no git."""
    try:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
