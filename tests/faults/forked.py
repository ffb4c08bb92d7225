"""Work in a fork: what it leaves in memory goes with it, and where it crashes or hangs, that is a result like any other."""

import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")


def each_forked(
    work: Callable[[Item], Any], items: Iterable[Item], *, at_once: int = 2, limit_s: float = 120.0
) -> Iterator[tuple[Item, Any, str]]:
    """Do some work with each of several things, in a fork each, and yield the thing, the result, and what went wrong, or nothing."""
    running: dict[int, tuple[Item, int, float, bytearray]] = {}
    try:
        yield from _each(work, iter(items), running, at_once, limit_s)
    finally:
        for _, child, *_ in running.values():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _each(
    work: Callable[[Item], Any],
    waiting: Iterator[Item],
    running: dict[int, tuple[Item, int, float, bytearray]],
    at_once: int,
    limit_s: float,
) -> Iterator[tuple[Item, Any, str]]:
    more = True
    while more or running:
        while more and len(running) < at_once:
            try:
                item = next(waiting)
            except StopIteration:
                more = False
                break
            pipe, child = _start(work, item)
            running[pipe] = (item, child, time.monotonic() + limit_s, bytearray())
        ready, _, _ = select.select(list(running), [], [], 0.5)
        for pipe in list(running):
            item, child, until, content = running[pipe]
            part = os.read(pipe, 1 << 20) if pipe in ready else None
            if part:
                content += part
            elif part == b"" or time.monotonic() > until:
                del running[pipe]
                os.close(pipe)
                yield (item, *_end(child, bytes(content), late=part is None, limit_s=limit_s))


def _start(work: Callable[[Item], Any], item: Item) -> tuple[int, int]:
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return reading, child
    try:
        os.close(reading)
        try:
            result = pickle.dumps((work(item), ""))
        except BaseException:  # noqa: BLE001 (it is a result)
            result = pickle.dumps((None, traceback.format_exc()))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(result)
        sys.stdout.flush()
    finally:
        os._exit(0)  # whatever happened: a fork must not go on as its parent


def _end(child: int, content: bytes, *, late: bool, limit_s: float) -> tuple[Any, str]:
    if late:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if late:
        return None, f"still at work after {limit_s:.0f} s"
    if status:
        return None, f"its process ended with status {status}"
    result, wrong = pickle.loads(content)  # noqa: S301 (our own child's)
    return result, wrong
