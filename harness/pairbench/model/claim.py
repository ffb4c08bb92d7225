"""Published figures about a pair, declared beside the operator to be compared with measurements."""

import math
from collections.abc import Mapping, Sequence

from pairbench.errors import DeclarationError
from pairbench.model.case import Case, declaring, make_case
from pairbench.model.plain import Value
from pairbench.model.settings import MODES

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
