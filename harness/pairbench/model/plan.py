"""Suites as they describe themselves, and the plan of a run made from them."""

from dataclasses import field

from pairbench.model.case import Case, Claim
from pairbench.model.plain import Value

BASELINE = "baseline"  # the name of every operator's plain implementation
LIBRARY = "library"
"""The kind of a variant that a user would take instead of a kernel of their own, such as PyTorch's function."""


class ImplementationDescription(Value):
    """The baseline, a variant or an impostor, without its code."""

    name: str
    needs: tuple[str, ...]
    hash: str
    builds_on: str = ""
    consumes: tuple[str, ...] = ()
    kind: str = ""
    packages: dict[str, str] = field(default_factory=dict)  # installed versions of the packages that it needs, by name

    @property
    def gpus(self) -> int:
        return max((int(need.removeprefix("gpus:")) for need in self.needs if need.startswith("gpus:")), default=1)


class OperatorDescription(Value):
    suite: str
    path: str
    name: str
    summary: str
    source: str
    definition_hash: str
    implementations: tuple[ImplementationDescription, ...]
    """The baseline first, then the variants in the order of declaration."""
    impostors: tuple[ImplementationDescription, ...]
    cases: tuple[Case, ...]
    costs: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Floating-point operations and bytes by case key; empty where no cost is declared."""
    claims: tuple[Claim, ...] = ()
    left_out: tuple[str, ...] = ()  # sentences on workloads, solutions and candidates of a problem that were not taken
    code_digest: str = ""
    """Digest of all code that the operator reaches, methods of classes included, which hashes leave out; only for `--changed-since`."""

    @property
    def hashes(self) -> tuple[str, ...]:
        """The hashes of the definition, of the implementations and of the impostors, in this order."""
        return (self.definition_hash, *(one.hash for one in (*self.implementations, *self.impostors)))

    def implementation(self, name: str) -> ImplementationDescription:
        return next(one for one in self.implementations if one.name == name)


class BrokenSuite(Value):
    suite: str
    reason: str


class Entry(Value):
    implementation: str
    mode: str

    @property
    def role(self) -> str:
        return "baseline" if self.implementation == BASELINE else "variant"

    def __str__(self) -> str:
        return f"{self.implementation} ({self.mode})"


class PlannedCase(Value):
    operator: OperatorDescription
    case: Case
    entries: tuple[Entry, ...]
    untimed: dict[Entry, str] = field(default_factory=dict)
    skipped: dict[Entry, str] = field(default_factory=dict)
    """`untimed` are entries that are verified but not timed here, `skipped` those that cannot even be verified, each with the reason."""


class Plan(Value):
    cases: tuple[PlannedCase, ...]
    broken: tuple[BrokenSuite, ...] = ()
