"""Outcomes of one device become rows of the store, as soon as nothing can change them any more."""

import threading
from dataclasses import dataclass, field

from pairbench.analyze.records import Run, broken_record, to_records, to_samples
from pairbench.model.environment import Environment
from pairbench.model.outcome import Outcome
from pairbench.model.plan import Entry, Plan
from pairbench.model.record import Record, Samples
from pairbench.store.writer import RunWriter

_PROVISIONAL_RESAMPLES = 100
_Case = tuple[str, str]


@dataclass(kw_only=True)
class Recorder:
    """Turns final outcomes of one device into rows; waits for a case's baseline, which the speedups need."""

    run: Run
    environment: Environment
    records: list[Record]
    """The list that the final rows are added to, besides the store."""
    writer: RunWriter | None = None
    """What writes the run's files, shared by the devices of one model; None where nothing is stored."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    rows: dict[_Case, dict[Entry, Record]] = field(default_factory=dict)
    """The newest row of each entry, by case: what the store has of it."""
    controls: dict[_Case, list[Outcome]] = field(default_factory=dict)
    """The final outcomes of each case's baseline, one for each mode."""
    sampled: set[tuple[object, ...]] = field(default_factory=set)
    """The entries and rounds whose samples are in the store."""

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
        """Store some outcomes of one case that another round will replace: the process may not live to see it."""
        records = to_records(self.run, self.environment, outcomes, resamples=_PROVISIONAL_RESAMPLES)
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
        """Store a row for each suite that could not be loaded, and keep the order of the plan for the cases, in whichever they are final."""
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
