"""The commit that results belong to: whose it is, and of which pull request, by the CI job or by its own message."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from pairbench.model.environment import Commit
from pairbench.workflow.git.repository import git

_SUBJECT = 200
"""Letters of a commit's subject, and of its author's name, that are kept."""
_NAMES = ("CI_MERGE_REQUEST_IID", "CHANGE_ID", "BITBUCKET_PR_ID", "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER")
"""Variables that hold the number alone: of GitLab, Jenkins, Bitbucket and Azure."""
_LARGEST_EVENT = 2**24
"""Bytes of GitHub's event file that are read; a forge's largest have some 100,000."""

_REF = re.compile(r"refs/pull/(\d{1,9})/(?:merge|head)")
_MESSAGE = (
    re.compile(r"\AMerge pull request #(\d{1,9})\b"),
    re.compile(r"\A[^\n]*\(#(\d{1,9})\)[ \t]*(?:\n|\Z)"),  # squashed by GitHub
    re.compile(r"^See merge request \S{0,300}?!(\d{1,9})\s*$", re.MULTILINE),  # merged by GitLab
)


def read_commit(folder: Path, variables: Mapping[str, str] = os.environ) -> Commit | None:
    """Return the commit that is checked out in a folder, or None outside a checkout or without git.

    Args:
        folder: Any of the checkout.
        variables: The environment, by which a CI job says which pull request it is of; none where another commit is measured than the job's.
    """
    sha = git(folder, "rev-parse", "HEAD")
    if sha is None:
        return None
    committed_at, author, message = _told(folder)
    number = git(folder, "rev-list", "--count", "HEAD") or ""
    whole = git(folder, "rev-parse", "--is-shallow-repository") == "false"
    return Commit(
        sha=sha,
        committed_at=committed_at,
        branch=git(folder, "symbolic-ref", "--short", "-q", "HEAD"),
        dirty=bool(git(folder, "status", "--porcelain", "--untracked-files=no")),
        subject=message.partition("\n")[0].strip()[:_SUBJECT] or None,
        author=author.strip()[:_SUBJECT] or None,
        number=int(number) if whole and number.isdigit() else None,
        pull_request=pull_request_of(message, variables),
    )


def _told(folder: Path) -> tuple[str, str, str]:
    """Return when the commit was made, by whom, and its message."""
    text = git(folder, "show", "-s", "--format=%cI%x00%an%x00%B", "HEAD") or ""
    when, author, message = (*text.split("\0", 2), "", "", "")[:3]
    return when, author, message.lstrip()


def pull_request_of(message: str, variables: Mapping[str, str]) -> int | None:
    """Return the number of the pull request, or merge request, that is being measured; None where nothing says so.

    Args:
        message: The whole message of the commit.
        variables: The environment. A CI job of a pull request says its number there; on a branch the message may.
    """
    return _of_job(variables) or _of_message(message)


def _of_job(variables: Mapping[str, str]) -> int | None:
    if reference := _REF.fullmatch(variables.get("GITHUB_REF", "")):
        return int(reference[1])
    if variables.get("GITHUB_EVENT_NAME", "").startswith("pull_request"):  # pull_request_target has the branch's ref
        return _of_event(variables.get("GITHUB_EVENT_PATH", ""))
    texts = (variables.get(name, "") for name in _NAMES)
    return next((int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 10), None)


def _of_event(path: str) -> int | None:
    try:
        if not path or Path(path).stat().st_size > _LARGEST_EVENT:
            return None
        event = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    number = event.get("number") if isinstance(event, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and 0 < number < 10**9 else None


def _of_message(message: str) -> int | None:
    found = (pattern.search(message) for pattern in _MESSAGE)
    return next((int(one[1]) for one in found if one), None)
