"""torch.compile's state, and its limits: set as soon as it is loaded, which most workers never need.

Loading it takes longer than torch itself, 1.5 s.
"""

import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

import torch

_CONFIG = "torch._dynamo.config"
_RECOMPILES = 64
"""Of one function in one case: helpers that all implementations share are compiled once for each of them and each shape."""


def reset_compiler(*, needed: bool) -> None:
    """Forget what was compiled for earlier cases, and refuse to fall back to eager when recompiling too often.

    Args:
        needed: Whether the case is compiled: then the compiler is loaded now, and not by the first call.
    """
    if needed or _CONFIG in sys.modules:
        torch._dynamo.reset()
        _limit(torch._dynamo.config)
    elif _LIMITS not in sys.meta_path:
        sys.meta_path.insert(0, _LIMITS)


def _limit(config: ModuleType) -> None:
    for name, value in (("recompile_limit", _RECOMPILES), ("fail_on_recompile_limit_hit", True)):
        if hasattr(config, name):
            setattr(config, name, value)


class _LimitsOnLoad(importlib.abc.MetaPathFinder):
    """Sets the limits when somebody loads the compiler: a call that compiles within itself is already bound by them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _CONFIG:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = functools.partial(_load, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _load(load: Callable[[ModuleType], None], module: ModuleType) -> None:
    load(module)
    _limit(module)


_LIMITS = _LimitsOnLoad()
