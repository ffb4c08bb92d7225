"""Functions of a notebook, a shell or a script as text that another process can load, with all definitions and imports that they need."""

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
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from pairbench.errors import UsageError

_LETTERS = 60  # the most characters of a value that a message shows
INTO_A_FILE = "put it into a file and import it from there: `from my_ops import name`"
_FUTURE_ANNOTATIONS = 0x1000000  # the flag of code that was compiled under `from __future__ import annotations`
_TORCH_PLAIN = ("dtype", "device", "memory_format", "layout")
_LISTED: dict[type, str] = {tuple: "({},)", list: "[{}]", set: "{{{}}}", frozenset: "frozenset({{{}}})"}


class SourceText:
    """The text of a module that is being written, which has an expression for each value that was added."""

    def __init__(self) -> None:
        self.written: dict[int, str] = {}  # expressions of functions that stand in the text, by the functions' ids
        self._parts: list[str] = []
        self.add = self._parts.append  # appends lines of source text
        self._names: dict[str, object] = {}  # what each name of the text stands for
        self._home: dict[str, Any] | None = None  # the names of the notebook or script that functions are taken from
        self._paths: list[str] = []
        self._future = False

    def text(self) -> str:
        """Return the text as far as it is written."""
        head = ["from __future__ import annotations"] if self._future else []
        if self._paths:
            head += ["import sys as _sys", f"_sys.path += [path for path in {self._paths!r} if path not in _sys.path]"]
        return "\n".join([*head, *self._parts, ""])

    def free_name(self, wanted: str) -> str:
        """Reserve a name that nothing has yet, and return it."""
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
            self.add(f"import {module} as {name}")
            return name
        if f"import {module}" not in self._parts:
            self._find_again(module)
            self.add(f"import {module}")
            self._names[first] = sys.modules.get(first)
        return module

    def expression(self, value: Any, what: str) -> str:
        """Return an expression for a value, and add the definitions and imports that it needs."""
        # `what` names the value in messages, as `variant 'mine'` does.
        if (known := self.written.get(id(value)) or self._literal(value)) is not None:
            return known
        if isinstance(value, types.ModuleType):
            return self.imported(value.__name__)
        if (name := self._name_at_home(value)) is not None:
            return self._global(name, what)
        if (found := self._callable(value, what)) is not None:
            return found
        if isinstance(value, dict):
            pairs = (f"{self.expression(key, what)}: {self.expression(item, what)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, tuple | list):
            items = "".join(f"{self.expression(item, what)}, " for item in value)
            return f"({items})" if isinstance(value, tuple) else f"[{items}]"
        if is_dataclass(value) and not isinstance(value, type):
            kind = self.expression(type(value), what)
            values = [(field.name, getattr(value, field.name), field.default) for field in fields(value) if field.init]
            given = (f"{name}={self.expression(item, what)}" for name, item, usual in values if item is not usual)
            return f"{kind}({', '.join(given)})"
        if isinstance(value, types.MethodDescriptorType):
            return f"{self.expression(value.__objclass__, what)}.{value.__name__}"
        raise _cannot_be_sent(what, value)

    def _literal(self, value: Any) -> str | None:
        if (literal := literal_of(value)) is not None and "torch." in literal:
            self.imported("torch")
        return literal

    def _callable(self, value: Any, what: str) -> str | None:
        """Return an expression for a function or class that can be imported, a function with source, or a partial of one; else None."""
        if (place := _importable(value)) is not None:
            return f"{self.imported(place[0])}.{place[1]}"
        if isinstance(value, functools.partial):
            parts = [self.expression(item, what) for item in (value.func, *value.args)]
            parts += [f"{name}={self.expression(item, what)}" for name, item in value.keywords.items()]
            return f"{self.imported('functools')}.partial({', '.join(parts)})"
        is_plain = isinstance(value, types.FunctionType) and function_of(value) is value
        return self._function(value, what) if is_plain else None

    def _find_again(self, module: str) -> None:
        """Have the other process look for a module where this one has found it, unless it is installed."""
        if (file := getattr(sys.modules.get(module), "__file__", None)) and not _is_installed(Path(file).resolve()):
            folders = (Path(path).resolve() for path in sys.path)
            self._paths = [str(folder) for folder in folders if folder.is_dir() and not _is_installed(folder)]

    @property
    def _names_at_home(self) -> dict[str, Any]:
        return self._home if self._home is not None else vars(sys.modules["__main__"])

    def _name_at_home(self, value: Any) -> str | None:
        """Return the name that a value has in the notebook, shell or script; None where it has none there."""
        home = self._names_at_home
        own = getattr(value, "__name__", None)
        if isinstance(own, str) and home.get(own) is value:
            return own if _is_from(value, home) else None
        if _importable(value) is not None or not (callable(value) or is_dataclass(value)):
            return None
        return next((name for name, one in home.items() if one is value and not name.startswith("_")), None)

    def _global(self, name: str, what: str) -> str:
        """Add the definition that a name has in the notebook, shell or script, and return the name."""
        self._home = self._names_at_home
        value = self._home[name]
        if name in self._names:
            if self._names[name] is value:
                return name
            raise UsageError(f"{what} uses {name!r} in two meanings; give one of them another name")
        self._names[name] = value  # first, for a function may call itself
        self._bind(name, value, f"{name!r}, which {what} uses," if f"{name!r}" not in what else what)
        return name

    def _bind(self, name: str, value: Any, what: str) -> None:
        """Add lines that give a name its value."""
        home, own = self._names_at_home, getattr(value, "__name__", "")
        if isinstance(value, types.ModuleType):
            self._find_again(own)
            self.add(f"import {own}{'' if own == name else f' as {name}'}")
        elif own == name and _is_from(value, home) and (text := definition_of(value)) is not None:
            self._define(text, function_of(value), what)
        elif (expression := self._assigned(name, value, what)) is not None:
            self.add(f"{name} = {expression}")
        elif not _holds_tensors(value) and (statement := statement_of(name, home)) is not None:
            inner = function_of(value)
            if inner is not None and inner.__name__ == name and (text := definition_of(inner)) is not None:
                self._define(text, inner, what)  # as in `f = torch.compile(f)`
            self._define(statement, None, what)
        else:
            raise _cannot_be_sent(what, value)

    def _assigned(self, name: str, value: Any, what: str) -> str | None:
        """Return an expression of what a name was assigned, a plain value, a function or a class; None where only its statement is known."""
        home, own = self._names_at_home, getattr(value, "__name__", "")
        annotated = name in home.get("__annotations__", {})  # Triton asks for `tl.constexpr`
        if not annotated and (literal := self._literal(value)) is not None:
            return literal
        is_alias = own != name and _is_from(value, home) and home.get(own) is value
        return self._global(own, what) if is_alias else self._callable(value, what)

    def _define(self, text: str, function: types.FunctionType | None, what: str) -> None:
        """Add a definition or another statement, after what its global names stand for."""
        self._future |= function is not None and bool(function.__code__.co_flags & _FUTURE_ANNOTATIONS)
        self._need(text, what)
        self.add(text)

    def _function(self, value: types.FunctionType, what: str) -> str:
        """Add a function that has no name in its module, and return an expression for it."""
        self._home = self._home if self._home is not None else value.__globals__
        if value.__globals__ is not self._home:
            within = f"a function within module {value.__module__!r}, not at its top level"
            raise UsageError(f"{what} is {within}; {INTO_A_FILE}")
        node, text = find_function(value)
        if node is None:
            raise _cannot_be_sent(what, value)
        used = f"a local variable that {what} uses,"
        closed = {name: self.expression(cell, f"{name!r}, {used}") for name, cell in _cells(value, what)}
        self._future |= bool(value.__code__.co_flags & _FUTURE_ANNOTATIONS)
        self._need(text, what, local=closed.keys())
        name = self.free_name("_function" if isinstance(node, ast.Lambda) else f"_{value.__name__}")
        if isinstance(node, ast.Lambda) and not closed:
            self.add(f"{name} = {text}")
            return name
        inner = f"return {text}" if isinstance(node, ast.Lambda) else f"{text}\nreturn {value.__name__}"
        self.add(f"def {name}({', '.join(closed)}):\n{textwrap.indent(inner, '    ')}")
        return f"{name}({', '.join(f'{key}={text}' for key, text in closed.items())})"

    def _need(self, text: str, what: str, *, local: AbstractSet[str] = frozenset()) -> None:
        """Add what the global names of a piece of text stand for, without builtins."""
        names: set[str] = set()
        tables = [symtable.symtable(text, "<sent>", "exec")]
        for table in tables:  # which grows
            top = table.get_type() == "module"
            symbols = table.get_symbols()
            names.update(one.get_name() for one in symbols if one.is_global() or (top and one.is_referenced()))
            tables += table.get_children()
        for name in sorted((names & self._names_at_home.keys()) - local - vars(builtins).keys()):
            self._global(name, what)


@functools.cache
def _is_installed(path: Path) -> bool:
    folders = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
    return any(path.is_relative_to(Path(folder).resolve()) for folder in folders)


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
        # `python -c`, or a script on standard input: a traceback cannot show its lines.
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
    if _holds_tensors(value):
        return f"is a {kind} that exists in this process alone; pass it as an input, or make it within inputs()"
    if isinstance(value, types.FunctionType):
        return f"has no source that can be found, as what is typed into a shell, given to `python -c` or standard input, or made by exec has none; {INTO_A_FILE}"
    if isinstance(value, types.MethodType):
        return f"is a method of an object that exists in this process alone ({value.__qualname__}); {INTO_A_FILE}"
    if isinstance(value, types.BuiltinFunctionType):
        return f"is the C function {value.__name__!r}, which no module has under that name; call it within a function: def mine(x): ..."
    return f"is {value!r:.{_LETTERS}}, a {kind} that cannot be sent to another process; {INTO_A_FILE}"


def literal_of(value: Any) -> str | None:
    """Return the text of a plain value, torch's dtypes and devices included; None for any other value."""
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
        items = [literal_of(item) for item in value]
        return None if None in items else _LISTED[type(value)].format(", ".join(map(str, items)))
    if type(value) is dict:
        pairs = [(literal_of(key), literal_of(item)) for key, item in value.items()]
        return None if None in sum(pairs, ()) else f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
    return None


def _holds_tensors(value: Any) -> bool:
    """Return whether a value is a tensor, a module or a generator, which exist in this process alone."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor | torch.nn.Module | torch.Generator)


def _is_from(value: Any, home: dict[str, Any]) -> bool:
    """Return whether a function, decorated or not, or a class was defined in the module that has these names."""
    if (function := function_of(value)) is not None:
        return function.__globals__ is home
    return isinstance(value, type) and value.__module__ == home.get("__name__")


def _importable(value: Any) -> tuple[str, str] | None:
    """Return the module and the name by which a function or class can be imported; None where it cannot be."""
    if isinstance(value, types.BuiltinFunctionType):  # torch's do not name their modules
        called, loaded = value.__name__, list(sys.modules.values())
        if offering := [one.__name__ for one in loaded if _is_plain(one) and vars(one).get(called) is value]:
            return min(offering, key=lambda one: ("._" in f".{one}", len(one), one)), called  # the shortest public name
    named = value if isinstance(value, type) else function_of(value) or value
    module, name = getattr(named, "__module__", None), getattr(named, "__qualname__", None)
    own = sys.modules.get(module) if isinstance(module, str) else None
    if own is None or not isinstance(name, str) or "<" in name or not (_is_plain(own) and _offers(own, name, value)):
        return None
    root = sys.modules[own.__name__.partition(".")[0]]  # where it has a public name: pairbench.Tolerance, torch.device
    return (root if vars(root).get(name) is value else own).__name__, name


def _is_plain(module: Any) -> bool:
    """Return whether another process can import a module: not the main module, nor a suite, which is loaded by path."""
    if not isinstance(module, types.ModuleType) or getattr(module, "__spec__", None) is None:
        return False
    return module.__name__ != "__main__" and not module.__name__.startswith("pairbench_suites")


def _offers(module: types.ModuleType, name: str, value: Any) -> bool:
    found: Any = module
    for part in name.split("."):
        found = vars(found).get(part) if isinstance(found, types.ModuleType) else getattr(found, part, None)
    return found is value


def function_of(value: Any) -> types.FunctionType | None:
    """Return the function below decorators such as functools.wraps and triton.jit; None where there is none."""
    while inner := getattr(value, "__wrapped__", None) or getattr(value, "fn", None):
        value = inner
    return value if isinstance(value, types.FunctionType) else None


def definition_of(value: Any) -> str | None:
    """Return the text that defines a function or class at the top level of its module, decorators included; None where there is none."""
    if isinstance(value, type):
        for method in filter(None, map(function_of, vars(value).values())):
            source, line = _source_of(method), method.__code__.co_firstlineno
            for node in _parsed(source).body:
                is_named = isinstance(node, ast.ClassDef) and node.name == value.__name__
                if is_named and node.lineno <= line <= (node.end_lineno or 0):
                    return _text_of(node, source)
        return None
    if (function := function_of(value)) is None:
        return None
    definition, text = find_function(function)
    # A function that a call has wrapped, as torch.compile(f) does, is not the one that the definition of `f` gives.
    whole = value is function or bool(getattr(definition, "decorator_list", []))
    return text if isinstance(definition, ast.stmt) and definition.col_offset == 0 and whole else None


def find_function(function: types.FunctionType) -> tuple[ast.AST | None, str]:
    """Return the node that defines a function or lambda, and its text from the margin; None where there is no source."""
    code = function.__code__
    source = _source_of(function)
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
    if not places:  # Python 3.12 has none for what returns a constant
        return ast.unparse(body) == repr(code.co_consts[-1])
    return all((body.lineno, body.col_offset) <= start and stop <= end for start, stop in places)


def _first(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _text_of(node: ast.AST, source: str) -> str:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):  # with decorators
        return textwrap.dedent("\n".join(source.splitlines()[_first(node) - 1 : node.end_lineno]))
    segment = ast.get_source_segment(source, node) or ""
    return f"({segment})" if isinstance(node, ast.Lambda) else segment


def _source_of(function: types.FunctionType) -> str:
    lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
    typed = getattr(linecache, "_getlines_from_code", lambda _: ())  # where Python 3.14 keeps what has no file
    return "".join(lines or typed(function.__code__))


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
    """Yield the code of this process, the newest first: IPython's cells, lines of the shell from Python 3.13 on, the script."""
    if isinstance(cells := home.get("In"), list):
        yield from (cell for cell in reversed(cells) if isinstance(cell, str))
    kept = {name: entry for (name, *_), entry in getattr(linecache, "_interactive_cache", {}).items()}  # of Python 3.14
    kept |= linecache.cache
    typed = [name for name in kept if name.startswith("<python-input-")]
    for name in sorted(typed, key=lambda one: int("".join(filter(str.isdigit, one)) or 0), reverse=True):
        yield "".join(kept[name][2])
    if isinstance(file := home.get("__file__"), str):
        yield "".join(linecache.getlines(file, home))
