"""What a suite declares, as values that can leave the worker: names, cases, hashes, costs."""

import functools
import hashlib
import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pairbench.errors import SuiteError
from pairbench.execute.worker.describe.code_text import code_text
from pairbench.model.operator import Cost, Operator, Variant
from pairbench.model.plan import ImplementationDescription, OperatorDescription
from pairbench.suite import MODULE_PREFIX


def describe(suite: str, path: Path, operator: Operator) -> OperatorDescription:
    """Return the description of an operator.

    Raises:
        SuiteError: the cost function fails on a case.
    """
    oracle = operator.oracle or operator.baseline.function
    tolerance = repr(operator.tolerance)
    question = [operator.name, _source(operator.inputs), _source(oracle), tolerance, operator.constants, operator.state]
    return OperatorDescription(
        suite=suite,
        path=str(path),
        name=operator.name,
        summary=(inspect.getdoc(operator.baseline.function) or "").partition("\n")[0],
        source=operator.source,
        definition_hash=_digest(question),
        implementations=tuple(_describe(name, value) for name, value in operator.implementations.items()),
        impostors=tuple(_describe(name, value) for name, value in operator.impostors.items()),
        cases=operator.cases,
        costs={case.key: cost for case in operator.cases if (cost := _cost(operator, dict(case.axes), case.key))},
        claims=operator.claims,
    )


def _describe(name: str, variant: Variant) -> ImplementationDescription:
    sources = [_source(variant.function), _source(variant.prepare) if variant.prepare else ""]
    return ImplementationDescription(name=name, needs=variant.needs, hash=_digest(sources), builds_on=variant.builds_on)


def _cost(operator: Operator, axes: dict[str, Any], key: str) -> tuple[float, float] | None:
    if operator.cost is None:
        return None
    try:
        flops, moved = operator.cost(**axes)
    except Exception as error:
        raise SuiteError(
            f"operator {operator.name!r}: cost() failed on {key}: {type(error).__name__}: {error}; expected {Cost.__name__}(flops, bytes)"
        ) from error
    return float(flops), float(moved)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _source(function: Callable[..., Any]) -> str:
    """Return the function's code with all helpers and constants of its own file that it reaches, free of formatting."""
    seen: dict[str, str] = {}
    _collect(function, seen)
    return "\n".join(f"{name}: {text}" for name, text in sorted(seen.items()))


def _collect(value: Any, seen: dict[str, str], name: str = "") -> None:
    if isinstance(value, functools.partial):
        seen[f"partial {name}"] = _constant([value.args, value.keywords], seen, name)
        _collect(value.func, seen, name)
        return
    while inner := getattr(value, "__wrapped__", None) or getattr(value, "fn", None):  # functools.wraps, triton.jit
        if configs := getattr(value, "configs", None):  # triton.autotune
            seen[f"configs {name}"] = str([str(config) for config in configs])
        value = inner
    if callable(value) and not (inspect.isroutine(value) or inspect.isclass(value)):
        seen[f"instance {name}"] = _constant(getattr(value, "__dict__", {}), seen, name)
        value = type(value)
    key = f"{_home(value)}.{getattr(value, '__qualname__', name)}"
    text = code_text(value) if inspect.isfunction(value) or inspect.isclass(value) else ""  # type: ignore[arg-type]
    # Two lambdas of one scope have one name.
    key = f"{key} {_digest([text])}" if "<lambda>" in key else key
    if key in seen:
        return
    seen[key] = text
    if not inspect.isfunction(value):
        return
    names = _names(value.__code__)
    beside = [vars(module) for name in names if _is_beside(module := value.__globals__.get(name), value)]
    for used in names:
        for reached in (value.__globals__.get(used), *(module.get(used) for module in beside)):
            if isinstance(reached, _CONSTANTS):
                seen[f"{_home(value)}.{used}"] = _constant(reached, seen, used)
            elif reached is not None and _own(reached, value):
                _collect(reached, seen, used)


_CONSTANTS = bool | int | float | str | bytes | tuple | list | dict | set | frozenset | torch.dtype


def _constant(value: Any, seen: dict[str, str], name: str) -> str:
    """Return a value as text that is the same in every process; functions in it are collected."""
    if isinstance(value, dict):
        items = [f"{key!r}: {_constant(item, seen, f'{name}[{key!r}]')}" for key, item in value.items()]
        return f"{{{', '.join(items)}}}"
    if isinstance(value, tuple | list | set | frozenset):
        items = [_constant(item, seen, f"{name}[{index}]") for index, item in enumerate(value)]
        return str(sorted(items) if isinstance(value, set | frozenset) else items)
    if isinstance(value, _CONSTANTS) or value is None:
        return repr(value)
    if callable(value) and not inspect.isclass(value):
        _collect(value, seen, name)
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _home(value: Any) -> str:
    """Return the module; "" for a suite's, whose name holds its path, and a question is the same in every checkout."""
    module = str(getattr(value, "__module__", ""))
    return "" if module.startswith(MODULE_PREFIX) else module


def _is_beside(module: Any, user: types.FunctionType) -> bool:
    """Return whether something is a module whose file lies beside the user's, as a suite's kernels do."""
    file = getattr(module, "__file__", None) if isinstance(module, types.ModuleType) else None
    return file is not None and _lies_beside(file, user)


def _own(reached: Any, user: types.FunctionType) -> bool:
    """Return whether something comes from the user's suite or a file beside it, rather than from a library."""
    if isinstance(reached, types.ModuleType):
        return False
    if isinstance(reached, functools.partial):
        return True
    code = getattr(inspect.unwrap(getattr(reached, "fn", reached)), "__code__", None)
    if code is None:
        owner = reached if inspect.isclass(reached) else type(reached)
        return callable(reached) and owner.__module__ == user.__module__
    return _lies_beside(code.co_filename, user)


def _lies_beside(file: str, user: types.FunctionType) -> bool:
    return _folder(file) == _folder(user.__code__.co_filename)


@functools.cache
def _folder(file: str) -> Path:
    return Path(file).parent


def _names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*(_names(constant) for constant in inner))
