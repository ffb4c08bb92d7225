"""Gathers from a store what the site shows, an operator or a run at a time, so that a large store fits into memory.

Runs are judged as `pairbench compare` does, the newest first, as far as that takes little time.
"""

import contextlib
import datetime as dt
import functools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, TypeVar

from pairbench.analyze.facts import NUMBERS, ceilings_of, environment_of, remeasured_blocks, run_head, series_facts
from pairbench.analyze.history.moves import COLUMNS as COUNTED
from pairbench.analyze.history.points import by_case, history
from pairbench.analyze.history.trend import Asked, Trend, make_trends
from pairbench.config import Config
from pairbench.errors import StoreError
from pairbench.model.comparison import Change, GateOutcome, Verdict
from pairbench.model.outcome import OUT_OF_BUDGET
from pairbench.model.plain import grouped
from pairbench.model.plan import BASELINE
from pairbench.model.record import COLUMNS, RESULT_COLUMNS, LazyRecords, Record, Series, sampled_as
from pairbench.model.site import About, Event, RunHead, RunVerdicts, SeriesFacts, SeriesStatus, SiteFacts
from pairbench.report import comparison_words as words
from pairbench.site import events as site_events
from pairbench.site import paths
from pairbench.site.events import Measured, RunKey, SeriesEvent
from pairbench.site.paths import Contribution, OperatorFacts, RunFacts, digest, head_of
from pairbench.site.store_events import environment_events, new_operator, shifts_of, with_states
from pairbench.site.summary import gate_status_of, gpu_ratios, overview_rows, spreads, with_open
from pairbench.store import reader
from pairbench.store.documents import read_breakdowns, read_triages
from pairbench.store.location import Held
from pairbench.store.reader import OPERATOR, RUN, LatencySamples, WholeStore
from pairbench.store.reading import stored_files
from pairbench.store.schema import from_table, records_of
from pairbench.suite.reached import about
from pairbench.workflow.comparer import Comparer
from pairbench.workflow.lookup import NEEDED, newest_calibrations
from pairbench.workflow.setup import catalogue_folder, default_places, store_of

_COMPARED = 6  # number of newest runs that are compared; other series are judged by their history
_SHORT, _LATEST = 40, 12  # of a store of up to 40 runs the latest 12 are compared; a longer history shows levels
_SERIES = 2_000  # the number of series that are judged in all. Some 2,000 take a second.
_RUNS = 40  # the number of runs that are judged: each takes a while to be read, however small it is


Judge = Callable[[str], Sequence[Change]]  # what a comparison of a run with its reference says
Jobs = Sequence[Callable[[], Any]]
Each = Callable[[Jobs], Iterable[Any]]  # yields what each job returns, in order
Facts = TypeVar("Facts")
Make = Callable[[SiteFacts, Facts], Any]  # makes a page
Find = Callable[[str, str], Any]
"""Returns the values that other pages need of a page, by its name and the digest of its inputs; None where it has to be made."""


def one_by_one(jobs: Jobs) -> Iterator[Any]:
    return (job() for job in jobs)


Samples = Mapping[str, Mapping[Series, LatencySamples]]  # by run


def _newest_compared(comparer: Comparer) -> dict[str, Sequence[Change]]:
    newest: dict[str, str] = {}
    for head in comparer.index.first(_COMPARED, lambda head: head.confirms is None):
        newest |= {device: head.run_id for device in head.devices if device not in newest}
    changes: dict[str, Sequence[Change]] = {}
    for run_id in sorted(set(newest.values())):
        with contextlib.suppress(StoreError):
            changes[run_id] = comparer.compare(current=run_id).comparison.changes
    return changes


def compared(judge: Judge, heads: Iterable[RunHead], newest: Mapping[Series, str]) -> defaultdict[Series, list[Change]]:
    """Return the changes of each series, the oldest run first, that comparisons of the newest runs found: regressions, and those of its newest run."""
    confirms = {head.run_id: head.confirms for head in heads}
    wanted = Counter(confirms[run_id] or run_id for run_id in newest.values())
    chosen = {run_id for run_id, _ in wanted.most_common(_COMPARED)}
    own = sorted(run_id for run_id, confirmed in confirms.items() if confirmed is None)
    if len(own) <= _SHORT:
        chosen |= set(own[-_LATEST:])
    changes: defaultdict[Series, list[Change]] = defaultdict(list)
    for run_id in sorted(chosen):
        with contextlib.suppress(StoreError):  # a run that confirms one which is not in the store
            for change in judge(run_id):
                of_newest = newest.get(change.series) in change.current_runs
                if of_newest or (change.current_runs and change.outcome is GateOutcome.REGRESSION):
                    changes[change.series].append(change)
    return changes


def judged(
    judge: Judge, heads: Collection[RunHead], series: Measured
) -> tuple[dict[RunKey, str], dict[RunKey, RunVerdicts]]:
    """Return the earlier run to show each run beside, and the verdicts on the newest runs."""
    pairs = overlapping(tuple(heads), series)
    verdicts: dict[RunKey, RunVerdicts] = {}
    left = _SERIES
    for key in sorted(pairs, reverse=True)[:_RUNS]:
        left -= len(series[key])
        if left < 0:
            break
        with contextlib.suppress(StoreError):  # a file that cannot be read is named where the store is read
            verdicts[key] = run_verdicts(key[1], judge(key[0]), series)
    return pairs, verdicts


_ENOUGH = 0.5  # the part of a run's series that an earlier run has to share for none before it to be looked at
_BACK = 50  # the number of earlier runs that are looked at
_OUTCOMES = tuple(map(GateOutcome, ("failed", "regression", "missing", "improvement", "incomparable")))
"""Outcomes that a run's page lists, in this order. What is proven slower or faster by the machine comes last; new series
stand by themselves; all else is noise or nothing."""


def overlapping(runs: Sequence[RunHead], series: Measured) -> dict[RunKey, str]:
    """Return the earlier run to show each run beside: the newest that measured enough of the same series; confirmations are passed over."""
    beside: dict[RunKey, str] = {}
    earlier: defaultdict[str, list[str]] = defaultdict(list)
    for head in sorted(runs, key=lambda head: (head.started_at, head.run_id)):
        if head.confirms is not None:
            continue
        own = frozenset(series.get((head.run_id, head.device_name), ()))
        best, most = None, 0
        for run_id in reversed(earlier[head.device_name][-_BACK:]):
            shared = len(own.intersection(series.get((run_id, head.device_name), ())))
            if shared > most:
                best, most = run_id, shared
            if shared >= _ENOUGH * len(own) > 0:
                break
        if best is not None:
            beside[head.run_id, head.device_name] = best
        earlier[head.device_name].append(head.run_id)
    return beside


def run_verdicts(device_name: str, changes: Sequence[Change], pages: Collection[RunKey]) -> RunVerdicts:
    """Return what a comparison of a run with those before it says of a device model, the worst and then the largest first."""
    here = [change for change in changes if change.series.device_name == device_name]
    ranks = {outcome: place for place, outcome in enumerate(_OUTCOMES)}
    shown = [one for one in here if one.outcome in ranks or one.verdict in (Verdict.SLOWER, Verdict.FASTER)]

    def rank(change: Change) -> tuple[int, float, Series]:
        size = abs(change.p50.change.estimate - 1) if change.p50 and change.p50.change else 0.0
        return ranks.get(change.outcome, len(ranks)), -size, change.series

    references = {run_id for change in here for run_id in change.reference_runs}
    counts = Counter(change.outcome for change in here)
    return RunVerdicts(
        references={run_id: (run_id, device_name) in pages for run_id in sorted(references)},
        changes=tuple(sorted(shown, key=rank)),
        new=tuple(sorted(change.series for change in here if change.outcome is GateOutcome.NEW)),
        counts={str(outcome): counts[outcome] for outcome in GateOutcome if counts[outcome]},
        outcomes={change.series: str(change.outcome) for change in here},
        moves=tuple(words.moves(here)),
        era=tuple(words.eras(here)),
    )


_HEAD = (
    *("run_id", "started_at", "device_name", "device_uuid", "hostname", "commit", "commit_at", "branch", "dirty"),
    *("commit_subject", "commit_author", "commit_number", "pull_request"),
    *("confirms", "environment_hash", "driver", "cuda", "cudnn", "torch", "triton", "python", "cpu"),
    *("status", "reason", "timer", "suite", "case", "implementation", "mode"),
)
_TREND = (*NEEDED, "operator", "environment", *COUNTED)
_RUN = (
    *(*_HEAD, "operator", "environment", "definition_hash", "implementation_hash", "role", "tier", "dtype"),
    *(*RESULT_COLUMNS, "n_rounds"),
    *("launches_per_call", "kernels_per_call", "ops_per_call", "peak_bytes", "margin"),
    *("stop_reason", "throttle_reasons", "remeasured_blocks", "launch_status"),
)
_RUN_NUMBERS = tuple(name for name in NUMBERS if name in _RUN)
_STATES = {"measured": "unchanged", "skipped": "skipped"}
_EXPLAINED = 100  # the number of newest events that say how kernels differ


@functools.lru_cache(maxsize=1)  # most runs have the series of the run before
def _series_in_budget(reasons: tuple[str | None, ...], *columns: tuple[Any, ...]) -> frozenset[Series]:
    """Return the series that columns of records name; records that were out of budget are left out."""
    rows = zip(reasons, zip(*columns, strict=True), strict=True)
    named = (names for reason, names in rows if reason != OUT_OF_BUDGET and None not in names)
    return frozenset(Series(**dict(zip(COLUMNS, names, strict=True))) for names in named)


class SiteReading:
    def __init__(
        self,
        config: Config,
        *,
        repository: str | None = None,
        last: int | None = None,
        options: tuple[str, ...] = (),
        stamps: Mapping[str, object] = MappingProxyType({}),
        begin: Callable[[Callable[[], Any]], Callable[[], Any]] = lambda work: work,
    ) -> None:
        """Read a store; `stamps` has for the path of each file a value that changes with its content."""
        # `begin` begins work in another process, and returns the function that waits for its result.
        self.about = functools.cache(functools.partial(about_of, config))
        self._store = replace(store_of(config), tables=Held(math.inf))
        comparer = Comparer.open(config, store=self._store)
        newest_compared = functools.partial(_newest_compared, comparer)
        # A forked process must not use a connection to a store.
        early = functools.cache(begin(newest_compared) if self._store.is_local else newest_compared)
        self._whole = WholeStore(self._store, {*_TREND, *_RUN}, last=last)
        self._stamps = {run_id: [stamps.get(path) for path in paths] for run_id, paths in self._whole.paths.items()}
        self._heads: dict[RunKey, RunHead] = {}
        measured: dict[RunKey, frozenset[Series]] = {}
        for key, table in self._whole.tables(RUN, _HEAD):
            (first,), records = from_table(table.slice(0, 1), Record), records_of(table)
            self._heads[key] = run_head(first, records)
            measured[key] = _series_in_budget(*(tuple(records.values(name)) for name in ("reason", *COLUMNS)))
        newest = {series: run_id for (run_id, _), here in measured.items() for series in here}
        self._measured = measured
        self.suites = sorted({series.suite for series in newest})
        self._series = grouped(((one.device_name, one.suite, one.operator), one) for one in sorted(newest))
        self._devices = grouped(((suite, operator), device_name) for device_name, suite, operator in self._series)
        self._newest: dict[Series, Record] = {}  # the newest record of each series, with all its columns
        problems: tuple[str, ...] = ()
        for run_id in sorted(set(newest.values())):
            whole, missed = reader.read_records(self._store, [run_id])
            problems += missed
            self._newest |= {its: one for one in whole if (its := Series.of(one)) and newest.get(its) == run_id}
        judge = functools.cache(lambda run: early().get(run) or comparer.compare(current=run).comparison.changes)
        self._changes = compared(judge, self._heads.values(), newest)
        beside, self.verdicts = judged(judge, self._heads.values(), measured)
        self._accepted = comparer.accepted_levels(self._newest)
        breakdowns, self._triages = read_breakdowns(self._store), read_triages(self._store)
        self.breakdowns = breakdowns.value
        _, self._floors = newest_calibrations(comparer.calibrations.value, self._newest.values())
        for reading in (comparer.acceptances, comparer.calibrations, breakdowns, self._triages):
            problems += reading.problems
        runs = sorted(self._heads.values(), key=lambda head: (head.run_id, head.device_name), reverse=True)
        gpus = {(head.device_name, uuid) for head in runs for uuid in head.device_uuids}
        of_store = functools.partial(SiteFacts, store=shown_store(config), repository=repository, options=options)
        of_store = functools.partial(of_store, runs=tuple(runs), beside=beside, self_tests=config.self_tests)
        self.facts = of_store(
            problems=tuple(dict.fromkeys((*self._whole.problems, *problems))),
            breakdowns=tuple(map(head_of, self.breakdowns)),
            several_gpus=len(gpus) > len({device_name for device_name, _ in gpus}),
        )
        """What every page knows; rows and events are in it once `operators` has been gone through."""

    def operators(
        self, find: Find = lambda *_: None, make: Make[OperatorFacts] = lambda _, facts: facts, each: Each = one_by_one
    ) -> Iterator[tuple[str, str, Contribution, Any]]:
        """Yield every operator on every device model that `find` does not find, and put what is said of all of them together."""
        # Each comes as its page's name, the digest of its inputs, what it contributes to other pages, and what `make` returns;
        # `make` gets the part of the site's facts that the page shows, and nothing else, for all of it is in the digest.
        found: list[Contribution | None] = []
        jobs: list[Callable[[], tuple[str, str, Contribution, Any]]] = []
        samples: dict[str, Mapping[Series, LatencySamples]] = {}

        def job(name: str, inputs: str, site: SiteFacts, *known: Any) -> tuple[str, str, Contribution, Any]:
            facts = self._operator(*known)
            return name, inputs, facts.contribution, make(site, facts)

        sampled, needed = set(stored_files(self._store, "samples").run_ids), set[str]()
        digests = {key: digest(head) for key, head in self._heads.items()}  # a page has those of hundreds of runs
        for key, table in self._whole.tables(OPERATOR, _TREND):
            device_name, suite, operator = key
            if not (own := self._series[key]):
                continue
            described = self.about(suite).get(operator)
            run_ids = set(table.column("run_id").unique().to_pylist())
            rows = len(table), [(run_id, self._stamps.get(run_id)) for run_id in sorted(run_ids)]
            heads = [head for head in self.facts.runs if head.device_name == device_name and head.run_id in run_ids]
            breakdowns = self.facts.breakdowns
            mine = tuple(one for one in breakdowns if (one.device_name, one.suite, one.operator) == key)
            site = replace(self.facts, runs=tuple(heads), beside={}, problems=(), breakdowns=mine or breakdowns[:1])
            elsewhere = tuple(one for one in sorted(self._devices[suite, operator]) if one != device_name)
            of_series = [[held.get(series) for held in (self._changes, self._accepted, self._floors)] for series in own]
            with_samples = sorted(sampled.intersection(one.run_id for one in map(self._newest.get, own) if one))
            name = paths.operator_page(*key)
            of_heads = [digests[head.run_id, device_name] for head in heads]
            inputs = digest(rows, described, of_series, with_samples, replace(site, runs=()), of_heads, elsewhere)
            found.append(find(name, inputs))
            if found[-1] is None:
                jobs.append(functools.partial(job, name, inputs, site, key, records_of(table), elsewhere, samples))
                needed.update(with_samples)
        # Read here, for a forked process must not use a connection to a store.
        samples |= {run_id: reader.latency_samples(self._store, run_id).value for run_id in sorted(needed)}
        makings = iter(each(jobs))
        for place, contribution in enumerate(found):
            if contribution is None:
                _, _, found[place], _ = made = next(makings)
                yield made
        self.facts = self._with_all([one for one in found if one is not None])

    def _operator(
        self, key: tuple[str, str, str], records: LazyRecords, elsewhere: tuple[str, ...], samples: Samples
    ) -> OperatorFacts:
        device_name, suite, operator = key
        places = {(run_id, device_name) for run_id in records.values("run_id")}
        described, trends, own = self.about(suite).get(operator), self._trends(key, records), list[SeriesEvent]()
        for trend in trends:
            own += site_events.series_events(trend, self._changes[trend.series], self._accepted.get(trend.series))
        worst = site_events.lasting(own)
        series = tuple(self._facts_of(trend, samples, worst.get(trend.series)) for trend in trends)
        ceilings = (ceilings_of(self._newest_of(trend)) for trend in reversed(trends))
        contribution = Contribution(
            rows=overview_rows(zip(series, trends, strict=True)),
            happened=tuple(own),
            shifts=tuple(shift for trend in trends for shift in shifts_of(trend)),
            ratios=tuple(map(gpu_ratios, trends)),
            first_run=min(trend.points.values("run_id")[0] for trend in trends if len(trend.points)),
            series=tuple(trend.series for trend in trends),
            owner=described.owner if described is not None else "",
        )
        events = site_events.events_of(own, {place: self._heads[place] for place in places})
        named = functools.partial(OperatorFacts, device_name=device_name, suite=suite, operator=operator)
        found = functools.partial(named, about=described, series=series, trends=trends, contribution=contribution)
        return found(ceilings=next((one for one in ceilings if one), {}), events=events, elsewhere=elsewhere)

    def _with_all(self, several: Sequence[Contribution]) -> SiteFacts:
        single = site_events.events_of((event for one in several for event in one.happened), self._heads)
        shifted = environment_events((shift for one in several for shift in one.shifts), self._heads)
        known = (self._heads, self._measured, self.facts.beside)
        added = [event for one in several for event in new_operator(one.first_run, one.series, *known)]
        events = self._explained(site_events.joined([*single, *added, *shifted]))
        ratios = ((one.series[0].device_name, ratio) for one in several for ratio in one.ratios)
        owners = {(one.series[0].suite, one.rows[0].operator): one.owner for one in several if one.owner}
        return replace(
            self.facts,
            rows=tuple(row for one in several for row in one.rows),
            events=with_states(events, self._triages.value, dt.datetime.now(dt.UTC).date()),
            owners=owners,
            gpus=spreads(ratios),
        )

    def runs(
        self, find: Find = lambda *_: None, make: Make[RunFacts] = lambda _, facts: facts, each: Each = one_by_one
    ) -> Iterator[tuple[str, str, Any, Any]]:
        """Yield every run that `find` does not find, as `operators` does; their pages show events, so these come after the operators."""
        ends = ((event, {event.after.run_id, event.ended}) for event in self.facts.events)
        shown = grouped(((run_id, event.device_name), event) for event, both in ends for run_id in filter(None, both))
        pages: defaultdict[str, set[tuple[str, str, str]]] = defaultdict(set)
        for row in self.facts.rows:
            pages[row.device_name].add((row.device_name, row.suite, row.operator))
        some = self.facts.breakdowns[:1]
        shared = replace(self.facts, runs=(), rows=(), owners={}, gpus=(), problems=(), breakdowns=some)
        jobs: list[Callable[[], Any]] = []

        def job(name: str, inputs: str, site: SiteFacts, *known: Any) -> tuple[str, str, Any, Any]:
            return name, inputs, (), make(site, self._run(*known))

        for key, table in self._whole.tables(RUN, _RUN):
            head, verdicts, beside = self._heads[key], self.verdicts.get(key), self.facts.beside.get(key)
            site = replace(shared, events=tuple(shown[key]), beside={key: beside} if beside else {})
            named = tuple(sorted(pages[head.device_name]))
            rows = len(table), self._stamps.get(head.run_id)
            name, inputs = paths.run_page(*key), digest(rows, head, verdicts, site, named)
            if find(name, inputs) is None:
                jobs.append(functools.partial(job, name, inputs, site, head, verdicts, table, named))
        yield from each(jobs)

    def _run(
        self, head: RunHead, verdicts: RunVerdicts | None, table: Any, pages: tuple[tuple[str, str, str], ...]
    ) -> RunFacts:
        records = from_table(table, Record)
        known = [(record, series) for record in records if (series := Series.of(record))]
        reasons = (record.throttle_reasons for record, _ in known)
        return RunFacts(
            head=head,
            verdicts=verdicts,
            environment=environment_of(records[-1]),
            series=tuple(
                series_facts(one, series, SeriesStatus(state=_STATES.get(one.status, "failed")), columns=_RUN_NUMBERS)
                for one, series in known
            ),
            broken=tuple((record.suite, record.reason or "") for record in records if record.case is None),
            remeasured_blocks=remeasured_blocks(records),
            throttle_reasons=Counter(word for text in reasons if text for word in text.split(",")),
            stop_reasons=Counter(record.stop_reason for record, _ in known if record.stop_reason),
            pages=pages,
        )

    def _trends(self, key: tuple[str, str, str], records: LazyRecords) -> tuple[Trend, ...]:
        asked: list[Asked] = []
        for case, mode, names, of_case in by_case(records):
            for name in sorted(names, key=lambda name: (name != BASELINE, name)):
                series = Series(device_name=key[0], suite=key[1], case=case, implementation=name, mode=mode)
                past = history(of_case, name)
                asked.append((series, past, self._floors.get(series), self._accepted.get(series)))
        return tuple(make_trends(asked))

    def _newest_of(self, trend: Trend) -> Record:
        # A run may have been pruned since the store was read; then fewer of its columns are known.
        return self._newest.get(trend.series) or trend.points[-1].record

    def _facts_of(self, trend: Trend, samples: Samples, worst: SeriesEvent | None) -> SeriesFacts:
        record = self._newest_of(trend)
        own = (change for change in self._changes[trend.series] if record.run_id in change.current_runs)
        gate_status = gate_status_of(record.status, record.reason, next(own, None), trend.newest)
        if worst is not None and (head := self._heads.get((worst.after, trend.series.device_name))):
            gate_status = with_open(gate_status, worst.moved, head.started_at)
        # Raw samples of the latency that is the record's result, unless they have been pruned.
        sampled = samples.get(record.run_id, {}).get(trend.series, {})
        return series_facts(record, trend.series, gate_status, samples=sampled.get(sampled_as(record, sampled)))

    def _explained(self, events: Sequence[Event]) -> tuple[Event, ...]:
        run_ids, cases = site_events.kernels_wanted(events[:_EXPLAINED])
        if not run_ids:
            return tuple(events)
        columns = ("run_id", *COLUMNS, "kernels")
        reading = reader.read_series(self._store, where={"case": cases}, columns=columns, run_ids=run_ids)
        records = {(record.run_id, series): record for record in reading.value if (series := Series.of(record))}
        return tuple(site_events.with_kernels(event, records) for event in events)


def about_of(config: Config, suite: str) -> Mapping[str, About]:
    """Return the description of each operator of a suite, as far as the suite's file is here."""
    name = PurePosixPath(suite)  # a name out of a store chooses no file outside the folders of suites
    if name.is_absolute() or ".." in name.parts:
        return {}
    places = [config.root / suite, catalogue_folder("suites").parent / suite]
    places += [place / name.name for place in default_places(config)]
    return next((of_suite for place in places if (of_suite := about(place, suite))), {})


def shown_store(config: Config) -> str:
    """Return the store's name for the pages, without the path of the checkout: a site may be published."""
    return config.shown_store.removeprefix(f"{config.root}/")
