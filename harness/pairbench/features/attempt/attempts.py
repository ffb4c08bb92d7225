"""`pairbench try`: a selection is tried once, or after every change of a file, with everything that takes time to load kept between.

A result is compared with the series' last try and its newest stored run by two medians of one process each, so this is no verdict.
"""

import contextlib
import datetime as dt
import hashlib
import itertools
import json
import math
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import KW_ONLY, astuple, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from pairbench.analyze.records import Run, to_records
from pairbench.config import Config
from pairbench.errors import InterruptedRunError, PairbenchError, StoreError, StoreFailedError
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.lock import count_cores, device_lock
from pairbench.execute.parent.pool import ANY, WorkerContext, Workers
from pairbench.execute.parent.quick_look import QuickLook
from pairbench.execute.parent.scout import Survey, find_devices
from pairbench.model.comparison import DEFAULT
from pairbench.model.environment import Device, Environment, HostLoad, withheld
from pairbench.model.outcome import Status
from pairbench.model.plain import Value
from pairbench.model.plan import BrokenSuite, PlannedCase
from pairbench.model.record import COLUMNS as SERIES
from pairbench.model.record import RESULT_COLUMNS, Record, Series, p50_of, result_of, speedup_of
from pairbench.plan import equipped, one_of_each
from pairbench.stats import Interval
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_series
from pairbench.store.reading import stored_files
from pairbench.store.user_cache import KeptCeilings, KeptValues, user_folder
from pairbench.suite.modules import candidate_files, refuse_syntax_errors
from pairbench.suite.reached import forget, reached_files, sources_beside
from pairbench.workflow.devices import one_device, plan_for
from pairbench.workflow.git import git
from pairbench.workflow.progress import StatusListener
from pairbench.workflow.record import context_for
from pairbench.workflow.setup import Chosen, SelectedSuites, ask, store_of

# The difference of latencies between two processes of the same code, in parts by device kind (on a CPU it includes the addresses of
# memory) and, for short calls, in ns: on an H200 the medians of calls of 4 to 50 us move by 50 to 180 ns.
_BETWEEN_PROCESSES, _BETWEEN_PROCESSES_NS = {"cuda": DEFAULT.minimum_effect, "cpu": 0.05}, 200.0
_KEPT = (  # the columns of a try
    *(name for name in SERIES if name not in RESULT_COLUMNS),
    *("started_at", "operator", "role", "status", "definition_hash", "implementation_hash", "environment_hash"),
    *RESULT_COLUMNS,
    *("launches_per_call", "kernels_per_call", "ops_per_call", "launch_status"),
)
_HINTS = get_type_hints(Record)
# JSON may hold a whole number for a float.
_TYPES = {name: _HINTS[name] | int if _HINTS[name] == float | None else _HINTS[name] for name in _KEPT}
_STEPS = (4, 28, 168)  # Numbers of files opened at a time, the newest first; a series in none of them counts as new
_EVERY_S = 0.2  # between two looks at files that nobody has changed
# Seconds between two looks at files that are being written, and the number of looks after which they count as written.
_SETTLE_S, _SETTLED_AFTER = 0.03, 30
_Stamps = dict[Path, tuple[int, int, int] | None]  # time of the last change, size and inode; None for an absent file


class Beside(Value):
    """An earlier result of a series, beside the present one; of an earlier try it has some of the columns only."""

    record: Record
    change: float | None = None  # the present median latency over the earlier one; None where they cannot be compared
    clear: bool = False  # whether the change exceeds the usual difference between two processes
    shared: bool = False  # whether the baseline changed alike, which points to the machine
    elsewhere: bool = False  # whether versions or machine were different
    why_not: str = ""


class Tried(Value):
    record: Record
    last: Beside | None = None
    stored: Beside | None = None


class Attempt(Value):
    cases: tuple[tuple[Tried, ...], ...]
    left_out: tuple[str, ...] = ()  # keys of selected cases that were not taken: one case of each operator is enough
    untried: tuple[str, ...] = ()  # keys of taken cases that were not tried, because an earlier case was wrong
    broken: tuple[BrokenSuite, ...] = ()

    @property
    def exit_code(self) -> int:
        return 2 if self.broken else int(any(Status(one.record.status).bad for one in self.tried))

    @property
    def tried(self) -> tuple[Tried, ...]:
        return tuple(one for case in self.cases for one in case)


def beside(record: Record, earlier: Record) -> Beside:
    """Compare two results of one series: a change is clear where it exceeds that of two processes and the intervals do not overlap."""
    why = _why_not(record, earlier)
    compared = Beside(record=earlier, elsewhere=record.environment_hash != earlier.environment_hash, why_not=why)
    now, then = p50_of(record), p50_of(earlier)
    if why or now is None or then is None or withheld(record.device_kind, record.environment):
        return compared
    least = math.log1p(max(_BETWEEN_PROCESSES[record.device_kind], _BETWEEN_PROCESSES_NS / then.estimate))
    clear = _differ(now, then, least)
    speedup, before = speedup_of(record), speedup_of(earlier)
    # Where the speedup stayed although the latency changed, the baseline changed alike.
    stayed = not _differ(speedup, before, least) if speedup and before else False
    shared = clear and record.role != "baseline" and stayed
    return replace(compared, change=now.estimate / then.estimate, clear=clear, shared=shared)


def _why_not(record: Record, earlier: Record) -> str:
    if withheld(earlier.device_kind, earlier.environment):
        return "its host was busy"
    if record.definition_hash != earlier.definition_hash:
        return "the operator's definition was another"
    if record.timer != earlier.timer or result_of(record) != result_of(earlier):
        return "its latency was taken in another way"
    return ""


def _differ(one: Interval, other: Interval, least: float) -> bool:
    """Return whether the estimates differ by `least` in log units and the intervals are disjoint; an unknown end is the estimate."""
    ends = ([item.estimate if math.isnan(end) else end for end in item[1:]] for item in (one, other))
    (low, high), (lowest, highest) = ends
    return abs(math.log(one.estimate / other.estimate)) >= least and (low > highest or high < lowest)


class LastTries:
    """The last try of each series of one project, in the user's cache folder."""

    def __init__(self, root: Path, folder: Path | None = None) -> None:
        name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
        self._values = KeptValues((folder or user_folder()) / "tries" / f"{name}.json", most=2000)

    def read(self) -> dict[Series, Record]:
        """Return the tries, as records that lack all other columns; one with a value of another type is left out."""
        tries = [values for values in self._values.read().values() if values.keys() == _TYPES.keys()]
        right = [one for one in tries if all(isinstance(one[name], hint) for name, hint in _TYPES.items())]
        return {series: record for one in right if (series := Series.of(record := Record(**one)))}

    def keep(self, records: Iterable[Record]) -> None:
        known = {json.dumps(astuple(series)): record for record in records if (series := Series.of(record))}
        self._values.keep({key: {name: getattr(record, name) for name in _KEPT} for key, record in known.items()})


class NewestRuns:
    """The newest run of each series, found by opening few files and remembered until the store has another file."""

    def __init__(self, place: StoreLocation) -> None:
        self._place = place
        self._newest_first: tuple[str, ...] = ()
        self._found: dict[Series, Record | None] = {}

    def of(self, wanted: Collection[Series]) -> dict[Series, Record]:
        try:
            newest_first = tuple(stored_files(self._place, "records").run_ids[::-1])
            if newest_first != self._newest_first:
                self._newest_first, self._found = newest_first, {}
            missing, unread = {series for series in wanted if series not in self._found}, iter(newest_first)
            for step in _STEPS:
                run_ids = list(itertools.islice(unread, step))
                if not missing or not run_ids:
                    break
                where = {name: {getattr(one, name) for one in missing} for name in ("device_name", "case")}
                columns = ("run_id", "environment", *_KEPT)
                rows, _ = read_series(self._place, where=where, columns=columns, run_ids=run_ids)
                # The oldest first, so that the newest stays.
                measured = ((series, row) for row in rows if (series := Series.of(row)) and p50_of(row))
                self._found |= {series: row for series, row in measured if series in missing}
                missing -= self._found.keys()
            self._found |= dict.fromkeys(missing)
        except (StoreError, StoreFailedError, OSError):
            return {}
        return {series: record for series in wanted if (record := self._found.get(series)) is not None}


@dataclass
class Attempts:
    config: Config
    context: WorkerContext
    listener: StatusListener
    select: list[str]
    implementations: tuple[str, ...]
    device: str
    _: KW_ONLY
    every_case: bool  # whether all selected cases are taken, or one of each operator
    _devices: tuple[Device, ...] = ()
    _look: QuickLook | None = None
    _environment: Environment | None = None

    def __post_init__(self) -> None:
        self._stored, self._tries = NewestRuns(store_of(self.config)), LastTries(self.config.root)
        self._ceilings = KeptCeilings()
        self.asked: SelectedSuites = ask(self.config, self.select)

    def close(self) -> None:
        if self._look is not None:
            self._look.close()

    def once(self) -> Attempt:
        """Try everything that is selected, up to the first case in which an implementation is wrong."""
        self.asked = ask(self.config, self.select)
        refuse_syntax_errors(self.asked.files)
        self.listener.doing("loading torch" if self._look is None else "loading suites")
        if not self._devices:
            with Workers(self.context, ANY) as workers:
                self._devices = find_devices(workers)
        device = one_device(self.device, self._devices)
        if self._look is None:
            self._look = QuickLook(context_for(self.context, self.config, device), device)
        look = self._look
        operators, broken = look.describe(self.asked.suites)
        survey, selections = Survey(devices=self._devices, operators=operators, broken=broken), self.asked.selections
        chosen = Chosen(survey=survey, selections=selections, implementations=self.implementations)
        plan = plan_for(self.context, chosen, device, edge=False)
        cases = plan.cases if self.every_case else one_of_each(plan.cases, selections, device)
        using = equipped(device, self._devices, cases)
        if using.beside:
            look.renew(using)
        tried: list[tuple[Tried, ...]] = []
        lock = device_lock(using, self.listener.notify, self.context.interrupted.is_set)
        with lock if cases else contextlib.nullcontext():
            for planned in cases:
                if tried:
                    look.renew(using)
                tried.append(self._case(look, planned, device))
                self.listener.case(tried[-1])
                if any(Status(one.record.status).bad for one in tried[-1]):
                    break
        untried = tuple(planned.case.key for planned in cases[len(tried) :])
        left_out = tuple(planned.case.key for planned in plan.cases if planned not in cases)
        attempt = Attempt(cases=tuple(tried), left_out=left_out, untried=untried, broken=broken)
        self.listener.finish(attempt)
        return attempt

    def watch(self) -> NoReturn:
        """Try now and after every change of a file, until the user interrupts; an error of the user's code is named."""
        candidates = candidate_files(self.config.settings.against)
        files = SuiteFiles(lambda: (*self.asked.files, *candidates))
        self.listener.notify("pairbench: trying once, and again after every change; Ctrl-C ends it")
        while True:
            try:
                self.once()
            except PairbenchError as error:
                self.listener.notify(f"pairbench: {error}")
            if self._look is not None:  # a process for the next try, in which nothing of the project is loaded
                self._look.renew(one_device(self.device, self._devices))
            while not (changed := files.changed()):
                if self.context.interrupted.wait(_EVERY_S):
                    raise InterruptedRunError
            names = ", ".join(sorted({file.name for file in changed}))
            self.listener.notify(f"{time.strftime('%H:%M:%S')} {names} changed")

    def _case(self, look: QuickLook, planned: PlannedCase, device: Device) -> tuple[Tried, ...]:
        state, key = CaseState(planned=planned), planned.case.key
        self.listener.doing(f"verifying {key}")
        look.verify(state)
        self.listener.doing(f"timing {key}")
        load = HostLoad(cores=count_cores(), before=None, rounds=(look.time(state),))
        environment = self._environment_of(look, state, device, load)
        self.listener.doing(f"counting what {key} launches")
        look.profile(state)
        run = Run(run_id="", started_at=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"), commit=None)
        records = to_records(run, load.put_in(environment), [state.outcome(entry) for entry in planned.entries])
        # A kernel that is interpreted has another hash than it has in a run.
        records = [replace(record, implementation_hash=None) for record in records]
        last = self._tries.read()
        stored = self._stored.of([series for record in records if (series := Series.of(record))])
        self._tries.keep(one for one in records if p50_of(one) and not withheld(one.device_kind, one.environment))

        def compared(record: Record, earlier: dict[Series, Record]) -> Beside | None:
            series = Series.of(record)
            return beside(record, earlier[series]) if series and series in earlier else None

        return tuple(Tried(record=one, last=compared(one, last), stored=compared(one, stored)) for one in records)

    def _environment_of(self, look: QuickLook, state: CaseState, device: Device, load: HostLoad) -> Environment:
        """Return the environment, with measured ceilings where a case declares its cost; a case that was not timed needs the device only."""
        if not state.rounds:
            unknown: dict[str, Any] = dict.fromkeys(("driver", "cuda", "cudnn", "triton"))
            return self._environment or Environment(device=device, torch="", python="", hostname="", cpu="", **unknown)
        if self._environment is None:
            self._environment = look.probe(ceilings=False)
        if state.planned.operator.costs and not self._environment.rest["observed"]["ceilings"]:
            kept = self._ceilings.put_in(self._environment)
            self._environment = kept or look.probe(ceilings=True)
            if kept is None:
                self._ceilings.keep(self._environment, load)
        return self._environment


class SuiteFiles:
    """The files that suites depend on: the suites, what they import of the project, and sources beside these."""

    def __init__(self, suites: Callable[[], tuple[Path, ...]]) -> None:
        self._suites = suites
        self._files: set[Path] = set()
        self._known: tuple[tuple[Path, ...], _Stamps, _Stamps] = ((), {}, {})
        self._seen = self._look()

    def changed(self) -> tuple[Path, ...]:
        """Return the files that changed since the last call, once no editor writes to them any more."""
        now = self._look()
        if now == self._seen:
            return ()
        for _ in range(_SETTLED_AFTER):
            time.sleep(_SETTLE_S)
            before, now = now, self._look()
            # An editor may take a file away for a moment, to put another one in its place.
            if before == now and all(now.get(suite) for suite in self._suites()):
                break
        before, self._seen = self._seen, now
        return tuple(sorted(file for file in now if now[file] != before.get(file)))

    def _look(self) -> _Stamps:
        suites = self._suites()
        folders, stamps = self._stamps()
        if (suites, folders, stamps) == self._known:
            return stamps  # and nobody imports anything else
        if folders != self._known[1]:
            forget()
        for suite in suites:
            reached = reached_files(suite, _repository_of(suite.parent))
            # What was reached once stays: while a file is no Python, nobody can tell what it imports.
            self._files |= reached.tree | reached.packages
        self._files |= sources_beside(file for file in self._files if file.parent.is_dir())
        more_folders, more = self._stamps()  # what has changed since the first look at it is read again at the next one
        self._known = (suites, more_folders | folders, more | stamps)
        return self._known[2]

    def _stamps(self) -> tuple[_Stamps, _Stamps]:
        """Return the stamps of folders, in which files come and go, and of files."""
        return {file.parent: _stamp(file.parent) for file in self._files}, {file: _stamp(file) for file in self._files}


@cache
def _repository_of(folder: Path) -> Path:
    return Path(git(folder, "rev-parse", "--show-toplevel") or ".").resolve()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino
