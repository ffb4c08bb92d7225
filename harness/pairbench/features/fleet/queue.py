"""Which host measures which unit, and which units a store has already.

A series stays on its GPU, and a host has one unit at a time. No more files of the store are opened than that takes.
"""

import datetime as dt
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pairbench.errors import EmptyStoreError
from pairbench.model.environment import device_slug
from pairbench.model.outcome import NOT_REACHED, OUT_OF_BUDGET, Status
from pairbench.model.unit import Host, Offer, Unit, unit_of
from pairbench.plan import Selection, parse_selection
from pairbench.store.location import RunFile, StoreLocation
from pairbench.store.reader import read_distinct
from pairbench.store.reading import dataset_files, stored_files

COLUMNS = ("run_id", "environment_hash", "reason")


WholeRuns = dict[str, dict[str, set[str]]]
"""Runs that have all that they were to measure, oldest first, with their environments, by the key of their unit."""


def whole_runs(rows: Iterable[Mapping[str, str | None]]) -> WholeRuns:
    """Return complete runs from rows with `COLUMNS` of finished runs."""
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


AWAY = dt.timedelta(days=1)  # the time after which another GPU of the model takes over an absent GPU's series


@dataclass(frozen=True, kw_only=True)
class Last:
    identity: str
    host: str
    seen: dt.datetime  # when the device measured anything last, as far as the store knows


def requirement(unit: Unit, last: Last | None, present: Collection[str], now: dt.datetime) -> str:
    """Return the device that a unit needs: the one that measured its series last, else the one it names.

    GPUs of one model differ by some percent, so a series that goes from one GPU to another moves. The pin is soft: a device that has
    been away for a day is given up.
    """
    if last is None or (last.identity not in present and now - last.seen >= AWAY):
        return unit.device
    return last.identity


class Waiting:
    """Units that wait for a host, in one line for each device that they need, so that a host's next unit is found at once."""

    def __init__(
        self, units: Iterable[Unit], last: Mapping[Unit, Last], present: Collection[str], now: dt.datetime
    ) -> None:
        self._last, self._present, self._now = last, present, now
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


_STEPS = (16, 112, 896)
"""Numbers of files opened at a time, the newest first; a series in none of them counts as new."""
_DEVICE = ("started_at", "suite", "case", "status", "device_kind", "device_name", "device_uuid", "hostname")


def runs_of(store: StoreLocation, units: Iterable[Unit]) -> WholeRuns:
    """Return by the unit's key the complete runs of some units. The store is listed once; other runs' files stay closed."""
    keys = {unit.key for unit in units}
    there = stored_files(store, "records")
    files = there.of_runs({run_id for run_id in there.run_ids if unit_of(run_id) in keys}).files
    unfinished = {file.run_id for file in files if file.is_part} - {file.run_id for file in files if not file.is_part}
    return whole_runs(_rows(store, COLUMNS, [file for file in files if file.run_id not in unfinished]))


def last_devices(store: StoreLocation, units: Collection[Unit], models: Collection[str] = ()) -> dict[Unit, Last]:
    """Return the device that measured each unit's series last, among the devices that the unit allows and the given models."""
    selections = {unit: [parse_selection(text) for text in unit.operators] for unit in units}
    try:
        files = [file for file in dataset_files(store, "records").files if not models or file.device_slug in models]
    except EmptyStoreError:
        return {}
    files.sort(key=lambda file: file.run_id, reverse=True)
    seen: dict[str, dt.datetime] = {}
    found: dict[Unit, tuple[str, str]] = {}
    begin = 0
    for step in _STEPS:
        some = files[begin : begin + step]
        begin += step
        rows = sorted(_rows(store, _DEVICE, some), key=lambda row: row["started_at"] or "", reverse=True)
        for row in rows:
            if row["status"] == Status.MEASURED and (at := _moment(row["started_at"])) is not None:
                seen.setdefault(_identity(row), at)
        for unit in [unit for unit in selections if unit not in found]:
            if newest := next((row for row in rows if _measured(row, unit, selections[unit])), None):
                found[unit] = (_identity(newest), newest["hostname"])
        if len(found) == len(selections) or not some:
            break
    return {
        unit: Last(identity=identity, host=host, seen=seen[identity])
        for unit, (identity, host) in found.items()
        if identity in seen
    }


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


def _moment(text: str | None) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
