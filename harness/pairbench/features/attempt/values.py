"""A quick look at some cases by `pairbench try`, beside what the same series showed before."""

from dataclasses import dataclass
from typing import Any

from pairbench.model.outcome import Status
from pairbench.model.plan import BrokenSuite
from pairbench.model.record import Record


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What a series showed before, beside what it shows now."""

    record: Record
    """The earlier result; only some of its columns where it is that of an earlier try."""
    change: float | None = None
    """The median latency now over the earlier one; None where they cannot be compared."""
    clear: bool = False
    """Whether the change is larger than what two processes differ by anyway, as far as a quick look can tell."""
    shared: bool = False
    """Whether the baseline changed alike, so that it may be the machine."""
    elsewhere: bool = False
    """Whether it was made in another environment: other versions, another machine."""
    why_not: str = ""
    """Why they cannot be compared; empty where they are."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One implementation of one case in one mode, tried."""

    record: Record
    """Everything that is known of it, as a run would store it."""
    last: Beside | None = None
    """The last try of the series; None where there is none."""
    stored: Beside | None = None
    """The newest stored run of the series; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One invocation of `pairbench try`, or of its watch after a change."""

    cases: tuple[tuple[Tried, ...], ...]
    """The cases that were tried, in order."""
    left_out: tuple[str, ...] = ()
    """Keys of the cases that were selected and not taken, for one of an operator is enough."""
    untried: tuple[str, ...] = ()
    """Keys of the cases that were taken and not tried, for something before them was wrong."""
    broken: tuple[BrokenSuite, ...] = ()
    """Suites that could not be loaded."""

    @property
    def exit_code(self) -> int:
        """Return the contract's exit code."""
        if self.broken:
            return 2
        return int(any(Status(one.record.status).bad for one in self.tried))

    @property
    def tried(self) -> tuple[Tried, ...]:
        """Return all implementations of all cases."""
        return tuple(one for case in self.cases for one in case)

    def plain(self) -> dict[str, Any]:
        """Return all but the records as JSON values."""
        return {
            "left_out": list(self.left_out),
            "untried": list(self.untried),
            "broken_suites": [{"suite": one.suite, "reason": one.reason} for one in self.broken],
        }
