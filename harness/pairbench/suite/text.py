"""What a suite's file says of its operators, read as text: nothing in it runs, so it needs neither torch nor trust.

Beside `suite`, which imports a file to measure what it declares. A page wants one paragraph and a line to link to, from
files that may come from another checkout or have been broken since.
"""

import ast
import inspect
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from pairbench.model.site import About

_LARGEST = 4 * 2**20
"""Bytes that a file may have: the largest suites have some 20,000."""
_LONGEST = 600
"""Letters of a summary."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def about(path: Path, shown: str) -> dict[str, About]:
    """Return what a suite's file says of each operator that it declares under a name which is plain text."""
    try:
        module = _parsed(path)
        return _found(module, shown) if module else {}
    # The parser gives up on deep nesting in several ways, and on bytes that are no text with a ValueError.
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def _parsed(path: Path) -> ast.Module | None:
    if not path.is_file() or path.stat().st_size > _LARGEST:
        return None
    content = path.read_bytes()
    with warnings.catch_warnings():  # of escapes, say: not this reader's business
        warnings.simplefilter("ignore")
        return ast.parse(content)


def _found(module: ast.Module, shown: str) -> dict[str, About]:
    functions = {node.name: node for node in module.body if isinstance(node, _Function)}
    texts = dict(_constants(module))
    whole = _summary(module)
    found: dict[str, About] = {}
    for call in _operators(module):
        arguments = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        name = _text(call.args[0] if call.args else arguments.get("name"), texts)
        if not name or name in found:  # a suite with two of one name does not load
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
    """Yield the calls of `Operator`, under whatever name it was imported, in the order of the file."""
    names = {"Operator"}
    calls: list[ast.Call] = []
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pairbench":
            names |= {alias.asname for alias in node.names if alias.name == "Operator" and alias.asname}
        elif isinstance(node, ast.Call):
            calls.append(node)
    for call in sorted(calls, key=lambda one: (one.lineno, one.col_offset)):
        called = call.func
        if (isinstance(called, ast.Name) and called.id in names) or (
            isinstance(called, ast.Attribute) and called.attr == "Operator"
        ):
            yield call


def _constants(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names that the file gives to plain texts, as `SOURCE = "candle #3531"` does."""
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value.value


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
    """Return the name of the function that an implementation is: itself, or what a `Variant(...)` is made of."""
    if isinstance(node, ast.Call):
        given = [keyword.value for keyword in node.keywords if keyword.arg == "function"]
        node = next(iter([*node.args, *given]), None)
    return node.id if isinstance(node, ast.Name) else ""


def _summary(node: ast.Module | _Function) -> str:
    """Return the first paragraph of what documents it, on one line."""
    documented = ast.get_docstring(node, clean=False)
    paragraph = inspect.cleandoc(documented or "").partition("\n\n")[0]
    words = " ".join(paragraph.split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
