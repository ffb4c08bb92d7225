"""When Python looks for garbage."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keep the garbage collector still while a store or a suite is read: a mass of values without garbage takes a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        # Without this the collector looks at all of it the moment it is back.
        gc.freeze()
        gc.enable()


def keep_what_is_there() -> None:
    """Collect, and leave the rest out of later collections, each of which took 130 ms in a catalogue's last cases: a quarter of their timing on a CPU."""
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def no_collection(*, collect: bool = True) -> Iterator[None]:
    """Keep the garbage collector away from samples and captures; with `collect`, collect first."""
    if collect:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
