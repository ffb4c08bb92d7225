"""Addresses of the repository on the web: commits, ranges of commits and lines of sources.

Stores and settings may hold any text, so a link is made only from what is plainly an address.
"""

import re
from pathlib import PurePosixPath
from urllib.parse import quote

_WEB = re.compile(r"https?://[A-Za-z0-9.-]+(:\d+)?(/[A-Za-z0-9._~/-]*)?")
_SHA = re.compile(r"[0-9a-f]{7,64}")


def commit_url(repository: str | None, commit: str | None) -> str | None:
    """Return where a commit is shown; None where that is not known."""
    base = _base(repository)
    return f"{base}/commit/{commit}" if base and _is_commit(commit) else None


def range_url(repository: str | None, before: str | None, after: str | None) -> str | None:
    """Return where the commits between two are shown; None where that is not known."""
    base = _base(repository)
    if base is None or not _is_commit(before) or not _is_commit(after) or before == after:
        return None
    return f"{base}/compare/{before}...{after}"


def pull_request_url(repository: str | None, number: int | None) -> str | None:
    """Return where a pull request, on GitLab a merge request, is shown; None where that is not known."""
    base = _base(repository)
    if base is None or number is None or number < 1:
        return None
    return f"{base}/-/merge_requests/{number}" if "gitlab" in base.split("/")[2] else f"{base}/pull/{number}"


def source_url(repository: str | None, commit: str | None, path: str, line: int) -> str | None:
    """Return where a line of a file at a commit is shown; None where that is not known, or the file is not in there."""
    base, parts = _base(repository), PurePosixPath(path)
    inside = path and not parts.is_absolute() and ".." not in parts.parts and len(path) <= 500
    if base is None or not _is_commit(commit) or not inside:
        return None
    return f"{base}/blob/{commit}/{quote(path, errors='replace')}#L{line}"


def _base(repository: str | None) -> str | None:
    return repository.rstrip("/").removesuffix(".git") if repository and _WEB.fullmatch(repository) else None


def _is_commit(commit: str | None) -> bool:
    return commit is not None and _SHA.fullmatch(commit) is not None
