"""A worker kept from its parent and from other workers: it can neither trace them, nor read or write their memory, nor send them signals.

The kernel does that for a process in a Landlock domain of its own (Linux 5.19; signals since 6.12), without an administrator's rights and for root,
too. No file is kept from a suite: what it compiles, downloads and remembers lies in places of its own choosing, and Landlock can only
allow folders and what is below them, so that all but the suite's own would have to be named.
"""

import ctypes
import os
import platform
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls, which are alike on all processors that torch is built for."""
_NO_NEW_PRIVILEGES = 38
_VERSION = 1
_BELOW_A_PATH = 1
_MOVE = 1 << 13
"""Moving files from folder to folder. Every domain forbids it where no rule allows it, and compilers move what they wrote into their caches."""
_WITH_MOVES = 2
"""The first version of Landlock in which a rule can allow it."""
_SIGNALS = 1 << 1
_WITH_SIGNALS = 6
"""The first version of Landlock that keeps signals within a domain."""

_entered = [0]
"""The version of Landlock whose domain this process is in; 0 where it is in none."""


def enter_domain() -> None:
    """Put this process, and all that it starts, into a domain of its own where the kernel has Landlock."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return
    libc = ctypes.CDLL(None)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))
    if version < _WITH_MOVES or libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return
    kept = struct.pack("QQQ", _MOVE, 0, _SIGNALS) if version >= _WITH_SIGNALS else struct.pack("Q", _MOVE)
    ruleset = libc.syscall(_CREATE_RULESET, kept, ctypes.c_size_t(len(kept)), ctypes.c_uint(0))
    if ruleset < 0:
        return
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    moves = struct.pack("=Qi", _MOVE, root)
    allowed = not libc.syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_BELOW_A_PATH), moves, ctypes.c_uint(0))
    if allowed and not libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0)):
        _entered[0] = version
    os.close(root)
    os.close(ruleset)


def what_holds() -> tuple[bool, str]:
    """Return whether this process is kept from others, and in words what it is kept from."""
    (version,) = _entered
    if not version:
        why = "this kernel has no Landlock that pairbench can use (Linux 5.19)"
        return False, f"{why}: code of a suite could trace the command that started it"
    signals = " or signal" if version >= _WITH_SIGNALS else ""
    return True, f"a worker cannot trace{signals} the command or other workers (Landlock {version})"
