"""Where a variant's modules begin to differ from the baseline's of the same names."""

from dataclasses import dataclass

from pairbench.model.case import Case
from pairbench.model.environment import Device
from pairbench.model.plan import Entry, OperatorDescription


@dataclass(frozen=True, kw_only=True)
class Gap:
    """How far the tensors of one place are from the baseline's; elements that are not finite in both are left out of sizes."""

    max_abs: float
    rel_l2: float | None
    """None where the baseline has nothing but zeros."""
    beyond: float
    """Part of the elements that leave the operator's tolerance."""
    within: bool


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One call of a module that both trees have, baseline against variant."""

    module: str
    class_name: str
    call: int
    """Which of the module's calls, from 0."""
    dtypes: tuple[str, str]
    """Of the baseline's and of the variant's output."""
    gap: Gap | None
    """None where the outputs cannot be compared."""
    incomparable: str | None = None
    """Why they cannot."""
    baseline_oracle: float | None = None
    """Relative L2 error of the baseline's output against float64; None without an oracle."""
    variant_oracle: float | None = None
    worse: bool = False
    """Whether the variant is clearly further from float64 than the baseline: more than twice as far, and half a spacing on top."""
    contained: bool = False
    """Whether it is off while the module around it is not: the same in another layout, as a cache is whose slots go round."""

    @property
    def off(self) -> bool:
        """Whether its output leaves the operator's tolerance."""
        return self.gap is not None and not self.gap.within


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """A baseline and a variant in lockstep."""

    entry: Entry
    layers: tuple[Layer, ...]
    """In the order in which the baseline's modules finish: what is inside another one comes before it."""
    inputs: Gap | None = None
    """What goes into the first one that leaves the tolerance; None where there is none, or its inputs cannot be compared."""
    only_baseline: tuple[str, ...] = ()
    """Modules that the variant's tree does not have."""
    only_variant: tuple[str, ...] = ()
    uncalled: tuple[tuple[str, int, int], ...] = ()
    """Modules in both trees that are not called equally often: name, calls by the baseline, calls by the variant."""
    oracle_missing: str | None = None
    output_mismatch: str | None = None
    """What is wrong with the variant's outputs as a whole; None where nothing is."""

    @property
    def first(self) -> Layer | None:
        """The first module whose output leaves the operator's tolerance, and takes that of the module around it along."""
        return next((layer for layer in self.layers if layer.off and not layer.contained), None)

    @property
    def first_worse(self) -> Layer | None:
        """The first module that is clearly further from float64 than the baseline's."""
        return next((layer for layer in self.layers if layer.worse and not layer.contained), None)

    @property
    def bad(self) -> bool:
        """Whether something is wrong: rounding takes modules out of a tolerance, too, but not away from float64."""
        off = self.first is not None and (self.oracle_missing is not None or self.first_worse is not None)
        return off or self.output_mismatch is not None


@dataclass(frozen=True, kw_only=True)
class NoDivergence:
    """A pair that cannot be compared module by module, and why."""

    entry: Entry
    reason: str
    bad: bool
    """Whether that is a failure of the code, rather than something that does not go here."""


@dataclass(frozen=True, kw_only=True)
class CaseDivergence:
    """A variant's divergence in one case."""

    operator: OperatorDescription
    case: Case
    device: Device
    result: Divergence | NoDivergence
