"""Reads the descriptions of operators from the text of a suite's file, without running it, so without torch and without trust.

Pages of the site show a paragraph and link to a line, of files that may be of another checkout or may not load any more.
"""

import ast
import inspect
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from pairbench.model.site import About

_LARGEST = 4 * 2**20
"""Most bytes of a file; the largest suites have some 20,000."""
_LONGEST = 600
"""Most characters of a summary."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def about(path: Path, shown: str) -> dict[str, About]:
    """Return the description of each operator that a file declares under a literal name; none of a file that cannot be parsed.

    `shown` is the file's name in records.
    """
    try:
        module = _parsed(path)
        return _found(module, shown) if module else {}
    # The parser raises several errors for deep nesting, and a ValueError for bytes that are no text.
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def _parsed(path: Path) -> ast.Module | None:
    if not path.is_file() or path.stat().st_size > _LARGEST:
        return None
    content = path.read_bytes()
    with warnings.catch_warnings():  # such as those of invalid escapes
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
        if (isinstance(called, ast.Name) and called.id in names) or (
            isinstance(called, ast.Attribute) and called.attr == "Operator"
        ):
            yield call


def _constants(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names and values of literal texts, as of `SOURCE = "candle #3531"`."""
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
    """Return the name of the function of an implementation, given alone or as an argument of `Variant(...)`."""
    if isinstance(node, ast.Call):
        given = [keyword.value for keyword in node.keywords if keyword.arg == "function"]
        node = next(iter([*node.args, *given]), None)
    return node.id if isinstance(node, ast.Name) else ""


def _summary(node: ast.Module | _Function) -> str:
    """Return the first paragraph of a docstring on one line."""
    documented = ast.get_docstring(node, clean=False)
    paragraph = inspect.cleandoc(documented or "").partition("\n\n")[0]
    words = " ".join(paragraph.split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
