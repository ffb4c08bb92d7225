"""The result of comparing a current run with a reference, its thresholds and accepted levels; and of a search for the commit that moved a series."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import geometric_mean

from pairbench.errors import UsageError
from pairbench.model.plain import Value
from pairbench.model.record import Series
from pairbench.stats import Interval


class Acceptance(Value):
    """A level of a series that a person has accepted on purpose. It does not cover further worsening."""

    series: Series
    definition_hash: str | None  # the definition whose level was accepted; another definition has another level
    p50_ns: float | None
    p95_ns: float | None  # `p50_ns` and `p95_ns` are latencies of the call
    device_p50_ns: float | None = None
    device_p95_ns: float | None = None
    host_p50_ns: float | None = None
    """The latencies of device and host are None on a CPU, and where they were not judged yet when the level was accepted."""
    exact: Mapping[str, float] = field(default_factory=dict)
    """The accepted counts, `peak_bytes` and `margin`, by the column of the record."""
    run_id: str
    at: str
    reason: str

    @property
    def latencies(self) -> dict[str, float]:
        known = {"call_p50_ns": self.p50_ns, "call_p95_ns": self.p95_ns}
        known |= {name: getattr(self, name) for name in ("device_p50_ns", "device_p95_ns", "host_p50_ns")}
        return {column: value for column, value in known.items() if value is not None}


class Policy(Value):
    """The thresholds of a comparison. The defaults are those whose error rates `tests/lab/gate/README.md` publishes."""

    minimum_effect: float = 0.02
    """The smallest relative change of a latency that must be caught; a series with a noise floor has at least twice that floor."""
    least_estimate: float = 0.75
    """An estimated change counts from this fraction of `minimum_effect` on. With 1, half of the changes of exactly that size are missed."""
    false_discovery_rate: float = 0.005
    """The rate of Benjamini-Hochberg over all latencies of a comparison. Where nothing changed it is the chance of any alarm."""

    most_prior_rounds: float = 20.0
    """The most degrees of freedom that other series lend. With more, two outlying rounds of three could raise an alarm."""
    least_spread: float = 0.0003
    """The least relative spread between rounds that is believed: three rounds may agree by chance to the last tick."""
    tick_ns: float = 32.0
    """The step in ns of the clock behind CUDA events on current GPUs; medians of short calls differ by whole steps."""

    memory_part: float = 0.01
    memory_bytes: int = 1 << 20
    """Peak memory may grow by `memory_part` of itself or by `memory_bytes`, whichever is more: allocators round up."""

    margin_part: float = 0.5
    """The part of the reference's correctness margin that has to be left, unless `margin_safe` is."""
    margin_safe: float = 0.5
    """The part of the tolerance that is enough to be left, whatever the reference had."""

    host_floor: float = 0.1
    """The largest noise floor of a host's own time, in log units, with which it counts as one that repeats and is judged."""
    host_relative_floor: float = 0.35
    """The largest noise floor with which the host's time relative to the baseline's is judged. Twice this floor is a factor of two."""
    calibration_alarms: float = 0.01
    """The part of a calibration's judgements that may have been false alarms for its machine to count as quiet."""

    kernel_part: float = 0.1
    """The relative change of a kernel's profiled time that is worth naming: profiled times are indications."""
    control_part: float = 0.5
    """The part of a change that its control must show as well for the machine to be the likelier cause."""
    confirmed_part: float = 0.5
    """The part of a change that the second measurement must show alone."""


DEFAULT = Policy()


def policy_of(min_effect: float | None, *, name: str = "--min-effect") -> Policy:
    """Return the default thresholds with another minimum effect, in percent; `name` is the option's name in messages."""
    if min_effect is None:
        return DEFAULT
    if not 0 < min_effect < 100:
        raise UsageError(f"{name} is {min_effect:g}, expected a percentage between 0 and 100, such as 2")
    return replace(DEFAULT, minimum_effect=min_effect / 100)


class Verdict(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"


class GateOutcome(StrEnum):
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    UNCHANGED = "unchanged"
    UNDECIDED = "undecided"
    NEW = "new"
    MISSING = "missing"
    INCOMPARABLE = "incomparable"
    FAILED = "failed"


class Attribution(StrEnum):
    CODE = "code"
    """The implementation moved, and its control did not."""
    ENVIRONMENT = "environment"
    """A field of the environment changed, such as the driver."""
    MACHINE = "machine"
    """The control moved too, and nothing else is known to have changed."""
    MEMORY = "out of memory"
    """The device had no memory left, which may be the code's doing or that of another process."""
    DEFINITION = "definition"


class Floor(Value):
    """How far a series' latency moves between runs of the same code: 95 % of such changes are smaller, in log units."""

    p50: float
    p95: float
    runs: int
    source: str
    latency: str = "call"
    host: float | None = None  # how far the median host time moves, in log units; None if no calibration looked at it
    host_relative: float | None = None
    """How far the host's time moves relative to the baseline's; None as `host` is, and for baselines."""


class Judgement(Value):
    metric: str
    outcome: GateOutcome
    verdict: Verdict | None = None
    reference: float | str | None = None
    """The value of the reference runs: of a latency, in ns, the one that `show` prints of a run, and the median of several runs."""
    current: float | str | None = None
    change: Interval | None = None
    """Current over reference with its 95 % interval, 1.02 for 2 % slower: of the geometric mean of the rounds of each side, or
    in `ab` of the ratios of rounds. It need not be the ratio of `current` and `reference`, which are medians of samples."""
    relative_to_baseline: bool = False
    """Whether `change` is of the ratio to the baseline by round, as that of a variant's host time: a round is then the mean of its lower half."""
    minimum_effect: float | None = None
    floor: float | None = None
    """The noise floor of this metric in this series as a part of one; None where it is not known."""
    p_value: float | None = None
    """The chance that a change this large or larger comes from noise, adjusted for the whole comparison."""
    reason: str

    @property
    def shown_ratio(self) -> float | None:
        """Current over reference, as both are shown; None where a side has no number, and where the reference is 0, as a count may be."""
        if not isinstance(self.reference, float) or not isinstance(self.current, float) or not self.reference:
            return None
        return self.current / self.reference


class KernelChange(Value):
    """How a kernel of the reference and of the current run differ; times are per call, profiled, so indications."""

    name: str
    what: str
    reference_count: int
    current_count: int
    reference_ns: float
    current_ns: float

    def __str__(self) -> str:
        """Return it like `new: copy (0 -> 2 a call, 0 -> 8 us)`."""
        counts = f"{self.reference_count} -> {self.current_count} a call"
        times = f"{self.reference_ns / 1e3:.4g} -> {self.current_ns / 1e3:.4g} us"
        return f"{self.what}: {self.name} ({counts}, {times})"


class EraChange(Value):
    field: str
    reference: str | None
    current: str | None

    def __str__(self) -> str:
        """Return it like `driver 580.1 -> 580.2`."""
        return f"{self.field} {self.reference or 'none'} -> {self.current or 'none'}"


class Across(Value):
    """What one series takes on two device models, and gains there: numbers beside each other, which are no verdict."""

    reference_device: str
    latency: str
    reference_ns: float
    current_ns: float
    reference_speedup: float | None
    current_speedup: float | None

    @property
    def ratio(self) -> float:
        """The median latency, current over reference: below 1 the current device takes less time."""
        return self.current_ns / self.reference_ns


class Change(Value):
    series: Series
    role: str
    tier: str | None
    outcome: GateOutcome
    reason: str
    verdict: Verdict | None = None
    attribution: Attribution | None = None
    judgements: tuple[Judgement, ...] = ()
    """Judgements of its metrics; the one that decided comes first."""
    control: Interval | None = None
    """Change of the control's median latency. A variant's control is the baseline; a baseline's are its variants."""
    era: tuple[EraChange, ...] = ()
    kernels: tuple[KernelChange, ...] = ()
    implementation_changed: bool | None = None
    confirmed: bool | None = None
    """Whether a second measurement showed it again; None where there was none."""
    accepted: str | None = None
    reference_runs: tuple[str, ...] = ()
    current_runs: tuple[str, ...] = ()
    left_out_runs: tuple[str, ...] = ()
    """The reference runs that were left out because they measured another source of this series than the newest of them."""
    across: Across | None = None
    """Both medians where the reference is of another device model, and so incomparable; else None."""

    @property
    def p50(self) -> Judgement | None:
        """The judgement of the median latency by which the series is judged; None where there is none."""
        by_metric = {judgement.metric: judgement for judgement in self.judgements}
        return by_metric.get("device_p50_ns", by_metric.get("call_p50_ns"))


@dataclass(frozen=True)
class Moves:
    """How far the median latencies of several series moved, current over reference: 1.02 is 2 % slower."""

    series: int
    known: int  # number of these whose medians were compared; the other fields are of these, and None if there are none
    geometric_mean: float | None
    smallest: float | None
    largest: float | None


def moves_of(changes: Iterable[Change]) -> dict[str, Moves]:
    """Return how far the medians moved of each group that has series: `regression`, `improvement`, and `all` series whose medians were compared."""
    groups: dict[str, list[float | None]] = {"regression": [], "improvement": [], "all": []}
    for change in changes:
        moved = change.p50.change.estimate if change.p50 and change.p50.change else math.nan
        known = moved if 0 < moved < math.inf else None
        if change.outcome in groups:
            groups[change.outcome].append(known)
        groups["all"] += [known] if known else []
    moves = {}
    for name, several in groups.items():
        if several:
            ratios = [ratio for ratio in several if ratio]
            mean = geometric_mean(ratios) if ratios else None
            moves[name] = Moves(len(several), len(ratios), mean, min(ratios, default=None), max(ratios, default=None))
    return moves


class Side(Value):
    asked: str
    runs: tuple[str, ...]
    commits: tuple[str, ...] = ()


class Calibration(Value):
    """The noise of a device, found by comparing runs of the same code with one another."""

    calibration_id: str
    made_at: str
    device_name: str
    environment_hash: str
    runs: tuple[str, ...]
    comparisons: int
    judged: int
    alarms: int
    floors: Mapping[Series, Floor] = field(default_factory=dict)


class Comparison(Value):
    reference: Side
    current: Side
    changes: tuple[Change, ...]
    problems: tuple[str, ...] = ()
    calibrations: tuple[Calibration, ...] = ()
    """The newest calibration of each device model that was compared."""

    @property
    def outcomes(self) -> Counter[GateOutcome]:
        return Counter(change.outcome for change in self.changes)

    def exit_code(self, *, strict: bool = False) -> int:
        counts = self.outcomes
        if counts[GateOutcome.REGRESSION] or counts[GateOutcome.FAILED]:
            return 1
        undecided = sum(counts[kind] for kind in (GateOutcome.UNDECIDED, GateOutcome.MISSING, GateOutcome.INCOMPARABLE))
        # A series that is skipped on both sides is unchanged without having been judged.
        nothing = not counts[GateOutcome.IMPROVEMENT] and all(change.verdict is None for change in self.changes)
        return 3 if strict and (nothing or self.problems or undecided) else 0


class HistoryCommit(Value):
    sha: str
    committed_at: str
    author: str
    subject: str


class Skipped(Value):
    commit: HistoryCommit
    reason: str
    log: str | None = None


class Filled(Value):
    commit: HistoryCommit
    run_id: str | None
    records: int


class Suspect(Value):
    commit: HistoryCommit
    probability: float
    changed: bool | None
    skipped: bool = False


class Bisection(Value):
    series: Series
    metric: str
    good: HistoryCommit
    bad: HistoryCommit
    commits: int
    ends: str
    moved: bool
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
        return 130 if self.interrupted else 0 if self.found else 3

    @property
    def probability(self) -> float:
        shas = {commit.sha for commit in self.found}
        return sum(suspect.probability for suspect in self.suspects if suspect.commit.sha in shas)
