"""Runs sessions on one or several devices at the same time, each under its lock, and gathers what they report."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pairbench.errors import InterruptedRunError
from pairbench.execute.parent.lock import device_lock
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.session import DeviceSession
from pairbench.model.environment import Device
from pairbench.model.outcome import ImpostorResult, Outcome
from pairbench.model.plan import Plan, PlannedCase
from pairbench.plan import Subset, equipped, left_to, make_plan
from pairbench.workflow.progress import PlainProgress
from pairbench.workflow.setup import Chosen, Request, equipment_of


@dataclass(kw_only=True)
class Reporter:
    """Passes progress on, and hands the outcomes of one device to their recorder."""

    progress: PlainProgress
    keep: Callable[[list[Outcome]], object]
    hold: Callable[[list[Outcome]], None] = lambda _: None

    def step(self, device: Device, stage: str, case: str) -> None:
        self.progress.step(device, stage, case)

    def stepped(self, device: Device) -> None:
        self.progress.stepped(device)

    def finished(self, outcomes: list[Outcome]) -> None:
        self.keep(outcomes)

    def so_far(self, outcomes: list[Outcome]) -> None:
        self.hold(outcomes)


@dataclass(kw_only=True)
class Verified:
    """The result of `pairbench verify` on all devices."""

    outcomes: list[tuple[Device, Outcome]] = field(default_factory=list)
    impostors: list[tuple[Device, PlannedCase, ImpostorResult]] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        return any(outcome.status.bad for _, outcome in self.outcomes) or self._passed > 0

    @property
    def _passed(self) -> int:
        return sum(result.tried and not result.rejected for *_, result in self.impostors)

    def rows(self) -> list[dict[str, Any]]:
        return [_row(device, outcome) for device, outcome in self.outcomes]

    def impostor_rows(self) -> list[dict[str, Any]]:
        """Return a row for each impostor and case; one that other cases reject is not the fault of the tolerance."""
        rejected = Counter(
            (planned.operator.suite, planned.operator.name, result.impostor)
            for _, planned, result in self.impostors
            if result.declared and result.rejected
        )

        def reason(planned: PlannedCase, result: ImpostorResult) -> str:
            number = rejected[planned.operator.suite, planned.operator.name, result.impostor]
            if result.rejected or not (result.declared and number):
                return result.reason
            return (
                f"accepted: {planned.case.key} cannot tell it from the baseline, and {number} other case{'s' * (number > 1)} reject{'s' * (number == 1)} "
                "it; declare it as Variant(function, valid=...) with a `valid` that returns False for these inputs"
            )

        return [
            {
                "device": device.selector,
                "operator": planned.operator.name,
                "case": planned.case.key,
                "impostor": result.impostor,
                "declared": result.declared,
                "rejected": result.rejected,
                "reason": reason(planned, result),
            }
            for device, planned, result in self.impostors
            if result.tried
        ]

    def impostor_summary(self) -> list[dict[str, Any]]:
        """Return a row for each impostor that passed; where none did, the number of rejected ones for each operator."""
        rows = self.impostor_rows()
        if passed := [row for row in rows if not row["rejected"]]:
            return passed
        counts = Counter((row["operator"], row["declared"]) for row in rows)
        return [
            {"operator": name, "rejected_automatic": counts[name, False], "rejected_declared": counts[name, True]}
            for name in dict.fromkeys(row["operator"] for row in rows)
        ]

    def statuses(self) -> str:
        """Return the number of outcomes of each status, and that of impostors which passed, in words."""
        counts = Counter(outcome.status.value for _, outcome in self.outcomes)
        parts = [f"{count} {status}" for status, count in counts.items()] or ["nothing to verify"]
        parts += [f"{self._passed} impostor{'s' * (self._passed > 1)} passed"] if self._passed else []
        return ", ".join(parts)


def _row(device: Device, outcome: Outcome) -> dict[str, Any]:
    verification = outcome.verification
    correctness = verification.correctness if verification else None
    errors = ("max_abs_error", "mean_abs_error", "rel_l2_error", "oracle_ratio", "mismatched_fraction", "rtol", "atol")
    facts = ("first_call_ns", "uncapturable", "reuses_output", "repeat_error")
    return {
        "device": device.selector,
        "suite": outcome.operator.suite,
        "operator": outcome.operator.name,
        "case": outcome.case.key,
        "implementation": outcome.entry.implementation,
        "mode": outcome.entry.mode,
        "status": outcome.status.value,
        **{name: correctness and getattr(correctness, name) for name in (*errors, "margin")},
        **{name: verification and getattr(verification, name) for name in facts},
        "reason": outcome.reason,
    }


def plan_for(context: WorkerContext, chosen: Chosen, device: Device, *, edge: bool) -> Plan:
    survey = chosen.survey
    subset = Subset(selections=chosen.selections, implementations=chosen.implementations, edge=edge)
    return make_plan(survey.operators, survey.broken, equipment_of(device, survey.devices), context.settings, subset)


def plans_for(context: WorkerContext, chosen: Chosen, devices: tuple[Device, ...], *, edge: bool) -> dict[Device, Plan]:
    """Return each device's plan; a device that needs others beside it is returned with them."""
    plans: dict[Device, Plan] = {}
    for device in devices:
        plan = plan_for(context, chosen, device, edge=edge)
        leader = next(other for other in devices if (other.kind, other.name) == (device.kind, device.name))
        plan = plan if leader == device else left_to(plan, leader)
        plans[equipped(device, chosen.survey.devices, plan.cases)] = plan
    return plans


def on_devices(
    context: WorkerContext,
    devices: tuple[Device, ...],
    progress: PlainProgress,
    work: Callable[[Device], None],
    *,
    timed: bool = True,
) -> None:
    """Call `work` on every device at the same time, each in a thread and under its lock; raise the first error."""
    # An interruption is not an error here, for finished results have been handed over by then. Work on a CPU that is not `timed` needs no
    # lock; on a GPU it does, for the lock's holder may need the memory.

    def locked(device: Device) -> None:
        free = device.kind == "cpu" and not timed
        lock = device_lock(device, progress.notify, context.interrupted.is_set)
        with contextlib.nullcontext(True) if free else lock as held:
            if not held:
                return
            try:
                work(device)
            except InterruptedRunError:
                return
            except BaseException:
                context.interrupted.set()  # the other devices need not go on for a run that has failed
                raise

    with ThreadPoolExecutor(max(1, len(devices))) as threads:
        for done in [threads.submit(locked, device) for device in devices]:
            done.result()


def verify_devices(request: Request, *, impostors: bool) -> Verified:
    """Verify the selected cases on every device, with their impostors if `impostors`."""
    verified = Verified()
    lock = threading.Lock()
    context, progress = request.context, request.progress
    plans = plans_for(context, request.chosen, request.devices, edge=True)

    def work(device: Device) -> None:
        plan = plans[device]
        outcomes: list[Outcome] = []
        progress.expect(device, len(plan.cases))
        session = DeviceSession(context, device, plan, Reporter(progress=progress, keep=outcomes.extend))
        try:
            session.verify(impostors=impostors)
            session.finish()
        except InterruptedRunError:
            session.interrupt(0)
            raise
        finally:
            # In the order of the plan: what ended first was reported first.
            order = {case.case.key: index for index, case in enumerate(plan.cases)}
            entries = [case.entries for case in plan.cases]
            outcomes.sort(key=lambda item: (order[item.case.key], entries[order[item.case.key]].index(item.entry)))
            with lock:
                verified.outcomes += [(device, outcome) for outcome in outcomes]
                verified.impostors += [(device, planned, result) for planned, result in session.audits()]

    on_devices(context, tuple(device for device, plan in plans.items() if plan.cases), progress, work, timed=False)
    return verified
