"""The content of a page of results: the newest measurements of an operator's pairs beside published figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pairbench.model.case import Case
from pairbench.model.claim import Claim
from pairbench.model.plan import OperatorDescription
from pairbench.model.record import Record
from pairbench.stats import Interval


class ClaimState(StrEnum):
    """How a measurement compares with a claim. Ratios and counts are compared, never times of two devices."""

    BETTER = "better"
    SAME = "same"  # the measured interval holds the claimed speedup, or reaches into the claimed range
    WORSE = "worse"
    UNPROVEN = "not proven"  # the measurement has too few samples for an interval
    UNMEASURED = "not measured"


@dataclass(frozen=True, kw_only=True)
class JudgedClaim:
    """A published claim judged by what was measured in one case."""

    claim: Claim
    case: Case | None  # the case that it was judged in; None where no case comes near
    state: ClaimState
    baseline: Record | None = None
    variant: Record | None = None
    """Record of the variant that the claim is about, or of the best one; None where it was not measured."""


@dataclass(frozen=True, kw_only=True)
class StepGain:
    """The gain of a variant over the one that it builds on."""

    over: str  # name of the variant that it builds on
    gain: Interval  # latency of that variant over its own; the interval's ends are NaN where there was one round


@dataclass(frozen=True, kw_only=True)
class ModeResults:
    """The newest records of one case in one mode."""

    mode: str
    baseline: Record | None
    """The baseline's record in the best variant's run; the newest one where no variant was measured."""
    best: Record | None  # the measured variant with the largest speedup; None where none was measured
    variants: tuple[Record, ...]  # the newest record of each variant, in the order of declaration, however it ended
    baselines: Mapping[str, Record]
    """The baseline's record in each variant's own run, by the variant's name: what its speedup is over."""
    steps: Mapping[str, StepGain]
    """The gain of each step by the variant's name, where one run timed it and the one that it builds on."""


@dataclass(frozen=True, kw_only=True)
class CaseResults:
    """The newest records of one case in all modes that were measured."""

    case: Case
    bytes_moved: float | None  # bytes that the case moves at least, by its declared cost; None where none is declared
    modes: tuple[ModeResults, ...]

    def in_mode(self, mode: str) -> ModeResults | None:
        return next((results for results in self.modes if results.mode == mode), None)


@dataclass(frozen=True, kw_only=True)
class AxisBound:
    """A bound on one axis of a case, or on its size."""

    axis: str  # name of the axis; `bytes` stands for the size, the bytes that the case moves
    relation: str  # how the axis compares with the value: `>=`, `<=` or `=`
    value: object


@dataclass(frozen=True, kw_only=True)
class LossCondition:
    """The cases in which a variant loses, described by one bound, or by two that both hold."""

    terms: tuple[AxisBound, ...]
    inside: tuple[int, int]
    """Number of cases within the bounds in which the variant loses, and number of all cases within them."""
    outside: tuple[int, int]  # number of other cases in which the variant loses, and number of all other cases


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The cases in which one variant in one mode is slower than the baseline by its whole interval."""

    implementation: str
    mode: str
    losing: tuple[Record, ...]  # records of the variant in these cases, the slowest first
    measured: int  # number of cases in which the variant was measured
    where: LossCondition | None  # what these cases have in common; None where no bound describes them


@dataclass(frozen=True, kw_only=True)
class ContributingRun:
    """A run that the shown results come from."""

    record: Record  # one of the run's records that are shown
    records: int  # number of the run's records that are shown
    rounds: tuple[int, ...]  # numbers of rounds of the measured records, each once, the smallest first


@dataclass(frozen=True, kw_only=True)
class OperatorResults:
    """The results of an operator on one device model, by the newest record of each series."""

    operator: OperatorDescription
    device_name: str
    runs: tuple[ContributingRun, ...]  # the runs that the records come from, the newest first
    notes: tuple[str, ...]  # unusual conditions of measuring that the records mention, in sentences
    cases: tuple[CaseResults, ...]  # the cases ordered by dtype, then from the smallest to the largest
    claims: tuple[JudgedClaim, ...]
    losses: tuple[Losses, ...]
    refused: tuple[Record, ...]  # records that ended as mismatched, failed, timeout or oom
    skipped: tuple[Record, ...]
    outdated: tuple[str, ...]  # keys of cases that have records of an earlier definition only
    missing: tuple[Case, ...]  # cases that are declared and that the store has no record of
