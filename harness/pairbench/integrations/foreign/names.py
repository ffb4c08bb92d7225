"""Names from other tools as ours: values of parameters as they can stand in a case key, the same in every run.

What a key cannot hold is replaced, and a digest of the whole text keeps apart what then looks the same. Addresses in
memory, which differ from run to run, are left out.
"""

import ast
import hashlib
import math
import re

from pairbench.model.case import AxisValue

_LONGEST = 60
_SHOWN = 40
_LETTERS = re.compile(r"[^A-Za-z0-9_.+-]+")
_UNSERIALIZABLE = re.compile(r"UNSERIALIZABLE\[(.*)\]", re.DOTALL)
"""What pytest-benchmark makes of a value that JSON does not have."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_OBJECTS = tuple(
    re.compile(pattern)
    for pattern in (
        r"<(?:cyfunction|function|built-in function|built-in method|bound method|class|module) '?([\w.]+)'?(?: .*)?>",
        r"<([A-Za-z_][\w.]*): .*>",  # a member of an enumeration
        r"torch\.(\w+)",  # a dtype, named as in our own cases
    )
)


def axis_value(value: object) -> AxisValue:
    """Return a parameter's value as a JSON file gives it, fit for a case key: numbers and tuples of integers as they are."""
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, tuple | list) and value and all(type(item) is int for item in value):
        return tuple(value)
    return word(value if isinstance(value, str) else repr(value))


def literal(text: str) -> AxisValue:
    """Return a parameter's value that is given as its `repr`."""
    try:
        return axis_value(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return word(text)


def word(text: str) -> str:
    """Return text as a word of a case key."""
    if wrapped := _UNSERIALIZABLE.fullmatch(text):
        text = wrapped[1]
    text = _ADDRESS.sub("", text)
    for pattern in _OBJECTS:
        if match := pattern.fullmatch(text):
            text = match[1]
            break
    plain = _LETTERS.sub("_", text).strip("_")
    if plain == text and 0 < len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
    return f"{plain[:_SHOWN] or 'text'}-{digest}"
