"""Values as plain objects for JSON, and text that is safe for terminals, logs and pages: escape sequences are escaped, credentials in URLs replaced."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from typing import Any, TypeVar, dataclass_transform


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Value:
    """Base class: each class derived from it is a frozen dataclass whose fields are given by name."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


def plain(value: Any, *, canonical: bool = False) -> Any:
    """Return a value as texts, numbers, booleans, None, lists and dictionaries."""
    # Dataclasses and named tuples become objects, every other collection a list, NaN and infinities None. A mapping whose
    # keys are dataclasses becomes a list of objects with `key` and `value`. Other types become their text. With `canonical`, mappings are
    # sorted and NaN and infinities stay, so that equal values give equal text, and nothing is lost unnoticed.
    inner = partial(plain, canonical=canonical)
    if isinstance(value, str):
        return whole_text(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if canonical or math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: inner(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        keys = sorted(value) if canonical else list(value)
        if any(map(is_dataclass, keys)):
            return [{"key": inner(key), "value": inner(value[key])} for key in keys]
        return {whole_text(str(key)): inner(value[key]) for key in keys}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return inner(value._asdict())
    if isinstance(value, list | tuple | set | frozenset):
        return [inner(item) for item in value]
    return inner(value.item()) if hasattr(value, "item") else str(value)


def whole_text(text: str) -> str:
    """Return a text that UTF-8 can encode: with lone surrogates, as of file names that are no UTF-8, as escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


Key = TypeVar("Key")
Item = TypeVar("Item")


def grouped(pairs: Iterable[tuple[Key, Item]]) -> defaultdict[Key, list[Item]]:
    """Return the values of each key, in the order of the pairs; a key that is in none has an empty list."""
    groups = defaultdict[Key, list[Item]](list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


Kind = TypeVar("Kind")
KINDS: dict[Any, str] = {str: "a text", dict: "an object", list: "a list", int: "a whole number", bool: "true or false"}


def field_of(holder: Mapping[str, Any], name: str, kind: type[Kind], where: str, error: type[Exception]) -> Kind:
    """Return a value of a JSON object; raise an error that names the place where it is missing, or of another kind."""
    value = holder.get(name)
    if not isinstance(value, kind):
        found = f"has no {name!r}" if name not in holder else f"has {value!r:.60} as {name!r}"
        raise error(f"{where} {found}, expected {KINDS[kind]}")
    return value


_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")

HIDDEN = "***@"  # the replacement of the credentials in a URL

_AUTHORITY = re.compile(
    # Keys of object stores hold slashes that people forget to write as %2F, so all up to the last @ belongs to them.
    r"""\b(s3://)[^\s'"/@]*:[^\s'"]*@ | \b(s3://)[^\s'"/@]+@ | \b([a-z][a-z0-9+.-]*://)[^\s'"/@]*:[^\s'"/@]*@""",
    re.VERBOSE | re.IGNORECASE,
)
_SECRET = re.compile(
    r"""([?&][^=&\s'"]*(?:key|secret|token|password|signature|sig|credential)[^=&\s'"]*=)[^&\s'"]+""", re.IGNORECASE
)


def safe(text: str, *, colored: bool = False) -> str:
    """Return text with escapes as by `printable` and without credentials as by `redacted`."""
    return redacted(printable(text, colored=colored))


def printable(text: str, *, colored: bool = False) -> str:
    r"""Return text in which characters that control a terminal, and commands to GitHub's runner, are escaped; colors stay if `colored`."""
    parts = _COLOR.split(text) if colored else [text]
    whole = "".join(part if colored and place % 2 else _escaped(part) for place, part in enumerate(parts))
    # GitHub's runner takes for a command what begins a line, after any white space, and an older one anywhere in it.
    return re.sub(r"^(\s*)::", r"\1\\::", whole, flags=re.MULTILINE).replace("##[", r"#\u0023[")


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter in "\n\t" or letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text)


def redacted(text: str) -> str:
    """Return text whose URLs have no user with a password, no key of an object store and no secret parameter."""
    text = _AUTHORITY.sub(lambda found: f"{found[1] or found[2] or found[3]}{HIDDEN}", text)
    return _SECRET.sub(r"\1***", text)
