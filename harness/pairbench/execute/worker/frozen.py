"""Values as they were before any variant ran: measuring code, judging code and declarations, compared by identity and restored.

A value is frozen by its parts: the names of a module or class, the fields of a declaration, the elements of a list, the code, defaults and closure of a function.
Mutable parts are frozen in turn, so that a look compares identities and runs no code of a suite. This is no sandbox: native code, or a change that is taken back
before the next look, is not seen. Code is genuine if the file that it names holds it: a suite may compile its own under the name of a library's file.
"""

import builtins
import contextlib
import functools
import importlib._bootstrap
import importlib._bootstrap_external
import importlib.util
import marshal
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from pairbench.model.case import Case
from pairbench.model.operator import Operator
from pairbench.suite.modules import NAMESPACE

_compile, _read = compile, Path.read_bytes
_FROZEN: tuple[ModuleType, ...] = (importlib._bootstrap, importlib._bootstrap_external)
_HEADER = 16
_all, _map, _zip, _is, _call, _len, _set = all, map, zip, operator.is_, operator.call, len, setattr
"""Bound before a suite is loaded, which may replace them in `builtins`."""
_OWN = "pairbench."
# Where the classes of declarations and problems are.
_DECLARED = ("pairbench.model.", "pairbench.suite.definitions", f"{__package__}.corpora", f"{__package__}.input_lists")
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
"""Names of a module's constants, by convention; other values of our modules are state."""
_MAY_CHANGE = (
    *("torch.manual_seed", "torch.nn.Module.__init__", "torch.nn.Module.__setstate__", "torch.Storage"),
    *("sys.excepthook", "sys.unraisablehook", "threading.excepthook"),
)
"""Replaced by torch itself: three when its compiler is loaded, one with the default dtype, and the hooks that show errors by `torch.distributed`."""
_MEASURING = ("pairbench.execute.", "pairbench.stats")
_LARGE = ("torch", "numpy", "ctypes", "sys")  # modules with many classes that nothing here uses, or whose state changes
_READERS = {name: operator.attrgetter(name) for name in ("__code__", "__defaults__", "cell_contents")}
_missing = object()
_MANY = 16  # size from which a namespace is compared in its own order
_OTHERS = 3  # most names in such a namespace, as a multiple of those held
_GENERATED = {f"__{name}__" for name in ("repr", "hash", "eq", "setattr", "delattr", "getstate", "setstate", "replace")}
"""Methods that `dataclass` makes by the hundred, and that judge nothing."""
_DESCRIPTORS = (property, staticmethod, classmethod, functools.cached_property)
_CACHED = type(functools.cache(len))
Put = Callable[[Any, Any], object]  # gives a name of a namespace a value


def codes_within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_within(constant)


@functools.cache
def is_genuine(code: CodeType) -> bool:
    """Return whether the file that a code object names contains it, compared by value."""
    if code.co_filename.startswith("<frozen "):
        return code in _of_frozen_modules()
    return code in _of_file(code.co_filename)


@functools.cache
def _of_file(file: str) -> frozenset[CodeType]:
    """Return the code objects of a file: of its text, and of its bytecode, which another release of Python may have made."""
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


class _Named(NamedTuple):
    label: str
    namespace: Mapping[str, Any]
    names: tuple[Any, ...]
    held: tuple[Any, ...]
    put: Put

    def changed(self) -> list[tuple[str, Any, Any]]:
        """Return label, name and held value of each name that has changed."""
        if _all(_map(_is, _map(self.namespace.get, self.names), self.held)):
            return []
        pairs = _zip(self.names, self.held, strict=True)
        return [(f"{self.label}.{name}", name, was) for name, was in pairs if not _same(self.namespace.get(name), was)]


class _Whole:
    """A large namespace, compared in its own order: a fifth of the time of a look-up of each name."""

    __slots__ = ("_named", "_values")

    def __init__(self, named: _Named) -> None:
        self._named = named
        self._values = list(named.namespace.values())

    def is_untouched(self) -> bool:
        """Return whether all held values are in place; others may change."""
        values = self._named.namespace.values()
        if _all(_map(_is, values, self._values)) and _len(values) >= _len(self._values):
            return True
        if self._named.changed():
            return False
        self._values = list(values)
        return True


class _Elements(NamedTuple):
    """The elements of a list, in their order, or of a set, or the keys of a dict."""

    label: str
    container: Any
    held: tuple[Any, ...]

    def is_changed(self) -> bool:
        if _len(self.container) != _len(self.held):
            return True
        if not isinstance(self.container, list):
            return any(element not in self.container for element in self.held)
        return not (_all(_map(_is, self.container, self.held)) or _all(_map(_same, self.container, self.held)))

    def put_back(self) -> None:
        if isinstance(self.container, list):
            self.container[:] = self.held
        elif isinstance(self.container, dict):
            for key in [key for key in self.container if key not in self.held]:
                del self.container[key]
        else:
            self.container.clear()
            self.container.update(self.held)


def _same(now: Any, was: Any) -> bool:
    return now is was or (type(now) is type(was) and type(was) in (int, float, str, bytes, bool) and now == was)


class Frozen:
    __slots__ = ("_elements", "_getters", "_held", "_large", "_named", "_names", "_new", "_of_case", "_parts", "_seen")

    def __init__(self) -> None:
        self._named: list[_Named] = []
        self._getters: list[Callable[[Any], Any]] = []
        """The look-up of each name in a small namespace, beside the name and the held value."""
        self._names: list[Any] = []
        self._held: list[Any] = []
        self._of_case: tuple[_Named, ...] = ()
        self._elements: list[_Elements] = []
        self._large: list[_Whole] = []
        self._new: list[tuple[str, Mapping[str, Any], set[str], Callable[[str], object]]] = []
        """Names that a namespace may not get, for they would hide builtins or inherited methods, and a function that removes one."""
        self._parts = {name: (list[Any](), list[Any](), list[str]()) for name in _READERS}
        """Objects, the value that each has under the name, and labels."""
        self._seen: dict[tuple[int, str], Any] = {}
        """The held values by identity, kept alive so that no other value takes their address."""

    def changed(self) -> list[str]:
        """Return the labels of changed values, of new names that hide another, and of lists, sets and dicts with new elements."""
        return [] if self._is_untouched() else self._changes()

    def _is_untouched(self) -> bool:
        """Return whether all is identical to the held values, without a Python loop: this is asked again and again."""
        return (
            _all(_map(_is, _map(_call, self._getters, self._names), self._held))
            and _all(_map(_Whole.is_untouched, self._large))
            and _all(names.isdisjoint(namespace) for _, namespace, names, _ in self._new)
            and not any(named.changed() for named in self._of_case)
            and _all(
                _all(_map(_is, _map(_READERS[name], owners), was)) for name, (owners, was, _) in self._parts.items()
            )
            and not any(elements.is_changed() for elements in self._elements)
        )

    def _changes(self) -> list[str]:
        found = [label for named in (*self._named, *self._of_case) for label, _, _ in named.changed()]
        found += [f"{label}.{name}" for label, namespace, names, _ in self._new for name in names & namespace.keys()]
        found += [elements.label for elements in self._elements if elements.is_changed()]
        for name, (owners, values, labels) in self._parts.items():
            held = _zip(owners, values, labels, strict=True)
            found += [label for owner, was, label in held if not _same(_READERS[name](owner), was)]
        return list(dict.fromkeys(found))

    def restore(self) -> None:
        for named in (*self._named, *self._of_case):
            for _, name, was in named.changed():
                named.put(name, was)
        for _, namespace, names, take_away in self._new:
            for name in names & namespace.keys():
                take_away(name)
        for elements in self._elements:
            if elements.is_changed():
                elements.put_back()
        for name, (owners, values, _) in self._parts.items():
            for owner, was in _zip(owners, values, strict=True):
                if _READERS[name](owner) is not was:
                    _set(owner, name, was)

    def hold_own_modules(self) -> None:
        """Hold the modules of pairbench that were loaded since the last call, and what they use of other modules."""
        for name, module in list(sys.modules.items()):
            if name.startswith(_OWN) and not self._is_known(module):
                self._hold_own_module(name, module)

    def _hold_own_module(self, label: str, module: ModuleType) -> None:
        values = vars(module)
        self.hold_callables(label, values, functools.partial(setattr, module))
        self._new.append((label, values, vars(builtins).keys() - values.keys(), values.__delitem__))
        named = {name: one for name, one in values.items() if _CONSTANT.fullmatch(name) or isinstance(one, ModuleType)}
        constants = {name: value for name, value in named.items() if not isinstance(value, type)}
        self._hold_names(label, values, constants, functools.partial(setattr, module))
        self._hold_names("sys.modules", sys.modules, {label: module}, sys.modules.__setitem__)
        for value in list(values.values()):
            if isinstance(value, type) and value.__module__ == label:
                self.hold_class(f"{label}.{value.__qualname__}", value)
            elif label.startswith(_MEASURING):
                self._hold_used(value)
        for name, value in constants.items():
            self.hold_value(f"{label}.{name}", value)

    def _hold_used(self, value: Any) -> None:
        """Hold a value that a measuring or judging module uses of another package; how warnings are shown is anybody's to change."""
        if isinstance(value, ModuleType) and not value.__name__.startswith((_OWN, "warnings")):
            self.hold_module(value)
        elif isinstance(value, type) and value.__module__.partition(".")[0] not in (*_LARGE, "pairbench"):
            self.hold_class(f"{value.__module__}.{value.__qualname__}", value)
        elif isinstance(value, FunctionType) and not str(value.__module__).startswith(_OWN):
            self.hold_value(f"{value.__module__}.{value.__qualname__}", value)

    def hold_module(self, module: ModuleType, beginning: str = "") -> None:
        """Hold the callables of a module whose names begin so, with its own classes."""
        if self._is_known(module, beginning):
            return
        label = module.__name__
        self.hold_callables(label, vars(module), functools.partial(setattr, module), beginning)
        self._hold_names("sys.modules", sys.modules, {label: module}, sys.modules.__setitem__)
        if label.partition(".")[0] in _LARGE:
            return
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__.partition(".")[0] == label.partition(".")[0] != "builtins":
                self.hold_class(f"{value.__module__}.{value.__qualname__}", value)

    def hold_class(self, label: str, kind: type) -> None:
        if not self._is_known(kind):
            self.hold_callables(label, vars(kind), functools.partial(setattr, kind))
            used = {name for base in kind.__mro__[1:] for name, one in vars(base).items() if hasattr(one, "__get__")}
            unused = (used | {"__del__", "__getattr__"}) - vars(kind).keys()
            self._new.append((label, vars(kind), unused, functools.partial(delattr, kind)))

    def hold_callables(self, label: str, values: Mapping[str, Any], put: Put, beginning: str = "") -> None:
        held = {
            name: value
            for name, value in values.items()
            if name.startswith(beginning)
            and name not in _GENERATED
            and (callable(value) or isinstance(value, _DESCRIPTORS))
            and f"{label}.{name}" not in _MAY_CHANGE
        }
        self._hold_names(label, values, held, put)
        for name, value in held.items():
            if not isinstance(value, type) and not beginning:
                self.hold_value(f"{label}.{name}", value)

    def hold_operator(self, declared: Operator) -> None:
        """Hold a declaration: all its fields, by value, and the suite's functions that its baseline, inputs and oracle reach."""
        if self._is_known(declared):
            return
        label = f"operator {declared.name!r}"
        self._hold_fields(label, declared)
        for name, variant in {**declared.variants, **declared.impostors}.items():
            if not self._is_known(variant):  # what a variant calls is its own, and may change as it goes on
                self._hold(_fields(f"{label}.{name}", variant))

    def begin_case(self, operator: Operator, case: Case) -> None:
        self._of_case = (_fields(f"operator {operator.name!r}", operator), _fields(f"case {case.key}", case))

    def hold_value(self, label: str, value: Any) -> None:
        """Hold the mutable parts of a value: a function, a container, or an instance of a class of pairbench's."""
        if isinstance(value, type) and value.__module__.startswith(f"{NAMESPACE}."):
            self.hold_class(label, value)
        if isinstance(value, int | float | str | bytes | type | ModuleType) or value is None or self._is_known(value):
            return
        if isinstance(value, FunctionType):
            self._hold_function(label, value)
        elif isinstance(value, list | set | dict):
            self._elements.append(_Elements(label, value, tuple(value)))
            if isinstance(value, dict):
                self._hold_names(label, value, dict(value), value.__setitem__)
                for name, element in value.items():
                    self.hold_value(f"{label}.{name}", element)
            else:
                for element in value:
                    self.hold_value(label, element)
        elif "_forward_hooks" in (own := getattr(value, "__dict__", {})) and "_initialize_hook" not in own:
            # A module's; those of a lazy module change in its first call.
            for name in [one for one in own if one.endswith("_hooks") or one == "_modules"]:
                self.hold_value(f"{label}.{name}", own[name])
        elif type(value).__module__.startswith(_DECLARED) and hasattr(value, "__dict__"):
            self._hold_fields(label, value)
        for inner in _within(value):
            self.hold_value(label, inner)

    def _hold_fields(self, label: str, instance: Any) -> None:
        self._hold(_fields(label, instance))
        for name, value in vars(instance).items():
            if name not in ("cases", "impostors", "variants"):
                self.hold_value(f"{label}.{name}", value)
            elif isinstance(value, dict):
                self._hold_names(f"{label}.{name}", value, dict(value), value.__setitem__)

    def _hold_function(self, label: str, function: FunctionType) -> None:
        self._hold_attribute(f"the code of {label}", function, "__code__")
        if function.__defaults__ is not None:
            self._hold_attribute(f"the defaults of {function.__qualname__}", function, "__defaults__")
        if function.__kwdefaults__ and function.__code__.co_filename != "<string>":
            self.hold_value(f"the defaults of {label}", function.__kwdefaults__)
        generated = function.__code__.co_filename == "<string>"  # as of dataclasses: of their types and default values
        for cell in () if generated else function.__closure__ or ():
            self._hold_cell(label, cell)
        if wrapped := vars(function).get("__wrapped__"):
            self.hold_value(label, wrapped)
        if str(function.__globals__.get("__name__")).startswith(f"{NAMESPACE}."):
            self._hold_reached(function)

    def _hold_attribute(self, label: str, owner: Any, name: str) -> None:
        for held, value in _zip(self._parts[name], (owner, _READERS[name](owner), label), strict=True):
            held.append(value)

    def _hold_cell(self, label: str, cell: CellType) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # it is filled later
            return
        if callable(value) or isinstance(value, int | float | str | tuple):
            self._hold_attribute(f"the closure of {label}", cell, "cell_contents")
            self.hold_value(label, value)

    def _hold_reached(self, function: FunctionType) -> None:
        """Hold the global callables and plain values that a function of a suite refers to."""
        names = {name for code in codes_within(function.__code__) for name in code.co_names}
        stored = {name for code in codes_within(function.__code__) for name in _stored(code)}
        reached = {
            name: value
            for name in names - stored
            if (value := function.__globals__.get(name, _missing)) is not _missing
            and (callable(value) or isinstance(value, int | float | str | tuple))
        }
        label, space = str(function.__globals__.get("__name__")).rpartition(".")[2], function.__globals__
        self._new.append((label, space, (names - stored - space.keys()) & vars(builtins).keys(), space.__delitem__))
        self._hold_names(label, function.__globals__, reached, function.__globals__.__setitem__)
        for name, value in reached.items():
            self.hold_value(f"{label}.{name}", value)

    def _hold_names(self, label: str, namespace: Mapping[str, Any], held: Mapping[str, Any], put: Put) -> None:
        self._hold(_Named(label, namespace, tuple(held), tuple(held.values()), put))

    def _hold(self, named: _Named) -> None:
        self._named.append(named)
        if len(named.names) > _MANY and len(named.namespace) < _OTHERS * len(named.names):
            self._large.append(_Whole(named))
            return
        self._getters += [named.namespace.get] * len(named.names)
        self._names += named.names
        self._held += named.held

    def _is_known(self, value: Any, part: str = "") -> bool:
        """Return whether a value, or a part of it, is held already; from now on it is."""
        known = (id(value), part) in self._seen
        self._seen[id(value), part] = value
        return known


def _within(value: Any) -> tuple[Any, ...]:
    match value:
        case tuple() | frozenset():
            return tuple(value)
        case staticmethod() | classmethod() | MethodType():
            return (value.__func__,)
        case property():
            return value.fget, value.fset
        case functools.partial() | functools.cached_property():
            return (value.func,)
        case _ if isinstance(value, _CACHED):
            return (value.__wrapped__,)
    return ()


def _fields(label: str, instance: Any) -> _Named:
    fields = vars(instance)
    return _Named(label, fields, tuple(fields), tuple(fields.values()), functools.partial(object.__setattr__, instance))


def _stored(code: CodeType) -> Iterable[str]:
    import dis

    return (str(one.argval) for one in dis.get_instructions(code) if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"))


def words(names: Sequence[str]) -> str:
    return f"{', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
