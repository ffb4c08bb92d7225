"""A worker kept from its parent and from other workers: it can neither trace them, nor read or write their memory, nor send them signals.

The kernel does that for a process in a Landlock domain of its own (Linux 5.13; signals since 6.12), without an administrator's rights and for root,
too. No file is kept from a suite: what it compiles, downloads and remembers lies in places of its own choosing, and Landlock can only
allow folders and what is below them, so that all but the suite's own would have to be named.
"""

import ctypes
import platform
import struct
import sys

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
"""Numbers of the system calls, which are alike on all processors that torch is built for."""
_NO_NEW_PRIVILEGES = 38
_VERSION = 1
_MAKE_BLOCK_DEVICE = 1 << 11
"""Something has to be forbidden for there to be a domain: nobody measures by making block devices."""
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
    if version < 1 or libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return
    signals = version >= _WITH_SIGNALS
    rules = struct.pack("QQQ", _MAKE_BLOCK_DEVICE, 0, _SIGNALS) if signals else struct.pack("Q", _MAKE_BLOCK_DEVICE)
    ruleset = libc.syscall(_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), ctypes.c_uint(0))
    if ruleset >= 0 and not libc.syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0)):
        _entered[0] = version
    if ruleset >= 0:
        libc.close(ctypes.c_int(ruleset))


def what_holds() -> tuple[bool, str]:
    """Return whether this process is kept from others, and in words what it is kept from."""
    (version,) = _entered
    if not version:
        return False, "this kernel has no Landlock: code of a suite could trace the command that started it"
    signals = " or signal" if version >= _WITH_SIGNALS else ""
    return True, f"a worker cannot trace{signals} the command or other workers (Landlock {version})"
