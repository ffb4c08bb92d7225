"""Whether an implementation gives the same outputs on both sides of a comparison."""

from dataclasses import dataclass
from enum import StrEnum

from pairbench.model.outcome import Correctness
from pairbench.model.plan import Entry


class Agreement(StrEnum):
    """How two sides' outputs for the same seeded inputs agree."""

    EQUAL = "equal"
    """The outputs are equal to the bit."""
    WITHIN = "within"
    """The outputs differ in some bits, and are everywhere within the operator's tolerance."""
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class OutputsCompared:
    """The result of comparing one entry's outputs on both sides."""

    entry: Entry
    agreement: Agreement
    reason: str | None = None
    """Where and how far the outputs differ, or why that is not known; None where they agree."""
    correctness: Correctness | None = None
    """Distances between the sides' outputs; None where they were not compared element by element."""
