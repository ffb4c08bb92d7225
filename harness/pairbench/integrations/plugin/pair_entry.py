"""An implementation of a case in a mode: what one item of a pytest session measures."""

from dataclasses import dataclass

from pairbench.model.plan import Entry, PlannedCase


@dataclass(frozen=True, kw_only=True)
class PairEntry:
    """An entry of a case, with the case that it belongs to."""

    planned: PlannedCase
    entry: Entry

    @property
    def case(self) -> tuple[str, str]:
        """The suite and key of the case."""
        return self.planned.operator.suite, self.planned.case.key

    @property
    def timed(self) -> bool:
        """Whether the entry is timed, and not verified alone."""
        return self.planned.case.tier != "edge" and self.entry not in self.planned.untimed

    @property
    def skipped(self) -> str | None:
        """Why the entry cannot run on this machine; None where it can."""
        return self.planned.skipped.get(self.entry)
