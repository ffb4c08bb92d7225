"""What the attacks have seen."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Seen:
    """How often each thing happened, and a sentence for each time that something went wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: "Seen") -> None:
        self.counts += other.counts
        self.wrong += other.wrong
