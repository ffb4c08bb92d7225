"""Where the functions, classes and names of a notebook, a shell or a script are defined, as text."""

import ast
import functools
import linecache
import textwrap
import types
from collections.abc import Iterator
from typing import Any


def function_of(value: Any) -> types.FunctionType | None:
    """Return the function below decorators such as functools.wraps and triton.jit; None where there is none."""
    while inner := getattr(value, "__wrapped__", None) or getattr(value, "fn", None):
        value = inner
    return value if isinstance(value, types.FunctionType) else None


def definition_of(value: Any) -> str | None:
    """Return the text that defines a function or class at the top level of its module, decorators included; None where there is none."""
    if isinstance(value, type):
        for method in filter(None, map(function_of, vars(value).values())):
            source, line = _source(method.__code__.co_filename, method.__globals__), method.__code__.co_firstlineno
            for node in _parsed(source).body:
                is_named = isinstance(node, ast.ClassDef) and node.name == value.__name__
                if is_named and node.lineno <= line <= (node.end_lineno or 0):
                    return _text_of(node, source)
        return None
    function = function_of(value)
    if function is None:
        return None
    definition, text = find_function(function)
    # A function that a call has wrapped, as torch.compile(f) does, is not the one that the definition of `f` gives.
    whole = value is function or bool(getattr(definition, "decorator_list", []))
    return text if isinstance(definition, ast.stmt) and definition.col_offset == 0 and whole else None


def find_function(function: types.FunctionType) -> tuple[ast.AST | None, str]:
    """Return the node that defines a function or lambda, and its text from the margin; None where there is no source."""
    code = function.__code__
    source = _source(code.co_filename, function.__globals__)
    found: ast.AST | None = None
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.Lambda) and code.co_name == "<lambda>":
            here = node.lineno == code.co_firstlineno and _holds(node.body, code)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            here = _first(node) == code.co_firstlineno
        else:
            continue
        found = node if here else found  # inner functions come later
    return found, _text_of(found, source) if found is not None else ""


def _holds(body: ast.expr, code: types.CodeType) -> bool:
    """Return whether an expression is the body of a lambda: several may begin on one line."""
    end = (body.end_lineno or 0, body.end_col_offset or 0)
    places = [
        ((line, column), (last, stop))
        for line, last, column, stop in code.co_positions()
        if line and last and column is not None and stop is not None and (column, stop) != (0, 0)
    ]
    return bool(places) and all((body.lineno, body.col_offset) <= start and stop <= end for start, stop in places)


def _first(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _text_of(node: ast.AST, source: str) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):  # with decorators
        return textwrap.dedent("\n".join(source.splitlines()[_first(node) - 1 : node.end_lineno]))
    segment = ast.get_source_segment(source, node) or ""
    return f"({segment})" if isinstance(node, ast.Lambda) else segment


def _source(file: str, namespace: dict[str, Any] | None = None) -> str:
    return "".join(linecache.getlines(file, namespace))


@functools.lru_cache(maxsize=64)
def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def statement_of(name: str, home: dict[str, Any]) -> str | None:
    """Return the last statement of a notebook, shell or script that assigns a name; None where there is none."""
    statements = ((node, source) for source in _texts(home) for node in reversed(_parsed(source).body))
    return next((_text_of(node, source) for node, source in statements if name in _bound(node)), None)


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _texts(home: dict[str, Any]) -> Iterator[str]:
    """Yield the code of this process, the newest first: IPython's cells, lines of Python 3.13's shell, the script."""
    cells = home.get("In")
    if isinstance(cells, list):
        yield from (cell for cell in reversed(cells) if isinstance(cell, str))
    typed = [name for name in linecache.cache if name.startswith("<python-input-")]
    for name in sorted(typed, key=lambda one: int("".join(filter(str.isdigit, one)) or 0), reverse=True):
        yield _source(name)
    if isinstance(file := home.get("__file__"), str):
        yield _source(file, home)
