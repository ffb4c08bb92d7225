"""Short errands of a worker: find devices and operators, read an environment, try what a device can do."""

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairbench.errors import PairbenchError
from pairbench.execute.parent.pool import ANY, KILLED, WorkerContext, WorkerEndedError, WorkerProcess, Workers
from pairbench.execute.protocol import Describe, DescribedSuite, Diagnose, FindDevices, FoundDevices, Probe
from pairbench.model.environment import Device, Environment, Finding
from pairbench.model.plan import BrokenSuite, OperatorDescription


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What there is to measure, and on what."""

    devices: tuple[Device, ...]
    operators: tuple[OperatorDescription, ...]
    broken: tuple[BrokenSuite, ...]


class Scout(AbstractContextManager["Scout"]):
    """Finds devices and loads suites in a worker, where nothing that a suite does at import can harm this process."""

    def __init__(self, context: WorkerContext) -> None:
        self.workers = Workers(context, ANY)

    def __exit__(self, *_: object) -> None:
        self.workers.close()

    def devices(self) -> tuple[Device, ...]:
        """Return the GPUs, and the CPU last; a PairbenchError where torch cannot be imported."""
        try:
            found = _answer(self.workers, FindDevices(), "finds the devices")
        except WorkerEndedError as error:
            raise PairbenchError(f"no device can be found: a worker that imports torch {error.reason}") from error
        assert isinstance(found, FoundDevices)
        return found.devices

    def describe(self, suite: str, path: Path, *, deep: bool = False) -> tuple[OperatorDescription, ...] | BrokenSuite:
        """Return the operators of a suite file, or why there are none; with `deep`, descriptions have a `code_digest`."""
        return _describe(self.workers, Describe(suite=suite, path=path, deep=deep))


def describe_suites(
    workers: Workers, suites: Iterable[tuple[str, Path]]
) -> tuple[tuple[OperatorDescription, ...], tuple[BrokenSuite, ...]]:
    """Load suites: return their operators, and why some could not be loaded."""
    operators: list[OperatorDescription] = []
    broken: list[BrokenSuite] = []
    for suite, path in suites:
        description = _describe(workers, Describe(suite=suite, path=path))
        if isinstance(description, BrokenSuite):
            broken.append(description)
        else:
            operators += description
    return tuple(operators), tuple(broken)


def _describe(workers: Workers, job: Describe) -> tuple[OperatorDescription, ...] | BrokenSuite:
    try:
        description = _answer(workers, job, f"loads {job.path.name}")
    except WorkerEndedError as error:
        return BrokenSuite(suite=job.suite, reason=f"suite {job.path.name}: loading it {error.reason}")
    assert isinstance(description, DescribedSuite | BrokenSuite)
    if isinstance(description, BrokenSuite):
        return description
    # Where it is, is known here: a name that is no UTF-8 does not come through a message, and whatever answers is not to say.
    return tuple(replace(operator, suite=job.suite, path=str(job.path)) for operator in description.operators)


def _answer(workers: Workers, job: FindDevices | Describe | Probe, errand: str) -> Any:
    """Return the one answer to a job. A worker that was killed, perhaps by no fault of its own, is started once more, and a line says so."""
    try:
        (answer,) = workers.get().request(job)
    except WorkerEndedError as error:
        if not error.reason.startswith(KILLED):
            raise
        sys.stderr.write(f"pairbench: a worker that {errand} is started again: {error.reason}\n")
        try:
            (answer,) = workers.get().request(job)
        except WorkerEndedError as again:
            again.reason += ", and so was the one that was started in its place" if again.reason == error.reason else ""
            raise
    return answer


def survey(context: WorkerContext, suites: tuple[tuple[str, Path], ...]) -> Survey:
    with Scout(context) as scout:
        devices = scout.devices()
        operators, broken = describe_suites(scout.workers, suites)
    return Survey(devices=devices, operators=operators, broken=broken)


def diagnose_device(context: WorkerContext, device: Device) -> tuple[Finding, ...]:
    """Try everything that measuring on a device depends on."""
    findings: list[Finding] = []
    try:
        with WorkerProcess(context, device) as worker:
            findings.extend(worker.request(Diagnose()))
    except WorkerEndedError as error:
        findings.append(Finding(name="Device", state="missing", detail=f"a worker on {device.selector} {error.reason}"))
    return tuple(findings)


def probe_environment(context: WorkerContext, device: Device) -> Environment:
    """Return a device's environment, read in a worker of its own; see `probe_in`."""
    with Workers(context, device) as workers:
        return probe_in(workers, device)


def probe_in(workers: Workers, device: Device, *, ceilings: bool = True) -> Environment:
    """Return a device's environment, with measured ceilings unless not wanted; a PairbenchError where the device cannot be used."""
    try:
        environment = _answer(workers, Probe(ceilings=ceilings), f"reads the environment of {device.selector}")
    except WorkerEndedError as error:
        raise PairbenchError(
            f"{device.selector} ({device.name}) cannot be used: a worker on it {error.reason}"
        ) from error
    assert isinstance(environment, Environment)
    return environment
