"""Comparisons of stored runs: the store is opened once, both sides are read, and every series gets its verdict.

Without a named reference, a run is compared with the newest comparable runs of the default branch.
"""

import datetime as dt
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pairbench.analyze.compare.attribute import another_gpu
from pairbench.analyze.compare.exact import BAD, AcceptedLevel, bad
from pairbench.analyze.compare.runs import compare, suspects
from pairbench.config import Config
from pairbench.errors import SelectionError, StoreError
from pairbench.model.comparison import DEFAULT, Acceptance, Calibration, Comparison, Policy, Side
from pairbench.model.plain import Value
from pairbench.model.record import COLUMNS, Record, Series
from pairbench.plan import ANY, Selection, Wanted
from pairbench.report.comparison import document, render_comparison
from pairbench.report.units import listed
from pairbench.store.documents import read_acceptances, read_calibrations
from pairbench.store.files import Reading
from pairbench.store.location import StoreLocation
from pairbench.store.reader import IndexedRun, Records, RunIndex
from pairbench.workflow import lookup
from pairbench.workflow.git import Repository
from pairbench.workflow.lookup import AUTO, WINDOW, Picked, RunSelector, side
from pairbench.workflow.requested import SCOPE_COLUMNS, Scope
from pairbench.workflow.setup import Request, store_of

if TYPE_CHECKING:
    from pairbench.workflow.record import DoneRun

LOOK_BACK = 50  # The most runs to search until each series has its reference; runs may hold different cases

# The most records of a reference outside a checkout: every earlier run of a small store, without a long wait for a large one.
RECORDS = 10_000

_STEPS = (WINDOW, 3 * WINDOW, LOOK_BACK)
_HASHES = ("definition_hash", "environment_hash", "implementation_hash")
_COLUMNS = (*COLUMNS, "tier", "status", "timer", "device_uuid", *_HASHES)
_ROW = attrgetter("run_id", "device_uuid", *COLUMNS)
_NEAR = dt.timedelta(hours=1)  # the most between a run's id and its start, for one clock gives both at the same moment
_NAMED_SUSPECTS = 5


class ReferenceRuns(Value):
    side: Side
    heads: tuple[IndexedRun, ...]
    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()
    note: str | None = None  # why there is no reference


class _Wanted:
    """A current series, and the earlier runs that have it, newest first, each with its source's hash."""

    def __init__(self, record: Record) -> None:
        self.record = record
        # Runs on the same GPU, on another one of the model, in another environment, and those that cannot be compared.
        self.kept: tuple[dict[str, str | None], ...] = ({}, {}, {}, {})

    def runs(self, most: int) -> list[str]:
        """Return the runs to take: the newest comparable ones with the source of the newest."""
        *comparable, rest = self.kept
        newest = list(next(filter(None, comparable), {}).items())[:most] or list(rest.items())[:1]
        return [run_id for run_id, source in newest if source == newest[0][1]]

    def offer(self, run_id: str, row: Mapping[str, Any]) -> None:
        now = self.record
        same = (row["timer"], row["definition_hash"]) == (now.timer, now.definition_hash)
        if {now.status, row["status"]} != {"measured"} or not same:
            rank = 3  # of a series that was not measured now, only how it ended last is of interest
        elif row["environment_hash"] != now.environment_hash:
            rank = 2
        else:
            rank = 1 if another_gpu(row["device_uuid"], now.device_uuid) else 0
        self.kept[rank].setdefault(run_id, row["implementation_hash"])


def default_reference(selector: RunSelector, current: Sequence[Record], repository: Repository) -> ReferenceRuns:
    """Return the newest comparable runs of the default branch that are earlier than the current ones."""
    # Outside a checkout, or where the current runs know no commit, every earlier run among the newest fifty is taken, up to `RECORDS`.
    # Runs with uncommitted changes are never taken. Each series has its own newest runs, of the newest source, and of the same environment if any.
    branch = repository.default_branch if repository.is_one and any(record.commit for record in current) else None
    asked = branch or "any branch"
    newest_first = sorted(current, key=lambda record: record.run_id, reverse=True)
    earliest = {record.device_name: record.run_id for record in newest_first}  # the earliest of each device model
    before, devices = max(earliest.values(), default=""), set(earliest)

    def eligible(head: IndexedRun) -> bool:
        of_branch = branch is None or head.branch == branch or head.commit in repository.default_commits
        comparable = head.has_series and not head.dirty and bool(head.devices & devices)
        return head.run_id < before and of_branch and comparable

    wanted = _wanted_series(current)
    most = WINDOW if branch else max(WINDOW, RECORDS // max(1, len(wanted)))
    moved = selector.index.place.moved
    scope = Scope.of_records(current, moved)
    later: list[Scope] = []  # those of the runs between
    looked: list[IndexedRun] = []
    serves: defaultdict[str, set[Series]] = defaultdict(set)  # the series that each run is the reference of
    for chunk in _chunks(selector, eligible):
        rows = selector.index.keys(chunk, _COLUMNS)
        scopes = selector.index.keys(chunk, SCOPE_COLUMNS)
        for head in chunk:
            for row in rows[head.run_id]:
                series = Series.of_row(row)
                if series is None or head.run_id >= earliest.get(row["device_name"], ""):
                    continue
                if series in wanted:
                    wanted[series].offer(head.run_id, row)
                elif scope.covers(series, row["tier"]) and not any(one.covers(series, row["tier"]) for one in later):
                    serves[head.run_id].add(series)  # it is gone, and this run, asked for it, still had it
            later += [] if head.confirms else [Scope.of(scopes[head.run_id], moved)]
        looked += chunk
        if all(len(need.kept[0]) >= most for need in wanted.values()):  # runs on the same GPU
            break
    for series, need in wanted.items():
        for run_id in need.runs(most):
            serves[run_id].add(series)
    used = [head for head in looked if head.run_id in serves]
    records, problems = _load(selector.index, used, serves) if used else ((), ())
    note = None if used else _nothing(selector.index, before, asked, devices)
    return ReferenceRuns(side=side(asked, used), heads=tuple(used), records=records, problems=problems, note=note)


def _wanted_series(current: Iterable[Record]) -> dict[Series, _Wanted]:
    wanted: dict[Series, _Wanted] = {}
    for record in current:
        if (now := Series.of(record)) and (now not in wanted or wanted[now].record.status != "measured"):
            wanted[now] = _Wanted(record)
    return wanted


def covered(reference: Collection[Record], current: Sequence[Record], moved: Mapping[str, str]) -> tuple[Record, ...]:
    """Return the reference's records without series that the current runs were never asked for."""
    # A series that the current side has on another device or in another mode only is kept, so that the comparison says so.
    scope = Scope.of_records(current, moved)
    here, before = ({series for record in side if (series := Series.of(record))} for side in (current, reference))
    fresh = {(series.suite, series.case, series.implementation) for series in here - before}
    kept = {one for one in before if one in here or (one.suite, one.case, one.implementation) in fresh}
    named = ((one, series) for one in reference if (series := Series.of(one)))
    return tuple(one for one, series in named if series in kept or scope.covers(series, one.tier))


def _chunks(selector: RunSelector, eligible: Any) -> Iterator[list[IndexedRun]]:
    chunk, count = list[IndexedRun](), 0
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


def _load(index: RunIndex, used: Sequence[IndexedRun], serves: Mapping[str, set[Series]]) -> Reading[Records]:
    """Read the records that each run contributes; a run that contributes few series is not read as a whole."""
    most = max(map(len, serves.values()))
    few = [head for head in used if len(serves[head.run_id]) <= most / 4]
    readings = [index.records(head for head in used if head not in few)]
    if few:
        readings.append(index.records(few, cases={series.case for head in few for series in serves[head.run_id]}))
    records = [record for reading in readings for record in reading.value]
    wanted = tuple(record for record in records if Series.of(record) in serves.get(record.run_id, ()))
    return Reading(wanted, tuple(problem for reading in readings for problem in reading.problems))


def _nothing(index: RunIndex, before: str, asked: str, devices: Collection[str]) -> str:
    """Return why there is no reference, and which runs there are."""
    earlier = index.first(LOOK_BACK, lambda head: head.run_id < before)
    where = f"{asked} on {' or '.join(sorted(devices))}"
    sentence = f"nothing to compare with: store {index.name!r} has no earlier comparable run of {where}"
    if not earlier:
        return f"{sentence}; there is no earlier run at all, so this one can be the reference of the next"
    runs = []
    for head in earlier[:5]:
        dirty = ["uncommitted changes"] if head.dirty else []
        runs.append(f"{head.run_id} ({', '.join([head.branch or 'no branch', *dirty, *sorted(head.devices)])})")
    return f"{sentence}; earlier runs are {', '.join(runs)}: name one as the reference"


class ComparedRuns(Value):
    comparison: Comparison
    note: str | None = None
    newer: tuple[str, ...] = ()  # a sentence for each run that is newer than the judged one and could not be judged

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on what could not be read or judged, and on why there was nothing to compare with."""
        return (*self.comparison.problems, *self.newer, *([self.note] if self.note else []))

    def exit_code(self, *, strict: bool = False) -> int:
        """Return the contract's exit code; 4 where nothing else is wrong and the newest run could not be judged."""
        return self.comparison.exit_code(strict=strict) or (4 if self.newer else 0)


@dataclass(frozen=True)
class Comparer:
    index: RunIndex  # the runs as of the opening; later runs need another comparer
    repository: Repository
    acceptances: Reading[dict[Series, Acceptance]]
    calibrations: Reading[tuple[Calibration, ...]]
    policy: Policy = DEFAULT
    quiet_only: bool = False  # whether times on a CPU are judged only where a calibration found it quiet

    @classmethod
    def open(
        cls, config: Config, *, policy: Policy = DEFAULT, quiet_only: bool = False, store: StoreLocation | None = None
    ) -> "Comparer":
        """Open `store`, by default the store that the configuration names."""
        store = store or store_of(config)
        index, repository = RunIndex.of_store(store), Repository(config.root)
        return cls(index, repository, read_acceptances(store), read_calibrations(store), policy, quiet_only)

    def compare(self, reference: str = AUTO, current: str = AUTO, *, wanted: Wanted = ANY) -> ComparedRuns:
        """Compare the runs that two texts select (`selectors.WORDS` has the forms); of both only the `wanted` series, and their baselines as controls."""
        selector = RunSelector(self.index, self.repository, now=dt.datetime.now(dt.UTC))
        picked = selector.pick(current)
        now, problems = _read(picked)
        if current == AUTO:
            now = _newest_of_devices(now)
        if not now:
            why = "; ".join(dict.fromkeys([*picked.index.problems, *problems])) or "it has no rows"
            raise StoreError(f"nothing of {current!r} in store {picked.index.name!r} can be read: {why}")
        if wanted != ANY and not (now := wanted.records(now, beside="baseline")):
            raise SelectionError(f"{wanted} selects nothing of {', '.join(picked.side.runs)}")
        earlier = self._reference(selector, reference, picked, now)
        before, doubled = once(wanted.records(earlier.records, beside="baseline"))
        if not wanted.records((*now, *before)):  # not even among what is missing now: a misspelt variant
            raise SelectionError(f"{wanted} selects nothing of either side")
        before = self._first_failures(before, now)
        calibrations, calibrated = lookup.newest_calibrations(self.calibrations.value, now)
        here = {series for record in now if (series := Series.of(record))}
        trusted: Collection[Series] | None = None
        if self.quiet_only:
            gpus = {series for record in now if record.device_kind != "cpu" and (series := Series.of(record))}
            trusted = gpus | lookup.quiet(self.calibrations.value, now)
        floors = lookup.widest(lookup.past_floors(self.index, picked.heads, here), calibrated)
        accepted = self.acceptances.value
        changes = compare(before, now, floors=floors, policy=self.policy, accepted=accepted, trusted=trusted)
        problems = (
            *(*problems, *earlier.problems, *doubled, *self.acceptances.problems, *self.calibrations.problems),
            *(*self.index.problems, *picked.index.problems, *selector.notes, *clocks(earlier.heads, picked.heads)),
        )
        problems, sides = tuple(dict.fromkeys(problems)), {"reference": earlier.side, "current": picked.side}
        comparison = Comparison(**sides, changes=changes, problems=problems, calibrations=calibrations)
        return ComparedRuns(comparison=comparison, note=earlier.note, newer=_newer(self.index, picked, current))

    def _first_failures(self, before: tuple[Record, ...], now: Sequence[Record]) -> tuple[Record, ...]:
        """Return a reference in which series that failed there and fail now have the first of the failures in a row between."""
        works = {Series.of(record) for record in before if not bad(record)}
        failing = {series for record in now if bad(record) and (series := Series.of(record))} - works
        failing &= {Series.of(record) for record in before}
        if not failing:
            return before
        newest = min(record.run_id for record in now)
        heads = self.index.first(LOOK_BACK, lambda head: head.run_id < newest)
        first: dict[Series, str] = {}
        for begin, end in itertools.pairwise((0, *_STEPS)):
            rows = self.index.keys(heads[begin:end], (*COLUMNS, "status")) if failing else {}
            for head in heads[begin:end] if failing else ():
                for row in rows[head.run_id]:
                    if (series := Series.of_row(row)) in failing and row["status"] in BAD:
                        first[series] = head.run_id
                    failing -= {series} if row["status"] not in BAD else set()
        used = [head for head in heads if head.run_id in first.values()]
        records = self.index.records(used, cases={series.case for series in first}).value
        taken = [record for record in records if (series := Series.of(record)) and first.get(series) == record.run_id]
        replaced = {Series.of(record) for record in taken}
        return (*(record for record in before if Series.of(record) not in replaced), *taken)

    def accepted_levels(self, newest: Mapping[Series, Record]) -> dict[Series, AcceptedLevel]:
        """Return the accepted levels of series, as a comparison of these newest records would take them."""
        return lookup.accepted_levels(self.index, self.acceptances.value, self.calibrations.value, newest)

    def _reference(self, selector: RunSelector, text: str, picked: Picked, current: Sequence[Record]) -> ReferenceRuns:
        if text == AUTO:
            return default_reference(selector, current, self.repository)
        asked = selector.pick(text, against=picked)
        records, problems = _read(asked)
        note = None
        if not records:
            note = f"nothing to compare with: there is no run of {text!r} earlier than the current one"
        elif all(Series.of(record) is None for record in records):
            note = f"nothing to compare with: {', '.join(asked.side.runs)} could load no suite, so nothing was measured"
        problems = tuple(dict.fromkeys([*asked.index.problems, *problems]))
        records = covered(records, current, self.index.place.moved)
        return ReferenceRuns(side=asked.side, heads=asked.heads, records=records, problems=problems, note=note)


def _read(picked: Picked) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    records, problems = picked.index.records(picked.heads)
    ids = {head.run_id for head in picked.heads}
    unique, doubled = once(record for record in records if record.run_id in ids)
    return unique, (*problems, *doubled)


def _newest_of_devices(records: Sequence[Record]) -> tuple[Record, ...]:
    """Return of each device model the records of its newest run, and of those that confirm it."""
    own = sorted((one for one in records if one.confirms is None), key=lambda one: one.run_id)
    newest = {one.device_name: one.run_id for one in own}
    return tuple(one for one in records if (one.confirms or one.run_id) == newest.get(one.device_name))


def _newer(index: RunIndex, picked: Picked, text: str) -> tuple[str, ...]:
    """Return a sentence for each newer run that was passed over, where the newest was asked for."""
    if text != AUTO and not text.startswith("la"):  # latest and last:N
        return ()
    newest = max((head.run_id for head in picked.heads), default="")
    sentences = [
        f"run {head.run_id} is newer than the one that was judged, and could load no suite: nothing of it can be compared"
        for head in itertools.takewhile(lambda head: head.run_id > newest, index)
        if not head.has_series
    ]
    for problem in dict.fromkeys(index.problems):
        name = PurePath(problem.partition(": ")[0]).name
        if re.fullmatch(r"\d{8}T\d{6}-.*\.parquet", name) and name > newest:
            sentences.append(f"the newest run may be in a file that cannot be read: {problem}")
    return tuple(sentences)


def once(records: Iterable[Record]) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """Return the first of equal rows, and a sentence for each run that has duplicates."""
    kept: dict[tuple[Any, ...], Record] = {}
    copies, differing = Counter[str](), Counter[str]()
    for place, record in enumerate(records):
        # A suite that could not be loaded has no name for its rows.
        key = (*_ROW(record), None if record.case else place)
        if (first := kept.setdefault(key, record)) is not record:
            copies[record.run_id] += 1
            differing[record.run_id] += repr(first) != repr(record)
    why = "the first was taken: two machines gave the same id, or a file was changed; keep one of the files"
    how = {run_id: f"{number} of them with other values, and {why}" for run_id, number in differing.items() if number}
    sentences = (
        f"run {run_id} is in the store more than once: {number} of its rows are there again, "
        f"{how.get(run_id, 'the same, and were taken once; delete the copies')}"
        for run_id, number in copies.items()
    )
    return tuple(kept.values()), tuple(sentences)


def clocks(reference: Sequence[IndexedRun], current: Sequence[IndexedRun]) -> tuple[str, ...]:
    """Return a sentence for each run whose start contradicts its id, or the order of the sides."""
    sentences = [
        f"run {head.run_id} started at {head.started_at} by its records, which is not what its id says: a clock or a file "
        "name is wrong; runs are in the order of their ids"
        for head in (*reference, *current)
        if head.started and head.named and abs(head.started - head.named) > _NEAR
    ]
    begun = min((head.started for head in current if head.started), default=None)
    first = min((head.run_id for head in current), default="")
    sentences += [
        f"run {head.run_id} of the reference started at {head.started_at}, after the current run, though its id comes before: a "
        "clock is wrong; runs are in the order of their ids"
        for head in reference
        if begun and head.started and head.started > begun and head.run_id < first
    ]
    return tuple(dict.fromkeys(sentences))


class Confirmed(Value):
    judged: ComparedRuns  # the comparison after the suspects were measured again, by the run `again`
    again: "DoneRun | None" = None

    @property
    def exit_code(self) -> int:
        return 130 if self.again is not None and self.again.interrupted else self.judged.exit_code()

    def render(self, output: str) -> str:
        lines = [f"Measured again in run {self.again.run_id}"] if self.again else []
        return "\n\n".join([*lines, render_comparison(self.judged.comparison, output)])

    def plain(self) -> dict[str, Any]:
        again = self.again.run_id if self.again else None
        return {"confirming_run_id": again, "comparison": document(self.judged.comparison)}


def confirm_run(request: Request, run_id: str, *, reference: str = AUTO, quiet_only: bool = False) -> Confirmed:
    """Compare a run with a reference, and measure series that look worse again, in whole cases."""
    # A case is measured with its baseline and all variants of the run: only together they tell the code from the machine.
    from pairbench.workflow.record import record_run  # what runs workers, which a comparison need not load

    def judged_now() -> ComparedRuns:
        return Comparer.open(request.config, quiet_only=quiet_only).compare(reference, run_id)

    judged = judged_now()
    worse = suspects(judged.comparison.changes)
    names = {series.device_name for series in worse}
    if not (devices := tuple(device for device in request.devices if device.name in names)):
        return Confirmed(judged=judged)
    named = listed([series.name for series in worse], _NAMED_SUSPECTS)
    request.progress.notify(f"pairbench: {len(worse)} look worse than the reference and are measured again: {named}")
    settings = request.context.settings
    modes = tuple(mode for mode in settings.modes if mode in {series.mode for series in worse})
    cases = dict.fromkeys((series.suite, series.case) for series in worse)
    selections = tuple(Selection(text=f"{suite}::{case}", suite=suite, pattern=case) for suite, case in cases)
    survey = replace(request.chosen.survey, broken=())
    chosen = replace(request.chosen, survey=survey, narrowed=None, selections=selections)
    context = replace(request.context, settings=replace(settings, modes=modes))
    again = record_run(replace(request, context=context, chosen=chosen, devices=devices), confirms=run_id)
    # What was measured again lies in the store now, which is opened once more for it.
    return Confirmed(judged=judged_now(), again=again)
