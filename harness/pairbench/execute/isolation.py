"""What a worker is kept from: always from its parent and other workers, and where that is asked for also from the network and from files.

A Landlock domain of its own keeps it from other processes (SECURITY.md). In isolation it may also write nowhere but below one folder, to shared memory
and to devices, and a user namespace of its own has a network without interfaces. Both need no administrator's rights.
"""

import contextlib
import ctypes
import functools
import os
import platform
import resource
import struct
import sys
from pathlib import Path

from pairbench.errors import UsageError

VARIABLE = "PAIRBENCH_ISOLATED"
"""The variable that says to a worker from what it has to be kept, and to which folder it may write, such as `network,files:/tmp/scratch`."""
NETWORK, FILES = "network", "files"

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls, which are alike on all processors that torch is built for."""
_NO_NEW_PRIVILEGES = 38
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_VERSION = 1
_BELOW_A_PATH = 1
_WRITE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGE = _WRITE | _TRUNCATE | sum(1 << bit for bit in range(4, 13))  # removing, and making files of each kind
_MOVE = 1 << 13
"""Moving files from folder to folder. Every domain forbids it where no rule allows it, and compilers move what they wrote into their caches."""
_WITH_MOVES, _WITH_TRUNCATING = 2, 3  # the first versions of Landlock in which a rule can allow it
_SIGNALS = 1 << 1
_WITH_SIGNALS = 6  # the first version of Landlock that keeps signals within a domain
_LARGEST_FILE, _MOST_PROCESSES = 16 << 30, 4096

_entered = [0]  # the version of Landlock whose domain this process is in; 0 where it is in none


def isolated_environment(scratch: Path) -> dict[str, str]:
    """Return the variables of a worker in isolation, whose temporary files, home and caches are below a folder."""
    if not (kept := can_be_kept_from()):
        raise UsageError("isolated: this kernel can keep a process neither from the network nor from files; go without")
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    caches = {"XDG_CACHE_HOME": ".cache", "TORCH_EXTENSIONS_DIR": ".cache/torch_extensions", "HOME": "", "TMPDIR": ""}
    return {**{name: str(home / place) for name, place in caches.items()}, VARIABLE: f"{','.join(kept)}:{scratch}"}


@functools.cache
def can_be_kept_from() -> tuple[str, ...]:
    """Return what a worker can be kept from on this host, `network` and `files`; a process that is forked tries it."""
    child = os.fork()
    if not child:
        kept = 0
        with contextlib.suppress(BaseException):
            kept = (NETWORK in _leave_network()) + 2 * (FILES in _enter_domain(Path("/tmp")))  # noqa: S108 (any folder)
        os._exit(kept)
    kept = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return tuple(name for bit, name in ((1, NETWORK), (2, FILES)) if kept & bit)


def enter() -> None:
    """Keep this process, and all that it starts, from others, and in isolation from what its environment says; one that cannot be ends."""
    if _entered[0]:
        return
    names, _, scratch = os.environ.get(VARIABLE, "").partition(":")
    if not scratch:
        _enter_domain(None)
        return
    wanted = set(filter(None, names.split(",")))
    for kind, most in ((resource.RLIMIT_FSIZE, _LARGEST_FILE), (resource.RLIMIT_NPROC, _MOST_PROCESSES)):
        _, hard = resource.getrlimit(kind)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))
    kept = {*(_leave_network() if NETWORK in wanted else ()), *_enter_domain(Path(scratch))}
    if missing := wanted - kept:
        sys.stderr.write(f"fatal: the process cannot be kept from {' and '.join(sorted(missing))}\n")
        os._exit(1)


def _leave_network() -> tuple[str, ...]:
    """Enter a network namespace without interfaces, which a user namespace makes possible without rights."""
    user, group, libc = os.getuid(), os.getgid(), ctypes.CDLL(None)
    if sys.platform != "linux" or libc.unshare(_NEW_USER | _NEW_NETWORK):
        return ()
    own = Path("/proc/self")
    with contextlib.suppress(OSError):  # who it is, is nicer to know, and no more
        (own / "setgroups").write_text("deny")
        (own / "uid_map").write_text(f"{user} {user} 1")
        (own / "gid_map").write_text(f"{group} {group} 1")
    return (NETWORK,)


def _enter_domain(scratch: Path | None) -> tuple[str, ...]:
    """Enter a Landlock domain where the kernel has that, in which files change below `scratch` alone if it is given."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return ()
    libc = ctypes.CDLL(None)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))
    if version < _WITH_MOVES or libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return ()
    allowed = {"/": _MOVE}
    if scratch and version >= _WITH_TRUNCATING:
        everything, contents = _MOVE | _CHANGE, _WRITE | _TRUNCATE
        allowed = {str(scratch): everything, "/dev/shm": everything, "/dev": contents, "/proc": contents}  # noqa: S108
    handled = functools.reduce(int.__or__, allowed.values())
    kept = struct.pack("QQQ", handled, 0, _SIGNALS) if version >= _WITH_SIGNALS else struct.pack("Q", handled)
    ruleset = libc.syscall(_CREATE_RULESET, kept, ctypes.c_size_t(len(kept)), ctypes.c_uint(0))
    if ruleset < 0:
        return ()
    ruled = all(_allow(libc, ruleset, place, access) for place, access in allowed.items())
    if ruled and not libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0)):
        _entered[0] = version
    os.close(ruleset)
    return (FILES,) if _entered[0] and len(allowed) > 1 else ()


def _allow(libc: ctypes.CDLL, ruleset: int, place: str, access: int) -> bool:
    try:
        folder = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:  # nobody can write to a folder that is not there
        return True
    rule = struct.pack("=Qi", access, folder)
    added = libc.syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_BELOW_A_PATH), rule, ctypes.c_uint(0))
    os.close(folder)
    return not added


def what_holds() -> tuple[bool, str]:
    """Return whether this process is kept from others, and in words what it is kept from."""
    (version,) = _entered
    if not version:
        why = "this kernel has no Landlock that pairbench can use (Linux 5.19)"
        return False, f"{why}: code of a suite could trace the command that started it"
    signals = " or signal" if version >= _WITH_SIGNALS else ""
    more = " and ".join(can_be_kept_from())
    isolated = f"; judge --isolated keeps it from {more}" if more else "; judge --isolated keeps it from no more here"
    return True, f"a worker cannot trace{signals} the command or other workers (Landlock {version}){isolated}"
