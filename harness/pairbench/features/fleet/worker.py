"""A host's worker: examined when it starts, watched for other work between units, and back whenever the scheduler is."""

import asyncio
import itertools
import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pairbench import __version__
from pairbench.config import Config
from pairbench.execute.parent.host_load import LoadMeter, count_cores
from pairbench.execute.parent.scout import diagnose_device, probe_environment, survey
from pairbench.features.fleet.dask import NO_HTTP, checked_address, configured, is_loopback, need_dask, security_of
from pairbench.features.fleet.unit import PLUGIN, Commits, UnitContext
from pairbench.model.environment import Finding, HostLoad
from pairbench.model.unit import Host, Offer
from pairbench.own_folders import held_folder
from pairbench.workflow.setup import open_context, pick_devices


@dataclass(frozen=True, kw_only=True)
class Examined:
    name: str
    offers: tuple[Offer, ...]
    findings: tuple[tuple[str, Finding], ...]  # what `pairbench doctor` finds, by the device's selector


def examine_host(config: Config, devices: str) -> Examined:
    """Examine the devices of this host as `pairbench doctor` does."""
    with open_context(config) as context:
        known = survey(context, ()).devices
        words = devices.split(",")
        chosen = list(dict.fromkeys(device for word in words for device in pick_devices(word.strip(), known)))
        offers = tuple(
            Offer(
                identity=device.uuid or f"cpu-{platform.node()}",
                kind=device.kind,
                model=device.slug,
                selector=device.selector,
                environment_hash=probe_environment(context, device).hash,
            )
            for device in chosen
        )
        findings = [(device.selector, found) for device in chosen for found in diagnose_device(context, device)]
    host = platform.node()
    part = {"auto", "all"}.isdisjoint(words) and len(chosen) < len(known) - (known[0].kind == "cuda")
    return Examined(name=f"{host} {devices}" if part else host, offers=offers, findings=tuple(findings))


class BusyWatch:
    """Tells between units whether other processes use the processors or GPUs of this host."""

    def __init__(self, offers: tuple[Offer, ...]) -> None:
        self._offers = offers
        self.begin()

    def begin(self) -> None:
        """Begin anew, after a unit that kept the host busy itself."""
        self._meter = LoadMeter()

    def held_up(self) -> str | None:
        """Return which other work was seen since the last call, or None."""
        load = HostLoad(cores=count_cores(), before=self._meter.foreign_cores())
        reasons = [load.disturbs(kind) for kind in sorted({offer.kind for offer in self._offers})]
        if why := next(filter(None, reasons), None):
            return why.partition(":")[0]
        gpus = {offer.identity for offer in self._offers if offer.kind == "cuda"}
        found = sorted(pid for gpu, pid in compute_processes() if gpu in gpus) if gpus else []
        return f"processes {', '.join(found[:5])} compute on its GPU" if found else None


def compute_processes() -> list[tuple[str, str]]:
    """Return the pairs of GPU and process that `nvidia-smi` tells, for NVML would stay loaded in the worker; empty without it."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    query = [command, "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return processes_of(done.stdout) if done.returncode == 0 else []


def processes_of(text: str) -> list[tuple[str, str]]:
    """Return the pairs in the output of `nvidia-smi --query-compute-apps=gpu_uuid,pid`."""
    pairs = (tuple(part.strip() for part in line.split(",")) for line in text.splitlines())
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()]


HOST = "HOST"  # the resource of which every worker has one, and every unit takes one
_KNOWN, _HELD_UP = "pairbench", "pairbench_held_up"
_WATCH_S = 5.0


@dataclass(frozen=True, kw_only=True)
class WorkerChoice:
    address: str
    certificates: Path | None
    insecure: bool
    devices: str  # values of `--device`, with commas between them
    python: str
    ignores_load: bool


def run_worker(config: Config, choice: WorkerChoice, notify: Callable[[str], None]) -> None:
    """Take units until SIGINT or SIGTERM. A running unit then ends in order, and what it finished is in the store."""
    need_dask()
    address = checked_address(choice.address, choice.certificates, insecure=choice.insecure)
    security = security_of(choice.certificates)
    examined = examine_host(config, choice.devices)
    for selector, found in examined.findings:
        if found.state != "ok":
            notify(f"{selector}: {found.name}: {found.detail}{f'; {found.advice}' if found.advice else ''}")
    with configured(), held_folder() as logs:
        asyncio.run(_Worker(examined, choice, address, security, logs, notify).serve())


def resources_of(offers: tuple[Offer, ...]) -> dict[str, float]:
    """Return a worker's resources for Dask: one host, and one of each device by its model, its kind and its identity."""
    return {HOST: 1.0, **{name: 1.0 for offer in offers for name in (offer.identity, offer.model, offer.kind)}}


class _Worker:
    def __init__(
        self,
        examined: Examined,
        choice: WorkerChoice,
        address: str,
        security: Any,
        logs: Path,
        notify: Callable[[str], None],
    ) -> None:
        self._examined, self._choice, self._notify = examined, choice, notify
        self._address, self._security = address, security
        self._watch = None if choice.ignores_load else BusyWatch(examined.offers)
        self._held_up: str | None = None
        self.context = UnitContext(
            python=choice.python, commits=Commits(Path.cwd()), logs=logs, held_up=lambda: self._held_up
        )
        self._ended = asyncio.Event()

    async def serve(self) -> None:
        """Join the scheduler, and join again whenever it comes back: Dask's workers do not survive its end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._ended.set)
        ended = asyncio.ensure_future(self._ended.wait())
        for again in itertools.count():
            if self._ended.is_set():
                return
            worker = self._make(again)
            starting = asyncio.ensure_future(self._start(worker))
            await asyncio.wait({starting, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done() or self._ended.is_set() or not starting.result():
                starting.cancel()
                await worker.close(executor_wait=False)
                await asyncio.sleep(0.2)
                continue
            self._notify(f"{self._examined.name} takes units from {self._address}")
            watching = asyncio.ensure_future(self._look(worker))
            gone = asyncio.ensure_future(worker.finished())
            await asyncio.wait({gone, ended}, return_when=asyncio.FIRST_COMPLETED)
            watching.cancel()
            await worker.close()  # waits for the unit that is under way, which sees it and ends
            if not self._ended.is_set():
                self._notify(f"the scheduler at {self._address} is gone; waiting for it")

    async def _start(self, worker: Any) -> bool:
        try:
            await worker
        except (OSError, ValueError, RuntimeError, TimeoutError):
            return False
        return bool(worker.status.name == "running")

    def _make(self, again: int) -> Any:
        from distributed import Worker, WorkerPlugin

        class Plugin(WorkerPlugin):  # type: ignore[misc]
            name = PLUGIN
            context = self.context

        offers = [asdict(offer) for offer in self._examined.offers]
        known = {"version": __version__, "host": self._examined.name, "offers": offers}
        protocol = self._address.partition("://")[0]
        return Worker(
            self._address,
            nthreads=1,
            memory_limit=0,
            resources=resources_of(self._examined.offers),
            # A worker that comes back before it was missed may not have the name of the one before.
            name=f"{self._examined.name} {os.getpid()}.{again}",
            host=f"{protocol}://127.0.0.1" if is_loopback(self._address) else None,
            security=self._security,
            dashboard=False,
            dashboard_address=NO_HTTP,
            local_directory=str(self.context.logs),
            plugins=(Plugin(),),
            startup_information={_KNOWN: lambda _: known},
            metrics={_HELD_UP: lambda _: self._held_up},
        )

    async def _look(self, worker: Any) -> None:
        """Watch between units for other work on this host; while there is some, Dask gives it no unit."""
        from distributed.core import Status

        while self._watch is not None:
            await asyncio.sleep(_WATCH_S)
            if worker.state.executing_count:
                self._watch.begin()
                continue
            found = await asyncio.to_thread(self._watch.held_up)
            if found != self._held_up:
                words = f": {found}; it takes no unit" if found else " takes units again"
                self._notify(f"{self._examined.name}{words}")
            self._held_up = found
            if worker.status in (Status.running, Status.paused):
                worker.status = Status.paused if found else Status.running


def hosts_of(workers: dict[str, dict[str, Any]]) -> tuple[Host, ...]:
    """Return the hosts of a fleet from the scheduler's description of its workers; workers of others are left out."""
    hosts = []
    for address, worker in sorted(workers.items(), key=lambda item: str(item[1]["name"])):
        known = worker.get(_KNOWN)
        if not isinstance(known, dict):
            continue
        held_up = worker["metrics"].get(_HELD_UP)
        if known["version"] != __version__:
            held_up = f"it has pairbench {known['version']}, and this command is of {__version__}"
        elif held_up is None and worker["status"] != "running":
            held_up = f"its worker is {worker['status']}"
        offers = tuple(Offer(**offer) for offer in known["offers"])
        hosts.append(Host(name=known["host"], address=address, offers=offers, held_up=held_up))
    return tuple(hosts)
