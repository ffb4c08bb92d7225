"""How far a variant's outputs may be from its baseline's."""

import math
from dataclasses import fields, replace

from pairbench.errors import DeclarationError
from pairbench.model.plain import Value


class Tolerance(Value):
    """Limits for |variant - baseline| of each element: atol + atol_rms * rms(baseline) + rtol * |baseline|.

    `rtol` and `atol` are None for the output dtype's defaults of `torch.testing.assert_close`. Giving one of the
    absolute limits makes the other zero, so that a declared tolerance is exactly what it says.
    """

    rtol: float | None = None
    atol: float | None = None
    atol_rms: float = 0.0
    """Absolute limit as a part of the root mean square of the baseline's output, whatever its magnitude."""
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
