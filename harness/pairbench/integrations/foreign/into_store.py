"""Puts imported runs into a store, each once."""

import re
from itertools import groupby
from pathlib import Path

from pairbench.integrations.foreign.records import ImportedRun
from pairbench.model.environment import device_slug
from pairbench.model.record import Record, Samples
from pairbench.store.location import StoreLocation
from pairbench.store.writer import RunWriter

_IMPORTED = re.compile(r"\d{8}T\d{6}-([0-9a-f]{16})")


class Intake:
    """A store that takes runs in."""

    def __init__(self, store: str | Path) -> None:
        """Find out which runs are there.

        Raises:
            StoreError: it cannot be listed.
        """
        self._place = StoreLocation.of(store)
        self._known: dict[str, str] = {}
        for file in self._place.files("records"):
            self._add(file.run_id)

    def take(self, run: ImportedRun) -> str | None:
        """Store a run; return the id that it has in the store already, where it is there.

        Raises:
            StoreError: it cannot be written.
        """
        if there := self._known.get(run.run_id) or self._known.get(_content(run.run_id)):
            return there
        samples = {name: tuple(rows) for name, rows in groupby(sorted(run.samples, key=_device), key=_device)}
        for name, rows in groupby(sorted(run.records, key=_device), key=_device):
            records = tuple(rows)
            slug = device_slug(name, records[0].device_kind)
            month = f"{run.run_id[:4]}-{run.run_id[4:6]}"
            with RunWriter(self._place, run_id=run.run_id, device_slug=slug, month=month) as writer:
                writer.append_samples(samples.get(name, ()))
                writer.append_records(records)
        self._add(run.run_id)
        return None

    def _add(self, run_id: str) -> None:
        self._known[run_id] = run_id
        if content := _content(run_id):
            self._known[content] = run_id


def _content(run_id: str) -> str:
    """Return what an id says of the file that a run was imported from: the same file at another time is the same run."""
    match = _IMPORTED.fullmatch(run_id)
    return match[1] if match else ""


def _device(row: Record | Samples) -> str:
    return row.device_name
