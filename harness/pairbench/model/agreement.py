"""Whether an implementation gives the same outputs on both sides of a comparison."""

from dataclasses import dataclass
from enum import StrEnum

from pairbench.model.outcome import Correctness
from pairbench.model.plan import Entry


class Agreement(StrEnum):
    """How the outputs for the same seeded inputs agree."""

    EQUAL = "equal"
    """To the bit."""
    WITHIN = "within"
    """Not to the bit, and nowhere further apart than the operator's tolerance."""
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class OutputsCompared:
    """What comparing one entry's outputs has shown."""

    entry: Entry
    agreement: Agreement
    reason: str | None = None
    """Where and how far they differ, or why nobody knows."""
    correctness: Correctness | None = None
    """Distances between the sides' outputs, where they were compared element by element."""
