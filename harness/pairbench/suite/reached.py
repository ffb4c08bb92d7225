"""Reads suites as text, without running them, so without torch and without trust: the files that they import, and the descriptions of their operators.

The files of any commit can be read so, and those that do not load any more.
"""

import ast
import contextlib
import functools
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pairbench.suite.modules import file_beside, find_package, parse_module

if TYPE_CHECKING:
    from pairbench.model.site import About  # it loads NumPy, which a command's help does without

_NOT_FOLLOWED = frozenset({"pairbench", "site-packages", "dist-packages"})
"""Packages that are no part of a suite: pairbench itself, and installed ones, which belong to the environment."""

SOURCES = frozenset((".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp", ".ptx", ".s", ".ll", ".mlir", ".hip", ".cl"))
"""Endings of files that a suite may compile by itself: no hash covers them."""
_LARGEST, _LONGEST = 4 * 2**20, 600
"""Most bytes of a file, of which the largest suites have some 20,000, and most characters of a summary."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class ReachedFiles(NamedTuple):
    tree: frozenset[Path]
    """The suite's file and the files that it imports from the tree of suites, kernels included; hashes cover them."""
    packages: frozenset[Path]  # files of its repository that it imports by their packages' names; no hash covers them


def reached_files(suite: Path, repository: Path) -> ReachedFiles:
    """Return the files that a suite and its helpers import, packages of the repository included."""
    # Imports inside of functions count; imports by names that are made at run time are not found.

    def imported(file: Path) -> Iterator[Path]:
        for name in _imports(file)[1]:
            package, *parts = name.split(".")
            for place in _places(package, repository):
                yield from [place] if place.is_file() else _along(place, parts)

    tree = _closure([suite], lambda file: _imports(file)[0])
    start = [other for file in tree for other in imported(file)]  # packages do not import the tree of suites
    return ReachedFiles(tree, _closure(start, lambda file: [*_imports(file)[0], *imported(file)]) - tree)


def _closure(waiting: list[Path], following: Callable[[Path], Iterable[Path]]) -> frozenset[Path]:
    reached: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file not in reached:
            reached.add(file)
            waiting += following(file)
    return frozenset(reached)


def names_compiler(suites: Iterable[Path], repository: Path) -> bool:
    """Return whether the text of any suite, or of a file that it imports, names torch's compiler; problems have a compiled variant."""
    names = re.compile(rb"\b(torch\.compile|flex_attention|_dynamo|_inductor|def get_inputs)\b")
    for suite in suites:
        if suite.suffix != ".py":
            return True
        reached = reached_files(suite, repository)
        for file in reached.tree | reached.packages:
            with contextlib.suppress(OSError):  # loading the file reports it
                if names.search(file.read_bytes()):
                    return True
    return False


def sources_beside(files: Iterable[Path]) -> set[Path]:
    return {path for folder in {file.parent for file in files} for path in folder.iterdir() if path.suffix in SOURCES}


def forget() -> None:
    """Clear the caches of packages and of files beside one another, after some have come or gone."""
    _imports_of.cache_clear()
    _places.cache_clear()


def _imports(file: Path) -> tuple[set[Path], set[str]]:
    """Return the files that a file imports by relative or plain names, and the names of the packages and modules that it imports."""
    # Cached while the file does not change, for `try --watch` asks five times a second.
    try:
        state = file.stat()
    except OSError:
        return set(), set()
    return _imports_of(file, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=4096)
def _imports_of(file: Path, _mtime_ns: int, _size: int) -> tuple[set[Path], set[str]]:
    files, names = set[Path](), set[str]()
    try:
        module = parse_module(file)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return files, names  # loading the file reports it
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            folder = file.parents[min(node.level, len(file.parents)) - 1]
            parts = node.module.split(".") if node.module else []
            files |= {found for alias in node.names for found in _along(folder, [*parts, alias.name])}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return files, names


def _along(folder: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the files that an import of a dotted name below a folder runs, if they exist."""
    folders = [folder.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    yield from filter(Path.is_file, (one / "__init__.py" for one in folders))
    yield from filter(None, map(file_beside, folders, parts))


@functools.cache
def _places(package: str, repository: Path) -> tuple[Path, ...]:
    """Return the folders or files of a package or module of the repository; nothing for other packages."""
    spec = None
    with contextlib.suppress(ImportError, ValueError, AttributeError, OSError):
        if package not in sys.stdlib_module_names and package not in _NOT_FOLLOWED:
            spec = find_package(package)
    if spec is None:
        return ()
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])]
    inside = {place for place in (Path(one).resolve() for one in places) if place.is_relative_to(repository)}
    return tuple(sorted(one for one in inside if not _NOT_FOLLOWED & {*one.relative_to(repository).parts}))


def about(path: Path, shown: str) -> "dict[str, About]":
    """Return the description of each operator that a file declares under a literal name; none of a file that cannot be parsed."""
    # `shown` is the file's name in records.
    # The parser raises several errors for deep nesting, and a ValueError for bytes that are no text.
    with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        if path.is_file() and path.stat().st_size <= _LARGEST:
            with warnings.catch_warnings():  # such as those of invalid escapes
                warnings.simplefilter("ignore")
                return _found(ast.parse(path.read_bytes()), shown)
    return {}


def _found(module: ast.Module, shown: str) -> "dict[str, About]":
    from pairbench.model.site import About

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
        summary = (_summary(baseline) if baseline else "") or whole
        source, owner = (_text(arguments.get(given), texts) or "" for given in ("source", "owner"))
        found[name] = About(summary=summary, source=source, owner=owner, path=shown, line=call.lineno)
    return found


def _operators(module: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls of `Operator`, under whatever name the file imports it, in the order of the file."""
    names, calls = {"Operator"}, list[ast.Call]()
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
    words = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
