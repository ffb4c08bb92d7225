"""What workers start and leave behind is found and killed, in whatever session it is and whoever was killed before.

A fork server and a worker are subreapers (Linux): what loses its parent below them becomes their child, and a server
kills children that are no workers. Elsewhere processes are known by a mark in their environment, which says what process
they belong to: one whose parent has no such mark has lost it. Only a child that was given another environment, and whose
server was killed with everything else, gets away.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

VARIABLE = "PAIRBENCH_OWNER"
_SERVER = "pairbench-forks"
_PDEATHSIG, _SET_NAME, _CHILD_SUBREAPER = 1, 15, 36
_PAUSE_S, _LONGEST_S = 0.002, 2.0
_PROC = Path("/proc")


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent, a process id, ends; if the parent has ended already, end now."""
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt() -> None:
    """Become the parent of whatever loses its own below this process."""
    _prctl(_CHILD_SUBREAPER, 1)


def be_server(*, yes: bool = True) -> None:
    """Give this process the name of a fork server, which sees to its own end; or one that it has forked another."""
    name = ctypes.create_string_buffer((_SERVER if yes else "pairbench-work").encode())
    _prctl(_SET_NAME, ctypes.addressof(name))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)


class _Process(NamedTuple):
    pid: int
    parent: int
    began: str  # when it was started, in ticks: with its id, nobody else's
    name: str


def mark() -> str:
    """Return the text that marks all processes started by this one: its PID namespace, process id and start time."""
    return f"{_namespace()}:{os.getpid()}:{_began(os.getpid())}"


def _namespace() -> str:
    with contextlib.suppress(OSError):
        return str((_PROC / "self" / "ns" / "pid").readlink())
    return ""


def _began(pid: int) -> str | None:
    process = _read(pid)
    return process.began if process else None


def _read(pid: int) -> _Process | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return _Process(pid, int(fields[1]), fields[19], head.partition("(")[2])


def _all() -> Iterator[_Process]:
    try:
        pids = [int(file.name) for file in _PROC.iterdir() if file.name.isdecimal()]
    except OSError:  # not Linux
        return
    yield from filter(None, map(_read, pids))


def kill_children(but: Iterable[int]) -> None:
    """Kill the children of this process but for some, and theirs, which become its own as their parents end."""
    kept, own = set(but), os.getpid()
    _until_none(lambda: {one.pid: one for one in _all() if one.parent == own and one.pid not in kept}, twice=False)


def kill_orphans(owner: str) -> None:
    """Kill what has an owner's mark and is no child of the owner or of a process with that mark."""
    # Twice in a row: while this process looks, a parent may end and its child find another.
    _until_none(lambda: _orphans(owner), twice=True)


def wait_for_end(owner: str) -> None:
    """Return when the process of a mark has ended, which it is about to do, or after some seconds."""
    until = time.monotonic() + _LONGEST_S
    while _is_there(owner) and time.monotonic() < until:
        time.sleep(_PAUSE_S)


def sweep() -> None:
    """Kill what was left behind by owners that are gone, as after the kill of a run with all of its servers."""
    here = _namespace()
    marks = {found for one in _all() if (found := _mark_of(one.pid)) and found.startswith(f"{here}:")}
    for one in marks:
        if not _is_there(one):
            kill_orphans(one)


def _is_there(owner: str) -> bool:
    _, pid, began = owner.rsplit(":", 2)
    return pid.isdecimal() and _began(int(pid)) == began


def _orphans(owner: str) -> dict[int, _Process]:
    marked = {one.pid: one for one in _all() if _mark_of(one.pid) == owner}
    parents = {*marked}
    if _is_there(owner):
        parents.add(int(owner.rsplit(":", 2)[1]))
    own = os.getpid()
    return {pid: one for pid, one in marked.items() if one.parent not in parents and one.name != _SERVER and pid != own}


def _mark_of(pid: int) -> str | None:
    try:
        content = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # somebody else's, or it has just ended
        return None
    begin = f"{VARIABLE}=".encode()
    found = next((part for part in content.split(b"\0") if part.startswith(begin)), None)
    return found[len(begin) :].decode(errors="replace") if found else None


def _until_none(find: Callable[[], dict[int, _Process]], *, twice: bool) -> None:
    """Kill what is found, or is found `twice` in a row, until nothing is found: it may have forked meanwhile."""
    until = time.monotonic() + _LONGEST_S
    before: dict[int, _Process] = {}
    while (found := find()) and time.monotonic() < until:
        for pid, one in found.items():
            if not twice or before.get(pid) == one:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        before = found
        time.sleep(_PAUSE_S)
