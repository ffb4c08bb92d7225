"""The source of a function or class as text that comments, docstrings and layout do not change."""

import ast
import functools
import inspect
import linecache
import sys
from typing import Any

from pairbench.suite.modules import STATEMENTS


@functools.cache  # a helper is reached from every variant that uses it
def code_text(value: Any) -> str:
    """Return the source of a function or class as a syntax tree without positions and docstrings; its bytecode where there is no source."""
    try:
        node = _found(value)
    except (SyntaxError, ValueError):
        node = None
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
    end = max((line, column) for _, line, _, column in code.co_positions() if line and column)
    several = [node for node in _lambdas(source) if node.lineno == code.co_firstlineno]
    return min(several, key=lambda node: (node.body.end_lineno, node.body.end_col_offset) != end, default=None)


def _read(file: str, namespace: dict[str, Any]) -> str:
    return "".join(linecache.getlines(file, namespace))


_parsed = functools.cache(ast.parse)


@functools.cache
def _lambdas(source: str) -> list[ast.Lambda]:
    return [node for node in ast.walk(_parsed(source)) if isinstance(node, ast.Lambda)]


class _Definitions(ast.NodeVisitor):
    """What a file defines. Reading it once is many times faster than asking inspect for every function."""

    def __init__(self, source: str) -> None:
        self.functions: dict[tuple[int, str], ast.stmt] = {}
        """By the line on which they, or their decorators, begin, and their name."""
        self.classes: dict[str, ast.stmt] = {}
        """By qualified name."""
        self._scope: list[str] = []
        self.visit(_parsed(source))

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
