"""How much work a command is: the processor time of what is started, which is the same however long it has to wait."""

import resource
import time
from collections.abc import Callable
from typing import Any


def cpu_seconds(start: Callable[[], Any]) -> float:
    """Return the processor time of the processes that a call starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def least_seconds(work: Callable[[], Any]) -> float:
    """Return the least processor time of this process in three calls."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)
