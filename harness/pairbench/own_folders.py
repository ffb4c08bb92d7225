"""The user's folders outside of stores and checkouts: lasting ones, where the XDG specification places them, and temporary ones.

The process that makes a temporary folder holds a lock (`flock`) on it for as long as it lives. A folder without a lock was left by a
process that was killed, and is removed at the next start.
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
_HELD = "pairbench-run-"  # the default prefix of temporary folders
_TRIES = 100
_FOLDER_ITSELF = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def state_folder() -> Path | None:
    """Return the folder of files that outlive a command: `$XDG_STATE_HOME/pairbench`, by default in the home; None without a home."""
    if given := _absolute("XDG_STATE_HOME"):
        return given / _NAME
    try:
        return Path.home() / ".local" / "state" / _NAME
    except RuntimeError:
        return None


def runtime_folder() -> Path | None:
    given = _absolute("XDG_RUNTIME_DIR")
    return given / _NAME if given else None


def temporary_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"{_NAME}-{os.getuid()}"


def make_own(base: Path, *names: str) -> Path:
    """Make a folder below a base folder, and return it; nobody else can write to the folders on the way."""
    # Raises OSError where that cannot be, or where one of them is a link or somebody else's.
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
    """Raise OSError for a folder that is a link or somebody else's, or that others can write to and so put a link into."""
    found, advice = folder.lstat(), "that only you can write to; remove it"
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} is no folder of its own, expected one {advice}")
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        owned = f"owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}"
        raise PermissionError(f"{folder} can be written to by others ({owned}), expected a folder {advice}")


@contextlib.contextmanager
def held_folder(base: Path | None = None, prefix: str = _HELD) -> Iterator[Path]:
    """Make and hold a temporary folder that only this user can read; it is removed at the end."""
    # `sweep_folders` removes folders with the same prefix that nobody holds.
    folder, descriptor = _make_held(base or Path(tempfile.gettempdir()), prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def hold_folder() -> Path:
    """Make a temporary folder that this process holds until it ends; the next `sweep_folders` removes it."""
    return _make_held(Path(tempfile.gettempdir()), _HELD)[0]


def _make_held(base: Path, prefix: str) -> tuple[Path, int]:
    for _ in range(_TRIES):
        folder = base / f"{prefix}{secrets.token_hex(4)}"
        try:
            folder.mkdir(mode=0o700)
            descriptor = os.open(folder, _FOLDER_ITSELF)
        except (FileExistsError, FileNotFoundError):
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = _is_at(folder, descriptor)
        except BlockingIOError:  # it is being swept
            held = False
        except OSError:  # the file system has no locks, so it is never swept
            held = True
        if held:
            return folder, descriptor
        os.close(descriptor)
    raise FileExistsError(f"no folder {base / prefix}* can be made and held")


def sweep_folders(base: Path | None = None, prefix: str = _HELD) -> None:
    """Remove the temporary folders that nobody holds: the processes that made them were killed."""
    # Links are not followed, and folders of other users, or on a file system without locks, are left alone.
    with contextlib.suppress(OSError):
        for folder in (base or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
            with contextlib.suppress(OSError), locked(folder, _FOLDER_ITSELF) as descriptor:
                if os.fstat(descriptor).st_uid == os.getuid() and _is_at(folder, descriptor):
                    shutil.rmtree(folder, ignore_errors=True)


def is_held(folder: Path) -> bool:
    try:
        with locked(folder, _FOLDER_ITSELF):
            return False
    except OSError as error:
        return error.filename is None  # it was opened, and not locked


@contextlib.contextmanager
def locked(path: Path, flags: int) -> Iterator[int]:
    """Open a file or folder and hold a lock on it; raise BlockingIOError where another process holds one."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def _absolute(variable: str) -> Path | None:
    """Return the folder that a variable names; relative ones are ignored, as XDG demands."""
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else None
