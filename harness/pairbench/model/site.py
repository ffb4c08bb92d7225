"""The content of the site's pages, gathered from a store: `analyze` fills these values and `report.site` writes them.

Latencies are in nanoseconds, ratios are baseline over variant (speedup) or after over before (change), times are
ISO 8601 in UTC. None means that there is no such value.
"""

import contextlib
import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import field

from pairbench.model.breakdown import KernelCount
from pairbench.model.comparison import Attribution, Change, GateOutcome
from pairbench.model.plain import Value
from pairbench.model.record import Series
from pairbench.stats import Interval

STATES = ("failed", "regression", "undecided", "improvement", "new", "unchanged", "skipped")
"""States of a series, and of whatever holds several, the worst first."""
LIVES = ("still there", "accepted", "recovered", "superseded", "noted")
"""What became of an event, what asks for attention first."""
TRIAGE = ("new", "investigating", "filed", "expected", "not-ours")
"""The states of an event that a person sets; `new` where nobody has."""
_ADDRESS = re.compile(r"https?://[\w.:\[\]-]+([/?#][!#-&(-;=?-\[\]-~]*)?", re.ASCII)  # on the web, without credentials
ATTENTION = tuple(map(GateOutcome, ("failed", "regression", "undecided", "improvement", "new")))
"""Outcomes that an event can have, the worst first."""


class RunHead(Value):
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
    environment_hash: str
    versions: Mapping[str, str]  # versions that are known, by name: driver, cuda, cudnn, torch, triton, python, cpu
    statuses: Mapping[str, int]
    timers: tuple[str, ...]
    subject: str | None = None
    author: str | None = None
    number: int | None = None
    pull_request: int | None = None


class OverviewRow(Value):
    """The cases of an operator that share device model, dtype, tier and mode, as their newest runs left them."""

    device_name: str
    suite: str
    operator: str
    dtype: str  # the dtype of the cases; empty where the operator has no such axis
    tier: str
    mode: str
    cases: int
    variant: str | None
    """The best variant: among those measured in the most cases, the one with the largest geometric mean of speedups."""
    speedup: Interval | None
    least: float | None  # the smallest speedup of that variant over the cases; `most` is the largest
    most: float | None
    latency: str
    """The latency that the speedups are of: `device` or `call`; `device and call` where it is not the same in all cases."""
    host_bound: tuple[str, ...]
    """Cases in which the host limits that variant: it takes longer to issue a call than the device to do its work."""
    losing: tuple[str, ...]  # cases in which that variant is slower than the baseline: the whole interval is below 1
    statuses: Mapping[str, int]
    margin: float | None
    launches_before: tuple[int, int] | None
    """Fewest and most launches per call of the baseline over the cases, and of that variant below; None where they are not known."""
    launches_after: tuple[int, int] | None
    spark: tuple[float | None, ...]  # the variant's mean speedup in the newest runs, oldest first
    state: str
    newest_run: str


class SeriesStatus(Value):
    state: str
    change: Interval | None = None
    attribution: Attribution | None = None
    reason: str = ""
    confirmed: bool | None = None
    accepted: str | None = None
    lasting: "Moved | None" = None
    """The worst open move of the series, where that is why it is in this state, and not the newest run alone."""
    since: str | None = None


class CountStep(Value):
    metric: str
    before: float | str | None
    after: float | str | None  # `before` and `after` are values in the column's unit; None where nothing is known
    reason: str


class Moved(Value):
    series: Series
    outcome: GateOutcome
    """What the move means to a gate, as far as it lasts: regression, improvement, undecided or failed."""
    change: float | None = None
    """The median latency after the move over that before it; None where the latency did not move, or there is none."""
    relative: float | None = None
    """`change` over the same ratio of the control's median latency; None where there is no control."""
    before_ns: float | None = None
    after_ns: float | None = None
    control: float | None = None
    attribution: Attribution | None = None
    reason: str
    counts: tuple[CountStep, ...] = ()
    kernels: tuple[str, ...] = ()
    accepted: str | None = None
    life: str = LIVES[0]
    ended: str | None = None
    history: tuple[float | None, ...] = ()
    """What moved in the runs around it, oldest first: the median latency in ns, or a count; None for runs without a value."""
    place: int = 0  # index in `history` of the first run with the change

    @property
    def size(self) -> float | None:
        """The change to lead with: relative to the control where the code is the likely cause, else the series' own."""
        return self.relative if self.attribution is Attribution.CODE and self.relative is not None else self.change


class Triage(Value):
    """The state of an event that a person set; ValueError for a state that is unknown, or without what it needs."""

    event: str
    state: str
    url: str | None  # address of the issue of a `filed` event; None for all others
    until: str | None  # the last day on which an `expected` event is expected, like `2026-12-24`; None for all others
    note: str
    at: str

    def __post_init__(self) -> None:
        if self.state not in TRIAGE:
            raise ValueError(f"state {self.state!r} is unknown, expected one of {', '.join(TRIAGE)}")
        for name, value, state in (("url", self.url, "filed"), ("until", self.until, "expected")):
            if value is None and self.state == state:
                needed = "the address of the issue" if name == "url" else "a day like 2026-12-24"
                raise ValueError(f"state {state!r} needs {name}: {needed}")
            if value is not None and self.state != state:
                raise ValueError(f"{name} {value!r} goes with state {state!r} alone, and the state is {self.state!r}")
        if self.url is not None and not _ADDRESS.fullmatch(self.url):
            raise ValueError(f"url {self.url!r} is no address, expected one like https://example.org/issues/12")
        with contextlib.suppress(ValueError):
            if self.until is None or dt.date.fromisoformat(self.until).isoformat() == self.until:
                return
        raise ValueError(f"until {self.until!r} is no day, expected one like 2026-12-24")


class Event(Value):
    """A change of some series of one device model between two runs."""

    key: str  # identifies the event, the same from build to build, and from the first alarm to the level that is found
    kind: str
    """Kind of event: `moved` to a new level or count, `newest` for worse in one run that was the newest, `drift`, `failed`, and of many
    series together `environment` and `new`, a new operator."""
    direction: str
    """Direction of the change: `slower`, `faster`, `worse`, `better`, `both`, `failed` or `new`; worse and better are of counts."""
    device_name: str
    before: RunHead | None
    after: RunHead
    moved: tuple[Moved, ...]  # the series that changed, the largest change first
    era: tuple[str, ...]
    outcome: GateOutcome
    """The event's outcome for a gate, of what lasts if anything does: regression, improvement, undecided or failed."""
    life: str = LIVES[0]
    ended: str | None = None  # the id of the run in which the last of the event's series recovered; None until then
    elsewhere: tuple["Event", ...] = ()  # events of other device models that are the same step
    last: RunHead | None = None
    of: int = 0  # the number of series that were measured on both sides of a change of environment; 0 for all else
    median: float | None = None
    aliases: tuple[str, ...] = ()  # keys that it may have had on other device models, or while fewer runs were known
    triage: Triage | None = None
    """What a person said of it last; None where nobody did, and of its parts on other device models."""

    @property
    def end(self) -> RunHead:
        return self.last or self.after

    @property
    def blames(self) -> bool:
        """Whether the commit of the first run with the change may be named beside it: not for what one commit did not do for sure."""
        return self.before is not None and self.kind in ("moved", "failed", "new")

    @property
    def everywhere(self) -> tuple["Event", ...]:
        return (self, *self.elsewhere)

    @property
    def commits(self) -> int | None:
        if self.before is None or self.before.number is None or self.end.number is None:
            return None
        number = self.end.number - self.before.number
        return number if number > 0 and self.before.branch == self.end.branch else None

    @property
    def standing(self) -> str:
        """What became of it on all device models together, one of LIVES."""
        return min((one.life for one in self.everywhere), key=LIVES.index)

    @property
    def open(self) -> bool:
        return self.standing == LIVES[0]

    @property
    def state(self) -> str:
        return self.triage.state if self.triage is not None else TRIAGE[0]

    @property
    def is_new(self) -> bool:
        return self.open and self.state == TRIAGE[0]

    @property
    def worst(self) -> GateOutcome:
        """The worst outcome on any device model on which it stands as it does on the whole."""
        return min((one.outcome for one in self.everywhere if one.life == self.standing), key=ATTENTION.index)

    @property
    def accepted(self) -> bool:
        return self.standing == "accepted"


class RunVerdicts(Value):
    references: Mapping[str, bool]
    """The runs that any series was held against, the oldest first, and whether the site has their pages."""
    changes: tuple[Change, ...]
    """What changed, the worst and then the largest first; what is new, the same or may be noise is not among it."""
    new: tuple[Series, ...]
    counts: Mapping[str, int]
    outcomes: Mapping[Series, str]
    moves: tuple[str, ...]
    era: tuple[str, ...]
    """How far medians moved, and what changed in the environment, in the lines of `pairbench compare`."""


class SeriesFacts(Value):
    series: Series
    role: str
    tier: str
    dtype: str
    axes: Mapping[str, object]
    run_id: str
    status: str
    reason: str | None
    gate_status: SeriesStatus
    numbers: Mapping[str, float]  # columns of the record that are numbers and not null, by the column's name
    texts: Mapping[str, str]
    """Columns of the record that are texts and not null: timer, device_timer, stop_reason, launch_status and others."""
    kernels: tuple[KernelCount, ...] | None
    quantiles: tuple[float, ...]
    """Latencies in ns at 0, 1, ... 100 % of the newest run's samples; empty where these have been pruned."""


class About(Value):
    summary: str
    source: str
    owner: str = ""
    path: str
    line: int


class BreakdownHead(Value):
    breakdown_id: str
    made_at: str
    device_name: str
    suite: str
    operator: str
    case: str
    entries: tuple[str, ...]


class GpuSpread(Value):
    """A GPU beside the others of its model: ratios of its latencies to the median GPU's, 1.02 being 2 % slower."""

    device_name: str
    gpu: str
    series: int
    ratio: float
    low: float
    high: float
    """`ratio` is the median of its ratios, in the `series` that it shares with others; `low` and `high` are the ends of the range that holds 80 %."""


class SiteFacts(Value):
    """The facts that every page has; runs, events and breakdowns are in order, the newest first."""

    store: str
    repository: str | None  # address of the repository on the web, for links to commits and sources; None if unknown
    runs: tuple[RunHead, ...]
    rows: tuple[OverviewRow, ...] = ()
    events: tuple[Event, ...] = ()
    beside: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The earlier run to show beside a run, by run and device model."""
    problems: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Options that a command needs to find the store: `--store` and its name; empty for the checkout's own."""
    owners: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Who looks after an operator, by suite and operator; those without an owner are left out."""
    self_tests: tuple[str, ...] = ()
    breakdowns: tuple[BreakdownHead, ...] = ()
    several_gpus: bool = False
    """Whether runs are of several GPUs of one model, as every page has to know before `gpus` is complete."""
    gpus: tuple[GpuSpread, ...] = ()
