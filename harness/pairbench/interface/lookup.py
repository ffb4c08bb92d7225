"""Where functions, classes and names of this process come from: the text that defines them, or the module to import them from."""

import ast
import builtins
import functools
import linecache
import math
import symtable
import sys
import sysconfig
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FUTURE_ANNOTATIONS = 0x1000000
"""The flag of code that was compiled under `from __future__ import annotations`."""
_TORCH_PLAIN = ("dtype", "device", "memory_format", "layout")


def literal_of(value: Any) -> str | None:
    """Return the text of a plain value, torch's dtypes and devices included, or None for any other."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str, bytes):
        return repr(value)
    if type(value).__module__ == "torch" and type(value).__name__ in _TORCH_PLAIN:
        text = repr(value)
        return text if text.startswith("torch.") else f"torch.{text}"
    if type(value) in (tuple, list, dict, set, frozenset) and not value:
        return f"{type(value).__name__}()"
    if type(value) in (tuple, list, set, frozenset):
        return _listed(type(value), [literal_of(item) for item in value])
    if type(value) is dict:
        pairs = [(literal_of(key), literal_of(item)) for key, item in value.items()]
        whole = all(key is not None and item is not None for key, item in pairs)
        return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}" if whole else None
    return None


def _listed(kind: type, items: list[str | None]) -> str | None:
    if any(item is None for item in items):
        return None
    listed = ", ".join(map(str, items))
    if kind is tuple:
        return f"({listed},)"
    if kind is list:
        return f"[{listed}]"
    return f"{{{listed}}}" if kind is set else f"frozenset({{{listed}}})"


def holds_tensors(value: Any) -> bool:
    """Return whether a value is a tensor, a module with parameters or a generator, which exist in this process alone."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor | torch.nn.Module | torch.Generator)


def function_of(value: Any) -> types.FunctionType | None:
    """Return the function below decorators such as functools.wraps and triton.jit; None where there is none."""
    while inner := getattr(value, "__wrapped__", None) or getattr(value, "fn", None):
        value = inner
    return value if isinstance(value, types.FunctionType) else None


def is_from(value: Any, home: dict[str, Any]) -> bool:
    """Return whether a function, however decorated, or a class was defined in a module, given by its names."""
    function = function_of(value)
    if function is not None:
        return function.__globals__ is home
    return isinstance(value, type) and value.__module__ == home.get("__name__")


def importable(value: Any) -> tuple[str, str] | None:
    """Return the module and the name there from which a function or class can be imported; None where there is none."""
    if isinstance(value, types.BuiltinFunctionType) and (place := _c_function(value)) is not None:
        return place
    named = value if isinstance(value, type) else function_of(value) or value
    module, name = getattr(named, "__module__", None), getattr(named, "__qualname__", None)
    own = sys.modules.get(module) if isinstance(module, str) else None
    if own is None or not isinstance(name, str) or "<" in name or not (_is_plain(own) and _offers(own, name, value)):
        return None
    root = sys.modules[own.__name__.partition(".")[0]]  # where it has a public name: pairbench.Tolerance, torch.device
    return (root if vars(root).get(name) is value else own).__name__, name


def _c_function(value: Any) -> tuple[str, str] | None:
    """Return the module with the shortest public name that has a C function: torch's do not say where they are."""
    name = value.__name__
    offering = [one.__name__ for one in list(sys.modules.values()) if _is_plain(one) and vars(one).get(name) is value]
    return (min(offering, key=lambda one: ("._" in f".{one}", len(one), one)), name) if offering else None


def _is_plain(module: Any) -> bool:
    """Return whether a module can be imported elsewhere: neither the one that was started nor a suite, which is loaded by path."""
    if not isinstance(module, types.ModuleType) or getattr(module, "__spec__", None) is None:
        return False
    return module.__name__ != "__main__" and not module.__name__.startswith("pairbench_suites")


def _offers(module: types.ModuleType, name: str, value: Any) -> bool:
    found: Any = module
    for part in name.split("."):
        found = vars(found).get(part) if isinstance(found, types.ModuleType) else getattr(found, part, None)
    return found is value


def definition_of(value: Any) -> str | None:
    """Return the text that defines a function or class at the top level of its module, decorators included; None without one."""
    if isinstance(value, type):
        return _class_text(value)
    function = function_of(value)
    if function is None:
        return None
    node, text = find_function(function)
    # What a call has wrapped, as torch.compile(f), is not what the definition of `f` gives.
    whole = value is function or bool(getattr(node, "decorator_list", []))
    return text if isinstance(node, ast.stmt) and node.col_offset == 0 and whole else None


def _class_text(value: type) -> str | None:
    for method in filter(None, map(function_of, vars(value).values())):
        file, line = method.__code__.co_filename, method.__code__.co_firstlineno
        for node in _tree(file, method.__globals__).body:
            if isinstance(node, ast.ClassDef) and node.name == value.__name__ and node.lineno <= line <= _last(node):
                return _text_of(node, _source(file, method.__globals__))
    return None


def find_function(function: types.FunctionType) -> tuple[ast.AST | None, str]:
    """Return the node that defines a function or lambda, and its text from the margin; None where its source is nowhere."""
    code = function.__code__
    source = _source(code.co_filename, function.__globals__)
    found: ast.AST | None = None
    for node in ast.walk(_tree(code.co_filename, function.__globals__)):
        if isinstance(node, ast.Lambda) and code.co_name == "<lambda>":
            here = node.lineno == code.co_firstlineno and _holds(node.body, code)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            here = _first(node) == code.co_firstlineno
        else:
            continue
        found = node if here else found  # what is further inside comes later
    return found, _text_of(found, source) if found is not None else ""


def _holds(body: ast.expr, code: types.CodeType) -> bool:
    """Return whether a lambda's code comes from an expression: several may begin on one line."""
    end = (_last(body), body.end_col_offset or 0)
    places = [
        ((line, column), (last, stop))
        for line, last, column, stop in code.co_positions()
        if line and last and column is not None and stop is not None and (column, stop) != (0, 0)
    ]
    return bool(places) and all((body.lineno, body.col_offset) <= start and stop <= end for start, stop in places)


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _last(node: ast.AST) -> int:
    return getattr(node, "end_lineno", None) or 0


def _text_of(node: ast.AST, source: str) -> str:
    """Return a node's text from the margin, decorators included."""
    if isinstance(node, ast.stmt):
        lines = source.splitlines(keepends=True)[_first(node) - 1 : _last(node)]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return textwrap.dedent("".join(lines)).rstrip()
    segment = ast.get_source_segment(source, node) or ""
    return f"({segment})" if isinstance(node, ast.Lambda) else segment


def _source(file: str, namespace: dict[str, Any]) -> str:
    return "".join(linecache.getlines(file, namespace))


def _tree(file: str, namespace: dict[str, Any]) -> ast.Module:
    return _parsed(_source(file, namespace)) or ast.Module(body=[], type_ignores=[])


@functools.lru_cache(maxsize=64)
def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def has_future(function: types.FunctionType | None) -> bool:
    """Return whether a function was compiled with annotations that are not evaluated."""
    return function is not None and bool(function.__code__.co_flags & _FUTURE_ANNOTATIONS)


def used_names(text: str) -> set[str]:
    """Return the names of its module that a piece of text uses, without Python's own."""
    found: set[str] = set()

    def visit(table: symtable.SymbolTable) -> None:
        top = table.get_type() == "module"
        found.update(one.get_name() for one in table.get_symbols() if one.is_global() or (top and one.is_referenced()))
        for inner in table.get_children():
            visit(inner)

    visit(symtable.symtable(text, "<sent>", "exec"))
    return found - set(vars(builtins))


def statement_of(name: str, home: dict[str, Any]) -> str | None:
    """Return the last statement of a notebook, shell or script that gives a name its value; None where none can be found."""
    for source in _texts(home):
        tree = _parsed(source)
        for node in reversed(tree.body if tree else []):
            if name in _bound(node):
                return _text_of(node, source)
    return None


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _texts(home: dict[str, Any]) -> Iterator[str]:
    """Yield what was typed or run, the newest first: cells of IPython, lines of Python 3.13's shell, the script."""
    cells = home.get("In")
    if isinstance(cells, list):
        yield from (cell for cell in reversed(cells) if isinstance(cell, str))
    typed = [name for name in linecache.cache if name.startswith("<python-input-")]
    for name in sorted(typed, key=lambda one: int("".join(filter(str.isdigit, one)) or 0), reverse=True):
        yield "".join(linecache.getlines(name))
    if isinstance(file := home.get("__file__"), str):
        yield _source(file, home)


@functools.cache
def installed() -> tuple[Path, ...]:
    """Return the folders of what is installed, which other processes find by themselves."""
    paths = sysconfig.get_paths()
    return tuple(Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
