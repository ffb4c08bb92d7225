"""Short errands of a worker: find devices and operators, read an environment, try what a device can do."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pairbench.errors import PairbenchError
from pairbench.execute.parent.pool import ANY, WorkerContext, WorkerEndedError, WorkerProcess, Workers
from pairbench.execute.protocol import Describe, Diagnose, FindDevices, MeasureCeilings, Probe
from pairbench.model.environment import Device, Environment
from pairbench.model.finding import Finding
from pairbench.model.plan import BrokenSuite, OperatorDescription

Ceilings = dict[str, Any]
"""`ceilings` (GB/s and TFLOP/s by name), and `ceilings_at`, when they were measured: ISO 8601, UTC."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What there is to measure, and on what."""

    devices: tuple[Device, ...]
    """GPUs first, the CPU last."""
    operators: tuple[OperatorDescription, ...]
    broken: tuple[BrokenSuite, ...]


class Scout:
    """Finds devices and loads suites in a worker, where nothing that a suite does at import can harm this process."""

    def __init__(self, context: WorkerContext) -> None:
        self._workers = Workers(context, ANY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.close()

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs, and the CPU last.

        Raises:
            PairbenchError: torch cannot be imported.
        """
        try:
            (devices,) = self._workers.get().request(FindDevices())
        except WorkerEndedError as error:
            raise PairbenchError(f"no device can be found: a worker that imports torch {error.reason}") from error
        return tuple(devices)

    def describe(self, suite: str, path: Path, *, deep: bool = False) -> tuple[OperatorDescription, ...] | BrokenSuite:
        """Return the operators of a suite file, or why there are none.

        Args:
            suite: How records name it.
            path: Where it is.
            deep: Whether descriptions have a `code_digest`.
        """
        try:
            (description,) = self._workers.get().request(Describe(suite=suite, path=path, deep=deep))
        except WorkerEndedError as error:
            return BrokenSuite(suite=suite, reason=f"suite {path.name}: loading it {error.reason}")
        assert isinstance(description, tuple | BrokenSuite)
        return description


def survey(context: WorkerContext, suites: tuple[tuple[str, Path], ...]) -> Survey:
    """Find the devices and load the suites.

    Raises:
        PairbenchError: torch cannot be imported.
    """
    operators: list[OperatorDescription] = []
    broken: list[BrokenSuite] = []
    with Scout(context) as scout:
        devices = scout.devices()
        for suite, path in suites:
            description = scout.describe(suite, path)
            if isinstance(description, BrokenSuite):
                broken.append(description)
            else:
                operators += description
    return Survey(devices=devices, operators=tuple(operators), broken=tuple(broken))


def diagnose_device(context: WorkerContext, device: Device) -> tuple[Finding, ...]:
    """Try everything that measuring on a device depends on."""
    findings: list[Finding] = []
    try:
        with WorkerProcess(context, device) as worker:
            findings.extend(worker.request(Diagnose()))
    except WorkerEndedError as error:
        findings.append(Finding(name="Device", state="missing", detail=f"a worker on {device.selector} {error.reason}"))
    return tuple(findings)


def probe_environment(
    context: WorkerContext, device: Device, known: Callable[[Environment], Ceilings | None] = lambda _: None
) -> Environment:
    """Read a device's environment in a worker, and measure its ceilings.

    Args:
        context: What the workers share.
        device: Where.
        known: Gives the ceilings of an environment if they need not be measured, for which nobody asks without it.

    Raises:
        PairbenchError: the device cannot be used at all.
    """
    try:
        with WorkerProcess(context, device) as worker:
            (environment,) = worker.request(Probe())
            assert isinstance(environment, Environment)
            ceilings = known(environment)
            if ceilings is None:
                (measured,) = worker.request(MeasureCeilings())
                now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
                ceilings = {"ceilings": measured, "ceilings_at": now}
    except WorkerEndedError as error:
        raise PairbenchError(
            f"{device.selector} ({device.name}) cannot be used: a worker on it {error.reason}"
        ) from error
    observed = {**environment.rest["observed"], **ceilings}
    return replace(environment, rest={**environment.rest, "observed": observed})
