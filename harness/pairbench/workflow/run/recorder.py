"""Outcomes of one device become rows of the store, as soon as nothing can change them any more."""

import threading
from dataclasses import dataclass, field

from pairbench.analyze.records import Run, broken_record, to_records, to_samples
from pairbench.model.environment import Environment
from pairbench.model.outcome import Outcome
from pairbench.model.plan import Plan
from pairbench.model.record import Record, Samples
from pairbench.store.writer import RunWriter


@dataclass(kw_only=True)
class Recorder:
    """Turns final outcomes of one device into rows; waits for a case's baseline, which the speedups need."""

    run: Run
    environment: Environment
    records: list[Record]
    """Where the final rows go, too."""
    writer: RunWriter | None = None
    """None: nothing is stored."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    held: dict[tuple[str | None, ...], Record] = field(default_factory=dict)
    """Rows of what has been timed, by case and entry; shared by the devices of one model, as the file is."""
    controls: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)
    sampled: set[tuple[object, ...]] = field(default_factory=set)
    """Samples that are in the store."""

    def keep(self, outcomes: list[Outcome]) -> list[Record]:
        """Store some outcomes of one case that are final, and return their rows."""
        key = (outcomes[0].operator.suite, outcomes[0].case.key)
        controls = self.controls.setdefault(key, [])
        records = to_records(self.run, self.environment, [*controls, *outcomes])[len(controls) :]
        controls += [outcome for outcome in outcomes if outcome.entry.role == "baseline"]
        with self.lock:
            self._store(outcomes, records)
            self.records += records
        return records

    def hold(self, outcomes: list[Outcome]) -> None:
        """Store some outcomes of one case that another round will replace: the process may not live to see it."""
        records = to_records(self.run, self.environment, outcomes, resamples=_PROVISIONAL_RESAMPLES)
        with self.lock:
            self._store(outcomes, records)

    def _store(self, outcomes: list[Outcome], records: list[Record]) -> None:
        if self.writer is None:
            return
        samples = [row for row in to_samples(self.run, self.environment, outcomes) if _place(row) not in self.sampled]
        self.writer.append_samples(samples)
        self.sampled.update(map(_place, samples))
        # What was held once stays with the held rows, where it can be replaced without ever being there twice.
        timed = {_key(record): record for record in records if record.n_rounds or _key(record) in self.held}
        self.writer.append_records([record for record in records if _key(record) not in timed])
        if timed:
            self.held.update(timed)
            self.writer.hold_records(list(self.held.values()))

    def keep_broken(self, plan: Plan) -> None:
        """Store a row for each suite that could not be loaded."""
        records = [broken_record(self.run, self.environment, suite) for suite in plan.broken]
        with self.lock:
            if self.writer is not None:
                self.writer.append_records(records)
            self.records += records


def _key(record: Record) -> tuple[str | None, ...]:
    return record.device_uuid, record.suite, record.case, record.implementation, record.mode


def _place(row: Samples) -> tuple[object, ...]:
    return row.suite, row.case, row.implementation, row.mode, row.round


_PROVISIONAL_RESAMPLES = 100
