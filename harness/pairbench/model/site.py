"""What the pages of the site show, gathered from a store: values that `analyze` fills and `report.site` writes.

Latencies are in nanoseconds, ratios are baseline over variant (speedup) or after over before (change), times are
ISO 8601 in UTC. None means that there is no such value.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pairbench.model.comparison import Attribution, GateOutcome
from pairbench.model.record import KernelCount
from pairbench.model.series import Series
from pairbench.stats import Interval

STATES = ("failed", "regression", "undecided", "improvement", "new", "unchanged", "skipped")
"""What a series, and so everything that holds some, can be, the worst first."""


@dataclass(frozen=True, kw_only=True)
class RunHead:
    """One run on one device model."""

    run_id: str
    started_at: str
    device_name: str
    device_uuids: tuple[str, ...]
    hostname: str
    commit: str | None
    commit_at: str | None
    branch: str | None
    dirty: bool
    confirms: str | None
    """The run whose suspects it measured again."""
    environment_hash: str
    versions: Mapping[str, str]
    """Driver, cuda, cudnn, torch, triton, python, cpu: those that are known."""
    statuses: Mapping[str, int]
    """How many records ended in each status."""
    timers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OverviewRow:
    """The cases of an operator that share device model, dtype, tier and mode, as their newest runs left them."""

    device_name: str
    suite: str
    operator: str
    dtype: str
    """Empty where the operator has no such axis."""
    tier: str
    mode: str
    cases: int
    variant: str | None
    """Of the variants that were measured in the most cases, the one with the largest geometric mean of speedups."""
    speedup: Interval | None
    """That mean; the interval combines those of the cases as independent."""
    least: float | None
    most: float | None
    """Its speedups over the cases."""
    losing: tuple[str, ...]
    """Cases in which that variant is proven slower than the baseline: the upper end of its interval is below 1."""
    statuses: Mapping[str, int]
    """Newest records of all implementations by status."""
    margin: float | None
    """The least part of the tolerance that any implementation has left."""
    launches_before: tuple[int, int] | None
    """Fewest and most launches per call of the baseline over the cases; None where they are not known."""
    launches_after: tuple[int, int] | None
    """The same of the variant."""
    spark: tuple[float | None, ...]
    """The variant's mean speedup in the newest runs, oldest first."""
    state: str
    """The worst of its series', one of STATES."""
    newest_run: str


@dataclass(frozen=True, kw_only=True)
class SeriesStatus:
    """What the newest run of a series says, by the comparison with its reference."""

    state: str
    """One of STATES."""
    change: Interval | None = None
    """Of the median latency, current over reference."""
    attribution: Attribution | None = None
    reason: str = ""
    confirmed: bool | None = None
    accepted: str | None = None
    """The reason for which the level was accepted."""


@dataclass(frozen=True, kw_only=True)
class Moved:
    """One series in an event."""

    series: Series
    change: float | None
    """Median latency after over before; None for what has no latency."""
    before_ns: float | None
    after_ns: float | None
    control: float | None
    """Change of the control."""
    attribution: Attribution | None
    reason: str
    kernels: tuple[str, ...] = ()
    """How the lists of kernels differ, in words, one kernel each."""
    accepted: str | None = None
    """The reason for which the new level was accepted."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """What happened to some series of one device model between two runs."""

    key: str
    """Stays the same from build to build."""
    kind: str
    """moved: to a new level; newest: worse in one run, the newest when it was made, which alone proves nothing that lasts; failed."""
    direction: str
    """slower, faster, both, worse (of a newest run: whatever became worse) or failed."""
    device_name: str
    before: RunHead | None
    """The last run without it."""
    after: RunHead
    """The first run with it."""
    moved: tuple[Moved, ...]
    """The largest change first."""
    era: tuple[str, ...]
    """Changed fields of the environment, like `driver 580.1 -> 580.2`."""
    outcome: GateOutcome
    """regression, improvement, undecided or failed."""

    @property
    def accepted(self) -> bool:
        """Whether every slower series of it was accepted."""
        slower = [one for one in self.moved if one.change is None or one.change > 1]
        return bool(slower) and all(one.accepted for one in slower)


@dataclass(frozen=True, kw_only=True)
class SeriesFacts:
    """The newest record of a series, as far as a page shows it."""

    series: Series
    role: str
    tier: str
    dtype: str
    axes: Mapping[str, object]
    run_id: str
    """Of that record."""
    status: str
    reason: str | None
    gate_status: SeriesStatus
    numbers: Mapping[str, float]
    """Columns of the record that are numbers and not null, by name."""
    texts: Mapping[str, str]
    """timer, device_timer, stop_reason, launch_status, throttle_reasons, as far as they are there."""
    kernels: tuple[KernelCount, ...] | None
    quantiles: tuple[float, ...]
    """Latencies in ns at 0, 1, ... 100 % of the newest run's samples; empty where they have been pruned."""


@dataclass(frozen=True, kw_only=True)
class About:
    """What a suite's file says of an operator."""

    summary: str
    """First lines of documentation: of the baseline, or of the file."""
    source: str
    """Where the operator comes from, as declared."""
    path: str
    line: int


@dataclass(frozen=True, kw_only=True)
class BreakdownHead:
    """A case's breakdowns that were kept in the store."""

    breakdown_id: str
    made_at: str
    device_name: str
    suite: str
    operator: str
    case: str
    entries: tuple[str, ...]
    """Implementations with their modes."""


@dataclass(frozen=True, kw_only=True)
class SiteFacts:
    """What every page knows."""

    store: str
    repository: str | None
    """Address of the repository on the web, for links to commits and sources."""
    runs: tuple[RunHead, ...]
    """Newest first."""
    rows: tuple[OverviewRow, ...]
    events: tuple[Event, ...]
    """Newest first."""
    problems: tuple[str, ...]
    """What could not be read."""
    options: tuple[str, ...] = ()
    """What a command has to be told to find the store: `--store` and its name, where it is not the checkout's own."""
    breakdowns: tuple[BreakdownHead, ...] = ()
    """Newest first."""
