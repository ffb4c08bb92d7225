"""Files that appear whole or not at all: written under a temporary name that is held while its writer lives, then renamed."""

import contextlib
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

TEMPORARY = ".tmp"
_TRIES = 5
_ABANDONED_S = 24 * 3600
"""Age in seconds from which a temporary file, which lives for milliseconds, was left behind, where the file system knows no locks."""


def write_whole(path: Path, content: bytes | pa.Buffer, *, durable: bool = True) -> None:
    """Write a file so that whoever looks at it sees the earlier content or all of the new one.

    Args:
        path: In a folder that exists.
        content: All of it.
        durable: Whether to wait until the disk has it, so that it outlives a power failure.

    Raises:
        OSError: there is no space or permission; nothing has changed.
    """
    for left in reversed(range(_TRIES)):
        try:
            _write(path, content, durable=durable)
            break
        except FileNotFoundError:
            # Another process may have swept the temporary file in the moment before it was held.
            if not left or not path.parent.is_dir():
                raise
    if not durable:
        return
    # The rename itself has to reach the disk too, or a power failure may take the file back.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _write(path: Path, content: bytes | pa.Buffer, *, durable: bool) -> None:
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with temporary.open("xb") as file:
            with contextlib.suppress(OSError):  # the file system knows no locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sweep_temporary(folders: Iterable[Path]) -> None:
    """Remove temporary files that nobody holds: their writers were killed.

    Never followed is a link, and never touched what is another user's. Where the file system knows no locks, what is older than a day goes.

    Args:
        folders: Folders, which need not be there, without those below.
    """
    for folder in folders:
        for path in folder.glob(f".*{TEMPORARY}"):
            with contextlib.suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode):
                    _sweep(path)


def _sweep(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:
            if time.time() - found.st_mtime < _ABANDONED_S:
                return
        path.unlink()
    finally:
        os.close(descriptor)
