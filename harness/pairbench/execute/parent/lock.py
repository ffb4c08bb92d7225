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
    """Hold a device and those beside it; the kernel gives the locks back when the process ends, however it ends.

    They are taken in one order whoever wants them, so that no two wait for each other.

    Args:
        device: Two CPUs count as one: all of the host's processes share it.
        waiting: Told who holds what is wanted, once for each device that somebody holds.
        interrupted: Whether to give up waiting.
        shared: With others that verify and time nothing.

    Yields:
        Whether all locks are held; False after an interruption.
    """
    with contextlib.ExitStack() as stack:
        for wanted in sorted((device, *device.beside), key=lambda item: item.uuid or ""):
            name = f"{wanted.selector} ({wanted.name})"
            owner = "" if wanted.selector == device.selector else f", which {device.selector} needs too,"

            def told(holder: str, name: str = name, owner: str = owner) -> None:
                waiting(f"{name}{owner} is held by {holder}; waiting for it")

            if not stack.enter_context(_lock(wanted, told, interrupted, shared)):
                yield False
                return
        yield True


@contextlib.contextmanager
def _lock(
    device: Device, waiting: Callable[[str], None], interrupted: Callable[[], bool], shared: bool
) -> Iterator[bool]:
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
                ours = holder == f"process {os.getpid()}"
                waiting("another device's turn of this run" if ours else holder)
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
