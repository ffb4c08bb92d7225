"""Tries what was selected, again and again with everything kept warm between: the server that forks workers, devices, what is stored."""

import contextlib
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pairbench.analyze.attempt import beside
from pairbench.analyze.records import Run, to_records
from pairbench.config import Config
from pairbench.errors import InterruptedRunError
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.host_load import count_cores
from pairbench.execute.parent.lock import device_lock
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.quick_look import QuickLook
from pairbench.execute.parent.scout import Scout, Survey
from pairbench.model.attempt import Attempt, Tried
from pairbench.model.environment import Device, Environment
from pairbench.model.latency import p50_of
from pairbench.model.load import HostLoad, withheld
from pairbench.model.outcome import Status
from pairbench.model.plan import PlannedCase
from pairbench.model.record import Record
from pairbench.model.series import Series
from pairbench.plan import equipped, one_of_each
from pairbench.store.ceilings import KeptCeilings
from pairbench.store.newest import NewestRuns
from pairbench.store.tries import LastTries
from pairbench.suite.load import refuse_syntax_errors
from pairbench.workflow.inspect.one_case import one_device
from pairbench.workflow.run.devices import plan_for
from pairbench.workflow.run.record import context_for
from pairbench.workflow.setup import Asked, Chosen, ask, store_of


@dataclass(frozen=True, kw_only=True)
class WantedTry:
    """What the user wants to have tried."""

    select: tuple[str, ...]
    """SELECT arguments; empty for everything."""
    implementations: tuple[str, ...]
    """Names or globs of implementations; empty for all."""
    device: str
    """The value of `--device`, which must name one device."""
    every_case: bool
    """Whether to take all selected cases, and not one of each operator."""


class Telling(Protocol):
    """What shows the user how it goes."""

    def doing(self, what: str) -> None:
        """Say what is under way."""

    def notify(self, text: str) -> None:
        """Say what the user has to know at once."""

    def case(self, tried: tuple[Tried, ...]) -> None:
        """Take a case of which all is known."""


class Attempts:
    """Tries of one selection on one device, one after the other."""

    def __init__(self, config: Config, context: WorkerContext, wanted: WantedTry, telling: Telling) -> None:
        """Find the suites; no worker is started yet.

        Args:
            config: The settings, and where results are.
            context: What workers share.
            wanted: What to try.
            telling: What shows the user how it goes.

        Raises:
            UsageError: a file does not exist, or there is no suite.
        """
        self._config, self._context, self._wanted, self._telling = config, context, wanted, telling
        self._stored, self._tries, self._ceilings = NewestRuns(store_of(config)), LastTries(config.root), KeptCeilings()
        self._devices: tuple[Device, ...] = ()
        self._look: QuickLook | None = None
        self._environment: Environment | None = None
        self.asked: Asked = ask(config, list(wanted.select))
        """The suites of the last try, or of the first one to come."""

    def close(self) -> None:
        """End the worker that waits for the next try."""
        if self._look is not None:
            self._look.close()

    def park(self) -> None:
        """Have a process ready for the next try. Nothing of the project's is loaded in it."""
        if self._look is not None:
            self._look.renew(one_device(self._wanted.device, self._devices))

    def once(self) -> Attempt:
        """Try everything that is selected, up to the first case with something wrong.

        Raises:
            UsageError: what is selected is not there, or no suite is Python.
            InterruptedRunError: the user interrupted.
        """
        self.asked = ask(self._config, list(self._wanted.select))
        refuse_syntax_errors(self.asked.files)
        self._telling.doing("loading torch" if self._look is None else "loading suites")
        look, device = self._ready()
        operators, broken = look.describe(self.asked.suites)
        chosen = Chosen(
            survey=Survey(devices=self._devices, operators=operators, broken=broken),
            selections=self.asked.selections,
            implementations=self._wanted.implementations,
        )
        plan = plan_for(self._context, chosen, device, edge=False)
        every = self._wanted.every_case
        cases = plan.cases if every else one_of_each(plan.cases, self.asked.selections, device)
        using = equipped(device, self._devices, cases)
        if using.beside:
            look.renew(using)
        tried: list[tuple[Tried, ...]] = []
        lock = device_lock(using, self._telling.notify, self._context.interrupted.is_set)
        with lock if cases else contextlib.nullcontext(True) as held:
            if not held:
                raise InterruptedRunError
            for planned in cases:
                if tried:
                    look.renew(using)
                tried.append(self._case(look, planned, device))
                self._telling.case(tried[-1])
                if any(Status(one.record.status).bad for one in tried[-1]):
                    break
        untried = tuple(planned.case.key for planned in cases[len(tried) :])
        left_out = tuple(planned.case.key for planned in plan.cases if planned not in cases)
        return Attempt(cases=tuple(tried), left_out=left_out, untried=untried, broken=broken)

    def _ready(self) -> tuple[QuickLook, Device]:
        if not self._devices:
            with Scout(self._context) as scout:
                self._devices = scout.devices()
        device = one_device(self._wanted.device, self._devices)
        if self._look is None:
            self._look = QuickLook(context_for(self._context, self._config, device), device)
        return self._look, device

    def _case(self, look: QuickLook, planned: PlannedCase, device: Device) -> tuple[Tried, ...]:
        state, key = CaseState(planned=planned), planned.case.key
        self._telling.doing(f"verifying {key}")
        look.verify(state)
        self._telling.doing(f"timing {key}")
        load = HostLoad(cores=count_cores(), before=None, rounds=(look.time(state),))
        environment = self._environment_of(look, state, device, load)
        self._telling.doing(f"counting what {key} launches")
        look.profile(state)
        run = Run(run_id="", started_at=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"), commit=None)
        outcomes = [state.outcome(entry) for entry in planned.entries]
        records = to_records(run, load.put_in(environment), outcomes)
        # A kernel that is interpreted has another hash than it has in a run.
        return self._compared([replace(record, implementation_hash=None) for record in records])

    def _environment_of(self, look: QuickLook, state: CaseState, device: Device, load: HostLoad) -> Environment:
        """Return the environment, with ceilings where a case has a roof; what was never timed needs no more than the device."""
        if not state.rounds:
            return self._environment or _bare(device)
        if self._environment is None:
            self._environment = look.probe(ceilings=False)
        if state.planned.operator.costs and not self._environment.rest["observed"]["ceilings"]:
            kept = self._ceilings.put_in(self._environment)
            self._environment = kept or look.probe(ceilings=True)
            alone = not self._environment.rest["observed"].get("foreign_processes")
            if kept is None and alone and not load.disturbs(device.kind):
                self._ceilings.keep(self._environment)
        return self._environment

    def _compared(self, records: Sequence[Record]) -> tuple[Tried, ...]:
        last = self._tries.read()
        stored = self._stored.of([series for record in records if (series := Series.of(record))])
        self._tries.keep(
            record for record in records if p50_of(record) and not withheld(record.device_kind, record.environment)
        )

        def tried(record: Record) -> Tried:
            series = Series.of(record)
            before, run = (found.get(series) if series else None for found in (last, stored))
            return Tried(
                record=record,
                last=beside(record, before) if before else None,
                stored=beside(record, run) if run else None,
            )

        return tuple(map(tried, records))


def _bare(device: Device) -> Environment:
    unknown: dict[str, Any] = {"driver": None, "cuda": None, "cudnn": None, "triton": None}
    return Environment(device=device, torch="", python="", hostname="", cpu="", **unknown)
