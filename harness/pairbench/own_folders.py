"""Folders of this user that belong to no store and no checkout: lasting ones, as the XDG specification places them, and temporary ones.

A temporary folder is held by a lock (`flock`) for as long as its maker lives. What nobody holds was left behind by a process that was
killed, and is removed at the next start.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NAME = "pairbench"
_HELD = "pairbench-run-"
"""How the names of temporary folders begin, unless another beginning is given."""
_TRIES = 100


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
    """Make a folder in one of those above, each folder on the way so that nobody else writes to it, and return it."""
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
    """Refuse a folder in which somebody else may put what they like, such as a link to another's file."""
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


@contextlib.contextmanager
def held_folder(base: Path | None = None, prefix: str = _HELD) -> Iterator[Path]:
    """Make a temporary folder that only this user can look into, and hold it until its end, when it is removed."""
    folder, descriptor = _make_held(base or Path(tempfile.gettempdir()), prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _make_held(base: Path, prefix: str) -> tuple[Path, int]:
    for _ in range(_TRIES):
        folder = base / f"{prefix}{secrets.token_hex(4)}"
        try:
            folder.mkdir(mode=0o700)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileExistsError, FileNotFoundError):
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = _is_at(folder, descriptor)
        except BlockingIOError:  # somebody is sweeping it
            held = False
        except OSError:  # the file system knows no locks, so nobody sweeps either
            held = True
        if held:
            return folder, descriptor
        os.close(descriptor)
    raise FileExistsError(f"no folder {base / prefix}* can be made and held")


def sweep_folders(base: Path | None = None, prefix: str = _HELD) -> None:
    """Remove the temporary folders that nobody holds: their makers were killed.

    Never followed is a link, and never touched what is another user's, or on a file system that knows no locks. See `held_folder`.
    """
    with contextlib.suppress(OSError):
        for folder in (base or Path(tempfile.gettempdir())).iterdir():
            if folder.name.startswith(prefix):
                with contextlib.suppress(OSError):
                    _sweep(folder)


def is_held(folder: Path) -> bool:
    """Return whether a temporary folder is there and its maker lives."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _sweep(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_uid == os.getuid() and _is_at(folder, descriptor):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether a path leads to an open folder, and through no link of its own."""
    try:
        there, opened = path.lstat(), os.fstat(descriptor)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)


def _absolute(variable: str) -> Path | None:
    """Return the folder that a variable names; one that is relative is to be ignored."""
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else None
