"""Whether code is what the file that it names holds: a suite may compile code of its own under the name of a library's file."""

import contextlib
import functools
import importlib._bootstrap
import importlib._bootstrap_external
import importlib.util
import marshal
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

_compile, _read = compile, Path.read_bytes
_FROZEN: tuple[ModuleType, ...] = (importlib._bootstrap, importlib._bootstrap_external)
"""Modules of Python's own that have no file."""
_HEADER = 16
"""Bytes before the code in a file of bytecode."""


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of the functions and classes that it makes."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_within(constant)


@functools.cache
def is_genuine(code: CodeType) -> bool:
    """Return whether the file that a code object names has it, compared by value; this is asked of few."""
    if code.co_filename.startswith("<frozen "):
        return code in _of_frozen_modules()
    return code in _of_file(code.co_filename)


@functools.cache
def _of_file(file: str) -> frozenset[CodeType]:
    """Return the code of a file: of its text, and of its bytecode, which another release of Python may have made."""
    found = set[CodeType]()
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        found.update(codes_within(_compile(_read(Path(file)), file, "exec", dont_inherit=True)))
    with contextlib.suppress(OSError, NotImplementedError, ValueError, EOFError, TypeError):
        found.update(codes_within(marshal.loads(_read(Path(importlib.util.cache_from_source(file)))[_HEADER:])))  # noqa: S302 (what Python loads)
    return frozenset(found)


@functools.cache
def _of_frozen_modules() -> frozenset[CodeType]:
    functions = [
        function
        for module in _FROZEN
        for value in vars(module).values()
        for function in (value, *(vars(value).values() if isinstance(value, type) else ()))
    ]
    plain = [getattr(function, "__func__", function) for function in functions]
    return frozenset(code for one in plain if isinstance(one, FunctionType) for code in codes_within(one.__code__))
