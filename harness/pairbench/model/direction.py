"""Which way a call goes in training: forward, backward, or both; the names of gradients."""

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pairbench.errors import DeclarationError

Direction = Literal["fwd", "bwd", "fwd_bwd"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

_GRADIENT = re.compile(r"(?:^|\.)gradient of (?P<name>.+)$")


def gradient_path(name: str) -> str:
    """Return the path of an input's gradient among what a call returns."""
    return f"gradient of {name}"


def gradient_of(path: str) -> str | None:
    """Return the name of the input whose gradient has this path; None for an output."""
    found = _GRADIENT.search(path)
    return found["name"] if found else None


def with_directions(operator: str, point: Any) -> list[Any]:
    """Return a declared case in each direction, or as it is where it names one.

    Raises:
        DeclarationError: it names something else.
    """
    if not isinstance(point, Mapping):
        return [point]  # what it is instead is said where it is made
    if "direction" not in point:
        return [{**point, "direction": direction} for direction in DIRECTIONS]
    if point["direction"] not in DIRECTIONS:
        raise DeclarationError(
            f"operator {operator!r}: direction is {point['direction']!r}, expected {', '.join(DIRECTIONS)}; "
            "gradients= adds this axis, so rename one of your own"
        )
    return [point]


def check_gradients(
    operator: str, gradients: tuple[str, ...], constants: tuple[str, ...], state: tuple[str, ...]
) -> None:
    """Check that what has a gradient is neither constant nor state.

    Raises:
        DeclarationError: something is.
    """
    roots = {re.split(r"[.\[]", name, maxsplit=1)[0]: name for name in gradients}
    if both := set(roots) & set(constants):
        raise DeclarationError(
            f"operator {operator!r}: {roots[min(both)]!r} has a gradient, so it changes with each step of training, and is declared as "
            "constant, which stays; leave it out of constants="
        )
    if both := set(roots) & set(state):
        raise DeclarationError(
            f"operator {operator!r}: {roots[min(both)]!r} has a gradient and is declared as state, which calls write over; expected one"
        )
