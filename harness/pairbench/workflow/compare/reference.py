"""What a current run is compared with where nobody says: the newest comparable runs of the default branch."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pairbench.analyze.compare.era import another_gpu
from pairbench.model.comparison import Side
from pairbench.model.record import Record
from pairbench.model.series import COLUMNS, Series
from pairbench.store.run_index import IndexedRun, RunIndex
from pairbench.workflow.compare.selectors import WINDOW, RunSelector, side
from pairbench.workflow.git.repository import Repository
from pairbench.workflow.requested import SCOPE_COLUMNS, Scope

LOOK_BACK = 50
"""The number of runs that are looked at until each series has its own; runs may hold different cases."""

RECORDS = 10_000
"""The number of records of a reference outside a checkout: every earlier run of a small store, and no longer wait
for a large one."""

ANY = "any branch"
"""What the reference is called outside a checkout."""

_STEPS = (WINDOW, 3 * WINDOW, LOOK_BACK)
_COLUMNS = (
    *COLUMNS,
    "tier",
    "status",
    "timer",
    "definition_hash",
    "environment_hash",
    "implementation_hash",
    "device_uuid",
)


@dataclass(frozen=True, kw_only=True)
class ReferenceRuns:
    """Records to compare with."""

    side: Side
    heads: tuple[IndexedRun, ...]
    """The runs that the records are of, newest first."""
    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()
    note: str | None = None
    """A sentence that says why there is nothing to compare with; None where there is something."""


@dataclass(kw_only=True)
class _Wanted:
    """What one current series needs, and the runs that have it, newest first."""

    record: Record
    exact: dict[str, str | None] = field(default_factory=dict)
    """The runs that measured it with the same timer, definition and environment, each with the hash of its source."""
    another: dict[str, str | None] = field(default_factory=dict)
    """The runs that did so on another GPU of the model, each with the hash of its source."""
    near: dict[str, str | None] = field(default_factory=dict)
    """The runs that measured it with the same timer and definition, each with the hash of its source."""
    other: dict[str, str | None] = field(default_factory=dict)
    """All other runs that have it: enough to say why they cannot be compared."""

    def runs(self, most: int) -> list[str]:
        """Return the runs to take: of the newest comparable ones those whose source is the newest's."""
        newest = list((self.exact or self.another or self.near).items())[:most] or list(self.other.items())[:1]
        return [run_id for run_id, source in newest if source == newest[0][1]]

    def offer(self, run_id: str, row: Mapping[str, Any]) -> None:
        now = self.record
        if now.status != "measured":  # then only how it ended last is of interest
            same = []
        else:
            same = [
                row["status"] == "measured",
                (row["timer"], row["definition_hash"]) == (now.timer, now.definition_hash),
            ]
        if same and all(same):
            kept = self.exact if row["environment_hash"] == now.environment_hash else self.near
            if kept is self.exact and another_gpu(row["device_uuid"], now.device_uuid):
                kept = self.another
        else:
            kept = self.other
        kept.setdefault(run_id, row["implementation_hash"])


def default_reference(selector: RunSelector, current: Sequence[Record], repository: Repository) -> ReferenceRuns:
    """Return the newest comparable runs of the default branch that are earlier than the current ones.

    Outside a checkout, or where the current runs know no commit, every earlier run is taken, of the newest fifty and as
    far as there is room. Runs with uncommitted changes are never taken. Each series has its own newest runs, those of the
    same environment if there are any, and of these the ones of one source, the newest.
    """
    branch = repository.default_branch if repository.is_one and any(record.commit for record in current) else None
    asked = branch or ANY
    before = min((record.run_id for record in current), default="")
    devices = {record.device_name for record in current}

    def eligible(head: IndexedRun) -> bool:
        of_branch = branch is None or head.branch == branch or head.commit in repository.default_commits
        comparable = head.has_series and not head.dirty and bool(head.devices & devices)
        return head.run_id < before and of_branch and comparable

    wanted = _wanted(current)
    most = WINDOW if branch else max(WINDOW, RECORDS // max(1, len(wanted)))
    moved = selector.index.place.moved
    gone = _Gone(Scope.of_records(current, moved), wanted, moved)
    looked: list[IndexedRun] = []
    for chunk in _chunks(selector, eligible):
        rows = selector.index.keys(chunk, _COLUMNS)
        scopes = selector.index.keys(chunk, SCOPE_COLUMNS)
        for head in chunk:
            here = rows[head.run_id]
            gone.look(head, here, scopes[head.run_id])
            for row in here:
                if (series := _series(row)) in wanted:
                    wanted[series].offer(head.run_id, row)
        looked += chunk
        if all(len(need.exact) >= most for need in wanted.values()):
            break
    serves: dict[str, set[Series]] = defaultdict(set)
    for series, need in wanted.items():
        for run_id in need.runs(most):
            serves[run_id].add(series)
    for run_id, several in gone.of_run.items():
        serves[run_id] |= several
    used = [head for head in looked if head.run_id in serves]
    if not used:
        note = _nothing(selector.index, before, asked, devices)
        return ReferenceRuns(side=side(asked, used), heads=(), records=(), note=note)
    records, problems = _load(selector.index, used, serves)
    return ReferenceRuns(side=side(asked, used), heads=tuple(used), records=records, problems=problems)


def covered(reference: Iterable[Record], current: Sequence[Record], moved: Mapping[str, str]) -> tuple[Record, ...]:
    """Return the reference's records without those of series that the current runs were never asked for.

    What the current side has on another device or in another mode only stays, so that this can be said of it.
    """
    reference = list(reference)
    scope = Scope.of_records(current, moved)
    here = {series for record in current if (series := Series.of(record))}
    before = {series for record in reference if (series := Series.of(record))}
    fresh = {(series.suite, series.case, series.implementation) for series in here - before}
    return tuple(
        record
        for record in reference
        if (series := Series.of(record)) is not None
        and (
            series in here
            or scope.covers(series, record.tier)
            or (series.suite, series.case, series.implementation) in fresh
        )
    )


class _Gone:
    """Finds the series that the newest run which was asked for them still had, and the current one has not."""

    def __init__(self, scope: Scope, wanted: Collection[Series], moved: Mapping[str, str]) -> None:
        self._scope = scope
        self._moved = moved
        self._wanted = wanted
        self._later: list[Scope] = []
        self.of_run: dict[str, set[Series]] = {}

    def look(self, head: IndexedRun, rows: Iterable[Mapping[str, Any]], scopes: Iterable[Mapping[str, Any]]) -> None:
        """Take the next older run."""
        for row in rows:
            series = _series(row)
            if series is None or series in self._wanted or not self._scope.covers(series, row["tier"]):
                continue
            if not any(scope.covers(series, row["tier"]) for scope in self._later):
                self.of_run.setdefault(head.run_id, set()).add(series)
        if not head.confirms:
            self._later.append(Scope.of(scopes, self._moved))


def _chunks(selector: RunSelector, eligible: Any) -> Iterator[list[IndexedRun]]:
    chunk: list[IndexedRun] = []
    count = 0
    for head in selector.index:
        if not eligible(head) or not selector.is_past(head):
            continue
        chunk.append(head)
        count += head.confirms is None
        if count in _STEPS and head.confirms is None:
            yield chunk
            chunk = []
        if count == LOOK_BACK:
            return
    if chunk:
        yield chunk


def _wanted(current: Sequence[Record]) -> dict[Series, _Wanted]:
    wanted: dict[Series, _Wanted] = {}
    for record in current:
        series = Series.of(record)
        if series is not None and (series not in wanted or wanted[series].record.status != "measured"):
            wanted[series] = _Wanted(record=record)
    return wanted


def _series(row: Mapping[str, Any]) -> Series | None:
    values = {name: row[name] for name in COLUMNS}
    return None if None in values.values() else Series(**values)


def _load(
    index: RunIndex, used: Sequence[IndexedRun], serves: Mapping[str, set[Series]]
) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """Read what each run serves with; a run that few series need is not read for all it has."""
    most = max(map(len, serves.values()))
    few = [head for head in used if len(serves[head.run_id]) <= most / 4]
    readings = [index.records(head for head in used if head not in few)]
    if few:
        readings.append(index.records(few, cases={series.case for head in few for series in serves[head.run_id]}))
    records = [
        record
        for reading in readings
        for record in reading.value
        if (series := Series.of(record)) is not None and series in serves.get(record.run_id, ())
    ]
    return tuple(records), tuple(problem for reading in readings for problem in reading.problems)


def _nothing(index: RunIndex, before: str, asked: str, devices: Collection[str]) -> str:
    """Return why there is no reference, and what there is."""
    earlier = index.first(LOOK_BACK, lambda head: head.run_id < before)
    where = f"{asked} on {' or '.join(sorted(devices))}"
    sentence = f"nothing to compare with: store {index.name!r} has no earlier comparable run of {where}"
    if not earlier:
        return f"{sentence}; there is no earlier run at all, so this one can be the reference of the next"
    told = ", ".join(
        f"{head.run_id} ({', '.join([head.branch or 'no branch', *(['uncommitted changes'] if head.dirty else []), *sorted(head.devices)])})"
        for head in earlier[:5]
    )
    return f"{sentence}; earlier runs are {told}: name one as the reference"
