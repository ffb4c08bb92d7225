"""The files of a run in its store: outcomes become rows as soon as nothing can change them, and are spooled where the store fails."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pairbench.analyze.records import Run, broken_record, to_records, to_samples
from pairbench.errors import PairbenchError
from pairbench.model.environment import Device, Environment
from pairbench.model.outcome import Outcome
from pairbench.model.plan import Entry, Plan
from pairbench.model.record import Record, Samples
from pairbench.store.location import StoreLocation
from pairbench.store.writer import RunWriter, Spool, push, waiting

_Case = tuple[str, str]


@dataclass(kw_only=True)
class Recorder:
    """Turns final outcomes of one device into rows, once the case's baseline is known, which the speedups need."""

    run: Run
    environment: Environment
    records: list[Record]
    """The list for final rows, besides the store."""
    writer: RunWriter | None = None
    """Writes the files of one device model; None where nothing is stored."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    rows: dict[_Case, dict[Entry, Record]] = field(default_factory=dict)
    """The newest stored row of each entry, by case."""
    controls: dict[_Case, list[Outcome]] = field(default_factory=dict)
    """The final outcomes of each case's baseline, one for each mode."""
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
        """Store outcomes of one case that another round will replace, in case the process is killed before."""
        records = to_records(self.run, self.environment, outcomes, resamples=100)
        with self.lock:
            self._store(outcomes, records)

    def _store(self, outcomes: list[Outcome], records: list[Record]) -> None:
        if self.writer is None:
            return
        samples = [row for row in to_samples(self.run, self.environment, outcomes) if _key(row) not in self.sampled]
        self.writer.append_samples(samples)
        self.sampled.update(map(_key, samples))
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
                cases = ((planned.operator.suite, planned.case.key) for planned in plan.cases)
                self.writer.expect((self.environment.device, case) for case in cases)
            self.records += records


def _case(outcome: Outcome) -> _Case:
    return outcome.operator.suite, outcome.case.key


def _key(row: Samples) -> tuple[object, ...]:
    return row.suite, row.case, row.implementation, row.mode, row.round


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The part of a run that its store did not take."""

    why: str
    folder: Path | None
    """The spool's folder, which `pairbench store push` publishes; None where nothing could be written anywhere."""
    lost: tuple[str, ...] = ()
    """The files that could be written nowhere: only the command's output has their rows."""

    def lines(self) -> list[str]:
        kept = [f"What it did not take is in {self.folder}; `pairbench store push` publishes it"]
        lost = [f"Nowhere could be written: {len(self.lost)} files; their rows are above, and nowhere else"]
        return [f"The store failed: {self.why}", *(kept if self.folder else []), *(lost if self.lost else [])]


class RunFiles:
    """The files of a run, one for each device model, opened when they are needed."""

    def __init__(self, run: Run, store: str | StoreLocation, notify: Callable[[str], None]) -> None:
        """Prepare the spool; no file is made yet."""
        self._run, self._location, self._notify = run, StoreLocation.of(store), notify
        self._spool = Spool(self._location, run.run_id, notify)
        self._writers: dict[str, RunWriter] = {}
        self._lock = threading.Lock()

    def remind(self) -> None:
        """Report how many earlier runs have results that the store did not take."""
        if count := sum(one.store == self._location.address for one in waiting()):
            self._notify(
                f"pairbench: results of {count} earlier run{'s' if count > 1 else ''} wait for store {self._location.name!r}; "
                "`pairbench store push` publishes them"
            )

    def writer(self, device: Device) -> RunWriter:
        """Return the writer of a device model's files."""
        with self._lock:
            if device.slug not in self._writers:
                names = {"run_id": self._run.run_id, "device_slug": device.slug, "month": self._run.started_at[:7]}
                writer = RunWriter(self._location, **names, publish=self._spool.publish)
                self._writers[device.slug] = writer.__enter__()
            return self._writers[device.slug]

    def close(self) -> Kept | None:
        """Finish the files, and offer the store once more what it did not take; return what it still does not take."""
        kept = settle(self._spool, self._notify)
        if kept is not None:
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
