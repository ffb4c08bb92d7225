"""What the store says of units: which it has, and on which GPU each series was measured last. No more files are opened than that takes."""

import datetime as dt
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pairbench.analyze.fleet.queue import Last
from pairbench.analyze.fleet.stored import COLUMNS, StoredRun, whole_runs
from pairbench.errors import EmptyStoreError
from pairbench.model.environment import device_slug
from pairbench.model.outcome import Status
from pairbench.model.unit import Unit, unit_of
from pairbench.plan import Selection, parse_selection
from pairbench.store.history import read_distinct
from pairbench.store.location import RunFile, StoreLocation
from pairbench.store.reading import dataset_files, stored_files

_STEPS = (16, 112, 896)
"""Files that are opened at a time, the newest first; a series that is in none of them is taken for new."""
_DEVICE = ("started_at", "suite", "case", "status", "device_kind", "device_name", "device_uuid", "hostname")


def runs_of(place: StoreLocation, units: Iterable[Unit]) -> dict[str, list[StoredRun]]:
    """Return by the unit's key the whole runs that a store has of some units. It is listed once; other runs' files stay closed.

    Raises:
        StoreFailedError: it cannot be listed, or does not give a file.
    """
    keys = {unit.key for unit in units}
    there = stored_files(place, "records")
    files = there.of_runs({run_id for run_id in there.run_ids if unit_of(run_id) in keys}).files
    unfinished = {file.run_id for file in files if file.is_part} - {file.run_id for file in files if not file.is_part}
    return whole_runs(_rows(place, COLUMNS, [file for file in files if file.run_id not in unfinished]))


def last_devices(place: StoreLocation, units: Collection[Unit], models: Collection[str] = ()) -> dict[Unit, Last]:
    """Return the device that measured each unit's series last, of those that the unit asks for.

    Args:
        place: The store.
        units: What is asked for.
        models: The folders of device models that are worth a look; all where there are none.

    Raises:
        StoreFailedError: the store cannot be listed, or does not give a file.
    """
    selections = {unit: [parse_selection(text) for text in unit.operators] for unit in units}
    try:
        files = [file for file in dataset_files(place, "records").files if not models or file.device_slug in models]
    except EmptyStoreError:
        return {}
    files.sort(key=lambda file: file.run_id, reverse=True)
    seen: dict[str, dt.datetime] = {}
    found: dict[Unit, tuple[str, str]] = {}
    begin = 0
    for step in _STEPS:
        some = files[begin : begin + step]
        begin += step
        rows = sorted(_rows(place, _DEVICE, some), key=lambda row: row["started_at"] or "", reverse=True)
        for row in rows:
            if row["status"] == Status.MEASURED and (at := _moment(row["started_at"])) is not None:
                seen.setdefault(_identity(row), at)
        missing = [unit for unit in selections if unit not in found]
        for unit in missing:
            newest = next((row for row in rows if _measured(row, unit, selections[unit])), None)
            if newest is not None:
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


def _rows(place: StoreLocation, columns: tuple[str, ...], files: list[RunFile]) -> Iterator[dict[str, Any]]:
    if not files:
        return
    for rows in read_distinct(place, columns, files).value.values():
        yield from rows


def _moment(text: str | None) -> dt.datetime | None:
    try:
        moment = dt.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
