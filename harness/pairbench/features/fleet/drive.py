"""Takes units through a fleet: one at a time to a host, and the next when it comes back.

A series stays on its GPU. The scheduler knows one unit of each host and may forget it. A unit that it forgot, or that was lost with its
worker, is looked up in the store, and measured again where the store lacks it. No more files of the store are opened than that takes.
"""

import contextlib
import datetime as dt
import itertools
import json
import queue
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pairbench.analyze.history.points import moment_of
from pairbench.errors import EmptyStoreError, PairbenchError
from pairbench.features.fleet.dask import METADATA, configured, security_of
from pairbench.features.fleet.worker import BUSY, HOST, hosts_of, run_unit
from pairbench.model.environment import device_slug
from pairbench.model.outcome import NOT_REACHED, OUT_OF_BUDGET, Status
from pairbench.model.plain import plain
from pairbench.model.unit import Host, Offer, Unit, UnitEnd, UnitResult, unit_of
from pairbench.plan import Selection, parse_selection
from pairbench.store.location import RunFile, StoreLocation
from pairbench.store.reader import read_distinct
from pairbench.store.reading import dataset_files, stored_files

COLUMNS = ("run_id", "environment_hash", "reason")
WholeRuns = dict[str, dict[str, set[str]]]  # the environments of complete runs, oldest first, by the key of their unit
AWAY = dt.timedelta(days=1)  # the time after which another GPU of the model takes over an absent GPU's series
_STEPS = (16, 112, 896)  # Numbers of files opened at a time, the newest first; a series in none of them counts as new
_DEVICE = ("started_at", "suite", "case", "status", "device_kind", "device_name", "device_uuid", "hostname")
_LOOK_S = 1.0  # seconds between two updates of the hosts
_GRACE_S = 90.0  # seconds after which a unit whose worker is invisible has surely ended: it notices that it is alone
_MOST_DEATHS = 5
_END_S = 40.0  # seconds that units have to end in order after an interruption


def whole_runs(rows: Iterable[Mapping[str, str | None]]) -> WholeRuns:
    """Return the complete runs among finished ones, from rows of these with the columns of `COLUMNS`."""
    environments: dict[str, set[str]] = {}
    cut_short = set()
    for row in rows:
        run_id = row["run_id"] or ""
        environments.setdefault(run_id, set()).add(row["environment_hash"] or "")
        if row["reason"] in (NOT_REACHED, OUT_OF_BUDGET):
            cut_short.add(run_id)
    whole: WholeRuns = {}
    for run_id in sorted(environments.keys() - cut_short):
        if key := unit_of(run_id):
            whole.setdefault(key, {})[run_id] = environments[run_id]
    return whole


def stored_units(units: Collection[Unit], runs: WholeRuns, hosts: Iterable[Host]) -> dict[Unit, str]:
    """Return the units with a run in an environment of the fleet, and that run; files without a commit may have changed since."""
    offers = [offer for host in hosts for offer in host.offers]
    stored = {}
    for unit in units:
        here = {offer.environment_hash for offer in offers if offer.serves(unit.device)}
        for run_id, environments in runs.get(unit.key, {}).items() if unit.commit else ():
            if environments & here:
                stored[unit] = run_id
    return stored


class Last(NamedTuple):
    identity: str
    host: str
    seen: dt.datetime  # when the device measured anything last, as far as the store knows


def requirement(unit: Unit, last: Last | None, present: Collection[str], now: dt.datetime) -> str:
    """Return the device that a unit needs: the one that measured its series last, else the one it names."""
    # GPUs of one model differ by some percent, so a series that goes from one GPU to another moves.
    if last is None or (last.identity not in present and now - last.seen >= AWAY):
        return unit.device
    return last.identity


class Waiting:
    """Units that wait for a host, in one line for each device that they need, so that a host's next unit is found at once."""

    def __init__(self, units: Iterable[Unit], last: dict[Unit, Last], there: Collection[str], now: dt.datetime) -> None:
        self._last, self._present, self._now = last, there, now
        self._lines: dict[str, deque[Unit]] = {}
        for unit in units:
            self._line(unit).append(unit)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def _line(self, unit: Unit) -> deque[Unit]:
        need = requirement(unit, self._last.get(unit), self._present, self._now)
        return self._lines.setdefault(need, deque())

    def units(self) -> list[Unit]:
        return [unit for line in self._lines.values() for unit in line]

    def put_back(self, unit: Unit) -> None:
        """Put a unit that came back without a result at the head of its line."""
        self._line(unit).appendleft(unit)

    def take(self, host: Host) -> tuple[Unit, Offer] | None:
        """Return the next unit for an idle host and its device, units that no other device can measure first; or None."""
        needs = [(offer.identity, offer) for offer in host.offers]
        needs += [(name, offer) for offer in host.offers for name in (offer.model, offer.kind)]
        return next(((line.popleft(), offer) for need, offer in needs if (line := self._lines.get(need))), None)

    def missing(self, hosts: Iterable[Host]) -> dict[str, int]:
        there = {name for host in hosts for offer in host.offers for name in (offer.identity, offer.model, offer.kind)}
        return {need: len(line) for need, line in self._lines.items() if line and need not in there}

    def give_up(self, need: str) -> list[Unit]:
        return list(self._lines.pop(need, ()))


def runs_of(store: StoreLocation, units: Iterable[Unit]) -> WholeRuns:
    """Return by the unit's key the complete runs of some units. The store is listed once; other runs' files stay closed."""
    keys = {unit.key for unit in units}
    there = stored_files(store, "records")
    files = there.of_runs({run_id for run_id in there.run_ids if unit_of(run_id) in keys}).files
    unfinished = {file.run_id for file in files if file.is_part} - {file.run_id for file in files if not file.is_part}
    return whole_runs(_rows(store, COLUMNS, [file for file in files if file.run_id not in unfinished]))


def last_devices(store: StoreLocation, units: Collection[Unit]) -> dict[Unit, Last]:
    selections = {unit: [parse_selection(text) for text in unit.operators] for unit in units}
    try:
        unread = iter(sorted(dataset_files(store, "records").files, key=lambda file: file.run_id, reverse=True))
    except EmptyStoreError:
        return {}
    seen: dict[str, float] = {}
    found: dict[Unit, tuple[str, str]] = {}
    for step in _STEPS:
        some = list(itertools.islice(unread, step))
        rows = sorted(_rows(store, _DEVICE, some), key=lambda row: row["started_at"] or "", reverse=True)
        for row in rows:
            if row["status"] == Status.MEASURED and (at := moment_of(row["started_at"])) is not None:
                seen.setdefault(_identity(row), at)
        for unit in [unit for unit in selections if unit not in found]:
            if newest := next((row for row in rows if _measured(row, unit, selections[unit])), None):
                found[unit] = (_identity(newest), newest["hostname"])
        if len(found) == len(selections) or not some:
            break
    times = {identity: dt.datetime.fromtimestamp(at, dt.UTC) for identity, at in seen.items()}
    return {unit: Last(one, host, times[one]) for unit, (one, host) in found.items() if one in times}


def _measured(row: dict[str, Any], unit: Unit, selections: Iterable[Selection]) -> bool:
    asked = (row["device_kind"], device_slug(row["device_name"], row["device_kind"]), _identity(row))
    if row["status"] != Status.MEASURED or not row["case"] or unit.device not in asked:
        return False
    operator = row["case"].partition("[")[0]
    return any(selection.takes_name(row["suite"], operator, row["case"]) for selection in selections)


def _identity(row: dict[str, Any]) -> str:
    return row["device_uuid"] or f"cpu-{row['hostname']}"


def _rows(store: StoreLocation, columns: tuple[str, ...], files: list[RunFile]) -> list[dict[str, Any]]:
    return [row for rows in read_distinct(store, columns, files).value.values() for row in rows] if files else []


@dataclass(kw_only=True)
class Progress:
    hosts: tuple[Host, ...] = ()
    flying: dict[str, Unit] = field(default_factory=dict)  # the unit of each host, by its worker's address
    results: list[UnitResult] = field(default_factory=list)
    waiting: int = 0
    seconds: float = 0.0  # seconds from the first unit to the last
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return 130
        if {result.end for result in self.results} & {UnitEnd.FAILED, UnitEnd.NOT_DONE}:
            return 4
        return int(any(Status(name).bad for result in self.results for name in result.statuses or ()))


@dataclass
class Drive:
    """Takes units through a fleet, which wait `patience_s` for an absent device, and as long for a scheduler."""

    address: str
    certificates: Path | None
    store: StoreLocation
    patience_s: float
    notify: Callable[[str], None]
    show: Callable[[Progress], None]  # called about once a second, and whenever a unit ends
    interrupted: threading.Event
    progress: Progress = field(default_factory=Progress)
    _client: Any = None
    _ended: queue.Queue[tuple[Any, Unit, Host, Offer]] = field(default_factory=queue.Queue)
    _waiting: Waiting = field(default_factory=lambda: Waiting((), {}, (), dt.datetime.now(dt.UTC)))
    _lost: list[tuple[Unit, Host, float]] = field(default_factory=list)  # units without a result, and since when
    _deaths: Counter[Unit] = field(default_factory=Counter)
    _futures: dict[str, Any] = field(default_factory=dict)
    _missing: dict[str, float] = field(default_factory=dict)
    _last: dict[Unit, Last] = field(default_factory=dict)
    _present: frozenset[str] = frozenset()
    _last_look: float = 0.0

    def run(self, units: Callable[[tuple[Host, ...]], Iterable[Unit]]) -> Progress:
        """Have units measured, which the fleet's hosts say for which devices, and return the result of each."""
        with configured(), contextlib.closing(self):
            self._connect()
            self._look()
            self._drive(dict.fromkeys(units(self.progress.hosts)))
        self.progress.interrupted = self.interrupted.is_set()
        return self.progress

    def _connect(self) -> None:
        from distributed import Client

        try:
            security = security_of(self.certificates)
            self._client = Client(self.address, security=security, timeout=self.patience_s, set_as_default=False)
            known = self._client.get_metadata([METADATA], default=None)
        except (OSError, TimeoutError, ValueError) as error:
            why = f"does not answer: {error}; start one with `pairbench fleet scheduler`"
            raise PairbenchError(f"scheduler {self.address} {why}") from error
        if known is None:
            why = "was not started by `pairbench fleet scheduler`: another one steals and repeats units"
            raise PairbenchError(f"scheduler {self.address} {why}")

    def close(self) -> None:
        if self._client is not None:
            with contextlib.suppress(OSError, TimeoutError):
                self._client.close(timeout=5)

    def _drive(self, units: dict[Unit, None]) -> None:
        progress = self.progress
        have = stored_units(units.keys(), runs_of(self.store, units), progress.hosts)
        progress.results += [UnitResult(unit=unit, end=UnitEnd.STORED, run_id=run_id) for unit, run_id in have.items()]
        left = [unit for unit in units if unit not in have]
        self._last = last_devices(self.store, left)
        self._waiting = Waiting(left, self._last, self._present, dt.datetime.now(dt.UTC))
        began = time.monotonic()
        while (self._waiting or self._futures or self._lost) and not self.interrupted.is_set():
            self._look()
            self._find_lost()
            for host in self.progress.hosts:
                if not host.held_up and host.address not in self._futures and (taken := self._waiting.take(host)):
                    self._send(host, *taken)
            self._give_up_missing()
            self._show()
            self._take_results()
        progress.seconds = time.monotonic() - began
        if self.interrupted.is_set():
            self._interrupt()
        self._show()

    def _look(self) -> None:
        """Update the hosts, at most once a second; there are none while the scheduler is away."""
        now = time.monotonic()
        if now - self._last_look < _LOOK_S:
            return
        self._last_look = now
        status = self._client.status
        if status == "closed":
            rest = "what was measured is in the store, and the same command goes on"
            raise PairbenchError(f"scheduler {self.address} was gone for {self.patience_s:.0f} s; {rest}")
        workers: dict[str, Any] = {}
        if status == "running":
            with contextlib.suppress(OSError, TimeoutError, AttributeError, ValueError):
                workers = dict(self._client.scheduler_info(n_workers=-1)["workers"])
        self.progress.hosts = hosts_of(workers)
        before = self._present
        self._present = frozenset(offer.identity for host in self.progress.hosts for offer in host.offers)
        if self._present != before:
            self._waiting = Waiting(self._waiting.units(), self._last, self._present, dt.datetime.now(dt.UTC))

    def _send(self, host: Host, unit: Unit, offer: Offer) -> None:
        text = json.dumps({"unit": plain(unit), "device": offer.selector, "store": self.store.address})
        try:
            future = self._client.submit(
                run_unit,
                text,
                # Its own each time: Dask answers with what it has of a key that it knows. And no argument is ever equal to one,
                # for Dask would put the result of that key in its place.
                key=f"pairbench-{secrets.token_hex(8)}",
                pure=False,
                # By what the device is, and never by a worker's name, which another one may not have after it.
                resources={HOST: 1, offer.identity: 1},
                # An address is never used again by another host within a look; the resources hold if it is.
                workers=[host.address],
                allow_other_workers=False,
            )
        except (OSError, RuntimeError, ValueError, AttributeError):
            self._waiting.put_back(unit)
            return
        self._futures[host.address] = future
        self.progress.flying[host.address] = unit
        future.add_done_callback(lambda done: self._ended.put((done, unit, host, offer)))

    def _take_results(self) -> None:
        """Wait for results, but no longer than until the hosts are due to be updated."""
        back = []
        with contextlib.suppress(queue.Empty):
            back.append(self._ended.get(timeout=_LOOK_S / 2))
            while True:
                back.append(self._ended.get_nowait())
        finished = [one[0] for one in back if one[0].status == "finished"]
        answers: dict[str, Any] = {}
        if finished:
            # All at once: one by one each waits for an answer of the scheduler and one of its host. None comes where the scheduler has gone
            # in this very moment, whatever Dask then raises.
            with contextlib.suppress(Exception):
                answers = dict(zip((one.key for one in finished), self._client.gather(finished), strict=True))
        for future, unit, host, offer in back:
            self._settle(future, answers.get(future.key), unit, host, offer)

    def _settle(self, future: Any, text: str | None, unit: Unit, host: Host, offer: Offer) -> None:
        if self._futures.get(host.address) is future:
            del self._futures[host.address]
            self.progress.flying.pop(host.address, None)
        if text is None:
            self._lose(future, unit, host)
            return
        future.release()
        answer = json.loads(text)
        if answer["end"] == BUSY:
            self._waiting.put_back(unit)
            return
        values = {name: answer.get(name) for name in ("reason", "run_id", "statuses", "log")}
        end, seconds = UnitEnd(answer["end"]), answer["seconds"]
        self._keep(UnitResult(unit=unit, end=end, host=host.name, device=offer.identity, seconds=seconds, **values))

    def _keep(self, result: UnitResult) -> None:
        if result.end is UnitEnd.NOT_DONE and not self.interrupted.is_set():
            self._waiting.put_back(result.unit)  # its worker was asked to end
            return
        self.progress.results.append(result)
        if result.end not in (UnitEnd.DONE, UnitEnd.STORED):
            where = f" at {result.host}" if result.host else ""
            self.notify(f"pairbench: {result.unit.name}{where}: {result.end}: {result.reason}")

    def _lose(self, future: Any, unit: Unit, host: Host) -> None:
        """Handle a unit without a result: its worker died, or the scheduler forgot it."""
        if future.status == "error":
            error = future.exception()
            if type(error).__name__ == "KilledWorker":
                self._deaths[unit] += 1
            elif type(error).__name__ != "NoValidWorkerError":
                why = f"{type(error).__name__}: {error}"
                self._keep(UnitResult(unit=unit, end=UnitEnd.FAILED, reason=why, host=host.name))
                return
        self._lost.append((unit, host, time.monotonic()))

    def _find_lost(self) -> None:
        """Look up lost units in the store, once they cannot be running any more."""
        if not self._lost or not self.progress.hosts:
            return
        now = time.monotonic()
        lost_at = {host.address for _, host, _ in self._lost}
        back = {host.name for host in self.progress.hosts if host.address not in lost_at}
        settled = [one for one in self._lost if one[1].name in back or now - one[2] > _GRACE_S]
        if not settled:
            return
        self._lost = [one for one in self._lost if one not in settled]
        units = [unit for unit, *_ in settled]
        have = stored_units(units, runs_of(self.store, units), self.progress.hosts)
        for unit, host, _ in settled:
            if unit in have:
                self._keep(UnitResult(unit=unit, end=UnitEnd.DONE, run_id=have[unit], host=host.name))
            elif self._deaths[unit] >= _MOST_DEATHS:
                why = f"its worker died {self._deaths[unit]} times"
                self._keep(UnitResult(unit=unit, end=UnitEnd.FAILED, reason=why, host=host.name))
            else:
                self._waiting.put_back(unit)

    def _give_up_missing(self) -> None:
        """Report devices that units wait for and no host has; give these units up after a while."""
        if self._client.status != "running":
            return
        now = time.monotonic()
        missing = self._waiting.missing(self.progress.hosts)
        self._missing = {need: self._missing.get(need, now) for need in missing}
        for need, since in self._missing.items():
            if since == now:
                units = "1 unit waits" if missing[need] == 1 else f"{missing[need]:,} units wait"
                self.notify(f"pairbench: {units} for {self._words(need)}")
            if now - since >= self.patience_s:
                for unit in self._waiting.give_up(need):
                    why = f"no host came with {self._words(need)}"
                    self._keep(UnitResult(unit=unit, end=UnitEnd.FAILED, reason=why))

    def _words(self, need: str) -> str:
        there = sorted({offer.model for host in self.progress.hosts for offer in host.offers})
        if (last := next((one for one in self._last.values() if one.identity == need), None)) is not None:
            seen = f"which measured their series last, at {last.seen:%Y-%m-%d %H:%M}, and is not here"
            return f"{need} of {last.host}, {seen}; when it has been away for a day another one takes over"
        return f"{need}, which no host has; there are {', '.join(there) or 'no hosts'}"

    def _interrupt(self) -> None:
        """Have units end in order on their hosts, and report those that were not done."""
        self.notify("pairbench: interrupted; waiting for the hosts to end what they are at")
        flying = dict(self.progress.flying)
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self._client.cancel(list(self._futures.values()), force=True)
        deadline = time.monotonic() + _END_S
        while flying and time.monotonic() < deadline and self._client.status == "running":
            time.sleep(0.3)
            with contextlib.suppress(OSError, TimeoutError, AttributeError):
                workers = self._client.scheduler_info(n_workers=-1)["workers"]
                busy = {at for at, one in workers.items() if one["metrics"]["task_counts"].get("cancelled")}
                early = time.monotonic() < deadline - _END_S + 2
                flying = {at: unit for at, unit in flying.items() if at in busy or early}
        left = [*self.progress.flying.values(), *(unit for unit, *_ in self._lost), *self._waiting.units()]
        self.progress.flying.clear()
        have = stored_units(left, runs_of(self.store, left), self.progress.hosts)
        for unit in dict.fromkeys(left):
            end, reason = (UnitEnd.DONE, None) if unit in have else (UnitEnd.NOT_DONE, "interrupted")
            self.progress.results.append(UnitResult(unit=unit, end=end, reason=reason, run_id=have.get(unit)))

    def _show(self) -> None:
        self.progress.waiting = len(self._waiting) + len(self._lost)
        self.show(self.progress)
