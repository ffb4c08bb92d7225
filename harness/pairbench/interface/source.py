"""Functions of a notebook, a shell or a script as text that another process can load, with everything that they use."""

import ast
import builtins
import functools
import sys
import textwrap
import types
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from pairbench.errors import UsageError
from pairbench.interface.lookup import (
    definition_of,
    find_function,
    function_of,
    has_future,
    holds_tensors,
    importable,
    installed,
    is_from,
    literal_of,
    statement_of,
    used_names,
)

_LETTERS = 60
"""Most characters of a value that a message shows."""
INTO_A_FILE = "put it into a file and import it from there: `from my_ops import name`"
"""What to do where something cannot be sent."""


class SourceText:
    """The text of a module that is being put together: for each value the expression that gives it there."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._names: dict[str, object] = {}
        """What each name of the text stands for."""
        self._home: dict[str, Any] | None = None
        """The names of the module that functions are taken from: the notebook, shell or script."""
        self._paths: list[str] = []
        self._future = False

    def text(self) -> str:
        """Return the module as far as it is put together."""
        head = ["from __future__ import annotations"] if self._future else []
        if self._paths:
            head += ["import sys as _sys", f"_sys.path += [path for path in {self._paths!r} if path not in _sys.path]"]
        return "\n".join([*head, *self._parts, ""])

    def add(self, text: str) -> None:
        """Append lines of one's own."""
        self._parts.append(text)

    def free_name(self, wanted: str) -> str:
        """Return a name that nothing has yet, and keep it."""
        name, number = wanted, 1
        while name in self._names or name in (self._home or {}) or hasattr(builtins, name):
            number += 1
            name = f"{wanted}_{number}"
        self._names[name] = object()
        return name

    def imported(self, module: str) -> str:
        """Import a module, and return it as an expression."""
        first = module.partition(".")[0]
        if self._home is not None and self._home.get(first, sys.modules.get(first)) is not sys.modules.get(first):
            name = self.free_name(f"_{first}")  # the notebook has something else under that name
            self._parts.append(f"import {module} as {name}")
            return name
        if f"import {module}" not in self._parts:
            self._find_again(module)
            self._parts.append(f"import {module}")
            self._names[first] = sys.modules.get(first)
        return module

    def expression(self, value: Any, what: str) -> str:
        """Return an expression that gives a value in the module, to which what it needs is added.

        Args:
            value: A function, class, module, plain value, or container of these.
            what: How a message names it, such as `variant 'mine'`.

        Raises:
            UsageError: it cannot be sent, with the reason.
        """
        if (literal := literal_of(value)) is not None:
            return self._with_torch(literal)
        if isinstance(value, types.ModuleType):
            return self.imported(value.__name__)
        if (name := self._name_at_home(value)) is not None:
            return self._global(name, what)
        if isinstance(value, functools.partial):
            return self._partial(value, what)
        if isinstance(value, tuple | list | dict):
            return self._container(value, what)
        if is_dataclass(value) and not isinstance(value, type):
            kind = self.expression(type(value), what)
            differing = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
            defaults = {one.name: one.default for one in fields(value)}
            given = (
                f"{name}={self.expression(item, what)}"
                for name, item in differing.items()
                if item is not defaults[name]
            )
            return f"{kind}({', '.join(given)})"
        if (place := importable(value)) is not None:
            return f"{self.imported(place[0])}.{place[1]}"
        if isinstance(value, types.MethodDescriptorType):
            return f"{self.expression(value.__objclass__, what)}.{value.__name__}"
        if isinstance(value, types.FunctionType) and function_of(value) is value:
            return self._function(value, what)
        raise _cannot_be_sent(what, value)

    def _with_torch(self, literal: str) -> str:
        if "torch." in literal:
            self.imported("torch")
        return literal

    def _container(self, value: "tuple[Any, ...] | list[Any] | dict[Any, Any]", what: str) -> str:
        if isinstance(value, dict):
            pairs = (f"{self.expression(key, what)}: {self.expression(item, what)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        items = "".join(f"{self.expression(item, what)}, " for item in value)
        return f"({items})" if isinstance(value, tuple) else f"[{items}]"

    def _partial(self, value: "functools.partial[Any]", what: str) -> str:
        parts = [self.expression(value.func, what), *(self.expression(item, what) for item in value.args)]
        parts += [f"{name}={self.expression(item, what)}" for name, item in value.keywords.items()]
        return f"{self.imported('functools')}.partial({', '.join(parts)})"

    def _find_again(self, module: str) -> None:
        """Have the other process look for a module where this one found it, unless it was installed."""
        file = getattr(sys.modules.get(module), "__file__", None)
        if file and not _is_installed(Path(file)):
            folders = (Path(path).resolve() for path in sys.path)
            self._paths = [str(folder) for folder in folders if folder.is_dir() and not _is_installed(folder)]

    def _name_at_home(self, value: Any) -> str | None:
        """Return the name that a value has in the notebook, shell or script; None where it has none there."""
        home = self._home if self._home is not None else vars(sys.modules["__main__"])
        own = getattr(value, "__name__", None)
        if isinstance(own, str) and home.get(own) is value:
            return own if is_from(value, home) else None
        if importable(value) is not None or not (callable(value) or is_dataclass(value)):
            return None
        return next((name for name, one in home.items() if one is value and not name.startswith("_")), None)

    def _global(self, name: str, what: str) -> str:
        """Add what a name stands for in the notebook, shell or script, and return the name."""
        home = self._home = self._home if self._home is not None else vars(sys.modules["__main__"])
        value = home[name]
        if name in self._names:
            if self._names[name] is value:
                return name
            raise UsageError(f"{what} uses {name!r} in two meanings; give one of them another name")
        self._names[name] = value  # first, for a function may call itself
        self._bind(name, value, home, f"{name!r}, which {what} uses," if f"{name!r}" not in what else what)
        return name

    def _bind(self, name: str, value: Any, home: dict[str, Any], what: str) -> None:
        """Add lines that give a name its value."""
        own = getattr(value, "__name__", None)
        annotated = name in home.get("__annotations__", {})  # Triton asks for `tl.constexpr`
        if isinstance(value, types.ModuleType):
            self._find_again(value.__name__)
            self._parts.append(f"import {value.__name__}{'' if value.__name__ == name else f' as {name}'}")
        elif (literal := literal_of(value)) is not None and not annotated:
            self._parts.append(f"{name} = {self._with_torch(literal)}")
        elif is_from(value, home) and own == name and (definition := definition_of(value)) is not None:
            self._define(definition, function_of(value), home, what)
        elif (place := importable(value)) is not None:
            self._parts.append(f"{name} = {self.imported(place[0])}.{place[1]}")
        elif isinstance(value, types.FunctionType) and function_of(value) is value:
            named = isinstance(own, str) and own != name and home.get(own) is value
            self._parts.append(f"{name} = {self._global(own, what) if named else self._function(value, what)}")  # type: ignore[arg-type]
        elif isinstance(value, functools.partial):
            self._parts.append(f"{name} = {self._partial(value, what)}")
        elif not holds_tensors(value) and (statement := statement_of(name, home)) is not None:
            inner = function_of(value)
            if inner is not None and inner.__name__ == name and (definition := definition_of(inner)) is not None:
                self._define(definition, inner, home, what)  # as in `f = torch.compile(f)`
            self._need(statement, home, what)
            self._parts.append(statement)
        else:
            raise _cannot_be_sent(what, value)

    def _define(self, definition: str, function: types.FunctionType | None, home: dict[str, Any], what: str) -> None:
        """Add a definition of the top level, and before it what it uses."""
        self._future = self._future or has_future(function)
        self._need(definition, home, what)
        self._parts.append(definition)

    def _function(self, value: types.FunctionType, what: str) -> str:
        """Add a function that no name of its module stands for, and return an expression for it."""
        self._home = self._home if self._home is not None else value.__globals__
        if value.__globals__ is not self._home:
            raise UsageError(
                f"{what} is a function within module {value.__module__!r}, not at its top level; {INTO_A_FILE}"
            )
        node, text = find_function(value)
        if node is None:
            raise _cannot_be_sent(what, value)
        closed = {
            name: self.expression(cell, f"{name!r}, a local variable that {what} uses,")
            for name, cell in _cells(value, what)
        }
        self._future = self._future or has_future(value)
        self._need(text, self._home, what, local=closed.keys())
        name = self.free_name("_function" if isinstance(node, ast.Lambda) else f"_{value.__name__}")
        if isinstance(node, ast.Lambda) and not closed:
            self._parts.append(f"{name} = {text}")
            return name
        inner = f"return {text}" if isinstance(node, ast.Lambda) else f"{text}\nreturn {value.__name__}"
        self._parts.append(f"def {name}({', '.join(closed)}):\n{textwrap.indent(inner, '    ')}")
        return f"{name}({', '.join(f'{key}={text}' for key, text in closed.items())})"

    def _need(self, text: str, home: dict[str, Any], what: str, *, local: AbstractSet[str] = frozenset()) -> None:
        """Add the names of the module that some text uses."""
        for name in sorted(used_names(text) - local):
            if name in home:
                self._global(name, what)


def _is_installed(path: Path) -> bool:
    return any(path.resolve().is_relative_to(place) for place in installed())


def _cells(function: types.FunctionType, what: str) -> Iterator[tuple[str, Any]]:
    """Yield the local variables of enclosing functions that a function uses, with their values."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            raise UsageError(f"{what} uses the local variable {name!r}, which has no value; {INTO_A_FILE}") from None
        if value is function:
            raise UsageError(f"{what} calls itself from within another function; {INTO_A_FILE}")
        yield name, value


def _cannot_be_sent(what: str, value: Any) -> UsageError:
    nowhere = getattr(sys.modules["__main__"], "__file__", "<string>") in ("<stdin>", "<string>")
    if nowhere and not hasattr(sys, "ps1") and sys.excepthook is sys.__excepthook__:
        # `python -c`, or a script on standard input: its lines are nowhere, and a traceback without them says nothing.
        sys.excepthook = _say_in_a_sentence
    return UsageError(f"{what} {_why_not(value)}")


def _say_in_a_sentence(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    if isinstance(error, UsageError):
        sys.stderr.write(f"pairbench: {error}\n")
    else:
        sys.__excepthook__(kind, error, trace)


def _why_not(value: Any) -> str:
    """Return the rest of a sentence that says why a value cannot be sent, and what to do."""
    kind = type(value).__qualname__
    if holds_tensors(value):
        return f"is a {kind} that exists in this process alone; pass it as an input, or make it within inputs()"
    if isinstance(value, types.FunctionType):
        return f"has no source that can be found, as what is typed into a shell, given to `python -c` or standard input, or made by exec has none; {INTO_A_FILE}"
    if isinstance(value, types.MethodType):
        return f"is a method of an object that exists in this process alone ({value.__qualname__}); {INTO_A_FILE}"
    if isinstance(value, types.BuiltinFunctionType):
        return f"is the C function {value.__name__!r}, which no module has under that name; call it within a function: def mine(x): ..."
    return f"is {value!r:.{_LETTERS}}, a {kind} that cannot be sent to another process; {INTO_A_FILE}"
