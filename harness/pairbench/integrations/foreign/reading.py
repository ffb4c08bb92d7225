"""Reads values out of JSON that anybody may have written: each is of the type that is asked for, or there is a sentence."""

import json
import math
from pathlib import Path
from typing import Any, TypeVar

from pairbench.integrations.foreign.values import ImportFailedError

Kind = TypeVar("Kind")

_WORDS = {str: "a text", dict: "an object", list: "a list", int: "a whole number", bool: "true or false"}


def read_document(path: str | Path, expected: str) -> tuple[dict[str, Any], bytes]:
    """Return a JSON document and the bytes it was read from.

    Raises:
        ImportFailedError: there is no such file, or it holds no JSON object.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ImportFailedError(f"{path}: cannot be read: {error.strerror}; expected {expected}") from error
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        what = "is empty" if not content.strip() else f"is no JSON, or only a part of one: {error}"
        raise ImportFailedError(f"{path}: {what}; expected {expected}") from error
    if b"\\ud" in content.lower():
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ImportFailedError(
                f"{path}: holds half a character, \\u{ord(error.object[error.start]):x}; expected {expected}"
            ) from error
    if not isinstance(document, dict):
        raise ImportFailedError(f"{path}: holds a {type(document).__name__}, expected {expected}")
    return document, content


def field(holder: dict[str, Any], name: str, kind: type[Kind], where: str) -> Kind:
    """Return a value that must be there.

    Raises:
        ImportFailedError: it is not, or is of another type.
    """
    value = holder.get(name)
    if not isinstance(value, kind):
        what = f"has no {name!r}" if name not in holder else f"has {value!r:.60} as {name!r}"
        raise ImportFailedError(f"{where} {what}, expected {_WORDS.get(kind, kind.__name__)}")
    return value


def optional(holder: dict[str, Any], name: str, kind: type[Kind]) -> Kind | None:
    """Return a value of that type, or None."""
    value = holder.get(name)
    return value if isinstance(value, kind) else None


LONGEST_NS = 1e18
"""Some thirty years: what takes longer is no latency, and many of it do not fit a column."""


def latency_ns(value: object) -> float | None:
    """Return seconds as a latency in ns; None for what is none."""
    taken = number(value) * 1e9
    return taken if 0 <= taken < LONGEST_NS else None


def latencies_ns(values: object) -> tuple[float, ...]:
    """Return a list of seconds as latencies in ns; none at all where one of them is none, or they took longer than a column holds."""
    found = [latency_ns(value) for value in values] if isinstance(values, list) else []
    kept = tuple(taken for taken in found if taken is not None)
    return kept if len(kept) == len(found) and sum(kept) < LONGEST_NS else ()


def number(value: object) -> float:
    """Return a number; NaN for what is none, or is too large for one."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def count(value: object) -> int | None:
    """Return a number of things; None for what is none, or does not fit a column."""
    return value if type(value) is int and 0 < value < 2**63 else None
