"""Short errands of a worker: find devices and operators, read an environment, try what a device can do.

Suites are loaded in a worker of `ANY` device, where nothing that they do at import can harm this process.
"""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairbench.errors import PairbenchError
from pairbench.execute.parent.pool import ANY, KILLED, WorkerContext, WorkerEndedError, WorkerProcess, Workers
from pairbench.execute.protocol import Describe, DescribedSuite, Diagnose, FindDevices, FoundDevices, Probe
from pairbench.model.environment import Device, Environment, Finding
from pairbench.model.plain import Value
from pairbench.model.plan import BrokenSuite, OperatorDescription


class Survey(Value):
    """What there is to measure, and on what."""

    devices: tuple[Device, ...]
    operators: tuple[OperatorDescription, ...]
    broken: tuple[BrokenSuite, ...]


def find_devices(workers: Workers) -> tuple[Device, ...]:
    """Return the GPUs, and the CPU last; a PairbenchError where torch cannot be imported."""
    try:
        found: FoundDevices = _answer(workers, FindDevices(), "finds the devices")
    except WorkerEndedError as error:
        raise PairbenchError(f"no device can be found: a worker that imports torch {error.reason}") from error
    return found.devices


Described = tuple[tuple[OperatorDescription, ...], tuple[BrokenSuite, ...]]
"""The operators of suites, and why some could not be loaded."""


def describe_suites(workers: Workers, suites: Iterable[tuple[str, Path]]) -> Described:
    found = [describe(workers, suite, path) for suite, path in suites]
    operators = (operator for several in found if not isinstance(several, BrokenSuite) for operator in several)
    return tuple(operators), tuple(one for one in found if isinstance(one, BrokenSuite))


def describe(
    workers: Workers, suite: str, path: Path, *, deep: bool = False
) -> tuple[OperatorDescription, ...] | BrokenSuite:
    """Return the operators of a suite file, or why there are none; with `deep`, descriptions have a `code_digest`."""
    try:
        job = Describe(suite=suite, path=path, deep=deep)
        found: DescribedSuite | BrokenSuite = _answer(workers, job, f"loads {path.name}")
    except WorkerEndedError as error:
        return BrokenSuite(suite=suite, reason=f"suite {path.name}: loading it {error.reason}")
    if isinstance(found, BrokenSuite):
        return found
    # Where it is, is known here: a name that is no UTF-8 does not come through a message, and whatever answers is not to say.
    return tuple(replace(operator, suite=suite, path=str(path)) for operator in found.operators)


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
    with Workers(context, ANY) as workers:
        devices = find_devices(workers)
        operators, broken = describe_suites(workers, suites)
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
        found: Environment = _answer(workers, Probe(ceilings=ceilings), f"reads the environment of {device.selector}")
    except WorkerEndedError as error:
        why = f"a worker on it {error.reason}"
        raise PairbenchError(f"{device.selector} ({device.name}) cannot be used: {why}") from error
    return found
