"""The machine that is measured on: what its devices can do, how busy its host is, and what it lacks."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from pairbench.config import Config
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.host_load import LoadMeter, count_cores
from pairbench.execute.parent.pool import WorkerContext, Workers, available_memory
from pairbench.execute.parent.scout import diagnose_device, probe_environment, probe_in, survey
from pairbench.model.environment import Device, Environment, Finding, HostLoad
from pairbench.store.user_cache import KeptCeilings
from pairbench.workflow.setup import open_context, pick_devices


class HostWatch:
    """Watches a host from the moment it is made; `before` is the load until timing begins."""

    def __init__(self, device: Device, notify: Callable[[str], None]) -> None:
        self._device = device
        self._notify = notify
        self._meter = LoadMeter()
        self._said = False
        self.before = HostLoad(cores=count_cores(), before=None)

    def begin(self, environment: Environment) -> HostLoad:
        """Report other work on the device and its host before timing begins, and return the host's load."""
        self.before = replace(self.before, before=self._meter.foreign_cores())
        self.end(self.before)
        observed = environment.rest.get("observed", {})
        beside = observed.get("foreign_processes_beside", {})
        for selector, foreign in {self._device.selector: observed.get("foreign_processes"), **beside}.items():
            if foreign:
                why = f"processes {foreign} compute on {selector} too; latencies will be far too long"
                self._notify(f"pairbench: {why}")
        return self.before

    def during(self, states: Iterable[CaseState], foreign_cores: Iterable[float | None]) -> HostLoad:
        """Return the load with what was seen while cases were timed, and the busy processors of others in each round."""
        readings = [timed.telemetry for state in states for timed in state.rounds]
        return replace(
            self.before,
            rounds=tuple(foreign_cores),
            performance_states=tuple(sorted({state for item in readings for state in item.performance_states})),
            foreign_processes=tuple(sorted({pid for item in readings for pid in item.foreign_processes})),
        )

    def end(self, load: HostLoad) -> None:
        """Report other work, once."""
        if not self._said and (why := load.disturbs(self._device.kind)):
            self._said = True
            self._notify(f"pairbench: {self._device.selector}: {why}")


def probe_device(
    context: WorkerContext, device: Device, watch: HostWatch, kept: KeptCeilings | None = None
) -> tuple[Environment, HostLoad]:
    """Return a device's environment and its host's load; ceilings come from the user's cache where they are known."""
    kept = kept or KeptCeilings()
    with Workers(context, device) as workers:
        bare = probe_in(workers, device, ceilings=False)
        known = kept.put_in(bare)
        environment = known or probe_in(workers, device)
    load = watch.begin(environment)
    alone = not environment.rest["observed"].get("foreign_processes")
    if known is None and alone and load.disturbs(device.kind) is None:
        kept.keep(environment)
    return environment, load


def examine(config: Config, wanted: str) -> list[dict[str, Any]]:
    """Return a row for each finding of `pairbench doctor`, device by device."""
    rows: list[dict[str, Any]] = []
    with open_context(config) as context:
        for device in pick_devices(wanted, survey(context, ()).devices):
            findings = [*_known(probe_environment(context, device)), *diagnose_device(context, device)]
            for one in findings:
                row = {"device": device.selector, "what": one.name, "state": one.state, "detail": one.detail}
                rows.append(row | {"advice": one.advice})
    return rows


def _known(environment: Environment) -> list[Finding]:
    ceilings = ", ".join(f"{name} {value:.4g}" for name, value in environment.rest["observed"]["ceilings"].items())
    versions = f"torch {environment.torch}, triton {environment.triton or 'none'}, Python {environment.python}"
    if environment.device.kind == "cuda":
        versions += f", CUDA {environment.cuda}, cuDNN {environment.cudnn}, driver {environment.driver or 'unknown'}"
    return [
        Finding(name="Device", state="ok", detail=environment.device.name),
        Finding(name="Versions", state="ok", detail=versions),
        Finding(name="Ceilings", state="ok", detail=ceilings),
        Finding(name="Host memory", state="ok", detail=f"{available_memory(1.0) / 2**30:.1f} GiB free"),
    ]
