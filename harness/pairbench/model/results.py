"""What a page of results shows: the newest measurements of an operator's pairs beside what was published about them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pairbench.model.case import Case
from pairbench.model.claim import Claim
from pairbench.model.plan import OperatorDescription
from pairbench.model.record import Record
from pairbench.stats import Interval


class ClaimState(StrEnum):
    """How what was measured here stands beside a claim. Ratios are compared, and counts; never times of two devices."""

    BETTER = "better"
    SAME = "same"
    """The interval holds the claimed speedup, or reaches into the claimed range."""
    WORSE = "worse"
    UNPROVEN = "not proven"
    """There are too few samples for an interval."""
    UNMEASURED = "not measured"


@dataclass(frozen=True, kw_only=True)
class JudgedClaim:
    """A claim beside one case of ours, or beside none."""

    claim: Claim
    case: Case | None
    state: ClaimState
    baseline: Record | None = None
    variant: Record | None = None
    """What it was judged by: the variant that it is about, or the best."""


@dataclass(frozen=True, kw_only=True)
class StepGain:
    """What a variant gains over the one it builds on."""

    over: str
    gain: Interval
    """Latency of that one over its own; without an interval where there was one round."""


@dataclass(frozen=True, kw_only=True)
class ModeResults:
    """One case in one mode."""

    mode: str
    baseline: Record | None
    """Of the best variant's run, so that the two belong together; the newest where no variant was measured."""
    best: Record | None
    """Of the measured variants the one with the largest speedup."""
    variants: tuple[Record, ...]
    """The newest of each, in the order of declaration, however it ended."""
    baselines: Mapping[str, Record]
    """By the variant's name, that of its own run: what its speedup is over."""
    steps: Mapping[str, StepGain]
    """By the variant's name, where one run timed it and the one it builds on."""


@dataclass(frozen=True, kw_only=True)
class CaseResults:
    """One case in all modes that were measured."""

    case: Case
    bytes_moved: float | None
    """What the case demands, by its declared cost: how large it is."""
    modes: tuple[ModeResults, ...]

    def in_mode(self, mode: str) -> ModeResults | None:
        """Return what there is in a mode."""
        return next((results for results in self.modes if results.mode == mode), None)


@dataclass(frozen=True, kw_only=True)
class AxisBound:
    """A bound on one axis of a case, or on its size."""

    axis: str
    """`bytes` for the size: what the case demands."""
    relation: str
    """`>=`, `<=` or `=`."""
    value: object


@dataclass(frozen=True, kw_only=True)
class LossCondition:
    """Where a variant loses: one bound, or two that both hold, that tell those cases best from the others."""

    terms: tuple[AxisBound, ...]
    inside: tuple[int, int]
    """Of the cases that meet it: in how many the variant loses, and how many they are."""
    outside: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Where one variant in one mode is proven slower than the baseline."""

    implementation: str
    mode: str
    losing: tuple[Record, ...]
    """The slowest first."""
    measured: int
    """Cases in which it was measured."""
    where: LossCondition | None


@dataclass(frozen=True, kw_only=True)
class ContributingRun:
    """A run that results come from."""

    record: Record
    """One of those that are shown."""
    records: int
    """How many these are."""
    rounds: tuple[int, ...]
    """Of the measured ones, from the fewest; each number once."""


@dataclass(frozen=True, kw_only=True)
class OperatorResults:
    """An operator on one device model, by the newest record of each series."""

    operator: OperatorDescription
    device_name: str
    runs: tuple[ContributingRun, ...]
    """The newest first."""
    notes: tuple[str, ...]
    """What the records say of how they were made that is not the usual."""
    cases: tuple[CaseResults, ...]
    """By dtype, then the smallest first."""
    claims: tuple[JudgedClaim, ...]
    losses: tuple[Losses, ...]
    refused: tuple[Record, ...]
    """Mismatched, failed, timeout or oom."""
    skipped: tuple[Record, ...]
    outdated: tuple[str, ...]
    """Keys of cases that are known by records of an earlier definition only."""
    missing: tuple[Case, ...]
    """Cases that are declared and of which the store holds nothing."""


def speedup_of(record: Record | None) -> Interval | None:
    """Return a record's speedup with its interval; None where it has none."""
    if record is None or record.speedup is None:
        return None
    low, high = record.speedup_low, record.speedup_high
    nan = float("nan")
    return Interval(record.speedup, nan if low is None else low, nan if high is None else high)
