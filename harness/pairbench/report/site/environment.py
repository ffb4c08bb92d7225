"""A recorded environment, which is JSON of any shape, as plain fields."""

import json
from collections.abc import Iterator, Mapping, Sequence

_DEEPEST = 6
"""Number of levels that get fields of their own; what lies deeper stays JSON."""


def fields(environment: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return each value under its path, like `flags.cudnn.benchmark`, in the order recorded."""
    return list(_leaves(environment, (), 0))


def grouped(environment: Mapping[str, object]) -> dict[str, list[tuple[str, str]]]:
    """Return the fields by the first part of their path; those that are in no group come first, under an empty name."""
    groups: dict[str, list[tuple[str, str]]] = {"": []}
    for name, value in environment.items():
        if isinstance(value, Mapping) and value:
            groups[str(name)] = list(_leaves(value, (), 1))
        else:
            groups[""] += _leaves({name: value}, (), 0)
    return {name: rows for name, rows in groups.items() if rows}


def _leaves(value: object, path: tuple[str, ...], depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value and depth < _DEEPEST:
        for name, item in value.items():
            yield from _leaves(item, (*path, str(name)), depth + 1)
    else:
        yield ".".join(path), _text(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Sequence) and all(isinstance(item, str | int | float) for item in value):
        return ", ".join(str(item) for item in value)
    return json.dumps(value, default=str)
