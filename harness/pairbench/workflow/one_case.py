"""One case of one operator on one device, for the commands that look into a call instead of comparing many."""

import contextlib
import fnmatch
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from pairbench.config import Config
from pairbench.errors import InterruptedRunError, SelectionError, UsageError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.model.case import Case, format_value
from pairbench.model.environment import Device
from pairbench.model.plan import Entry, Plan, PlannedCase
from pairbench.plan import equipped, typical
from pairbench.workflow.devices import on_devices, plan_for
from pairbench.workflow.progress import PlainProgress, open_progress
from pairbench.workflow.setup import Chosen, ask, load, open_context, pick_devices

_SHOWN = 8
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The arguments that name one case."""

    operator: str
    case: str | None
    """The value of `--case`; None for the first case of the size that suits the device."""
    device: str


@dataclass(frozen=True, kw_only=True)
class OpenCase:
    """A case that workers can examine."""

    context: WorkerContext
    progress: PlainProgress
    devices: tuple[Device, ...]
    device: Device
    planned: PlannedCase

    def only(self, entries: tuple[Entry, ...]) -> "OpenCase":
        """Return this case with some of the entries, and with the other GPUs that these need."""
        planned = replace(self.planned, entries=entries)
        return replace(self, planned=planned, device=equipped(self.device, self.devices, [planned]))

    def work(self, stage: str, work: Callable[[Device], _Answer]) -> _Answer:
        """Return the result of `work` on the device, under its lock."""
        answers: list[_Answer] = []
        self.progress.expect(self.device, 1)

        def step(device: Device) -> None:
            self.progress.step(device, stage, self.planned.case.key)
            answers.append(work(device))
            self.progress.stepped(device)

        on_devices(self.context, (self.device,), self.progress, step)
        if self.context.interrupted.is_set():
            raise InterruptedRunError
        return answers[0]


@contextlib.contextmanager
def open_case(config: Config, wanted: Wanted) -> Iterator[OpenCase]:
    """Load the suites, and find the case and the device."""
    asked = ask(config, [wanted.operator])
    with open_context(config, asked.files) as context, open_progress() as progress:
        chosen = load(context, asked)
        devices = chosen.survey.devices
        device = one_device(wanted.device, devices)
        planned = one_case(plan_for(context, chosen, device, edge=True), chosen, wanted.case, device)
        yield OpenCase(context=context, progress=progress, devices=devices, device=device, planned=planned)


def one_device(wanted: str, devices: tuple[Device, ...]) -> Device:
    """Return the one device that `--device` names."""
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
    more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    raise SelectionError(f"--case {wanted!r} fits {what}; expected one of {', '.join(keys[:_SHOWN])}{more}")


def fits(case: Case, wanted: str) -> bool:
    """Return whether a text names a case: its key, some of its axes as `dtype=float32,rows=4`, or a glob of its key."""
    axes = {f"{axis}={text}" for axis, value in case.axes for text in (format_value(value), value)}
    if set(wanted.split(",")) <= axes:
        return True
    # A key holds brackets, which a glob would read as a set of characters.
    return wanted == case.key or fnmatch.fnmatchcase(case.key, wanted.replace("[", "[[]"))
