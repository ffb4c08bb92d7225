"""Reads the descriptions of operators from the text of a suite's file, without running it, so without torch and without trust.

Pages of the site show a paragraph and link to a line, of files that may be of another checkout or may not load any more.
"""

import ast
import contextlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from pairbench.model.site import About

_LARGEST, _LONGEST = 4 * 2**20, 600
"""Most bytes of a file, of which the largest suites have some 20,000, and most characters of a summary."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def about(path: Path, shown: str) -> dict[str, About]:
    """Return the description of each operator that a file declares under a literal name; none of a file that cannot be parsed."""
    # `shown` is the file's name in records.
    # The parser raises several errors for deep nesting, and a ValueError for bytes that are no text.
    with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        if path.is_file() and path.stat().st_size <= _LARGEST:
            with warnings.catch_warnings():  # such as those of invalid escapes
                warnings.simplefilter("ignore")
                return _found(ast.parse(path.read_bytes()), shown)
    return {}


def _found(module: ast.Module, shown: str) -> dict[str, About]:
    functions = {node.name: node for node in module.body if isinstance(node, _Function)}
    assigned = [node for node in module.body if isinstance(node, ast.Assign)]
    targets = [(target, node.value) for node in assigned for target in node.targets]
    texts = {  # literal ones, as of `SOURCE = "candle #3531"`
        target.id: value.value
        for target, value in targets
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str)
    }
    whole = _summary(module)
    found: dict[str, About] = {}
    for call in _operators(module):
        arguments = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        name = _text(call.args[0] if call.args else arguments.get("name"), texts)
        if not name or name in found:  # a suite with two operators of one name does not load
            continue
        baseline = functions.get(_function(arguments.get("baseline")))
        found[name] = About(
            summary=(_summary(baseline) if baseline else "") or whole,
            source=_text(arguments.get("source"), texts) or "",
            owner=_text(arguments.get("owner"), texts) or "",
            path=shown,
            line=call.lineno,
        )
    return found


def _operators(module: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls of `Operator`, under whatever name the file imports it, in the order of the file."""
    names = {"Operator"}
    calls: list[ast.Call] = []
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pairbench":
            names |= {alias.asname for alias in node.names if alias.name == "Operator" and alias.asname}
        elif isinstance(node, ast.Call):
            calls.append(node)
    for call in sorted(calls, key=lambda one: (one.lineno, one.col_offset)):
        called = call.func
        is_named = isinstance(called, ast.Name) and called.id in names
        if is_named or (isinstance(called, ast.Attribute) and called.attr == "Operator"):
            yield call


def _text(node: ast.expr | None, texts: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return texts.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left, texts), _text(node.right, texts)
        return None if left is None or right is None else left + right
    return None


def _function(node: ast.expr | None) -> str:
    """Return the name of the function of an implementation, given alone or as an argument of `Variant(...)`."""
    if isinstance(node, ast.Call):
        given = [keyword.value for keyword in node.keywords if keyword.arg == "function"]
        node = next(iter([*node.args, *given]), None)
    return node.id if isinstance(node, ast.Name) else ""


def _summary(node: ast.Module | _Function) -> str:
    """Return the first paragraph of a docstring on one line."""
    words = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
