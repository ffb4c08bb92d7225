"""Two commits measured in turns: from their suites to a comparison. Nothing is put in the store.

Rows of a run are paired within that run, and these are paired across two commits; in a series they would pass for
something that they are not. What was found is printed, `--format json` with everything.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pairbench.analyze.compare.confirm import suspects
from pairbench.analyze.compare.interleaved import compare_interleaved
from pairbench.analyze.records import Run, broken_record, to_records
from pairbench.errors import InterruptedRunError, UsageError
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.interleaving import Interleaving, SharedCase
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.scout import probe_environment
from pairbench.model.agreement import OutputsCompared
from pairbench.model.comparison import Change, Comparison, Side, Verdict
from pairbench.model.environment import Device, Environment
from pairbench.model.outcome import Outcome, Status
from pairbench.model.plan import Entry, Plan
from pairbench.model.policy import Policy
from pairbench.model.record import Record
from pairbench.model.series import Series
from pairbench.plan import check_implementations, equipped
from pairbench.workflow.ab.arguments import Part, plan_part
from pairbench.workflow.progress import PlainProgress
from pairbench.workflow.run.devices import Reporter, on_devices
from pairbench.workflow.run.record import warn_of_foreign
from pairbench.workflow.setup import pick_devices, stamp


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """What came of two commits."""

    comparison: Comparison
    records: tuple[tuple[Record, ...], tuple[Record, ...]]
    """The reference's, then the current side's: one for each series, and another where it was measured again."""
    environment: Environment
    outputs: dict[Series, OutputsCompared]
    broken: tuple[str, ...] = ()
    """Suites of the current side that nothing could be told of, because they cannot be loaded."""


def measure_side_by_side(
    context: WorkerContext,
    parts: tuple[Part, Part],
    wanted: str,
    scratch: Path,
    progress: PlainProgress,
    policy: Policy,
) -> SideBySide:
    """Measure both sides on one device, what looks slower twice, and compare.

    Raises:
        UsageError: neither side has anything of what was asked for, or the device is not one.
        InterruptedRunError: the user interrupted; nothing is told of half a comparison.
    """
    device = _one_device(wanted, parts)
    plans = _plans(parts, device)
    found = next(part.chosen.survey.devices for part in reversed(parts) if part.chosen.survey.devices)
    device = equipped(device, found, [case for plan in plans for case in plan.cases])
    done: list[SideBySide] = []

    def work(device: Device) -> None:
        done.append(_Measurement.of(context, parts, plans, device, scratch, progress, policy).run())

    on_devices(context, (device,), progress, work)
    if context.interrupted.is_set():
        raise InterruptedRunError
    return done[0]


def _one_device(wanted: str, parts: tuple[Part, Part]) -> Device:
    if wanted == "all":
        raise UsageError("--device 'all' is for runs; ab has two commits take turns on one device, so name it: cuda:0")
    devices = [part.chosen.survey.devices for part in parts if not part.nothing]
    if not devices and (why := parts[1].nothing):
        raise why
    return pick_devices(wanted, devices[-1])[0]


def _plans(parts: tuple[Part, Part], device: Device) -> tuple[Plan, Plan]:
    surveys = [part.chosen.survey for part in parts]
    if not any(survey.broken for survey in surveys):
        # One side may be without, which then has nothing to compare; not both.
        operators = [operator for survey in surveys for operator in survey.operators]
        check_implementations({name for part in parts for name in part.chosen.implementations}, operators)
    (reference, no_reference), (current, no_current) = (plan_part(part, device) for part in parts)
    if no_reference and no_current:
        raise no_current
    return reference, current


@dataclass(kw_only=True)
class _Measurement:
    context: WorkerContext
    parts: tuple[Part, Part]
    plans: tuple[Plan, Plan]
    device: Device
    environment: Environment
    alternation: Interleaving
    progress: PlainProgress
    policy: Policy
    runs: tuple[Run, Run]
    again: list[SharedCase] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        context: WorkerContext,
        parts: tuple[Part, Part],
        plans: tuple[Plan, Plan],
        device: Device,
        scratch: Path,
        progress: PlainProgress,
        policy: Policy,
    ) -> "_Measurement":
        began = dt.datetime.now(dt.UTC)
        stem, started = stamp(began), began.isoformat(timespec="milliseconds")
        runs = [
            Run(run_id=f"{stem}-{name}", started_at=started, commit=part.checkout.commit)
            for name, part in zip(("reference", "current"), parts, strict=True)
        ]
        reporter = Reporter(progress=progress, keep=lambda _: None)
        contexts = (parts[0].context, parts[1].context)
        return cls(
            context=context,
            parts=parts,
            plans=plans,
            device=device,
            environment=probe_environment(context, device),
            alternation=Interleaving(contexts, device, plans, reporter, scratch),
            progress=progress,
            policy=policy,
            runs=(runs[0], runs[1]),
        )

    def run(self) -> SideBySide:
        rounds = self.context.settings.rounds
        warn_of_foreign(self.environment, self.progress.notify)
        alternation = self.alternation
        cases = sum(len(session.states) for session in alternation.sessions)
        self.progress.expect(self.device, 2 * cases + (1 + rounds) * len(alternation.twins))
        alternation.prepare()
        alternation.time(rounds, alternation.twins)
        alternation.profile()
        found = self._compare()
        self.again = self._suspected(found.comparison.changes)
        if not self.again:
            return found
        self.progress.notify(
            f"pairbench: {len(self.again)} case(s) look slower and are measured again before anything fails"
        )
        self.progress.expect(self.device, rounds * len(self.again))
        alternation.time(rounds, self.again, first=rounds)
        return self._compare()

    def _suspected(self, changes: tuple[Change, ...]) -> list[SharedCase]:
        wanted = set(suspects(changes))
        slower = {
            (change.series.suite, change.series.case)
            for change in changes
            if change.series in wanted and any(item.verdict is Verdict.SLOWER for item in change.judgements)
        }
        return [twin for twin in self.alternation.twins if (twin.current.planned.operator.suite, twin.key) in slower]

    def _compare(self) -> SideBySide:
        records = (self._records(0), self._records(1))
        outputs = {
            self._series(twin.current, entry): compared
            for twin in self.alternation.twins
            for entry, compared in twin.outputs.items()
        }
        found = compare_interleaved(*records, outputs=outputs, policy=self.policy)
        # A suite that loads on neither side has no series: it is a problem, and no change.
        changes = tuple(change for change in found if change.series.case)
        reference, current = (
            Side(asked=part.checkout.asked, runs=(), commits=(part.checkout.commit.sha,)) for part in self.parts
        )
        problems, broken = self._problems(changes)
        return SideBySide(
            comparison=Comparison(reference=reference, current=current, changes=changes, problems=problems),
            records=records,
            environment=self.environment,
            outputs=outputs,
            broken=broken,
        )

    def _problems(self, changes: tuple[Change, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        told = [f"{part.checkout.asked}: {suite.reason}" for part in self.parts for suite in part.chosen.survey.broken]
        told += [f"{part.checkout.asked}: {part.nothing}" for part in self.parts if part.nothing]
        told += [
            f"{part.checkout.asked}: submodules are not there in a worktree ({', '.join(part.checkout.submodules)})"
            for part in self.parts
            if part.checkout.submodules and part.chosen.survey.broken
        ]
        compared = {change.series.suite for change in changes}
        broken = tuple(suite.reason for suite in self.plans[1].broken if suite.suite not in compared)
        return tuple(told), broken

    def _records(self, place: int) -> tuple[Record, ...]:
        run, plan = self.runs[place], self.plans[place]
        found = [broken_record(run, self.environment, suite) for suite in plan.broken]
        states = {id(state): state for state in self.alternation.sessions[place].states}
        rounds = self.context.settings.rounds
        measured_again = {id(twin.states[place]) for twin in self.again}
        for name, state in states.items():
            found += _rows(run, self.environment, state, range(rounds))
            if name in measured_again:
                second = replace(run, run_id=f"{run.run_id}-again", confirms=run.run_id)
                found += _rows(second, self.environment, state, range(rounds, 2 * rounds))
        known = {(state.planned.operator.suite, state.planned.case.key) for state in states.values()}
        for case in plan.cases:  # of the reference: what is gone, or asks another question now
            if (case.operator.suite, case.case.key) not in known:
                found += _rows(run, self.environment, CaseState(planned=case), range(0))
        return tuple(found)

    def _series(self, state: CaseState, entry: Entry) -> Series:
        return Series(
            device_name=self.device.name,
            suite=state.planned.operator.suite,
            case=state.planned.case.key,
            implementation=entry.implementation,
            mode=entry.mode,
        )


def _rows(run: Run, environment: Environment, state: CaseState, rounds: range) -> Iterator[Record]:
    """Yield a case's rows from some of its rounds."""
    outcomes = [_restricted(state.outcome(entry), rounds) for entry in state.planned.entries]
    for row in to_records(run, environment, outcomes):
        # Not timed for want of the other side: nothing that the implementation did.
        yield replace(row, status=Status.MEASURED.value, reason=None) if row.status == Status.VERIFIED else row


def _restricted(outcome: Outcome, rounds: range) -> Outcome:
    return replace(outcome, rounds=tuple(timed for timed in outcome.rounds if timed.round in rounds))
