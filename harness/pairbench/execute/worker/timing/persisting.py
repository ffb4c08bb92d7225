"""Lines that a call has set aside in the L2: a flush does not evict them, so they are given back before it.

A process has such lines only after it has asked for room for them (`cudaDeviceSetLimit`). Only where that limit is not zero they
are given back, so that all others pay for no more than asking. Neither cost has been measured on a GPU yet. The runtime is the one that torch has loaded.
"""

import ctypes
import functools
from pathlib import Path

_LIMIT = 0x06
"""Number of the limit `cudaLimitPersistingL2CacheSize`."""
_MAPS = Path("/proc/self/maps")


def reset() -> bool:
    """Give back the L2's persisting lines, if there may be any; return whether there may have been."""
    runtime, _ = _runtime()
    if runtime is None:
        return False
    limit = ctypes.c_size_t(0)
    if runtime.cudaDeviceGetLimit(ctypes.byref(limit), _LIMIT) != 0 or limit.value == 0:
        return False
    runtime.cudaCtxResetPersistingL2Cache()
    return True


def missing() -> str | None:
    """Return why persisting lines cannot be given back here, or None where they can."""
    return _runtime()[1]


@functools.cache
def _runtime() -> tuple[ctypes.CDLL | None, str | None]:
    """Return the CUDA runtime of this process, or None and why there is none."""
    return open_runtime(_MAPS)


def open_runtime(maps: Path) -> tuple[ctypes.CDLL | None, str | None]:
    """Return the CUDA runtime among the files that a process has mapped, or None and why there is none.

    Args:
        maps: What Linux says of a process' memory, the path of a mapped file in the last column.
    """
    try:
        files = {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if "libcudart" in line}
    except OSError as error:
        return None, f"mapped files cannot be read: {error}"
    if not files:
        return None, "no libcudart is loaded"
    try:
        runtime = ctypes.CDLL(min(files))
    except OSError as error:
        return None, f"libcudart cannot be opened: {error}"
    for symbol in ("cudaDeviceGetLimit", "cudaCtxResetPersistingL2Cache"):
        if not hasattr(runtime, symbol):
            return None, f"{min(files)} has no {symbol}"
    return runtime, None
