"""How many of the host's processors others keep busy: all that is busy, without this process and what it has started."""

import contextlib
import os
import time
from pathlib import Path

from pairbench.model.plain import Value

_PROC = Path("/proc")
SHORTEST_S = 0.1  # ticks are 10 ms; over a shorter time they say nothing


class Usage(Value):
    at_s: float
    busy_s: float  # work of all processors for anybody, in kernel and hypervisor too
    own_s: float  # work for this process and its descendants, ended ones included


class LoadMeter:
    """Reads how busy others were since it was last asked. Anything but Linux does not say."""

    def __init__(self, root: Path = _PROC) -> None:
        self._root = root
        self._last = read_usage(root)

    def foreign_cores(self) -> float | None:
        """Return the processors that others kept busy on average since the last call, or None where nothing is known."""
        now, last = read_usage(self._root), self._last
        if now is None or last is None or now.at_s - last.at_s < SHORTEST_S:
            return None
        self._last = now
        return max(0.0, (now.busy_s - last.busy_s) - (now.own_s - last.own_s)) / (now.at_s - last.at_s)


def count_cores(root: Path = _PROC) -> int:
    try:
        lines = (root / "stat").read_text().splitlines()
    except OSError:
        return os.cpu_count() or 1
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
