"""`pairbench`: optimised PyTorch operators beside the plain ones they replace: verified, timed together, tracked."""

import sys

# `python -m pairbench` has the current folder first on the path, where a file `queue.py` would take the standard library's place.
# While Python looks for the module, `sys.argv[0]` is `-m`; only `sys` is imported before, for any other module may be such a file.
if (
    sys.argv[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv)].removeprefix("-m") == "pairbench"
    and not sys.flags.safe_path
    and sys.path[0] != __file__.removesuffix("/pairbench/__init__.py")
):
    del sys.path[0]

from typing import TYPE_CHECKING, Any

from pairbench.model.case import EXACT, REASSOCIATED, REASSOCIATED_BY_ROW, Claim, Tolerance, grid
from pairbench.model.operator import Cost, Operator, Variant

if TYPE_CHECKING:
    from pairbench.execute.worker.capture import capture
    from pairbench.interface.runs import Result, measure, run, try_, verify
    from pairbench.interface.stored import ab, compare, read, samples, trend

_ROOMS = dict.fromkeys(("Result", "measure", "run", "try_", "verify"), "interface.runs")
_ROOMS |= dict.fromkeys(("ab", "compare", "read", "samples", "trend"), "interface.stored")
_ROOMS["capture"] = "execute.worker.capture"
"""The module that has each name, loaded on first use: suites that declare operators need none of them."""

__all__ = ["EXACT", "REASSOCIATED", "REASSOCIATED_BY_ROW", "Claim", "Cost", "Operator", "Tolerance", "Variant", "grid"]
__all__ += ["Result", "ab", "capture", "compare", "measure", "read", "run", "samples", "trend", "try_", "verify"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the Python interface when it is used first."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted({*globals(), *__all__})
