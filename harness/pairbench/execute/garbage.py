"""When Python looks for garbage."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keep the garbage collector still while a store or a suite is read: a mass of values, no garbage among them, a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        # Without this the collector looks at all of it the moment it is back.
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def no_collection(*, collect: bool = True) -> Iterator[None]:
    """Keep the garbage collector away from samples and captures.

    Args:
        collect: Collect what there is before, which takes some 50 ms where torch is loaded.
    """
    if collect:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
