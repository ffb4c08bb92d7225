"""Work in a fork: what it leaves in memory goes with it, and where it crashes or hangs, that is a result like any other."""

import itertools
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

Item = TypeVar("Item")
_FORK = multiprocessing.get_context("fork")


def each_forked(
    work: Callable[[Item], Any], items: Iterable[Item], *, at_once: int = 2, limit_s: float = 120.0
) -> Iterator[tuple[Item, Any, str]]:
    """Do some work with each of several things, in a fork each, and yield the thing, the result, and what went wrong, or nothing."""
    waiting, running = iter(items), dict[Any, tuple[Item, Any, float]]()
    try:
        while True:
            for item in itertools.islice(waiting, at_once - len(running)):
                ours, theirs = _FORK.Pipe(duplex=False)
                child = _FORK.Process(target=_work, args=(work, item, theirs))
                child.start()
                theirs.close()
                running[ours] = (item, child, time.monotonic() + limit_s)
            if not running:
                return
            ready = wait(list(running), 0.5)
            for line, (item, child, until) in list(running.items()):
                if line not in ready and time.monotonic() <= until:
                    continue
                result, wrong = None, f"still at work after {limit_s:.0f} s"
                if line in ready:
                    try:
                        result, wrong = line.recv()
                        child.join(limit_s)
                    except EOFError:
                        child.join()
                        wrong = f"its process ended with status {child.exitcode}"
                _end(child)
                del running[line]
                yield item, result, wrong
    finally:
        for _, child, _ in running.values():
            _end(child)


def _work(work: Callable[[Item], Any], item: Item, line: Connection) -> None:
    try:
        line.send((work(item), ""))
    except BaseException:  # noqa: BLE001 (it is a result)
        line.send((None, traceback.format_exc()))


def _end(child: Any) -> None:
    child.kill()
    child.join()
