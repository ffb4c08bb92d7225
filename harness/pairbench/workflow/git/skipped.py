"""Commits that cannot be measured: the reason is kept in a file, for a table has no room for all of it."""

from pathlib import Path

from pairbench.analyze.history.commits import HistoryCommit
from pairbench.own_folders import make_own, state_folder


def keep_reason(repository: Path, commit: HistoryCommit, reason: str) -> str | None:
    """Keep why a commit was skipped, and return the file; None where it cannot be written."""
    base = state_folder()
    if base is None:
        return None
    try:
        log = make_own(base, "skipped") / f"{repository.name}-{commit.sha[:16]}.log"
        log.write_text(f"{commit.sha} {commit.subject}\n{reason}\n", encoding="utf-8")
    except OSError:
        return None
    return str(log)
