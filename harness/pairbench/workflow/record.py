"""A run from start to store: outcomes become records and samples, and are kept, or spooled, as soon as nothing can change them.

A run may leave out the cases that a store has whole. With a budget it takes the cases first that were tried longest ago.
"""

import contextlib
import datetime as dt
import math
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from pairbench.analyze.facts import remeasured_blocks
from pairbench.analyze.records import Run, broken_record, to_records, to_samples
from pairbench.config import Config
from pairbench.errors import EmptyStoreError, PairbenchError, SuiteError, UsageError
from pairbench.execute.parent.budget import Budget
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.session import DeviceSession, Observer
from pairbench.model.environment import OWN_TIMERS, Commit, Device, Environment, HostLoad, Settings
from pairbench.model.outcome import NOT_REACHED, OUT_OF_BUDGET, PRECISE, SAMPLE_CAP, TIME_CAP, Outcome, Status
from pairbench.model.plain import Value
from pairbench.model.plan import Entry, Plan, PlannedCase
from pairbench.model.record import Record, Samples, result_of
from pairbench.model.unit import VARIABLE, marked
from pairbench.store.files import Reading
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_frame
from pairbench.store.writer import RunWriter, Spool, push, waiting
from pairbench.workflow.devices import HostWatch, on_devices, plans_for, probe_device
from pairbench.workflow.git import read_commit
from pairbench.workflow.progress import PublishedProgress
from pairbench.workflow.setup import Chosen, Request, requested_of, stamp, store_of

_Case = tuple[str, str]
_case: Callable[[Outcome | PlannedCase], _Case] = attrgetter("operator.suite", "case.key")
_sampled: Callable[[Samples], tuple[object, ...]] = attrgetter("suite", "case", "implementation", "mode", "round")
_KEY = ("implementation", "mode", "definition_hash", "implementation_hash")
COLUMNS = ("run_id", "suite", "case", *_KEY, "status", "reason", "timer", "n_rounds", "launch_status")
_NOT_TRIED = (NOT_REACHED, OUT_OF_BUDGET)
_STOPS = {
    None: "without a reason",
    PRECISE: "precise enough",
    TIME_CAP: "out of the case's time",
    SAMPLE_CAP: "at the most samples",
}
# What is left after a quarter of a second is between processes: on an H100 device P50 of two runs differs by 0.10 % instead of 0.11
# with twice the time (median of 219 series), P95 by 0.11 % instead of 0.12.
_ON_A_GPU: dict[str, Any] = {"case_seconds": 0.25}
# A CPU's rounds differ by more (1.6 % on a Xeon with two cores, 465 series) than what is uncertain within one (0.24 %), so more samples
# of each say nothing: P50 of two runs differs by 1.2 % instead of 1.1 with twice the time, P95 by 2.8 % instead of 2.4.
_ON_A_CPU: dict[str, Any] = {"case_seconds": 0.15, "target": 0.01, "min_samples": 400}


@dataclass(kw_only=True)
class Recorder:
    """Turns final outcomes of one device into rows, once the case's baseline is known, which the speedups need."""

    run: Run
    environment: Environment
    records: list[Record]  # the list for final rows, besides the store
    writer: RunWriter | None = None  # writes the files of one device model; None where nothing is stored
    lock: threading.Lock = field(default_factory=threading.Lock)
    rows: dict[_Case, dict[Entry, Record]] = field(default_factory=dict)  # the newest stored row of each entry, by case
    controls: dict[_Case, list[Outcome]] = field(default_factory=dict)  # of each case's baseline, one for each mode
    sampled: set[tuple[object, ...]] = field(default_factory=set)

    def keep(self, outcomes: list[Outcome]) -> list[Record]:
        """Store some outcomes of one case that are final, and return their rows."""
        controls = self.controls.setdefault(_case(outcomes[0]), [])
        records = to_records(self.run, self.environment, [*controls, *outcomes])[len(controls) :]
        controls += [outcome for outcome in outcomes if outcome.entry.role == "baseline"]
        with self.lock:
            self._store(outcomes, records)
            self.records += records
        return records

    def hold(self, outcomes: list[Outcome]) -> None:
        """Store the outcomes of a case so far, so that a killed run still has them; the next round replaces them."""
        records = to_records(self.run, self.environment, outcomes, resamples=100)
        with self.lock:
            self._store(outcomes, records)

    def _store(self, outcomes: list[Outcome], records: list[Record]) -> None:
        if self.writer is None:
            return
        samples = [row for row in to_samples(self.run, self.environment, outcomes) if _sampled(row) not in self.sampled]
        self.writer.append_samples(samples)
        self.sampled.update(map(_sampled, samples))
        case = _case(outcomes[0])
        rows = self.rows.setdefault(case, {})
        rows.update(zip((outcome.entry for outcome in outcomes), records, strict=True))
        self.writer.write_case((self.environment.device, case), list(rows.values()))

    def begin(self, plan: Plan) -> None:
        """Store a row for each suite that could not be loaded, and announce the plan's order of cases to the writer."""
        records = [broken_record(self.run, self.environment, suite) for suite in plan.broken]
        with self.lock:
            if self.writer is not None:
                self.writer.append_records(records)
                self.writer.expect((self.environment.device, case) for case in map(_case, plan.cases))
            self.records += records


class Kept(Value):
    why: str
    folder: Path | None  # of the spool, for `pairbench store push`; None where nothing could be written anywhere
    lost: tuple[str, ...] = ()  # the files that could be written nowhere: only the command's output has their rows

    def lines(self) -> list[str]:
        kept = [f"What it did not take is in {self.folder}; `pairbench store push` publishes it"]
        lost = [f"Nowhere could be written: {len(self.lost)} files; their rows are above, and nowhere else"]
        return [f"The store failed: {self.why}", *(kept if self.folder else []), *(lost if self.lost else [])]


class RunFiles:
    def __init__(self, run: Run, store: str | StoreLocation, notify: Callable[[str], None]) -> None:
        """Prepare the spool; no file is made yet."""
        self._run, self._location, self._notify = run, StoreLocation.of(store), notify
        self._spool = Spool(self._location, run.run_id, notify)
        self._writers: dict[str, RunWriter] = {}
        self._lock = threading.Lock()

    def remind(self) -> None:
        """Report how many earlier runs have results that the store did not take."""
        if count := sum(one.store == self._location.address for one in waiting()):
            waits = f"results of {count} earlier run{'s' if count > 1 else ''} wait for store {self._location.name!r}"
            self._notify(f"pairbench: {waits}; `pairbench store push` publishes them")

    def writer(self, device: Device) -> RunWriter:
        with self._lock:
            if device.slug not in self._writers:
                names = {"run_id": self._run.run_id, "device_slug": device.slug, "month": self._run.started_at[:7]}
                self._writers[device.slug] = RunWriter(self._location, **names, publish=self._spool.publish).__enter__()
            return self._writers[device.slug]

    def close(self) -> Kept | None:
        """Finish the files, and offer the store once more what it did not take; return what it still does not take."""
        if (kept := settle(self._spool, self._notify)) is not None:
            return kept
        for writer in self._writers.values():
            try:
                writer.close()
            except PairbenchError as error:
                self._notify(f"pairbench: {error}; the parts of the run are there, and as good as one file")
        return None


def settle(spool: Spool, notify: Callable[[str], None]) -> Kept | None:
    """Write the results to the store again that it refused before; return those that it still refuses, or None."""
    if spool.why is None:
        return None
    lost = spool.close()
    try:
        for one in waiting():
            if one.folder == spool.folder:
                push(one, spool.location)
    except (PairbenchError, BlockingIOError):
        return Kept(why=spool.why, folder=spool.folder, lost=lost)
    if lost:
        return Kept(why=spool.why, folder=None, lost=lost)
    notify(f"pairbench: store {spool.location.name!r} takes results again, and has all of them")
    return None


def _keys(planned: PlannedCase) -> list[tuple[Any, ...]]:
    """Return the values of `_KEY` of everything in a case that is tried."""
    operator = planned.operator
    hashes = {item.name: item.hash for item in operator.implementations}
    tried = [entry for entry in planned.entries if entry not in planned.skipped]
    return [(one.implementation, one.mode, operator.definition_hash, hashes[one.implementation]) for one in tried]


def existing(cases: Iterable[PlannedCase], rows: Iterable[Mapping[str, Any]], *, timer: str, rounds: int) -> set[_Case]:
    """Return suite and key of the cases that one earlier run has whole: a variant is compared with the baseline timed beside it."""
    # `rows` have `COLUMNS`, and are of the same device model and environment.
    settled: defaultdict[_Case, defaultdict[str, set[tuple[Any, ...]]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        if _settled(row, timer, rounds):
            settled[row["suite"], row["case"]][row["run_id"]].add(tuple(row[name] for name in _KEY))
    whole = (planned for planned in cases if any(map(set(_keys(planned)).issubset, settled[_case(planned)].values())))
    return set(map(_case, whole))


def _settled(row: Mapping[str, Any], timer: str, rounds: int) -> bool:
    if row["status"] == Status.MEASURED:
        # A run that was interrupted, or killed, has latencies before it has counts.
        profiled = isinstance(row["launch_status"], str)
        return bool(profiled and row["timer"] == timer and (row["n_rounds"] or 0) >= rounds)
    # These repeat: the code decides them, and neither load nor luck.
    return row["status"] in (Status.MISMATCHED, Status.SKIPPED) and row["reason"] not in _NOT_TRIED


def in_turn(cases: Iterable[PlannedCase], rows: Iterable[Mapping[str, Any]]) -> tuple[PlannedCase, ...]:
    """Return cases in the order in which they were last tried: those never tried first, then the oldest."""
    # A measurement of other code or of another definition is no try. A failure is one, or it would come first forever.
    newest: dict[tuple[Any, ...], str] = {}
    for row in rows:
        if row["reason"] not in _NOT_TRIED:
            key = (row["suite"], row["case"], *(row[name] for name in _KEY))
            newest[key] = max(newest.get(key, ""), row["run_id"])

    def tried(planned: PlannedCase) -> str:
        return min((newest.get((*_case(planned), *key), "") for key in _keys(planned)), default="")

    return tuple(sorted(cases, key=tried))


def speedup_halfwidth(records: Sequence[Record]) -> float | None:
    """Return the widest half 95 % interval of the log speedups of one case's variants; None where there is none."""
    named = [(record, result_of(record).speedup) for record in records]
    ends = [(getattr(record, f"{name}_low"), getattr(record, f"{name}_high")) for record, name in named]
    return max((math.log(high / low) / 2 for low, high in ends if low and high and math.isfinite(high)), default=None)


@dataclass(kw_only=True)
class DoneRun:
    run_id: str
    wall_s: float = 0.0
    # By the device's selector: seconds inside timed calls and the flushes between them, and those spent on changing inputs
    # and on judging outputs of timed calls.
    measuring_s: dict[str, float] = field(default_factory=dict)
    judging_s: dict[str, float] = field(default_factory=dict)
    loads: dict[str, HostLoad] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)  # sentences on operators whose inputs take long to make
    interrupted: bool = False
    records: list[Record] = field(default_factory=list)
    kept: Kept | None = None
    error: Exception | None = None  # what ended the run early, to be raised once the measurements have been shown

    def take(self, device: Device, session: DeviceSession, watch: HostWatch) -> None:
        self.measuring_s[device.selector], self.judging_s[device.selector] = session.measuring_s(), session.judging_s()
        self.remarks += session.slow_inputs()
        self.loads[device.selector] = load = watch.during(session.states, session.foreign_cores)
        watch.end(load)

    @property
    def exit_code(self) -> int:
        if self.interrupted and self.error is None:
            return 130
        if self.kept is not None:
            return 4
        if any(record.operator is None for record in self.records):
            return 2
        return int(any(Status(record.status).bad for record in self.records))

    def summary(self) -> dict[str, Any]:
        timed = [record for record in self.records if record.n_rounds]
        untried = {(one.device_name, one.suite, one.case) for one in self.records if one.reason == OUT_OF_BUDGET}
        kept, loads = self.kept, self.loads.items()
        return {
            "wall_s": self.wall_s,
            "measuring_s": self.measuring_s,
            "measuring_fraction": {name: seconds / self.wall_s for name, seconds in self.measuring_s.items()},
            "judging_s": self.judging_s,
            "judging_fraction": {name: seconds / self.wall_s for name, seconds in self.judging_s.items()},
            "remarks": self.remarks,
            "remeasured_blocks": remeasured_blocks(timed),
            "host_load": {name: {**vars(one), "remark": one.disturbs(name.partition(":")[0])} for name, one in loads},
            "stop_reasons": dict(Counter(record.stop_reason for record in timed)),
            "out_of_budget_cases": len(untried),
            "statuses": dict(Counter(record.status for record in self.records)),
            "interrupted": self.interrupted,
            "not_in_store": kept and {"why": kept.why, "folder": kept.folder and str(kept.folder), "lost": kept.lost},
        }

    def closing_lines(self, store: str | None) -> list[str]:
        """Return the last lines that `run` prints; `store` is None where nothing is stored."""
        if not self.records and not self.interrupted:
            return ["Nothing to run, and nothing stored"]
        summary = self.summary()
        judging = summary["judging_fraction"]
        shares = ", ".join(
            f"{name} was measuring {part:.0%} and judging what it had timed {judging[name]:.1%}"
            for name, part in summary["measuring_fraction"].items()
        )
        stops = ", ".join(f"{count} {_STOPS[reason]}" for reason, count in summary["stop_reasons"].items())
        stored = "not stored" if store is None else f"stored in {store}"
        stored += f"{' as far as it went' * bool(self.kept)}{' (interrupted)' * self.interrupted}"
        lines = [
            f"Run {self.run_id}, {stored}",
            f"Time: {self.wall_s:.1f} s{f', of which {shares}' if shares else ''}",
            f"Blocks measured again because the device throttled: {summary['remeasured_blocks']}",
        ]
        lines += [f"What ended the measuring: {stops}"] if stops else []
        lines += [f"{remark[0].upper()}{remark[1:]}" for remark in self.remarks]
        return lines + (self.kept.lines() if self.kept else [])


def record_run(
    request: Request,
    *,
    confirms: str | None = None,
    skip_existing: bool = False,
    began: float | None = None,
    filled: Commit | None = None,
) -> DoneRun:
    # What was measured is always returned: a store that fails meanwhile is in `DoneRun.kept`, another error in `DoneRun.error`. `began` is
    # when the command began, by the monotonic clock. With `filled`, the run fills in that commit, and only its results count as existing.
    started = time.monotonic() if began is None else began
    config, context, chosen, progress = request.config, request.context, request.chosen, request.progress
    if chosen.survey.broken and not chosen.survey.operators:
        raise SuiteError("; ".join(suite.reason for suite in chosen.survey.broken))
    run = new_run(chosen, config, confirms=confirms, commit=filled)
    done = DoneRun(run_id=run.run_id)
    if chosen.narrowed is not None and not (chosen.survey.operators or chosen.survey.broken):
        return done
    plans = plans_for(context, chosen, request.devices, edge=False)
    contexts = {device: context_for(context, config, device) for device in plans}
    files, lock = RunFiles(run, config.store, progress.notify), threading.Lock()
    files.remind()

    def work(device: Device) -> None:
        # A store that cannot be written is known before anything is measured.
        writer, watch = files.writer(device), HostWatch(device, progress.notify)
        environment = probe_device(context, device, watch)
        plan, requested = plans[device], requested_of(chosen, device, context.settings)
        if skip_existing:
            plan = without_existing(config, environment, plan, progress.notify, filled)
        if len(plan.cases) < len(plans[device].cases):
            requested = replace(requested, select=tuple(map(_case, plan.cases)))
        environment = requested.put_in(environment)
        recorder = Recorder(run=run, environment=environment, writer=writer, lock=lock, records=done.records)
        recorder.begin(plan)
        if (budgeted := _budgeted(config, began, contexts[device].settings, recorder)) is not None:
            plan = replace(plan, cases=in_turn(plan.cases, _stored_rows(config, {"device_name": device.name}).value))
        if not plan.cases and skip_existing:
            return  # all of it is there
        progress.expect(device, len(plan.cases) * (2 + context.settings.rounds))

        def keep(outcomes: list[Outcome]) -> None:
            recorder.environment = watch.during(session.states, session.foreign_cores).put_in(environment)
            recorder.keep(outcomes)

        observer = Observer(step=progress.step, stepped=progress.stepped, finished=keep, so_far=recorder.hold)
        session = DeviceSession(contexts[device], device, plan, observer)
        try:
            session.run(context.settings.rounds, budgeted)
        finally:
            done.take(device, session, watch)

    try:
        with contextlib.closing(PublishedProgress(progress, run.run_id, store_of(config).address)) as progress:
            # A plan without cases has nothing to wait for, but for the rows of suites that could not be loaded.
            needed = tuple(one for one in plans if plans[one].cases or chosen.survey.broken)
            on_devices(replace(request, progress=progress), needed, work)
    except Exception as error:
        if not done.records:
            raise
        done.error = error
    finally:
        done.kept, done.interrupted = files.close(), context.interrupted.is_set()
        done.records.sort(key=_as_planned(plans))
        done.wall_s = time.monotonic() - started
    return done


def _as_planned(plans: Mapping[Device, Plan]) -> Callable[[Record], int]:
    """Return a sort key: a record's index in the order of declaration, for cases finish in any order. Broken suites come first."""
    cases = ((device, planned) for device, plan in plans.items() for planned in plan.cases)
    keys = ((on.kind, on.uuid, item.operator.suite, item.case.key) for on, item in cases)
    places: dict[tuple[str | None, ...], int] = {key: index for index, key in enumerate(keys)}
    return lambda record: places.get((record.device_kind, record.device_uuid, record.suite, record.case), -1)


def _budgeted(config: Config, began: float | None, settings: Settings, recorder: Recorder) -> Budget | None:
    if began is None or config.budget_s is None:
        return None

    def width(state: CaseState) -> float | None:
        return speedup_halfwidth(tuple(recorder.rows.get(_case(state.planned), {}).values()))

    return Budget(deadline=began + config.budget_s, seconds=config.budget_s, settings=settings, width=width)


def _stored_rows(config: Config, where: dict[str, Any]) -> Reading[list[dict[str, Any]]]:
    """Return rows of the store, if there is one, without those of suites that could not be loaded."""
    try:
        frame, problems = read_frame(store_of(config), columns=COLUMNS, where=where)
    except EmptyStoreError:
        return Reading([], ())
    return Reading(frame.dropna(subset=["implementation", "mode"]).to_dict("records"), problems)


def new_run(chosen: Chosen, config: Config, *, confirms: str | None = None, commit: Commit | None = None) -> Run:
    """Return a run that begins now, of the given commit or of the one that the first suite's folder is at."""
    now, operators = dt.datetime.now(dt.UTC), chosen.survey.operators
    checkout = Path(operators[0].path).parent if operators else config.root
    run_id, started_at = marked(stamp(now), os.environ.get(VARIABLE)), now.isoformat(timespec="milliseconds")
    return Run(run_id=run_id, started_at=started_at, commit=commit or read_commit(checkout), confirms=confirms)


def context_for(context: WorkerContext, config: Config, device: Device) -> WorkerContext:
    """Return the context with the device's defaults for settings that were not given."""
    if device.kind != "cuda" and config.settings.timer == "do_bench":
        raise UsageError("--timer do_bench needs a CUDA device; leave it out to time a CPU with perf_counter")
    usual = _ON_A_GPU if device.kind == "cuda" else _ON_A_CPU
    chosen = {name: value for name, value in usual.items() if name not in config.given}
    return replace(context, settings=replace(context.settings, **chosen))


def without_existing(
    config: Config, environment: Environment, plan: Plan, notify: Callable[[str], None], commit: Commit | None = None
) -> Plan:
    """Return a device's plan without the cases that this code was measured in, on this model and in this environment."""
    # With a commit, only its own results count. Failures, timeouts and lack of memory are tried again.
    device, settings = environment.device, config.settings
    where = {"device_name": device.name, "environment_hash": environment.hash}
    if commit is None and VARIABLE in os.environ:
        # A unit is of its commit: what another commit measured by the same code is no point of its own.
        commit = read_commit(config.root)
    where |= {"commit": commit.sha} if commit else {}
    rows, problems = _stored_rows(config, where)
    for problem in problems:
        notify(f"pairbench: {problem}")
    timer = OWN_TIMERS[device.kind] if settings.timer == "auto" else settings.timer
    if there := existing(plan.cases, rows, timer=timer, rounds=settings.rounds):
        stored = f"{len(there)} of {len(plan.cases)} cases are in store {config.shown_store!r} already"
        notify(f"pairbench: {device.selector}: {stored}, and are left out")
    return replace(plan, cases=tuple(planned for planned in plan.cases if _case(planned) not in there))
