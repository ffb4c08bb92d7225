"""What a suite declares, as values that can leave the worker: names, cases, hashes, costs."""

import ast
import hashlib
import inspect
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pairbench.errors import SuiteError
from pairbench.model.operator import Cost, Operator, Variant
from pairbench.model.plan import ImplementationDescription, OperatorDescription


def describe(suite: str, operator: Operator) -> OperatorDescription:
    """Return the description of an operator.

    Raises:
        SuiteError: the cost function fails on a case.
    """
    oracle = operator.oracle or operator.baseline.function
    tolerance = repr(operator.tolerance)
    question = [operator.name, _source(operator.inputs), _source(oracle), tolerance, operator.constants, operator.state]
    return OperatorDescription(
        suite=suite,
        name=operator.name,
        summary=(inspect.getdoc(operator.baseline.function) or "").partition("\n")[0],
        source=operator.source,
        definition_hash=_digest(question),
        implementations=tuple(_describe(name, value) for name, value in operator.implementations.items()),
        impostors=tuple(_describe(name, value) for name, value in operator.impostors.items()),
        cases=operator.cases,
        costs={case.key: cost for case in operator.cases if (cost := _cost(operator, dict(case.axes), case.key))},
    )


def _describe(name: str, variant: Variant) -> ImplementationDescription:
    sources = [_source(variant.function), _source(variant.prepare) if variant.prepare else ""]
    return ImplementationDescription(name=name, needs=variant.needs, hash=_digest(sources))


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


def _collect(value: Any, seen: dict[str, str], name: str | None = None) -> None:
    while hasattr(value, "__wrapped__") or hasattr(value, "func") or hasattr(value, "fn"):
        inner = getattr(value, "__wrapped__", None) or getattr(value, "func", None) or getattr(value, "fn", None)
        if hasattr(value, "func"):  # functools.partial: its arguments are part of the answer
            seen[f"partial {name}"] = repr((value.args, sorted(value.keywords)))
        value = inner
    key = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', name or repr(value))}"
    if key in seen:
        return
    if not inspect.isfunction(value) and not inspect.isclass(value):
        seen[key] = "" if callable(value) else repr(value)
        return
    seen[key] = _code_text(value)
    if not inspect.isfunction(value):
        return
    for used in _names(value.__code__):
        reached = value.__globals__.get(used)
        if reached is None or isinstance(reached, types.ModuleType):
            continue
        if isinstance(reached, bool | int | float | str | tuple | frozenset):
            seen[f"{value.__module__}.{used}"] = repr(reached)
        elif _own(reached, value):
            _collect(reached, seen, used)


def _own(reached: Any, user: types.FunctionType) -> bool:
    """Return whether something comes from the user's suite or a file beside it, rather than from a library."""
    code = getattr(inspect.unwrap(getattr(reached, "fn", reached)), "__code__", None)
    if code is None:
        return inspect.isclass(reached) and reached.__module__ == user.__module__
    return Path(code.co_filename).parent == Path(user.__code__.co_filename).parent


def _names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*(_names(constant) for constant in inner))


def _code_text(value: Any) -> str:
    """Return the source as a syntax tree without positions and docstrings, so that comments and layout do not count."""
    try:
        source = textwrap.dedent(inspect.getsource(value))
        tree = ast.parse(source)
    except (OSError, TypeError):
        return repr(value)
    except SyntaxError:  # a lambda inside an expression has no source that parses alone
        return " ".join(source.split())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)
