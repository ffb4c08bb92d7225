"""A lock that lets one run use a device at a time, which all of a user's processes see and no crash leaves behind; and the number of processors that other work keeps busy.

The locks are files in a folder of the user's that nobody else writes to. Where several users share a machine, an administrator makes
one folder for all, such as `install -d -m 1777 /run/lock/pairbench`, and everybody sets `PAIRBENCH_LOCKS` to it.
"""

import contextlib
import fcntl
import os
import platform
import pwd
import re
import shlex
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pairbench.errors import InterruptedRunError, UsageError
from pairbench.model.environment import Device
from pairbench.model.plain import Value, printable, redacted
from pairbench.own_folders import make_own, runtime_folder, state_folder, temporary_folder

VARIABLE = "PAIRBENCH_LOCKS"
_POLL_S = 0.2
_HOLDER = re.compile(r"process (?P<pid>\d{1,10})")
_ADVICE = " (Ctrl-C gives up, --device takes another one; list, doctor, show and compare wait for none)"
_LETTERS = 120
_PROC = Path("/proc")
Waiting = Callable[[str], None]
Interrupted = Callable[[], bool]
SHORTEST_S = 0.1  # ticks are 10 ms; over a shorter time they say nothing


@contextlib.contextmanager
def device_lock(device: Device, waiting: Waiting, interrupted: Interrupted, *, shared: bool = False) -> Iterator[None]:
    """Hold a device and those beside it; `waiting` is called once for each device that is held.

    All of the host's processes share one CPU. Shared locks are for those that verify and time nothing. The kernel gives locks back
    when the process ends. Interrupted while it waits: InterruptedRunError. Without a usable folder for the locks: UsageError.
    """
    with contextlib.ExitStack() as stack:
        # In one order whoever wants them, so that no two processes wait for each other.
        for wanted in sorted((device, *device.beside), key=lambda item: item.uuid or ""):
            needed = "" if wanted.selector == device.selector else f", which {device.selector} needs too,"
            name = f"{wanted.selector} ({wanted.name}){needed}"
            descriptor = _open(f"{_word(wanted.uuid or 'cpu')}.lock")
            stack.callback(os.close, descriptor)
            _wait_for(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, name, waiting, interrupted)
        yield


def _wait_for(descriptor: int, kind: int, name: str, waiting: Waiting, interrupted: Interrupted) -> None:
    """Take a lock of that kind, and write into its file that this process holds it."""
    told, tries = False, 0
    while not _try_lock(descriptor, kind):
        if interrupted():
            raise InterruptedRunError
        tries += 1
        # Who has just taken it has yet to write who that is.
        if not told and ((holder := _holder(descriptor)) or tries > 1):
            waiting(f"{name} is held by {holder or 'another process'}; waiting for it{_ADVICE}")
            told = True
        time.sleep(_POLL_S)
    # Only a word for those who wait: another user's file may be read-only, or the disk full.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}\n".encode(), 0)


def _holder(descriptor: int) -> str | None:
    """Return who holds a lock, or None where the file does not say so; another user may have written anything there."""
    told = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
    if told == f"process {os.getpid()}":
        return "another device's turn of this run"
    found = _HOLDER.fullmatch(told)
    return f"{told}{_details(Path('/proc', found['pid']), os.fstat(descriptor).st_mtime)}" if found else None


def _details(process: Path, since: float) -> str:
    """Return the command of a process, its folder and its user as far as these can be read, and since when it holds a lock."""
    try:
        user = process.stat().st_uid
        words = process.joinpath("cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:  # it has just ended, or lives where this process sees none of the other's
        return ""
    if "-m" in words:
        words = words[words.index("-m") + 1 :]
    command = redacted(printable(shlex.join([Path(words[0]).name, *words[1:]])))
    told = [f"`{command if len(command) <= _LETTERS else command[: _LETTERS - 1] + '…'}`"]
    with contextlib.suppress(OSError):  # another user's
        told.append(f"in {printable(str(process.joinpath('cwd').readlink()))}")
    if user != os.getuid():
        told.append(f"of user {user}")
        with contextlib.suppress(KeyError):
            told[-1] = f"of user {pwd.getpwuid(user).pw_name}"
    seconds = max(0, round(time.time() - since))
    return f" ({' '.join(told)}, since {time.strftime('%H:%M:%S', time.localtime(since))}, {seconds // 60} min {seconds % 60} s ago)"


def _open(name: str) -> int:
    """Return the open file of a lock, in the first folder that can hold it; a UsageError where none can."""
    given = os.environ.get(VARIABLE)
    if given:
        try:
            return _open_shared(Path(given), name)
        except OSError as error:
            expected = f"a folder of an administrator's or yours, such as `install -d -m 1777 {given}` makes"
            raise UsageError(f"{VARIABLE} {given!r} holds no locks: {error}; expected {expected}") from error
    told: list[str] = []
    # First what does not depend on a login: two processes that look in different places would not see each other.
    for place in filter(None, (state_folder(), runtime_folder(), temporary_folder())):
        try:
            # A home may be shared by several hosts, whose devices are others.
            path = make_own(place, "locks", _word(platform.node() or "host")) / name
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            return _checked(descriptor, path, owners=(os.getuid(),))
        except OSError as error:
            told.append(str(error))
    advice = f"make one of these usable, or set {VARIABLE} to a folder"
    raise UsageError(f"there is no folder for the locks of devices: {'; '.join(told)}; {advice}")


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)


def _open_shared(folder: Path, name: str) -> int:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.getuid()):
        raise NotADirectoryError(f"{folder} is a link, no folder, or belongs to another user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(f"in {folder} anybody may remove another's files (mode {stat.S_IMODE(found.st_mode):o})")
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(folder / name, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever the umask; only of what was made here
    except FileExistsError:
        try:
            descriptor = os.open(folder / name, flags | os.O_RDWR)
        except PermissionError:
            descriptor = os.open(folder / name, flags | os.O_RDONLY)
    return _checked(descriptor, folder / name, owners=None)


def _checked(descriptor: int, path: Path, *, owners: tuple[int, ...] | None) -> int:
    """Return an open file after making sure that it can be nothing but a lock."""
    found = os.fstat(descriptor)
    alone = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
    if not alone or (owners is not None and found.st_uid not in owners):
        os.close(descriptor)
        raise PermissionError(f"{path} is another's file, or has another name elsewhere; remove it")
    return descriptor


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        why = f"is on a file system that knows none ({error.strerror}); set {VARIABLE} to a folder on this host"
        raise UsageError(f"the folder of the locks of devices {why}") from error
    return True


class Usage(Value):
    at_s: float
    busy_s: float  # work of all processors for anybody, in kernel and hypervisor too
    own_s: float  # work for this process and its descendants, ended ones included


class LoadMeter:
    """Reads how busy others were since it was last asked. Anything but Linux does not say."""

    def __init__(self, root: Path = _PROC) -> None:
        self._root, self._last = root, read_usage(root)

    def foreign_cores(self) -> float | None:
        """Return the processors that others kept busy on average since the last call, or None where nothing is known."""
        now, last = read_usage(self._root), self._last
        if now is None or last is None or now.at_s - last.at_s < SHORTEST_S:
            return None
        self._last = now
        return max(0.0, (now.busy_s - last.busy_s) - (now.own_s - last.own_s)) / (now.at_s - last.at_s)


def count_cores(root: Path = _PROC) -> int:
    lines = list[str]()
    with contextlib.suppress(OSError):
        lines = (root / "stat").read_text().splitlines()
    return sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines) or os.cpu_count() or 1


def read_usage(root: Path = _PROC) -> Usage | None:
    """Return what the processors have done so far, or None where the system does not say."""
    ticks = os.sysconf("SC_CLK_TCK")
    try:
        first = (root / "stat").read_text().splitlines()[0].split()
        # user, nice, system, idle, iowait, irq, softirq, steal; what guests use is in user already.
        counts = [int(value) for value in first[1:9]]
        own = _own_ticks(root)
    except (OSError, ValueError, IndexError):
        return None
    idle = sum(counts[3:5])
    return Usage(at_s=time.monotonic(), busy_s=(sum(counts) - idle) / ticks, own_s=own / ticks)


def _own_ticks(root: Path) -> int:
    processes: dict[int, tuple[int, int]] = {}  # the parent and the ticks of each
    for folder in filter(lambda one: one.name.isdigit(), root.iterdir()):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            # The name, in brackets, may hold anything: what follows the last bracket is state, parent and then numbers.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            processes[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    own, total = os.getpid(), 0
    for pid, (_, ticks) in processes.items():
        ancestor = pid
        while ancestor not in (own, 0) and ancestor in processes:
            ancestor, _ = processes[ancestor]
        total += ticks if ancestor == own else 0
    return total
