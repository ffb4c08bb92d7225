"""Runs sessions on one or several devices at the same time, each under its lock, and gathers what they report.

Also what a machine can do, how busy its host is, and one case of one operator, for the commands that look into a call.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pairbench.analyze.records import key_columns
from pairbench.config import Config
from pairbench.errors import InterruptedRunError, SelectionError, UsageError
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.lock import LoadMeter, count_cores, device_lock
from pairbench.execute.parent.pool import WorkerContext, WorkerEndedError, Workers, available_memory
from pairbench.execute.parent.scout import diagnose_device, probe_environment, probe_in, survey
from pairbench.execute.parent.session import DeviceSession, Observer
from pairbench.execute.protocol import CaseJob, Ended
from pairbench.model.breakdown import NotInspected
from pairbench.model.case import Case, format_value
from pairbench.model.environment import Device, Environment, Finding, HostLoad
from pairbench.model.outcome import Correctness, ImpostorResult, Outcome
from pairbench.model.plain import Value
from pairbench.model.plan import Entry, Plan, PlannedCase
from pairbench.plan import equipped, left_to, make_plan, matches, typical
from pairbench.report.units import listed
from pairbench.store.user_cache import KeptCeilings
from pairbench.workflow.setup import Chosen, Request, equipment_of, open_context, open_request, pick_devices

# The columns of `Verified.rows` that a table has room for.
SHOWN = ("device", "case", "implementation", "mode", "status", "max_abs_error", "oracle_ratio", "margin", "reason")


@dataclass(kw_only=True)
class Verified:
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
        declared = [(planned, result) for _, planned, result in self.impostors if result.declared and result.rejected]
        rejected = Counter((on.operator.suite, on.operator.name, result.impostor) for on, result in declared)

        def reason(planned: PlannedCase, result: ImpostorResult) -> str:
            number = rejected[planned.operator.suite, planned.operator.name, result.impostor]
            if result.rejected or not (result.declared and number):
                return result.reason
            return (
                f"accepted: {planned.case.key} cannot tell it from the baseline, and {number} other case{'s' * (number > 1)} reject{'s' * (number == 1)} "
                "it; declare it as Variant(function, valid=...) with a `valid` that returns False for these inputs"
            )

        names = ("impostor", "declared", "rejected")
        return [
            {"device": device.selector, "operator": planned.operator.name, "case": planned.case.key}
            | {name: getattr(result, name) for name in names}
            | {"reason": reason(planned, result)}
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
    facts = ("first_call_ns", "uncapturable", "reuses_output", "repeat_error")
    return {
        "device": device.selector,
        **key_columns(outcome),
        "status": outcome.status.value,
        **{one.name: correctness and getattr(correctness, one.name) for one in fields(Correctness)},
        **{name: verification and getattr(verification, name) for name in facts},
        "reason": outcome.reason,
    }


def plan_for(context: WorkerContext, chosen: Chosen, device: Device, *, edge: bool) -> Plan:
    survey, equipment = chosen.survey, equipment_of(device, chosen.survey.devices)
    selected = (chosen.selections, chosen.implementations)
    return make_plan(survey.operators, survey.broken, equipment, context.settings, *selected, edge=edge)


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
    request: Request, devices: tuple[Device, ...], work: Callable[[Device], None], *, timed: bool = True
) -> None:
    """Call `work` on every device at the same time, each in a thread and under its lock; raise the first error."""
    # An interruption is not an error here, for finished results have been handed over by then. Work on a CPU that is not `timed` needs no
    # lock; on a GPU it does, for the lock's holder may need the memory.

    interrupted = request.context.interrupted

    def locked(device: Device) -> None:
        lock = device_lock(device, request.progress.notify, interrupted.is_set)
        try:
            with contextlib.nullcontext() if device.kind == "cpu" and not timed else lock:
                work(device)
        except InterruptedRunError:
            return
        except BaseException:
            interrupted.set()  # the other devices need not go on for a run that has failed
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
        progress.expect(device, len(plan.cases))
        session = DeviceSession(context, device, plan, Observer(step=progress.step, stepped=progress.stepped))
        try:
            session.verify(impostors=impostors)
        except InterruptedRunError:
            session.interrupt(0)
        with lock:
            for state in session.states:
                verified.outcomes += [(device, state.outcome(entry)) for entry in state.planned.entries]
                verified.impostors += [(device, state.planned, result) for result in state.impostors]

    on_devices(request, tuple(device for device, plan in plans.items() if plan.cases), work, timed=False)
    return verified


class HostWatch:
    """Watches a host from the moment it is made; `before` is the load until timing begins."""

    def __init__(self, device: Device, notify: Callable[[str], None]) -> None:
        self._device, self._notify, self._meter, self._said = device, notify, LoadMeter(), False
        self.before = HostLoad(cores=count_cores(), before=None)

    def begin(self, environment: Environment) -> HostLoad:
        """Report other work on the device and its host before timing begins, and return the host's load."""
        self.before = replace(self.before, before=self._meter.foreign_cores())
        self.end(self.before)
        observed = environment.observed
        beside = observed.get("foreign_processes_beside", {})
        for selector, foreign in {self._device.selector: observed.get("foreign_processes"), **beside}.items():
            if foreign:
                why = f"processes {foreign} compute on {selector} too; latencies will be far too long"
                self._notify(f"pairbench: {why}")
        return self.before

    def during(self, states: Iterable[CaseState], foreign_cores: Iterable[float | None]) -> HostLoad:
        """Return the load with what was seen while cases were timed, and the busy processors of others in each round."""
        readings = [timed.telemetry for state in states for timed in state.rounds]
        seen = tuple(sorted({state for item in readings for state in item.performance_states}))
        foreign = tuple(sorted({pid for item in readings for pid in item.foreign_processes}))
        return replace(self.before, rounds=tuple(foreign_cores), performance_states=seen, foreign_processes=foreign)

    def end(self, load: HostLoad) -> None:
        if not self._said and (why := load.disturbs(self._device.kind)):
            self._said = True
            self._notify(f"pairbench: {self._device.selector}: {why}")


def probe_device(context: WorkerContext, device: Device, watch: HostWatch) -> Environment:
    """Return a device's environment with its host's load; ceilings come from the user's cache where they are known."""
    kept = KeptCeilings()
    with Workers(context, device) as workers:
        known = kept.put_in(probe_in(workers, device, ceilings=False))
        environment = known or probe_in(workers, device)
    load = watch.begin(environment)
    if known is None:
        kept.keep(environment, load)
    return load.put_in(environment)


def examine(config: Config, wanted: str) -> list[dict[str, Any]]:
    names = ("state", "detail", "advice")
    with open_context(config) as context:
        return [
            {"device": device.selector, "what": one.name, **{name: getattr(one, name) for name in names}}
            for device in pick_devices(wanted, survey(context, ()).devices)
            for one in (*_known(probe_environment(context, device)), *diagnose_device(context, device))
        ]


def _known(environment: Environment) -> list[Finding]:
    ceilings = ", ".join(f"{name} {value:.4g}" for name, value in environment.observed["ceilings"].items())
    versions = f"torch {environment.torch}, triton {environment.triton or 'none'}, Python {environment.python}"
    if environment.device.kind == "cuda":
        versions += f", CUDA {environment.cuda}, cuDNN {environment.cudnn}, driver {environment.driver or 'unknown'}"
    memory = f"{available_memory(1.0) / 2**30:.1f} GiB free"
    known = {"Device": environment.device.name, "Versions": versions, "Ceilings": ceilings, "Host memory": memory}
    return [Finding(name=name, state="ok", detail=detail) for name, detail in known.items()]


class OpenCase(Value):
    request: Request
    device: Device
    planned: PlannedCase

    def only(self, entries: tuple[Entry, ...]) -> "OpenCase":
        """Return this case with some of the entries, and with the other GPUs that these need."""
        planned = replace(self.planned, entries=entries)
        device = equipped(self.device, self.request.chosen.survey.devices, [planned])
        return replace(self, planned=planned, device=device)

    def inspect(
        self, stage: str, left_out: Mapping[Entry, str], job: Callable[..., CaseJob], *, interpret: bool = False
    ) -> list[Any]:
        """Return what a worker answers to a job on each entry, under the device's lock; a `NotInspected` where the entry is left out or ends."""
        planned, context, progress = self.planned, self.request.context, self.request.progress
        about = {"path": Path(planned.operator.path), "operator": planned.operator.name, "case": planned.case}
        answers: list[Any] = []

        def answer(workers: Workers, entry: Entry) -> Any:
            if entry in left_out:
                return NotInspected(entry=entry, reason=left_out[entry], bad=False)
            nothing = NotInspected(entry=entry, reason="the worker gave no answer; please report this", bad=True)
            try:
                found: Any = [nothing, *workers.get().request(job(**about, entries=(entry,)))][-1]
            except WorkerEndedError as error:
                found = error
            if isinstance(found, Ended | WorkerEndedError):
                return NotInspected(entry=entry, reason=f"{found.status}: {found.reason}", bad=found.status.bad)
            return found

        def step(device: Device) -> None:
            progress.step(device, stage, planned.case.key)
            with Workers(context, device, interpret=interpret) as workers:
                answers.extend(answer(workers, entry) for entry in planned.entries)
            progress.stepped(device)

        progress.expect(self.device, 1)
        on_devices(self.request, (self.device,), step)
        if context.interrupted.is_set():
            raise InterruptedRunError
        return answers


@contextlib.contextmanager
def open_case(config: Config, operator: str, case: str | None, device_name: str) -> Iterator[OpenCase]:
    """Load the suite of an operator and pick one case: the one that `--case` names, or else the first of the size that suits the device."""
    with open_request(config, [operator], device_name) as request:
        chosen, device = request.chosen, one_device(device_name, request.chosen.survey.devices)
        planned = one_case(plan_for(request.context, chosen, device, edge=True), chosen, case, device)
        yield OpenCase(request=request, device=device, planned=planned)


def one_device(wanted: str, devices: tuple[Device, ...]) -> Device:
    named = pick_devices(wanted, devices)
    if len(named) > 1:
        raise UsageError(f"--device {wanted!r} is {len(named)} devices here, expected one, such as {named[0].selector}")
    return named[0]


def one_case(plan: Plan, chosen: Chosen, wanted: str | None, device: Device) -> PlannedCase:
    """Return the named case, else the first of the size that suits the device."""
    if chosen.survey.broken and not plan.cases:
        raise SelectionError(chosen.survey.broken[0].reason)
    operators = {(item.operator.suite, item.operator.name): item.operator for item in plan.cases}
    if len(operators) > 1:
        names = ", ".join(f"{suite}::{name}" for suite, name in operators)
        raise SelectionError(f"expected one operator, the selection takes {len(operators)}: {names}")
    if wanted is None:
        return typical(plan.cases, device)
    fitting = [item for item in plan.cases if fits(item.case, wanted)]
    if len(fitting) == 1:
        return fitting[0]
    what = "several cases" if fitting else "no case"
    keys = [item.case.key for item in fitting or plan.cases]
    raise SelectionError(f"--case {wanted!r} fits {what}; expected one of {listed(keys)}")


def fits(case: Case, wanted: str) -> bool:
    """Return whether a text names a case: its key, some of its axes as `dtype=float32,rows=4`, or a glob of its key."""
    axes = {f"{axis}={text}" for axis, value in case.axes for text in (format_value(value), value)}
    return set(wanted.split(",")) <= axes or matches(case.key, wanted)
