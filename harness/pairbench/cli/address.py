"""Where the repository of the suites is on the web."""

import re
from pathlib import Path

from pairbench.cli.checkout import git

# git@host:owner/name.git, ssh://git@host:22/owner/name.git and https://user:secret@host/owner/name.git
_REMOTE = re.compile(
    r"(?:(?:https?|ssh|git)://)?(?:[^@/]+@)?(?P<host>[A-Za-z0-9.-]+)(?P<port>:\d+(?=/))?[:/]/?(?P<path>[^?#\s]+?)(?:\.git)?/?"
)


def web_address(remote: str) -> str | None:
    """Return the https address of a git remote, without whatever user and password it has; None for a local one."""
    if remote.startswith(("/", ".", "file:")):
        return None
    found = _REMOTE.fullmatch(remote)
    if found is None or "." not in found["host"] or "/" not in found["path"]:
        return None
    port = found["port"] if remote.startswith("http") else None
    return f"https://{found['host']}{port or ''}/{found['path']}"


def repository_address(folder: Path) -> str | None:
    """Return the address of the checkout's origin; None outside one, or where origin is no server."""
    remote = git(folder, "remote", "get-url", "origin")
    return web_address(remote) if remote else None
