"""What one item of a pytest session stands for."""

from dataclasses import dataclass

from pairbench.model.plan import Entry, PlannedCase


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One item of the session: an entry of a case."""

    planned: PlannedCase
    entry: Entry

    @property
    def case(self) -> tuple[str, str]:
        """What it shares with the other entries of its case."""
        return self.planned.operator.suite, self.planned.case.key

    @property
    def timed(self) -> bool:
        """Whether it is for timing, rather than for verifying alone."""
        return self.planned.case.tier != "edge" and self.entry not in self.planned.untimed

    @property
    def skipped(self) -> str | None:
        """Why nothing can be done with it here, if so."""
        return self.planned.skipped.get(self.entry)
