"""The declarations of a suite as values that can leave the worker: names, cases, hashes, costs."""

import ast
import contextlib
import functools
import hashlib
import importlib.metadata
import inspect
import linecache
import math
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from pairbench.errors import SuiteError
from pairbench.execute.worker.frozen import codes_within
from pairbench.execute.worker.guard import message_of
from pairbench.model.case import Case
from pairbench.model.operator import Cost, Operator, Variant, needed_packages
from pairbench.model.plan import ImplementationDescription, OperatorDescription
from pairbench.suite.modules import NAMESPACE, STATEMENTS, file_of, place_in_suite


@functools.cache  # a helper is reached from every variant that uses it
def code_text(value: Any) -> str:
    """Return the source of a function or class as a syntax tree without positions and docstrings; its bytecode where there is no source."""
    node = None
    with contextlib.suppress(SyntaxError, ValueError):
        node = _found(value)
    if node is None:  # defined in a shell, or by exec
        code = getattr(value, "__code__", None)
        return f"{value.__qualname__} {code.co_code.hex() if code else ''}"
    tree = node if isinstance(node, ast.Lambda) else ast.Module(body=[node], type_ignores=[])
    # As Python 3.12 writes it, whichever Python this is: a newer one must not begin new series.
    if sys.version_info >= (3, 13):
        return ast.dump(tree, show_empty=True)
    return ast.dump(tree)


def _found(value: Any) -> ast.stmt | ast.Lambda | None:
    if inspect.isclass(value):
        module = sys.modules.get(value.__module__)
        file = getattr(module, "__file__", None)
        return _definitions(_read(file, vars(module))).classes.get(value.__qualname__) if file else None
    code = value.__code__
    source = _read(code.co_filename, value.__globals__)
    if value.__name__ != "<lambda>":
        return _definitions(source).functions.get((code.co_firstlineno, code.co_name))
    # Several may begin on a line; which it is, its end tells.
    end = max(((line, column) for _, line, _, column in code.co_positions() if line and column), default=None)
    several = [node for node in _definitions(source).lambdas if node.lineno == code.co_firstlineno]
    if end is None:  # Python 3.12 has no place for what returns a constant
        several.sort(key=lambda node: ast.unparse(node.body) != repr(code.co_consts[-1]))
    return min(several, key=lambda node: (node.body.end_lineno, node.body.end_col_offset) != end, default=None)


def _read(file: str, namespace: dict[str, Any]) -> str:
    return "".join(linecache.getlines(file, namespace))


class _Definitions(ast.NodeVisitor):
    """The definitions of a file. To read them once is many times faster than to ask `inspect` for every function."""

    def __init__(self, source: str) -> None:
        self.functions: dict[tuple[int, str], ast.stmt] = {}
        """By the line of the definition or its first decorator, and the name."""
        self.classes: dict[str, ast.stmt] = {}
        self._scope: list[str] = []
        self._tree = ast.parse(source)
        self.visit(self._tree)

    @functools.cached_property
    def lambdas(self) -> list[ast.Lambda]:
        return [node for node in ast.walk(self._tree) if isinstance(node, ast.Lambda)]

    def generic_visit(self, node: ast.AST) -> None:
        for field in STATEMENTS:  # expressions define nothing
            for inner in getattr(node, field, ()):
                self.visit(inner)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.classes.setdefault(".".join([*self._scope, node.name]), node)
        self._define(node, node.name)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        self.functions[first, node.name] = node
        self._define(node, node.name, "<locals>")

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 (the name that ast calls)

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, *scope: str) -> None:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if "type_params" not in node._fields:  # Python 3.11 and older
            known: Any = node
            known.type_params, known._fields = [], (*node._fields, "type_params")
        self._scope += scope
        self.generic_visit(node)
        del self._scope[-len(scope) :]


_definitions = functools.cache(_Definitions)


def describe(suite: str, path: Path, operator: Operator, *, deep: bool = False) -> OperatorDescription:
    def described(name: str, variant: Variant) -> ImplementationDescription:
        return ImplementationDescription(
            name=name,
            needs=variant.needs,
            hash=next(digests),
            builds_on=variant.builds_on,
            consumes=variant.consumes,
            kind=variant.kind,
            packages=_installed(variant),
        )

    try:
        definition_hash, *hashes = hashes_of(path, operator)
        digests = iter(hashes)
        return OperatorDescription(
            suite=suite,
            path=str(path),
            name=operator.name,
            summary=(inspect.getdoc(operator.baseline.function) or "").partition("\n")[0],
            source=operator.source,
            definition_hash=definition_hash,
            implementations=tuple(described(name, value) for name, value in operator.implementations.items()),
            impostors=tuple(described(name, value) for name, value in operator.impostors.items()),
            cases=operator.cases,
            costs={case.key: cost for case in operator.cases if (cost := _cost(path, operator, case))},
            claims=operator.claims,
            left_out=operator.left_out,
            code_digest=_digest([_source(path.resolve(), *_functions(operator), deep=True)]) if deep else "",
        )
    except SuiteError:
        raise
    except BaseException as error:  # of the suite's own classes where their attributes are read, say
        what = f"operator {operator.name!r} cannot be described: {type(error).__name__}"
        raise SuiteError(f"{place_in_suite(path, error)}: {what}: {message_of(error)}") from error


def hashes_of(path: Path, operator: Operator) -> tuple[str, ...]:
    """Return the hash of the definition, then of each implementation and impostor, of an operator whose functions have not run: running may change them."""
    source = functools.partial(_source, path.resolve())
    judged_by = source(operator.oracle or operator.baseline.function)
    declared = repr(operator.tolerance), operator.constants, operator.state
    definition = [operator.name, source(operator.inputs), judged_by, *declared]
    # Declarations that older definitions lack add nothing where they are absent, so that hashes stay.
    if operator.reset:
        definition.append("reset" if operator.reset is True else f"reset {source(operator.reset)}")
    if operator.gradients:
        definition.append(f"gradients {operator.gradients} {operator.gradient_tolerance!r}")
    digests = [_digest(definition)]
    for one in (*operator.implementations.values(), *operator.impostors.values()):
        consumes = [f"consumes {sorted(one.consumes)}"] if one.consumes else []
        packages = [f"{name} {version}" for name, version in sorted(_installed(one).items())]
        prepare = source(one.prepare) if one.prepare else ""
        compiled = ["compiled"] if one.compiled else []
        digests.append(_digest([source(one.function), prepare, *consumes, *packages, *compiled]))
    return tuple(digests)


def _installed(variant: Variant) -> dict[str, str]:
    versions: dict[str, str] = {}
    for package in needed_packages(variant.needs):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package.name] = importlib.metadata.version(package.name)
    return versions


def _functions(operator: Operator) -> list[Callable[..., Any]]:
    variants = [*operator.implementations.values(), *operator.impostors.values()]
    own = [operator.inputs, operator.oracle, operator.cost, operator.reset]
    called = [*own, *(function for one in variants for function in (one.function, one.prepare, one.valid))]
    return [function for function in called if callable(function)]


def _cost(path: Path, operator: Operator, case: Case) -> tuple[float, float] | None:
    if operator.cost is None:
        return None
    what, expected = f"operator {operator.name!r}: cost()", "Cost(flops=..., bytes=...), two numbers of at least 0"
    try:
        found = operator.cost(**case.axes_for(operator.cost))
        if isinstance(found, Mapping):
            found = tuple(found[name] for name in Cost._fields) if {*found} == {*Cost._fields} else dict(found)
        two = isinstance(found, tuple | list) and len(found) == len(Cost._fields)
        good = two and all(hasattr(one, "__float__") and 0 <= float(one) < math.inf for one in found)
        costs = (float(found[0]), float(found[1])) if good else None
    except BaseException as error:
        why = f"{what} failed on {case.key}: {type(error).__name__}: {message_of(error)}"
        raise SuiteError(f"{place_in_suite(path, error)}: {why}; expected {expected}") from error
    if costs is None:
        raise SuiteError(f"suite {path.name}: {what} returned {found!r:.120} for {case.key}, expected {expected}")
    return costs


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _source(suite: Path, *functions: Callable[..., Any], deep: bool = False) -> str:
    """Return the functions' code with all helpers and constants of the suites that it reaches, free of formatting."""
    code = _Code(suite, deep=deep)
    for function in functions:
        code.collect(function)
    return "\n".join(f"{name}: {text}" for name, text in sorted(code.texts.items()))


_CONSTANTS = bool | int | float | str | bytes | tuple | list | dict | set | frozenset | torch.dtype


class _Code:
    """The code of a function and of all that it reaches in the suite's own file, in helpers or in files beside them."""

    def __init__(self, suite: Path, *, deep: bool) -> None:
        self._suite = suite
        self._deep = deep
        """Whether methods of classes are followed; in hashes they are not, or every series would begin anew."""
        self.texts: dict[str, str] = {}  # code of functions and classes and values of constants, by module and name
        self._above = set[int]()

    def collect(self, value: Any, name: str = "") -> None:
        if isinstance(value, functools.partial):
            self.texts[f"partial {name}"] = self._constant([value.args, value.keywords], name)
            self.collect(value.func, name)
            return
        while inner := getattr(value, "__wrapped__", None) or getattr(value, "fn", None):  # functools.wraps, triton.jit
            if configs := getattr(value, "configs", None):  # triton.autotune
                self.texts[f"configs {name}"] = str([str(config) for config in configs])
            value = inner
        if callable(value) and not (inspect.isroutine(value) or inspect.isclass(value)):
            # What an operator of torch's holds, torch changes as it is called.
            held = {"": str(value)} if type(value).__module__ == "torch._ops" else getattr(value, "__dict__", {})
            self.texts[f"instance {name}"] = self._constant(held, name)
            value = type(value)
        key = f"{self._module(value)}.{getattr(value, '__qualname__', name)}"
        text = code_text(value) if inspect.isfunction(value) or inspect.isclass(value) else ""  # type: ignore[arg-type]
        key = f"{key} {_digest([text])}" if "<lambda>" in key else key  # two lambdas of one scope have one name
        if key in self.texts:
            return
        self.texts[key] = text
        if inspect.isfunction(value):
            self._collect_reached(value)
        if self._deep and inspect.isclass(value):
            for base in value.__bases__:
                if file_of(base.__module__) is not None:
                    self.collect(base)
            for method in map(_function_of, vars(value).values()):
                if method is not None:
                    self._collect_reached(method)

    def _collect_reached(self, function: types.FunctionType) -> None:
        names = {name for code in codes_within(function.__code__) for name in code.co_names}
        if self._deep:
            names -= {"__file__"}  # its value differs between checkouts
        modules = [module for name in names if _is_helper(module := function.__globals__.get(name), function)]
        for name in names:
            for reached in (function.__globals__.get(name), *(vars(module).get(name) for module in modules)):
                if isinstance(reached, _CONSTANTS):
                    self.texts[f"{self._module(function)}.{name}"] = self._constant(reached, name)
                elif reached is not None and _is_own(reached, function):
                    self.collect(reached, name)

    def _constant(self, value: Any, name: str) -> str:
        """Return a value as text that is the same in every process; functions in it are collected, and what holds itself ends there."""
        if id(value) in self._above:
            return "..."
        self._above.add(id(value))
        try:
            return self._described(value, name)
        finally:
            self._above.discard(id(value))

    def _described(self, value: Any, name: str) -> str:
        if isinstance(value, dict):
            items = [f"{self._key(key)}: {self._constant(item, f'{name}[{key!r}]')}" for key, item in value.items()]
            return f"{{{', '.join(items)}}}"
        if isinstance(value, tuple | list | set | frozenset):
            items = [self._constant(item, f"{name}[{index}]") for index, item in enumerate(value)]
            return str(sorted(items) if isinstance(value, set | frozenset) else items)
        if isinstance(value, _CONSTANTS) or value is None:
            return repr(value)
        if callable(value) and not inspect.isclass(value):
            self.collect(value, name)
        return str(getattr(value, "__qualname__", type(value).__qualname__))

    def _key(self, key: Any) -> str:
        if inspect.isclass(key) and key.__module__.startswith(f"{NAMESPACE}."):
            return f"<class '{self._module(key)}.{key.__qualname__}'>"
        return repr(key)

    def _module(self, value: Any) -> str:
        """Return the module's plain name, "" for the suite itself: hashes are the same in every checkout and folder."""
        module = str(getattr(value, "__module__", ""))
        if not module.startswith(f"{NAMESPACE}."):
            return module
        file = file_of(module)
        return "" if file and Path(file) == self._suite else module.rpartition(".")[2]


def _function_of(member: Any) -> types.FunctionType | None:
    """Return the function behind a member of a class; None for a library's."""
    member = inspect.unwrap(getattr(member, "fget", None) or getattr(member, "__func__", None) or member)
    return member if isinstance(member, types.FunctionType) and file_of(member.__module__) is not None else None


def _is_helper(module: Any, user: types.FunctionType) -> bool:
    """Return whether a value is a module of helpers: loaded like a suite, or a file beside the user's."""
    file = getattr(module, "__file__", None) if isinstance(module, types.ModuleType) else None
    return file is not None and (file_of(module.__name__) is not None or _is_beside(file, user.__code__.co_filename))


def _is_own(reached: Any, user: types.FunctionType) -> bool:
    """Return whether a value comes from the suites' files, rather than from a library."""
    if isinstance(reached, types.ModuleType):
        return False
    if isinstance(reached, functools.partial):
        return True
    function = inspect.unwrap(getattr(reached, "fn", reached))
    code = getattr(function, "__code__", None)
    if code is None:
        owner = reached if inspect.isclass(reached) else type(reached)
        return callable(reached) and owner.__module__ == user.__module__
    return file_of(str(function.__module__)) is not None or _is_beside(code.co_filename, user.__code__.co_filename)


@functools.cache
def _is_beside(file: str, other: str) -> bool:
    return Path(file).parent == Path(other).parent
