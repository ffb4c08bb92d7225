"""Commits of a history: which one moved a series, and what is known of each; which were filled in."""

from dataclasses import dataclass

from pairbench.model.comparison import Comparison
from pairbench.model.record import Series
from pairbench.stats import Interval


@dataclass(frozen=True, kw_only=True)
class HistoryCommit:
    """A commit between two others."""

    sha: str
    committed_at: str
    author: str
    subject: str


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A commit that cannot be measured."""

    commit: HistoryCommit
    reason: str
    log: str | None = None
    """The file that has the whole reason; None where it could not be written."""


@dataclass(frozen=True, kw_only=True)
class Filled:
    """A commit that is in the store now."""

    commit: HistoryCommit
    run_id: str | None
    """The run that has just measured it; None where the store had all of it."""
    records: int


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A commit that may be the one."""

    commit: HistoryCommit
    probability: float
    changed: bool | None
    """Whether the implementation's hash is another than before it; None where that is not known."""
    skipped: bool = False


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """What a search for the commit that moved a series has found."""

    series: Series
    metric: str
    good: HistoryCommit
    bad: HistoryCommit
    commits: int
    ends: str
    moved: bool
    """Whether there is a change between the ends, and so anything to look for."""
    change: Interval | None = None
    """The latency of the bad end over that of the good end; None for a count."""
    suspects: tuple[Suspect, ...] = ()
    found: tuple[HistoryCommit, ...] = ()
    """The commit that it was; several where those before the last cannot be measured. Empty as long as nobody knows."""
    rounds: int = 0
    """Rounds of commits beside the good end, or commits that were counted."""
    confirming: int = 0
    """Rounds of the two ends beside each other."""
    skipped: tuple[Skipped, ...] = ()
    interrupted: bool = False
    parent: HistoryCommit | None = None
    last: Comparison | None = None
    """`ab` of that parent and the commit that was found; None where there was none."""

    @property
    def exit_code(self) -> int:
        """Return 0 where a commit was found, 130 after an interruption, else 3."""
        return 130 if self.interrupted else 0 if self.found else 3

    @property
    def probability(self) -> float:
        """Return how probable what was found is; 0 where nothing was."""
        shas = {commit.sha for commit in self.found}
        return sum(suspect.probability for suspect in self.suspects if suspect.commit.sha in shas)
