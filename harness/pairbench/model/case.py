"""Cases, the points of an operator's axes, with their keys; published figures about them, and how far outputs may be from the baseline's."""

import contextlib
import functools
import inspect
import itertools
import math
import re
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, get_args

from pairbench.errors import DeclarationError
from pairbench.model.environment import MODES
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
    weight: float | None = None
    """How often a program makes this call, such as calls in a step; None where nobody said. Part of no key and no hash."""

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


def make_case(operator: str, point: Mapping[str, object], tier: str, *, weighted: bool = False) -> Case:
    """Check one declared point and return it as a case; `weighted`: its `weight` is the weight of the case and no axis."""
    if not isinstance(point, Mapping):
        raise DeclarationError(f"case {point!r} is no mapping, expected dict(axis=value, ...)")
    weight: Any = point.get("weight") if weighted else None
    if weight is not None and (type(weight) not in (int, float) or not 0 < weight < math.inf):
        meaning = "a number above 0: how often the program makes this call"
        raise DeclarationError(
            f"weight is {weight!r}, expected {meaning}; an axis of that name is a parameter of inputs()"
        )
    axes = tuple((axis, _checked(axis, point[axis])) for axis in sorted(point) if not (weighted and axis == "weight"))
    return Case(operator=operator, axes=axes, tier=tier, weight=weight)


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
SAVED = "saved tensors"  # name in `consumes` for the tensors that a forward saves for its backward beside the inputs


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


_WHOLE = ("launches", "syncs")
QUANTITIES = ("speedup", "latency_ms", "peak_gib", *_WHOLE)
"""Quantities that a claim can be about; `speedup` is baseline over variant, all others are (baseline, variant)."""


class Claim(Value):
    """One published figure: about one of `QUANTITIES`, on one device, by one source.

    It is part of neither the definition nor an implementation: no hash of an operator depends on it.

    Example:
        >>> Claim(speedup=18.2, device="NVIDIA H20", source="sglang-omni #132", cases=[dict(patches=576)])
    """

    source: str
    """The publication that states the figure: a pull request or a paper."""
    device: str
    """The device that the figure was measured on, as far as the source says."""
    speedup: float | tuple[float, float] | None = None
    """Latency of the baseline over that of the variant; a pair (least, most) for a range."""
    latency_ms: tuple[float, float] | None = None
    """Latencies of baseline and variant, in milliseconds."""
    peak_gib: tuple[float, float] | None = None
    """Peak memory of baseline and variant, in GiB."""
    launches: tuple[int, int] | None = None
    """Launches per call of baseline and variant; the variant may have at most that many."""
    syncs: tuple[int, int] | None = None
    """Waits of the host for the device per call of baseline and variant; the variant may have at most that many."""
    cases: Sequence[Mapping[str, object]] = ()
    """The operator's cases that the claim is about, each with all of its axes; empty where no case comes near."""
    implementation: str | None = None
    """The variant that the claim is about; None for the best one."""
    mode: str = "eager"
    shape: str = ""
    """What the source measured, where no case here is exactly that; else empty."""
    unmet: str = ""
    """Why the claim cannot be met here, with numbers, once that has been measured; else empty."""

    def __post_init__(self) -> None:
        given = [name for name in QUANTITIES if getattr(self, name) is not None]
        if len(given) != 1:
            expected = f"expected one of {', '.join(QUANTITIES)}; declare one claim for each"
            raise DeclarationError(f"Claim: it is about {' and '.join(given) or 'nothing'}, {expected}")
        for what, text in (("source", self.source), ("device", self.device)):
            if not (isinstance(text, str) and text.strip()):
                raise DeclarationError(f"Claim: {what} is {text!r}, expected a text: who published it, and on what")
        if self.mode not in MODES:
            raise DeclarationError(f"Claim: mode {self.mode!r} is unknown, expected one of {', '.join(MODES)}")
        if isinstance(self.cases, Mapping | str) or not isinstance(self.cases, Sequence):
            expected = "expected a list of the operator's: [dict(axis=value)]"
            raise DeclarationError(f"Claim: cases is {self.cases!r}, {expected}")
        _check_quantity(given[0], getattr(self, given[0]))
        points = []
        for point in self.cases:
            if isinstance(point, Mapping):  # a list is a shape here
                point = {axis: tuple(value) if isinstance(value, list) else value for axis, value in point.items()}  # noqa: PLW2901
            with declaring("operator 'a claim'"):
                points.append(dict(make_case("a claim", point, "real").axes))
        object.__setattr__(self, "cases", tuple(points))

    @property
    def quantity(self) -> str:
        """The one of QUANTITIES that the claim is about."""
        return next(name for name in QUANTITIES if getattr(self, name) is not None)

    @property
    def pair(self) -> tuple[float, float] | None:
        """Values of baseline and variant in the quantity's own unit; None where the claim is about a speedup."""
        return None if self.speedup is not None else getattr(self, self.quantity)

    @property
    def ratio(self) -> tuple[float, float]:
        """The least and the most of the published ratio, baseline over variant; infinite where the variant's value is 0."""
        if self.speedup is not None:
            return self.speedup if isinstance(self.speedup, tuple) else (self.speedup, self.speedup)
        before, after = self.pair or (math.nan, math.nan)
        ratio = before / after if after else math.inf
        return ratio, ratio

    def belongs_to(self, case: Case) -> bool:
        """Return whether the claim is about a case."""
        return dict(case.axes) in self.cases


def check_claims(claims: object, cases: Sequence[Case], implementations: Mapping[str, object]) -> tuple[Claim, ...]:
    """Return an operator's claims, checked against its cases and variants."""
    if isinstance(claims, str) or not isinstance(claims, Sequence):
        raise DeclarationError(f"claims is {claims!r}, expected a list of Claim(...)")
    timed = [dict(case.axes) for case in cases if case.tier != "edge"]
    for claim in claims:
        if not isinstance(claim, Claim):
            raise DeclarationError(f"{claim!r} is no claim, expected Claim(...)")
        for axes in claim.cases:
            if axes not in timed:
                why = "none of the cases that are timed; name one with all of its axes, or none and say the shape"
                raise DeclarationError(f"the claim of {claim.source} belongs to {axes!r}, which is {why}")
        if claim.implementation is not None and claim.implementation not in implementations:
            about = f"{claim.implementation!r}, expected one of {', '.join(implementations)}"
            raise DeclarationError(f"the claim of {claim.source} is about {about}")
    return tuple(claims)


def _check_quantity(name: str, value: object) -> None:
    whole = name in _WHOLE
    several = value if isinstance(value, tuple) else (value,)
    sizes, kind = (1, 2) if name == "speedup" else (2,), int if whole else int | float
    numbers = [item for item in several if isinstance(item, kind) and not isinstance(item, bool)]
    sound = len(several) in sizes and all(item >= 0 if whole else 0 < item < math.inf for item in numbers)
    if not sound or len(numbers) < len(several) or (name == "speedup" and several[0] > several[-1]):
        expected = "a number above 0, or (least, most)" if name == "speedup" else "(baseline, variant)"
        raise DeclarationError(f"Claim: {name} is {value!r}, expected {expected}{' of whole numbers' if whole else ''}")


class Tolerance(Value):
    """Limits for |variant - baseline| of each element: atol + atol_rms * rms(baseline) + rtol * |baseline|.

    `rtol` and `atol` are None for the output dtype's defaults of `torch.testing.assert_close`. Giving one of the
    absolute limits makes the other zero, so that a declared tolerance is exactly what it says.
    """

    rtol: float | None = None
    atol: float | None = None
    atol_rms: float = 0.0
    """Absolute limit, as a fraction of the root mean square of the baseline's output."""
    rms_by_row: bool = False
    """Take the root mean square of each row, along the last axis, for outputs whose rows differ in magnitude by their nature:
    attention to n keys gives values of some 1/sqrt(n), and its errors go with them."""
    rel_l2: float | None = None
    """Limit for the relative L2 distance of a whole output, beside those of each element, for variants that compute in a lower
    precision on purpose. It takes the place of the oracle rule: such a variant is further from the oracle by design."""
    ties: str | tuple[str, int] | None = None
    """Input that integer outputs are indices into, as those of a sort or a top-k: they may differ wherever both point at equal values of it. They
    point along the axis in which their shapes differ, the last one if in none; with a tuple of name and axis, along that."""
    random: int = 0
    """Number of calls over which mean and variance are compared, of outputs that are random; 0 for all others. No oracle is asked then."""
    spacing: float = 0.0
    """Relative spacing of the numbers that were computed with, where it is wider than that of the output dtype: the oracle rule and the check
    of the baseline go by it. The harness sets it where TF32 is allowed."""

    def __post_init__(self) -> None:
        if not isinstance(self.rms_by_row, bool):
            raise DeclarationError(f"Tolerance: rms_by_row is {self.rms_by_row!r}, expected True or False")
        name, *axis = self.ties if isinstance(self.ties, tuple) else (self.ties,)
        if self.ties is not None and not (isinstance(name, str) and [type(one) for one in axis] in ([], [int])):
            expected = "expected an input's name, or a tuple of that and an axis"
            raise DeclarationError(f"Tolerance: ties is {self.ties!r}, {expected}")
        if type(self.random) is not int or (self.random and self.random < _FEWEST_DRAWS):
            expected = f"a number of calls, {_FEWEST_DRAWS} or more, or 0: fewer say little of a variance"
            raise DeclarationError(f"Tolerance: random is {self.random!r}, expected {expected}")
        for field in fields(self):
            value = None if field.name == "ties" else getattr(self, field.name)
            if value is not None and not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise DeclarationError(f"Tolerance: {field.name} is {value!r}, expected a finite number, 0 or more")
        if self.rms_by_row and not self.atol_rms:
            why = "rms_by_row is True without atol_rms, whose root mean square it is about"
            raise DeclarationError(f"Tolerance: {why}; give both")
        if self.rtol is None and (self.atol is not None or self.atol_rms):
            object.__setattr__(self, "rtol", 0.0)
        if self.atol is None and (self.rtol is not None or self.atol_rms):
            object.__setattr__(self, "atol", 0.0)

    @property
    def has_atol(self) -> bool:
        """Whether an absolute limit was declared, other than that which comes with TF32."""
        return bool(self.atol) and not (self.spacing and self.atol == _ATOL)

    def __repr__(self) -> str:
        """Return what definition hashes are made of: a limit that was not set must not begin new series."""
        later = ("rms_by_row", "rel_l2", "ties", "random", "spacing")
        given = [(one, getattr(self, one.name)) for one in fields(self)]
        shown = (f"{one.name}={value!r}" for one, value in given if one.name not in later or value != one.default)
        return f"Tolerance({', '.join(shown)})"


EXACT = Tolerance(rtol=0.0, atol=0.0)
"""The tolerance for pure data movement: equal to the bit, -0.0 and 0.0 counting as equal."""

REASSOCIATED: dict[str, Tolerance] = {
    "float64": Tolerance(rtol=1e-12, atol_rms=1e-12),
    "float32": Tolerance(rtol=1e-4, atol_rms=1e-5),
    "float16": Tolerance(rtol=2e-3, atol_rms=2e-3),
    "bfloat16": Tolerance(rtol=1.6e-2, atol_rms=1e-2),
}
"""Tolerances by output dtype for the same mathematics in another order: another algorithm, a fused reduction.

Two output spacings relative, and a small part of the output's RMS where terms cancel. The oracle rule is the sharper
of the two gates; this one is there for single elements that are plainly wrong.
"""

TF32_SPACING = 2.0**-8
"""Relative spacing that explains the error of a float32 product in TF32 by half of it, as a dtype's spacing does that of a rounding.

TF32 keeps ten bits of mantissa. Where hardware cuts the others off, each operand loses up to 2**-10, and a product up to 2**-9 of its
terms; where it rounds them, half of that, in both directions.
"""


def with_tf32(tolerance: Tolerance) -> Tolerance:
    """Return the tolerance of float32 outputs where TF32 is allowed: each limit at least as wide as the rounding of TF32.

    An error of TF32 is relative to the terms that are summed, not to their sum. So the limits have a part of the output's RMS beside the
    relative part, each twice the error of one product: for a second product behind it, or for two sides that round in different
    ways. Declared limits are widened too, for they were declared for float32. EXACT stays: moved data has no products.
    """
    if tolerance == EXACT:
        return tolerance
    return replace(
        tolerance,
        rtol=max(tolerance.rtol or 0.0, TF32_SPACING),
        atol=_ATOL if tolerance.atol is None else tolerance.atol,
        atol_rms=max(tolerance.atol_rms, TF32_SPACING),
        rel_l2=None if tolerance.rel_l2 is None else max(tolerance.rel_l2, TF32_SPACING),
        spacing=TF32_SPACING,
    )


_FEWEST_DRAWS = 32
_ATOL = 1e-5  # the default `atol` of float32, which a widened tolerance keeps

REASSOCIATED_BY_ROW = {dtype: replace(tolerance, rms_by_row=True) for dtype, tolerance in REASSOCIATED.items()}
"""Tolerances like REASSOCIATED for outputs whose rows differ in magnitude, as in causal attention."""
