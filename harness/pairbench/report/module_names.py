"""Shortens lists of qualified module names."""

from collections.abc import Iterable

_SHOWN = 8


def outermost(names: Iterable[str]) -> list[str]:
    """Return the names that are not below another one of them."""
    known = set(names)

    def below(name: str) -> bool:
        parts = name.split(".")
        return any(".".join(parts[:end]) in known for end in range(1, len(parts)))

    return [name for name in dict.fromkeys(names) if not below(name)]


def merge_numbered(names: Iterable[str]) -> list[str]:
    """Return names, those that differ in numbers alone merged into one such as `blocks.*.ffn`."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        shape = ".".join("*" if part.isdecimal() else part for part in name.split("."))
        groups.setdefault(shape, []).append(name)
    return [shape if len(group) > 1 else group[0] for shape, group in groups.items()]


def listed(names: list[str], shown: int = _SHOWN) -> str:
    """Return names as a list within a sentence, at most `shown` of them."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
