"""Finds the runs that the words for one side of a comparison select, and the stored records of a series with the noise that is known of it."""

import contextlib
import datetime as dt
import difflib
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairbench.analyze.compare.attribute import FIELDS
from pairbench.analyze.compare.effect import minimum_effect
from pairbench.analyze.compare.exact import AcceptedLevel
from pairbench.analyze.compare.floors import Past, floors_of
from pairbench.analyze.history.trend import Trend, make_trend
from pairbench.config import Config
from pairbench.errors import SelectionError, StoreError
from pairbench.execute.garbage import collector_at_rest
from pairbench.model.comparison import DEFAULT, Acceptance, Calibration, Floor, Side
from pairbench.model.outcome import OUT_OF_BUDGET, Status
from pairbench.model.plain import Value, grouped, redacted
from pairbench.model.record import CALL, COLUMNS, DEVICE, RESULT_COLUMNS, Record, Series
from pairbench.plan import ANY, Wanted, matches, parse_selection
from pairbench.store import reader
from pairbench.store.documents import read_acceptances, read_calibrations
from pairbench.store.files import Reading
from pairbench.store.location import RunFile, Store, StoreLocation
from pairbench.store.reader import IndexedRun, Records, RunIndex
from pairbench.store.reading import dataset_files
from pairbench.workflow.git import Repository
from pairbench.workflow.setup import store_of

_NEWEST = (2, 50)  # the newest run files of each device model that are searched for a name, and for a part of one
_LISTED = 10
NEEDED = (  # the columns of a trend; fewer are faster to read
    *("run_id", "confirms", "started_at", "commit", "commit_at", "branch", "dirty", "hostname", "device_uuid"),
    *("suite", "case", "implementation", "mode", "device_name", "status", "reason"),
    *("definition_hash", "implementation_hash", "environment_hash", *FIELDS),
    *RESULT_COLUMNS,
)
RUNS = 30  # earlier runs in which a series is looked for moves that make its noise floor
_LEVELS = ("status", "device_kind", "device_p50_ns", "device_p95_ns", "call_p50_ns", "call_p95_ns")
_SAMENESS = ("environment_hash", "implementation_hash", "definition_hash", "timer", "device_timer")
_COLUMNS = (*COLUMNS, *_LEVELS, *_SAMENESS)
AUTO = "auto"
# The number of runs in a reference, such as a branch or another store: more average out more noise, and reach further back.
WINDOW = 5
WORDS = (
    "auto, latest, latest~N, previous, last:N, a run id or its beginning, a commit, branch or tag, a date or range of dates such as "
    "2026-11-01..2026-11-07, a parquet file, or another store"
)
_AHEAD = dt.timedelta(hours=1)  # The largest lead of a clock before a run counts as one from the future
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?)?")
_ORDER = re.compile(r"auto|previous|latest(~(?P<behind>\d+))?|last:(?P<count>.*)")


def read_trend(store: Store, text: str, *, timer: str | None, last: int | None, wanted: Wanted) -> Reading[Trend]:
    """Return the trend of the one series that a text names: a name, a glob or a part of it, or a SELECT argument."""
    # `timer` is that of the newest run and `last` all runs, where not given.
    series = find_series(store, text, wanted)
    reading, floor, accepted = read_history(store, series.value)
    trend = make_trend(reading.value, series.value, timer=timer, last=last, floor=floor, accepted=accepted)
    if timer is not None and not any(point.record.timer == timer for point in trend.points):
        known = sorted({record.timer for record in reading.value if record.timer})
        raise SelectionError(f"--timer {timer!r} timed no run of this series, expected one of {', '.join(known)}")
    return Reading(trend, tuple(dict.fromkeys([*series.problems, *reading.problems])))


def find_series(store: Store, text: str, wanted: Wanted = ANY) -> Reading[Series]:
    place = StoreLocation.of(store)
    suite, separator, rest = text.partition("::")
    text = f"{place.moved.get(suite, suite)}{separator}{rest}"
    looked: set[RunFile] = set()
    known: dict[Series, tuple[str, str | None]] = {}
    stored = dataset_files(place, "records")
    problems = stored.problems
    # A name is nearly always in the newest runs, and to read those of a thousand takes seconds.
    by_device = grouped((file.device_slug, file) for file in stored.files)
    newest = ([file for several in by_device.values() for file in several[-number:]] for number in _NEWEST)
    for stage, files in enumerate([*newest, stored.files]):
        unread = [file for file in files if file not in looked]
        reading = reader.read_distinct(place, (*COLUMNS, "device_kind", "tier"), unread)
        looked.update(unread)
        for row in itertools.chain.from_iterable(reading.value.values()):
            if (series := Series.of_row(row)) is not None:
                known[series] = (row["device_kind"], row["tier"])
        kinds = {series.device_name: kind for series, (kind, _) in known.items()}
        problems += reading.problems
        devices = wanted.devices(kinds)
        here = sorted(series for series in known if series.device_name in devices)
        meant = [series for series in here if wanted.takes(series.implementation, series.mode, known[series][1])]
        exact = [series for series in meant if series.name == text]
        fitting = exact or matching(meant, text) or [one for one in meant if matches(one.name, f"*{text}*")]
        if exact or (fitting and stage):
            break
    if not known:
        why = "; ".join(problems) or "its runs hold none"
        raise SelectionError(f"store {place.name!r} has no series that can be read: {why}")
    if not here:
        nothing = f"--device {wanted.device!r} has no series in store {place.name!r}"
        raise SelectionError(f"{nothing}; device models are: {', '.join(sorted(kinds))}")
    if len(fitting) == 1:
        return Reading(fitting[0], problems)
    names = {series.name for series in fitting}
    if len(names) == 1:
        measured = f"series {text!r} was measured on several device models; choose one with --device"
        raise SelectionError(f"{measured}: {', '.join(series.device_name for series in fitting)}")
    if fitting:
        is_ambiguous = len(names) < len(fitting)
        lines = [f"\n  {one.name}{f' ({one.device_name})' if is_ambiguous else ''}" for one in fitting[:_LISTED]]
        lines += [f"\n  and {len(fitting) - _LISTED:,} more"] if len(fitting) > _LISTED else []
        raise SelectionError(f"series {text!r} fits {len(fitting):,}, expected one; name one of{''.join(lines)}")
    close = difflib.get_close_matches(text, [series.name for series in here], n=3, cutoff=0.3)
    hint = f"did you mean {' or '.join(close)}?" if close else f"one of its {len(here):,} is {min(here).name}"
    raise SelectionError(f"series {text!r} is not in store {place.name!r}; {hint}")


def read_history(store: Store, series: Series) -> tuple[Reading[Records], Floor | None, AcceptedLevel | None]:
    """Return the records of a series and of the other implementations of its case, oldest run first, its noise floor, and its accepted level."""
    where = {"device_name": series.device_name, "suite": series.suite, "case": series.case, "mode": series.mode}
    reading = reader.read_series(store, where=where, columns=NEEDED)
    # What a run had no time for is no part of a history, unless there is nothing else.
    records = tuple(record for record in reading.value if record.reason != OUT_OF_BUDGET) or reading.value
    first = {record.environment_hash: record.run_id for record in reversed(reading.value)}
    if len(first) > 1:  # the environment is long and seldom another, so it is read once for each that there was
        columns = ("run_id", "environment_hash", "environment")
        reading_of_first = reader.read_series(store, where=where, columns=columns, run_ids=set(first.values()))
        known = {record.environment_hash: record.environment for record in reading_of_first.value}
        records = tuple(replace(record, environment=known.get(record.environment_hash, "{}")) for record in records)
    calibrations, acceptances = read_calibrations(store), read_acceptances(store)
    # By the same rule as `compare`: the newest of this environment, else of any.
    _, floors = newest_calibrations(calibrations.value, records[-1:])
    newest = next((record for record in reversed(records) if Series.of(record) == series), None)
    accepted = None
    if series in acceptances.value and newest is not None:  # else no run but these has to be looked at
        index = RunIndex.of_store(store)
        accepted = accepted_levels(index, acceptances.value, calibrations.value, {series: newest})[series]
    problems = reading.problems + calibrations.problems + acceptances.problems
    return Reading(records, problems), floors.get(series), accepted


def matching(known: Iterable[Series], text: str) -> list[Series]:
    """Return the series whose names match a glob, else those of a SELECT argument."""
    known, selection = list(known), parse_selection(text)
    whole = [series for series in known if matches(series.name, text)]
    return whole or [one for one in known if selection.takes_name(one.suite, one.operator, one.case)]


def stored_points(config: Config, wanted: Wanted, *, run: str | None = None) -> Reading[tuple[Record, ...]]:
    """Return the newest measured record of each wanted series, or the wanted records of one run, with their baselines."""
    place = store_of(config)
    with collector_at_rest():
        reading = _newest(place, wanted) if run is None else reader.read_run(place, run)
    records = wanted.records(reading.value, beside="baseline")
    if not wanted.records(records):  # baselines alone are no answer
        nothing = f"{wanted} selects nothing that was measured in store {config.shown_store!r}".strip()
        nothing = "; ".join([nothing, *reading.problems])
        raise SelectionError(f"{nothing}; `pairbench show` shows what there is")
    return Reading(records, reading.problems)


def _newest(place: StoreLocation, wanted: Wanted) -> Reading[tuple[Record, ...]]:
    """Return the newest measured record of each series of the wanted cases: names first, then only whole rows of those runs."""
    columns = [*COLUMNS, "operator", "device_kind", "run_id"]
    frame, problems = reader.read_frame(place, columns=columns, where={"status": Status.MEASURED.value})
    named = frame.dropna(subset=["operator", "case"])
    names = named[["suite", "operator", "case", "device_name", "device_kind"]].drop_duplicates()
    rows_of_names = list(names.itertuples(index=False, name=None))
    devices = wanted.devices({device: kind for *_, device, kind in rows_of_names})
    on_devices = [names for *names, device, _ in rows_of_names if device in devices]
    cases = {case for suite, operator, case in on_devices if wanted.selects(suite, operator, case)}
    newest = named[named["case"].isin(cases)].drop_duplicates(subset=list(COLUMNS), keep="last")
    run_of = {Series.of_row(row): row["run_id"] for row in newest.to_dict("records")}
    if not run_of:
        return Reading((), problems)
    rows, more = reader.read_records(place, sorted(set(run_of.values())), where={"case": sorted(cases)})
    taken = tuple(row for row in rows if (series := Series.of(row)) and run_of.get(series) == row.run_id)
    return Reading(taken, tuple(dict.fromkeys([*problems, *more])))


def past_floors(index: RunIndex, current: Collection[IndexedRun], wanted: Collection[Series]) -> dict[Series, Floor]:
    before = min((head.run_id for head in current), default="")
    devices = frozenset(device for head in current for device in head.devices)

    def counts(head: IndexedRun) -> bool:
        return head.run_id < before and not head.dirty and head.confirms is None and bool(head.devices & devices)

    return floors_of(_past(index.columns(reversed(index.first(RUNS, counts)), _COLUMNS), frozenset(wanted)))


def _past(rows: Mapping[str, list[Any]], wanted: Collection[Series]) -> dict[Series, list[Past]]:
    past, known = defaultdict[Series, list[Past]](list), dict[tuple[Any, ...], Series | None]()
    several = (zip(*(rows[name] for name in names), strict=True) for names in (COLUMNS, _LEVELS, _SAMENESS))
    for key, (status, kind, device_p50, device_p95, call_p50, call_p95), sameness in zip(*several, strict=True):
        of_device = kind != "cpu" and device_p50 is not None and device_p50 > 0
        latency, p50, p95 = (DEVICE, device_p50, device_p95) if of_device else (CALL, call_p50, call_p95)
        if key not in known:
            series = None if None in key else Series(**dict(zip(COLUMNS, key, strict=True)))
            known[key] = series if series in wanted else None
        if (of_series := known[key]) is not None and status == "measured" and p50 is not None and p50 > 0:
            past[of_series].append(Past(p50, p95, None, latency.name, (*sameness, latency.name)))
    return past


def accepted_levels(
    index: RunIndex,
    acceptances: Mapping[Series, Acceptance],
    calibrations: Collection[Calibration],
    newest: Mapping[Series, Record],
) -> dict[Series, AcceptedLevel]:
    """Return the accepted levels of series with the minimum effects that a comparison of their newest records would take."""
    runs: dict[str, dict[Series, Record]] = defaultdict(dict)
    for series in newest.keys() & acceptances.keys():
        # What measured the suspects of a run again is judged together with it, by the same past.
        runs[newest[series].confirms or newest[series].run_id][series] = newest[series]
    levels: dict[Series, AcceptedLevel] = {}
    for run_id, of_run in runs.items():
        heads = [head for head in index.beginning(run_id) if head.run_id == run_id]
        _, calibrated = newest_calibrations(calibrations, of_run.values())
        floors = widest(past_floors(index, heads, of_run.keys()), calibrated)
        for series in of_run:
            effect = minimum_effect(floors.get(series))
            levels[series] = AcceptedLevel(acceptance=acceptances[series], minimum_effect=effect)
    return levels


def newest_calibrations(
    calibrations: Iterable[Calibration], current: Iterable[Record]
) -> tuple[tuple[Calibration, ...], dict[Series, Floor]]:
    """Return the newest calibration of each device model, and the newest floor of each series."""
    # Calibrations of another environment count where there are none of the same.
    environments = {record.environment_hash for record in current}
    devices = {record.device_name for record in current}
    # The last one wins: those of the same environment, and of these the newest.
    ordered = sorted(calibrations, key=lambda one: (one.environment_hash in environments, one.made_at))
    here = [one for one in ordered if one.device_name in devices]
    floors = {series: floor for one in here for series, floor in one.floors.items()}
    return tuple({one.device_name: one for one in here}.values()), floors


def quiet(calibrations: Iterable[Calibration], current: Iterable[Record]) -> frozenset[Series]:
    """Return the series whose machine, in its present environment, was calibrated and is quiet enough to judge times."""
    here = {(record.device_name, record.environment_hash) for record in current}
    of_here = (one for one in calibrations if (one.device_name, one.environment_hash) in here)
    calm = (one for one in of_here if one.alarms <= DEFAULT.calibration_alarms * one.judged)
    return frozenset(series for one in calm for series in one.floors)


def widest(*several: Mapping[Series, Floor]) -> dict[Series, Floor]:
    """Return the largest floor of each series: a move that happened once can happen again."""
    widest_floors: dict[Series, Floor] = {}
    for floors in several:
        for series, floor in floors.items():
            known = widest_floors.get(series, floor)
            # One of the call says nothing of the device, and was made before that was judged.
            wider = max(known, floor, key=lambda one: (one.latency == DEVICE.name, one.p50))
            host, relative = (
                max((value for one in (known, floor) if (value := getattr(one, name)) is not None), default=None)
                for name in ("host", "host_relative")
            )
            widest_floors[series] = replace(wider, host=host, host_relative=relative)
    return widest_floors


class Picked(Value):
    asked: str
    index: RunIndex
    heads: tuple[IndexedRun, ...]  # the runs, newest first, with those that confirm them

    @property
    def side(self) -> Side:
        return side(self.asked, self.heads)


def side(asked: str, heads: Sequence[IndexedRun]) -> Side:
    ordered = sorted(heads, key=lambda head: head.run_id)
    commits = dict.fromkeys(head.commit + ("+" if head.dirty else "") for head in ordered if head.commit)
    return Side(asked=asked, runs=tuple(head.run_id for head in ordered), commits=tuple(commits))


class RunSelector:
    """Finds the runs of a store that a word of the command line names."""

    def __init__(self, index: RunIndex, repository: Repository, *, now: dt.datetime) -> None:
        # Runs that began after `now` are left out of what is picked by time.
        self.index, self._repository, self._now = index, repository, now
        self._notes: list[str] = []
        self._future: dict[str, str] = {}

    @classmethod
    def of_store(cls, store: str | StoreLocation, folder: Path) -> "RunSelector":
        return cls(RunIndex.of_store(store), Repository(folder), now=dt.datetime.now(dt.UTC))

    def pick(self, text: str, *, against: Picked | None = None) -> Picked:
        """Return the runs that a text names, see `WORDS`."""
        # With `against`, the current side, a reference for it is picked: `last:N`, a branch or a store are several runs earlier than that. As
        # the current side, a branch or a store is its newest run.
        picked = self._pick(text, against)
        if against is None:
            return picked
        taken = {head.run_id for head in against.heads}
        heads = tuple(head for head in picked.heads if head.run_id not in taken)
        if not heads and picked.heads:
            itself = f"{text!r} is the current side itself ({', '.join(sorted(taken))})"
            raise StoreError(f"{itself}; name another reference")
        # A run that could load no suite is a reference for nothing; alone it stays, so that this can be said of it.
        return replace(picked, heads=tuple(head for head in heads if head.has_series) or heads)

    def _pick(self, text: str, against: Picked | None) -> Picked:
        if text.endswith(".parquet"):
            index = RunIndex.of_file(text, moved=self.index.place.moved)
            return Picked(asked=redacted(text), index=index, heads=tuple(index))
        is_store = "://" in text
        with contextlib.suppress(OSError, ValueError):  # a text that no path can be
            is_store = is_store or (Path(text) / "records").is_dir()
        if is_store:
            index = RunIndex.of_store(StoreLocation.of(text, moved=self.index.place.moved))
            # Another store has its own clock and may hold a later state of the code.
            return Picked(asked=redacted(text), index=index, heads=self._newest(index, WINDOW if against else 1))
        if text == AUTO and against is None:
            heads, known = self._newest_of_devices(), False
        elif ordered := _ORDER.fullmatch(text):
            heads = self._by_order(ordered, against)
            known = against is not None and bool(self.index.first(1))
        else:
            heads = self._by_time(text) or self._by_name(text, against)
            known = against is not None and any(head.branch == text for head in self.index)
        # What is there, though not before the current side, is nothing to compare with, and no mistake.
        if not heads and not known:
            nothing = f"{text!r} names no run of store {self.index.name!r}"
            raise StoreError(f"{nothing}; {self._there_is()}; expected {WORDS}")
        return Picked(asked="newest" if text == AUTO else text, index=self.index, heads=heads)

    def is_past(self, head: IndexedRun) -> bool:
        """Return whether a run lies in the past; the notes name one that does not."""
        started = max((moment for moment in (head.started, head.named) if moment), default=None)
        if started is None or started <= self._now + _AHEAD:
            return True
        self._future[head.run_id] = head.started_at
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._future:
            return tuple(self._notes)
        first = min(self._future)
        what = f"run {first} says" if len(self._future) == 1 else f"{len(self._future)} runs, {first} the first, say"
        future = f"{what} to have started in the future, at {self._future[first]}: a clock was wrong"
        return (*self._notes, f"{future}, and whatever is not named by its id is left out")

    def _by_order(self, asked: re.Match[str], against: Picked | None) -> tuple[IndexedRun, ...]:
        """Return runs by their position among all: `latest~N` counts from the newest, whatever it is compared with."""
        count, behind = asked["count"] or "1", asked["behind"]
        if asked["count"] == "" or not count.isdecimal() or int(count) < 1:
            raise StoreError(f"{asked[0]!r}: expected last:N with N of at least 1, such as last:5")
        if behind is not None or (asked[0] == "previous" and against is None):
            return self._newest(self.index, 1, behind=int(behind or "1"))
        return self._newest(self.index, int(count), against)

    def _newest_of_devices(self) -> tuple[IndexedRun, ...]:
        """Return the newest run of each device model that began within a day of the newest of all, with the runs that confirm them."""
        newest, seen = list[IndexedRun](), set[str]()
        for head in self.index:
            if not head.has_series or head.confirms is not None or not self.is_past(head):
                continue
            if newest and newest[0].named and head.named and newest[0].named - head.named > dt.timedelta(days=1):
                break
            if not head.devices <= seen:
                newest.append(head)
                seen |= head.devices
        return _with_confirming(self.index, newest)

    def _newest(
        self, index: RunIndex, count: int, against: Picked | None = None, *, behind: int = 0, branch: str | None = None
    ) -> tuple[IndexedRun, ...]:
        """Return `count` runs after the newest `behind`, earlier than those of `against`, with the runs that confirm them."""
        # A run that could load no suite is left out: it says nothing of any series.
        before = min((head.run_id for head in against.heads), default=None) if against else None

        def wanted(head: IndexedRun) -> bool:
            earlier = before is None or head.run_id < before
            own = head.has_series and head.confirms is None
            return own and earlier and branch in (None, head.branch) and self.is_past(head)

        return _with_confirming(index, index.first(behind + count, wanted)[behind:])

    def _by_time(self, text: str) -> tuple[IndexedRun, ...]:
        begin, dots, end = text.partition("..")
        if not all(not word or _DATE.fullmatch(word) for word in (begin, end)) or not begin + end:
            return ()
        try:
            first = _span(begin)[0] if begin else dt.datetime.min.replace(tzinfo=dt.UTC)
            last = _span(end if dots else begin)[1] if not dots or end else dt.datetime.max.replace(tzinfo=dt.UTC)
        except ValueError as error:
            raise StoreError(f"{text!r}: {error}; expected a date like 2026-11-01") from error
        if not (heads := tuple(head for head in self.index if head.started and first <= head.started < last)):
            raise StoreError(f"no run of store {self.index.name!r} started in {text!r} (UTC); {self._there_is()}")
        return _with_confirming(self.index, heads)

    def _by_name(self, text: str, against: Picked | None) -> tuple[IndexedRun, ...]:
        named = self.index.beginning(text)
        if exact := tuple(head for head in named if head.run_id == text):
            return _with_confirming(self.index, exact)
        is_hash = re.fullmatch(r"[0-9a-f]{4,40}", text) is not None
        commits = {head.commit for head in self.index if is_hash and head.commit and head.commit.startswith(text)}
        if len(named) + len(commits) > 1:
            shown = [*(head.run_id for head in named[:4]), *(f"commit {sha[:12]}" for sha in sorted(commits)[:4])]
            several = f"{text!r} begins several in store {self.index.name!r}"
            raise StoreError(f"{several}: {', '.join(shown)}; give more of it")
        if named:
            return _with_confirming(self.index, named)
        if any(head.branch == text for head in self.index):
            return self._newest(self.index, WINDOW if against else 1, against, branch=text)
        if (sha := next(iter(commits), None) or self._repository.commit(text)) is None:
            return ()
        if not (heads := tuple(head for head in self.index if head.commit == sha)):
            nothing = f"no run of store {self.index.name!r} is of commit {sha[:12]} ({text})"
            raise StoreError(f"{nothing}; {self._there_is()}")
        # What lay uncommitted beside a commit is another state of the code.
        if clean := tuple(head for head in heads if not head.dirty):
            return _with_confirming(self.index, clean)
        self._notes.append(f"all runs of commit {sha[:12]} ({text}) had uncommitted changes")
        return heads

    def _there_is(self) -> str:
        runs = []
        for head in self.index.first(5):
            commit = ", ".join(filter(None, [head.branch, (head.commit or "")[:7]])) or "no commit"
            runs.append(f"{head.run_id} ({commit}{'' if head.has_series else ', which could load no suite'})")
        newest = f"the newest runs are {', '.join(runs)}" if runs else "no run of it can be read"
        return "; ".join([newest, *self.index.problems])


def _with_confirming(index: RunIndex, heads: Sequence[IndexedRun]) -> tuple[IndexedRun, ...]:
    if not heads:
        return ()
    ids = {head.run_id for head in heads}
    oldest = min(ids)
    later = itertools.takewhile(lambda head: head.run_id >= oldest, index)  # what confirms a run comes after it
    confirming = [head for head in later if head.confirms in ids and head.run_id not in ids]
    return tuple(sorted([*heads, *confirming], key=lambda head: head.run_id, reverse=True))


def _span(text: str) -> tuple[dt.datetime, dt.datetime]:
    """Return the begin and end of a month, a day, a minute or a second; in UTC unless the text says otherwise."""
    if len(text) == 7:
        begin = dt.datetime.fromisoformat(f"{text}-01").replace(tzinfo=dt.UTC)
        return begin, (begin + dt.timedelta(days=31)).replace(day=1)
    begin = dt.datetime.fromisoformat(text)
    begin = begin if begin.tzinfo else begin.replace(tzinfo=dt.UTC)
    clock = text[11:]
    length = dt.timedelta(days=1) if not clock else dt.timedelta(seconds=1 if clock.count(":") > 1 else 60)
    return begin, begin + length
