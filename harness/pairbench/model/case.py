"""Cases: points of an operator's axes, and their keys; in training also the directions of calls and the paths of gradients."""

import contextlib
import functools
import inspect
import itertools
import math
import re
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

from pairbench.errors import DeclarationError
from pairbench.model.plain import Value

AxisValue = int | float | bool | str | tuple[int, ...]

TIERS = ("edge", "smoke", "real", "headline")
"""The tiers in the order of size. `edge` cases are only verified; cases of the others are timed, too."""


def grid(**axes: Iterable[AxisValue]) -> list[dict[str, AxisValue]]:
    """Return every combination of the axes' values as a list of cases.

    The result is a plain list, so irregular points are added with `+ [dict(...)]`.

    Raises:
        DeclarationError: an axis is empty, or is a lone string or number instead of a list.
    """
    columns = {}
    for axis, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise DeclarationError(f"grid: axis {axis!r} is {values!r}, expected a list of values: {axis}=[{values!r}]")
        columns[axis] = list(values)
        if not columns[axis]:
            raise DeclarationError(f"grid: axis {axis!r} has no values, so there would be no case at all")
    return [dict(zip(columns, point, strict=True)) for point in itertools.product(*columns.values())]


class Case(Value):
    """One point of an operator's axes."""

    operator: str
    axes: tuple[tuple[str, AxisValue], ...]
    """Pairs of axis and value, sorted by axis."""
    tier: str

    @functools.cached_property
    def key(self) -> str:
        """The case's permanent name, such as `rms_norm[dtype=bfloat16,tokens=4096]`."""
        return f"{self.operator}[{','.join(f'{axis}={format_value(value)}' for axis, value in self.axes)}]"

    @property
    def dtype(self) -> str | None:
        """The value of the axis named `dtype`; None where there is none."""
        value = dict(self.axes).get("dtype")
        return value if isinstance(value, str) else None

    def tf32(self, otherwise: bool) -> bool:
        """Return whether float32 may use TF32 in this case: the value of the axis `tf32`, else that of the run."""
        return bool(dict(self.axes).get("tf32", otherwise))

    def axes_for(self, function: Callable[..., Any], leave_out: Collection[str] = ()) -> dict[str, AxisValue]:
        """Return the axes to call a suite's function with; `tf32`, which the harness acts on, only if the function takes it."""
        left_out = {*leave_out, *(() if takes(function, "tf32") else ("tf32",))}
        return {axis: value for axis, value in self.axes if axis not in left_out}


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function can be called with an argument of that name."""
    parameters = inspect.signature(function).parameters
    return name in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def format_value(value: AxisValue) -> str:
    """Return an axis value as a case key holds it: tuples as `3x1x1`, and of texts other characters than A-Z a-z 0-9 _ . + - as in a URL."""
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return urllib.parse.quote(str(value), safe="+").replace("~", "%7E")


@contextlib.contextmanager
def declaring(whose: str) -> Iterator[None]:
    """Put the name of what is declared before the message of a DeclarationError that is raised inside."""
    try:
        yield
    except DeclarationError as error:
        raise DeclarationError(f"{whose}: {error}") from None


def make_case(operator: str, point: Mapping[str, object], tier: str) -> Case:
    """Check one declared point and return it as a case."""
    if not isinstance(point, Mapping):
        raise DeclarationError(f"case {point!r} is no mapping, expected dict(axis=value, ...)")
    axes = tuple((axis, _checked(axis, point[axis])) for axis in sorted(point))
    return Case(operator=operator, axes=axes, tier=tier)


def _checked(axis: str, value: object) -> AxisValue:
    if axis == "tf32" and not isinstance(value, bool):
        meaning = "whether float32 products and convolutions may use TF32 in the case"
        advice = "rename an axis that means something else"
        raise DeclarationError(f"axis 'tf32' has the value {value!r}, expected True or False: {meaning}; {advice}")
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, str) and value and value.isprintable():
        return value
    if isinstance(value, tuple) and value and all(type(item) is int for item in value):
        return value
    if isinstance(value, list):
        shape = f", and a shape is a tuple: {tuple(value)!r:.80}" if all(type(item) is int for item in value) else ""
        advice = f"a case has one value of each axis; grid({axis}=[...]) makes a case of every value{shape}"
        raise DeclarationError(f"axis {axis!r} has the list {value!r:.80} as its value, and {advice}")
    kinds = "a number, a bool, a text that can be printed, or a tuple of integers (it becomes part of the case's key)"
    raise DeclarationError(f"axis {axis!r} has the value {value!r}, expected {kinds}")


Direction = Literal["fwd", "bwd", "fwd_bwd"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

OUTPUT_GRADIENTS = "output gradient"
"""The input of a backward pass that holds the gradients of the outputs, by the path of each output; with its space, no parameter can have this name."""
SAVED = "saved tensors"
"""Name in `consumes` for the tensors that a forward saves for its backward beside the inputs."""


def gradient_path(name: str) -> str:
    """Return the path of an input's gradient among what a call returns."""
    return f"gradient of {name}"


def gradient_of(path: str) -> str | None:
    """Return the name of the input whose gradient has this path; None for an output."""
    match = re.search(r"(?:^|\.)gradient of (.+)$", path)
    return match[1] if match else None


def with_directions(point: Any) -> list[Any]:
    """Return a declared case in each direction, or as it is if it names one."""
    if not isinstance(point, Mapping):
        return [point]  # make_case refuses it
    if "direction" not in point:
        return [{**point, "direction": direction} for direction in DIRECTIONS]
    if point["direction"] not in DIRECTIONS:
        expected = f"expected {', '.join(DIRECTIONS)}; gradients= adds this axis, so rename one of your own"
        raise DeclarationError(f"direction is {point['direction']!r}, {expected}")
    return [point]


def check_gradients(gradients: tuple[str, ...], constants: tuple[str, ...], state: tuple[str, ...]) -> None:
    """Check that no input with a gradient is constant or state."""
    roots = {re.split(r"[.\[]", name, maxsplit=1)[0]: name for name in gradients}
    if both := set(roots) & set(constants):
        why = "has a gradient, so it changes with each step of training, and is declared as constant, which stays"
        raise DeclarationError(f"{roots[min(both)]!r} {why}; leave it out of constants=")
    if both := set(roots) & set(state):
        why = "has a gradient and is declared as state, which calls write over; expected one"
        raise DeclarationError(f"{roots[min(both)]!r} {why}")
