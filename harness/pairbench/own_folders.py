"""Folders of this user that belong to no store and no checkout, as the XDG specification places them."""

import os
import stat
import tempfile
from pathlib import Path

_NAME = "pairbench"


def state_folder() -> Path | None:
    """Return where what outlives a command is kept: `$XDG_STATE_HOME/pairbench`, by default in the home; None without a home."""
    if given := _absolute("XDG_STATE_HOME"):
        return given / _NAME
    try:
        return Path.home() / ".local" / "state" / _NAME
    except RuntimeError:
        return None


def runtime_folder() -> Path | None:
    """Return where what lives as long as a login is kept: `$XDG_RUNTIME_DIR/pairbench`; None where there is none."""
    given = _absolute("XDG_RUNTIME_DIR")
    return given / _NAME if given else None


def temporary_folder() -> Path:
    """Return this user's own folder among the temporary files of all."""
    return Path(tempfile.gettempdir()) / f"{_NAME}-{os.getuid()}"


def make_own(base: Path, *names: str) -> Path:
    """Make a folder in one of those above, each folder on the way so that nobody else writes to it, and return it.

    Raises:
        OSError: it cannot be made, or one of them is a link, or somebody else's, or others may write to it.
    """
    base.parent.mkdir(parents=True, exist_ok=True)
    folder = base
    for name in ("", *names):
        folder = folder / name
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            check_own(folder)
    return folder


def check_own(folder: Path) -> None:
    """Refuse a folder in which somebody else may put what they like, such as a link to another's file.

    Raises:
        OSError: it is a link, no folder, somebody else's, or others may write to it.
    """
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(
            f"{folder} is no folder of its own, expected one that only you can write to; remove it"
        )
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            f"{folder} can be written to by others (owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}), expected a "
            "folder that only you can write to; remove it"
        )


def _absolute(variable: str) -> Path | None:
    """Return the folder that a variable names; one that is relative is to be ignored."""
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else None
