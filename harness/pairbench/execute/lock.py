"""One run on a device at a time: a lock that every process of the host sees and that no crash leaves behind."""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pairbench.model.environment import Device

_POLL_S = 0.2


@contextlib.contextmanager
def device_lock(
    device: Device, waiting: Callable[[str], None], interrupted: Callable[[], bool], *, shared: bool = False
) -> Iterator[bool]:
    """Hold a device; the kernel gives the lock back when the process ends, however it ends.

    Args:
        device: Two CPUs count as one: all of the host's processes share it.
        waiting: Told who holds the device, once, if somebody does.
        interrupted: Whether to give up waiting.
        shared: With others that verify and time nothing.

    Yields:
        Whether the lock is held; False after an interruption.
    """
    folder = Path(tempfile.gettempdir()) / "pairbench-locks"
    folder.mkdir(exist_ok=True)
    path = folder / f"{device.uuid or 'cpu'}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    with contextlib.suppress(PermissionError):  # another user made it, and has opened it to all
        folder.chmod(0o1777)
        os.fchmod(descriptor, 0o666)
    try:
        told = False
        while not _try_lock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            if interrupted():
                yield False
                return
            if not told:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
                waiting(f"{device.selector} ({device.name}) is held by {holder}; waiting for it")
                told = True
            time.sleep(_POLL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}\n".encode(), 0)
        yield True
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
