"""Which configurations Triton's autotuner chooses: each process tunes anew, and another choice is another kernel."""

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

_MODULE = "triton.runtime.autotuner"
_USUAL = {"num_ctas": 1}
"""Settings that are named only where they are others."""


@contextlib.contextmanager
def choices() -> Iterator[list[str]]:
    """Give a list that gets one text for each autotuned kernel that is launched inside, like `add: BLOCK=128, num_warps=4`.

    Nothing is noted of a process that has not imported Triton, nor of kernels in a graph that is only replayed.
    """
    noted: list[str] = []
    tuner = getattr(sys.modules.get(_MODULE), "Autotuner", None)
    if tuner is None:
        yield noted
        return
    run = tuner.run

    @functools.wraps(run)
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        if (text := _text(self)) not in noted:
            noted.append(text)
        return result

    tuner.run = noting
    try:
        yield noted
    finally:
        tuner.run = run


def _text(tuner: Any) -> str:
    """Return the kernel's name and the configuration of its last launch."""
    name = getattr(getattr(tuner, "base_fn", None), "__name__", "a kernel")
    settings = {
        key: value for key, value in tuner.best_config.all_kwargs().items() if key not in _USUAL or value != _USUAL[key]
    }
    return f"{name}: {', '.join(f'{key}={value}' for key, value in settings.items())}"
