"""The layout of a comparison: its sections, their rows and columns, and the order."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from pairbench.model.comparison import Calibration, Change, Comparison, EraChange, GateOutcome, Judgement
from pairbench.model.latency import HOST
from pairbench.report import units
from pairbench.report.comparison import words
from pairbench.report.render import Column
from pairbench.stats import upper_bound

FEW = 15
"""Number of unchanged series up to which they are listed rather than counted."""

_BAD = (GateOutcome.FAILED, GateOutcome.REGRESSION)
_MOVED = (*_BAD, GateOutcome.IMPROVEMENT)


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """One metric of one change."""

    change: Change
    judgement: Judgement
    first: bool = True
    """Whether the row is the first of its change, and so has the cells that hold for all of its rows."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Changes that share a heading, which may be empty."""

    heading: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the output: one outcome with its groups."""

    title: str
    bad: bool = False
    groups: tuple[Group, ...]
    judged: bool = True
    """Whether the section has numbers to show; otherwise it lists names under their reason."""

    @property
    def size(self) -> int:
        """Number of changes in the section."""
        return sum(len(group.changes) for group in self.groups)


def _first(text: Callable[[ComparisonRow], str]) -> Callable[[ComparisonRow], str]:
    return lambda row: text(row) if row.first else ""


def _range(row: ComparisonRow) -> str:
    interval = row.judgement.change
    return units.change_range(interval.low, interval.high) if interval else ""


def _control(row: ComparisonRow) -> str:
    return units.change(row.change.control.estimate) if row.change.control else ""


COLUMNS: tuple[Column[ComparisonRow], ...] = (
    Column(
        header="implementation",
        text=_first(lambda row: words.shorten(row.change.series.implementation, 40)),
        right=False,
    ),
    Column(header="mode", text=_first(lambda row: row.change.series.mode), right=False, usual="eager"),
    Column(header="metric", text=lambda row: words.metric(row.judgement, of=row.change), right=False, usual="P50"),
    Column(
        header="reference",
        text=lambda row: words.shorten(words.value(row.judgement, row.judgement.reference), 40),
        drop=2,
    ),
    Column(header="current", text=lambda row: words.shorten(words.value(row.judgement, row.judgement.current), 40)),
    Column(header="change", text=lambda row: words.change(row.judgement)),
    Column(header="interval", text=_range, drop=4),
    Column(header="minimum", text=lambda row: units.percent(row.judgement.minimum_effect), drop=5),
    Column(header="floor", text=lambda row: units.percent(row.judgement.floor), drop=6),
    Column(header="control", text=_first(_control), drop=3),
    Column(header="attribution", text=_first(lambda row: row.change.attribution or ""), right=False, drop=1),
)


def rows_of(change: Change) -> list[ComparisonRow]:
    """Return the rows of a change: the metric that decided, the median, and every other metric that moved.

    A time of the host that moved has its row even where it is not judged.
    """
    p50 = change.p50
    chosen = [
        judgement
        for index, judgement in enumerate(change.judgements)
        if index == 0 or judgement is p50 or judgement.outcome in _MOVED or _host_moved(judgement)
    ]
    return [
        ComparisonRow(change=change, judgement=judgement, first=not index) for index, judgement in enumerate(chosen)
    ]


def _host_moved(judgement: Judgement) -> bool:
    """Tell whether the host's time to issue a call is shown to have changed: its whole interval lies on one side."""
    interval = judgement.change
    return judgement.metric == HOST.p50 and interval is not None and (interval.low > 1 or interval.high < 1)


def sections(comparison: Comparison) -> list[Section]:
    """Return the sections that have something in them, what is bad first; many unchanged series are left out."""
    by_outcome: dict[GateOutcome, list[Change]] = {outcome: [] for outcome in GateOutcome}
    accepted: list[Change] = []
    for change in comparison.changes:
        on_purpose = change.accepted is not None and change.outcome is GateOutcome.UNCHANGED
        (accepted if on_purpose else by_outcome[change.outcome]).append(change)
    all_sections = [
        *(
            _judged_section(outcome.value.capitalize(), by_outcome[outcome], bad=True)
            for outcome in (GateOutcome.FAILED,)
        ),
        _judged_section("Regressions", by_outcome[GateOutcome.REGRESSION], bad=True),
        _judged_section("Improvements", by_outcome[GateOutcome.IMPROVEMENT]),
        _judged_section("Accepted on purpose", accepted),
        _judged_section("Undecided", by_outcome[GateOutcome.UNDECIDED]),
        *(_named_section(outcome, by_outcome[outcome]) for outcome in (GateOutcome.MISSING, GateOutcome.INCOMPARABLE)),
        _named_section(GateOutcome.NEW, by_outcome[GateOutcome.NEW]),
    ]
    if len(by_outcome[GateOutcome.UNCHANGED]) <= FEW:
        all_sections.append(_judged_section("Unchanged", by_outcome[GateOutcome.UNCHANGED]))
    return [section for section in all_sections if section.groups]


def false_alarms(comparison: Comparison) -> list[str]:
    """Return for each device what is known of how often a verdict on it is a false alarm."""
    if not comparison.current.runs:
        return []  # measured interleaved, where false-alarm rates differ
    known = {calibration.device_name: calibration for calibration in comparison.calibrations}
    devices = sorted({change.series.device_name for change in comparison.changes} | known.keys())
    return [measured(known[name]) if name in known else _unknown(name) for name in devices]


def by_case(changes: Iterable[Change]) -> list[tuple[str, list[Change]]]:
    """Return changes under their cases; a case comes as early as its largest change."""
    cases: dict[tuple[str, str, str], list[Change]] = {}
    for change in sorted(changes, key=_size):
        one = change.series
        cases.setdefault((one.device_name, one.suite, one.case), []).append(change)
    return [
        (f"{suite}{'::' if case else ''}{case} ({device})", of_case) for (device, suite, case), of_case in cases.items()
    ]


def _judged_section(title: str, changes: Sequence[Change], *, bad: bool = False) -> Section:
    """Return a section of changes, those in the same environment first, the others below what changed in theirs."""

    def fields(change: Change) -> tuple[EraChange, ...]:
        return change.era

    ordered = sorted(changes, key=lambda change: (bool(change.era), words.era(change.era)))
    groups = [Group(heading=words.era(era), changes=tuple(of_era)) for era, of_era in groupby(ordered, key=fields)]
    return Section(title=title, bad=bad, groups=tuple(groups))


def _named_section(outcome: GateOutcome, changes: Sequence[Change]) -> Section:
    by_reason: dict[str, list[Change]] = {}
    for change in sorted(changes, key=lambda change: change.series):
        by_reason.setdefault(words.shorten(change.reason, 400), []).append(change)
    groups = sorted(by_reason.items(), key=lambda item: -len(item[1]))
    return Section(
        title=outcome.value.capitalize(),
        groups=tuple(Group(heading=reason, changes=tuple(same_reason)) for reason, same_reason in groups),
        judged=False,
    )


def _size(change: Change) -> tuple[float, str, str]:
    """Return a sort key: what was judged exactly first, then latencies by how far they moved."""
    moved = change.judgements[0].change if change.judgements else None
    size = math.inf
    if moved is not None:
        known = math.isfinite(moved.estimate) and moved.estimate > 0
        size = abs(math.log(moved.estimate)) if known else 0.0
    return -size, change.series.name, change.series.device_name


def measured(calibration: Calibration) -> str:
    """Return the false-alarm rate that a calibration found, with its 95 % bound."""
    judged, alarms = calibration.judged, calibration.alarms
    known = f"{alarms:,} of {judged:,}"
    if 0 <= alarms <= judged and judged:
        known += f" (<= {units.percent(upper_bound(alarms, judged))})"
    runs = len(calibration.runs)
    made = f"{calibration.made_at[:10]}, {runs} run{'' if runs == 1 else 's'}"
    return words.shorten(f"measured false alarms on {calibration.device_name}: {known}, {made}", 300)


def _unknown(device: str) -> str:
    return words.shorten(
        f"measured false alarms on {device}: none known, it was never calibrated; `pairbench calibrate` measures them",
        300,
    )
