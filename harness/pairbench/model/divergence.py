"""The modules in which a variant's outputs begin to differ from those of the baseline's modules of the same names."""

from dataclasses import dataclass

from pairbench.model.case import Case
from pairbench.model.environment import Device
from pairbench.model.plan import Entry, OperatorDescription


@dataclass(frozen=True, kw_only=True)
class Gap:
    """How far a variant's tensors are from the baseline's; distances leave out elements that are not finite in both."""

    max_abs: float
    rel_l2: float | None
    """Relative L2 distance to the baseline; None where the baseline has nothing but zeros."""
    beyond: float
    """Part of the elements that are beyond the operator's tolerance, from 0 to 1."""
    within: bool


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One call of a module that both trees have, baseline against variant."""

    module: str
    class_name: str
    call: int
    dtypes: tuple[str, str]
    gap: Gap | None
    """Distance between the outputs; None where they cannot be compared."""
    incomparable: str | None = None
    baseline_oracle: float | None = None
    """Relative L2 error of the baseline's output against float64, as of the variant's below; None without an oracle."""
    variant_oracle: float | None = None
    worse: bool = False
    """Whether the variant is clearly further from float64 than the baseline: more than twice as far, and half a spacing on top."""
    contained: bool = False
    """Whether the output is beyond tolerance while that of the module around it is not, as with another memory layout."""

    @property
    def off(self) -> bool:
        """Whether the output is beyond the operator's tolerance."""
        return self.gap is not None and not self.gap.within


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The comparison of a baseline and a variant run in lockstep, module by module."""

    entry: Entry
    layers: tuple[Layer, ...]
    """Calls of modules in the order in which the baseline's finish: inner modules come before outer ones."""
    inputs: Gap | None = None
    """Distance of the inputs of the `first` module; None where there is no such module, or they cannot be compared."""
    only_baseline: tuple[str, ...] = ()
    only_variant: tuple[str, ...] = ()
    uncalled: tuple[tuple[str, int, int], ...] = ()
    """Modules in both trees that are not called equally often: name, calls by the baseline, calls by the variant."""
    oracle_missing: str | None = None
    output_mismatch: str | None = None

    @property
    def first(self) -> Layer | None:
        """The first module whose output is beyond the operator's tolerance, and so is that of the module around it."""
        return next((layer for layer in self.layers if layer.off and not layer.contained), None)

    @property
    def first_worse(self) -> Layer | None:
        """The first module that is clearly further from float64 than the baseline's."""
        return next((layer for layer in self.layers if layer.worse and not layer.contained), None)

    @property
    def bad(self) -> bool:
        """Whether the variant is wrong; rounding alone, which does not move outputs away from float64, is not."""
        off = self.first is not None and (self.oracle_missing is not None or self.first_worse is not None)
        return off or self.output_mismatch is not None


@dataclass(frozen=True, kw_only=True)
class NoDivergence:
    """A pair that cannot be compared module by module, and why."""

    entry: Entry
    reason: str
    bad: bool
    """Whether that is a failure of the code; False where a comparison is not applicable."""


@dataclass(frozen=True, kw_only=True)
class CaseDivergence:
    """A variant's divergence in one case."""

    operator: OperatorDescription
    case: Case
    device: Device
    result: Divergence | NoDivergence
