"""How a message goes from a worker to its parent: as data, so that nothing a worker writes is ever executed (docs/decisions/messages.md).

A message is a head, a JSON text with the name of a dataclass and its fields, and the bytes of its long tuples of numbers.
"""

import collections.abc
import dataclasses
import enum
import functools
import json
import struct
import types
import typing
from array import array
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_dumps = json.dumps
"""Bound before a suite is loaded: an implementation may replace it, and outputs are sent before that is looked for."""
_HEAD = struct.Struct("!4sIQ")
_MARK = b"pair"
_MOST_TEXT, _MOST_NUMBERS = 32 << 20, 256 << 20
"""The longest text and the most bytes of numbers of a message: about a hundred times those of a long case."""
_LONG = 32  # tuples of so many numbers are sent as bytes
_PACKED = "packed"
LENGTH = struct.Struct("!Q")  # before each pickled value on the way from the parent to a worker: its length in bytes
_Bytes = bytes | bytearray
_Reader = Callable[[Any, _Bytes], Any]


class NoMessageError(ValueError):
    """Bytes that are no message, or a message that is not allowed where it came; the text says why."""


class Frame(NamedTuple):
    """The lengths that a message's head gives, in bytes."""

    text: int
    numbers: int

    @property
    def size(self) -> int:
        return _HEAD.size + self.text + self.numbers


def encode(message: Any) -> bytes:
    """Return a dataclass as a message; a field of another type than dataclass, tuple, dict by text, text, number or None is a TypeError."""
    numbers = bytearray()
    text = _dumps([type(message).__name__, _fields(message, numbers)], default=_refuse).encode()
    return _HEAD.pack(_MARK, len(text), len(numbers)) + text + numbers


def read_head(begun: _Bytes) -> Frame | None:
    """Return the lengths that a message's head gives, None while the head is incomplete; a wrong or too long head is a NoMessageError."""
    if begun[: len(_MARK)] != _MARK[: len(begun)]:
        raise NoMessageError(f"it begins with {bytes(begun[: len(_MARK)])!r}")
    if len(begun) < _HEAD.size:
        return None
    frame = Frame(*_HEAD.unpack_from(begun)[1:])
    if frame.text > _MOST_TEXT or frame.numbers > _MOST_NUMBERS:
        raise NoMessageError(f"it says that it has {frame.size:,} bytes, which is too long")
    return frame


def decode(message: _Bytes, expected: Mapping[str, type]) -> Any:
    """Return the dataclass that a whole message holds: one of the expected ones, by name, with fields as annotated, or a NoMessageError."""
    frame = read_head(message)
    if frame is None or len(message) != frame.size:
        raise NoMessageError("it is not all there")
    try:
        name, fields = json.loads(bytes(message[_HEAD.size : _HEAD.size + frame.text]))
        return _reader(expected[name])(fields, message[_HEAD.size + frame.text :])
    except RecursionError:
        raise NoMessageError("it is nested too deeply") from None
    except Exception as error:  # dataclasses check what they are given, each in its way
        raise NoMessageError(f"{type(error).__name__}: {str(error)[:200]}") from None


def _fields(message: Any, numbers: bytearray) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if "Any" in str(field.type):
            # What a driver gives may be of a class of its own, and is a text to everybody who compares or stores it.
            found[field.name] = json.loads(json.dumps(value, default=str))
        else:
            found[field.name] = _pack(value, numbers) or _plain(value, numbers)
    return found


def _pack(value: Any, numbers: bytearray) -> dict[str, Any] | None:
    """Append a long tuple of numbers of one type, and return where it is; None for anything else."""
    if not isinstance(value, tuple) or len(value) < _LONG:
        return None
    kinds = set(map(type, value))
    code = "q" if kinds == {int} else "d" if all(issubclass(kind, float) for kind in kinds) else None
    if code is None:
        return None
    try:
        content = array(code, value).tobytes()
    except OverflowError:
        return None
    begin = len(numbers)
    numbers += content
    return {_PACKED: [code, begin, len(value)]}


def _plain(value: Any, numbers: bytearray) -> Any:
    if dataclasses.is_dataclass(value):
        return _fields(value, numbers)
    if isinstance(value, tuple | list):
        return [_plain(item, numbers) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"a dict has keys that are no texts: {list(value)[:3]!r}")
        return {key: _plain(item, numbers) for key, item in value.items()}
    return value


def _refuse(value: Any) -> Any:
    """Return a NumPy scalar as a number; refuse everything else that JSON does not know."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    raise TypeError(f"a message cannot hold a {type(value).__qualname__}")


@functools.cache
def _reader(hint: Any) -> _Reader:
    """Return what reads a value of an annotated type from what JSON gave, and raises an exception where it is something else."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object):
        return lambda value, _: value
    if origin in (typing.Union, types.UnionType):
        several = sorted(arguments, key=lambda one: one is not types.NoneType)
        return functools.partial(_one_of, [_reader(one) for one in several])
    if origin is tuple and arguments[1:] != (Ellipsis,):
        return functools.partial(_each, [_reader(one) for one in arguments])
    if origin in (tuple, collections.abc.Sequence):
        code = {int: "q", float: "d", float | None: "d"}.get(arguments[0])
        return functools.partial(_alike, _reader(arguments[0]), code)
    if origin in (dict, collections.abc.Mapping):
        of_items = _reader(arguments[1])
        return lambda value, numbers: {key: of_items(item, numbers) for key, item in _checked(value, (dict,)).items()}
    if dataclasses.is_dataclass(hint):
        return functools.partial(_dataclass, hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return lambda value, _: hint(value)
    if hint is float:
        return lambda value, _: float(_checked(value, (float, int)))
    if hint is int:
        return lambda value, _: _within(_checked(value, (int,)))
    if hint is str:
        # Halves of characters, as in a file name that is no UTF-8, become escapes.
        return lambda value, _: _checked(value, (str,)).encode(errors="backslashreplace").decode()
    if hint in (bool, types.NoneType):
        return lambda value, _: _checked(value, (hint,))
    raise AssertionError(f"no message can have a field of {hint}")


def _checked(value: Any, kinds: tuple[type, ...]) -> Any:
    if type(value) not in kinds:
        raise TypeError(f"{str(value)[:40]!r} is no {kinds[0].__name__}")
    return value


def _within(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise OverflowError("an integer of more than 64 bits")
    return value


def _one_of(readers: list[_Reader], value: Any, numbers: _Bytes) -> Any:
    for reader in readers[:-1]:
        try:
            return reader(value, numbers)
        except Exception:  # noqa: S112 (it may be another of the types)
            continue
    return readers[-1](value, numbers)


def _each(readers: list[_Reader], value: Any, numbers: _Bytes) -> Any:
    return tuple([reader(item, numbers) for reader, item in zip(readers, _checked(value, (list,)), strict=True)])


def _alike(reader: _Reader, code: str | None, value: Any, numbers: _Bytes) -> Any:
    if isinstance(value, dict) and code:
        return _unpack(value, code, numbers)
    return tuple([reader(item, numbers) for item in _checked(value, (list,))])


def _unpack(value: dict[str, Any], code: str, numbers: _Bytes) -> tuple[Any, ...]:
    written, begin, count = (_checked(one, (kind,)) for one, kind in zip(value[_PACKED], (str, int, int), strict=True))
    found = array(written)
    content = memoryview(numbers)[begin : begin + count * found.itemsize]
    if written not in (code, "q") or min(begin, count) < 0 or len(content) != count * found.itemsize:
        raise ValueError("numbers that are not there")
    found.frombytes(content)
    return tuple(found) if written == code else tuple(map(float, found))


@functools.cache
def _readers(hint: Any) -> dict[str, _Reader]:
    hints = typing.get_type_hints(hint)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(hint)}


def _dataclass(hint: Any, value: Any, numbers: _Bytes) -> Any:
    known = _readers(hint)  # now that they are needed: a device may have devices beside it
    if _checked(value, (dict,)).keys() != known.keys():
        raise TypeError(f"{hint.__name__} has other fields than {', '.join(map(str, value))[:200]}")
    return hint(**{name: reader(value[name], numbers) for name, reader in known.items()})
