"""Which files a suite is made of, read from its import statements: nothing in them runs, so any commit's can be asked."""

import ast
import functools
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pairbench.suite.modules import file_beside, find_package, parse_module

_NOT_FOLLOWED = frozenset({"pairbench", "site-packages", "dist-packages"})
"""The package pairbench itself is no part of a suite, and what is installed belongs to the environment."""


SOURCES = frozenset((".cu", ".cuh", ".c", ".cc", ".cpp", ".h", ".hpp", ".ptx", ".s", ".ll", ".mlir", ".hip", ".cl"))
"""Endings of files that a suite compiles by itself, or may: no hash is made of them."""


@dataclass(frozen=True, kw_only=True)
class ReachedFiles:
    """The files of one suite."""

    tree: frozenset[Path]
    """The suite's file and what it imports from the tree of suites, kernels included: what hashes are made of."""
    packages: frozenset[Path]
    """Files of the same repository that it imports by their packages' names, which no hash covers."""


def reached_files(suite: Path, repository: Path) -> ReachedFiles:
    """Return the files that a suite imports, those of its helpers included.

    Imports inside of functions count. What is loaded in any other way, by a name put together for instance, is not found.
    """
    tree: set[Path] = set()
    packages: set[Path] = set()
    # From a package no way leads back into the tree of suites.
    for found, start in ((tree, [suite]), (packages, [])):
        waiting = start or [file for one in tree for name in _imports(one).names for file in _of(name, repository)]
        while waiting:
            file = waiting.pop()
            if file in found:
                continue
            found.add(file)
            waiting += _imports(file).files
            if found is packages:
                waiting += (other for name in _imports(file).names for other in _of(name, repository))
    return ReachedFiles(tree=frozenset(tree), packages=frozenset(packages) - tree)


_COMPILER = re.compile(rb"\b(torch\.compile|flex_attention|_dynamo|_inductor)\b")


def names_compiler(suites: Iterable[Path], repository: Path) -> bool:
    """Return whether the text of any suite, or of a file that it imports, names torch's compiler."""
    return any(
        _COMPILER.search(_text(file))
        for suite in suites
        for reached in [reached_files(suite, repository)]
        for file in reached.tree | reached.packages
    )


def _text(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # who loads it says what is wrong with it
        return b""


def sources_beside(files: Iterable[Path]) -> set[Path]:
    """Return the sources of compiled code that lie in the folders of some files."""
    folders = {file.parent for file in files}
    return {path for folder in folders for path in folder.iterdir() if path.suffix in SOURCES}


def forget() -> None:
    """Forget which packages there are, and which files lie beside one another: some have come or gone."""
    _imports_of.cache_clear()
    _places.cache_clear()


@dataclass(frozen=True, kw_only=True)
class _Imports:
    """What one file imports."""

    files: frozenset[Path] = frozenset()
    """Files that are imported by relative or plain names."""
    names: frozenset[str] = frozenset()
    """Names of packages and modules that are imported."""


def _imports(file: Path) -> _Imports:
    """Return what a file imports; who watches files asks again and again while they change."""
    try:
        state = file.stat()
    except OSError:
        return _Imports()
    return _imports_of(file, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=4096)
def _imports_of(file: Path, _mtime_ns: int, _size: int) -> _Imports:
    try:
        module = parse_module(file)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return _Imports()  # who loads it says what is wrong with it
    files: set[Path] = set()
    names: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            files |= set(_relative(file, node))
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return _Imports(files=frozenset(files), names=frozenset(names))


def _relative(file: Path, node: ast.ImportFrom) -> Iterator[Path]:
    folder = file.parent
    for _ in range(node.level - 1):
        folder = folder.parent
    for alias in node.names:
        parts = [*(node.module or "").split("."), alias.name]
        yield from _along(folder, [part for part in parts if part])


def _along(folder: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the files that are run for a dotted name below a folder, as far as they are there."""
    for part in parts:
        yield from filter(None, [_package_file(folder), file_beside(folder, part)])
        folder /= part
    yield from filter(None, [_package_file(folder)])


def _package_file(folder: Path) -> Path | None:
    file = folder / "__init__.py"
    return file if file.is_file() else None


def _of(name: str, repository: Path) -> Iterator[Path]:
    """Yield the files of a dotted name that belong to the repository."""
    first, _, rest = name.partition(".")
    for place in _places(first, repository):
        if place.is_file():
            yield place
        else:
            yield from _along(place, [part for part in rest.split(".") if part])


@functools.cache
def _places(package: str, repository: Path) -> tuple[Path, ...]:
    """Return where a package or a module of the repository is; nothing for all others."""
    if package in sys.stdlib_module_names or package in _NOT_FOLLOWED:
        return ()
    try:
        spec = find_package(package)
    except (ImportError, ValueError, AttributeError, OSError):
        return ()
    if spec is None:
        return ()
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])]
    resolved = {Path(place).resolve() for place in places}
    return tuple(
        sorted(
            place
            for place in resolved
            if place.is_relative_to(repository) and not _NOT_FOLLOWED & {*place.relative_to(repository).parts}
        )
    )
